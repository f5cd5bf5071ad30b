package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestAnyNeglectedShareIsFound: of more bounds than a call looks at, jobs wait at one that the first call does not come to. It was once
// left as it is while the first partition's scheduler was away.
func TestAnyNeglectedShareIsFound(t *testing.T) {
	t.Parallel()
	const bounds = 1500
	s, err := openMany(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t), Partitions: 2})
	check(t, err)
	u := store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: 30 * time.Second, Edit: t.Name()}
	for i := range bounds {
		u.Caps = append(u.Caps, store.Cap{Gate: store.DownstreamGate(fmt.Sprint("api-", i)), Limit: 2})
	}
	check(t, s.PutPolicy(t.Context(), u))
	part, balancer := s.parts[1], s.newBalancer()
	if balancer.Neglected(t.Context(), 1, time.Minute) {
		t.Fatal("shares are neglected before there is a job")
	}
	page, _, err := redisconn.Client(part.conn).HScan(t.Context(), part.conn.Partition.Base()+"shares", 0, "", 200).Result()
	check(t, err)
	var jobs []store.Candidate
	for n := 0; len(jobs) < 2; n++ {
		tenant := fmt.Sprint("tenant-", n)
		if s.PartitionOf(tenant) != 1 {
			continue
		}
		j := mail(tenant, "job")
		for i := 0; slices.Contains(page, string(store.DownstreamGate(j.Downstream))) || j.Downstream == ""; i++ {
			j.Downstream = fmt.Sprint("api-", i)
		}
		jobs = append(jobs, store.Candidate{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}})
	}
	_, err = part.Register(t.Context(), "w", yardPool, 10, time.Hour)
	check(t, err)
	_, err = part.Admit(t.Context(), 1, jobs)
	check(t, err)
	if !balancer.Neglected(t.Context(), 1, time.Minute) {
		t.Errorf("a job waits for a share of %s, and nobody has looked", jobs[0].Job.Downstream)
	}
}
