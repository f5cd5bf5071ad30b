package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestARaisedShareOfACapOfEachWakesItsWaiters (law W): the cap of every downstream that has none of its own, over two partitions, is
// raised by an edit, which comes into force by shares. Jobs once waited until one of those before them had ended.
func TestARaisedShareOfACapOfEachWakesItsWaiters(t *testing.T) {
	t.Parallel()
	const parts, before, after = 2, 4, 12
	s, err := openMany(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t), Partitions: parts})
	check(t, err)
	edit := func(version int64, limit int) {
		t.Helper()
		check(t, s.PutPolicy(t.Context(), store.PolicyUpdate{
			Expected: version - 1, Version: version, Text: []byte("{}"), Window: 30 * time.Second, Edit: fmt.Sprint("edit-", version),
			Caps: []store.Cap{{Gate: store.DownstreamGate(store.Every), Limit: limit}},
		}))
	}
	edit(1, before)
	part := s.parts[0]
	jobs := make([]store.Candidate, after)
	for i, n := 0, 0; i < len(jobs); n++ {
		j := mail(fmt.Sprint("tenant-", n), "job")
		j.Downstream = "api"
		if s.PartitionOf(j.Tenant) == 0 {
			jobs[i] = store.Candidate{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}
			i++
		}
	}
	_, err = part.Register(t.Context(), "w", yardPool, len(jobs), time.Hour)
	check(t, err)
	_, err = part.Admit(t.Context(), 1, jobs)
	check(t, err)
	runs := func(want int) {
		t.Helper()
		census, err := part.Census(t.Context())
		check(t, err)
		if int(census.Ready) != want {
			t.Errorf("%d jobs are ready, want %d", census.Ready, want)
		}
	}
	runs(before / parts)
	edit(2, after)
	runs(before / parts) // Other partitions may still run more than their part.
	balancer := s.newBalancer()
	for range 3 {
		check(t, balancer.Step(t.Context()))
	}
	runs(after / parts)
}
