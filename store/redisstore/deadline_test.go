package redisstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestDeadlinesPassOneByOne: a lane's timer stands for its head, and after it for the next; and the earliest deadline is
// dispatched first, whatever came first.
func TestDeadlinesPassOneByOne(t *testing.T) {
	t.Parallel()
	s, err := openOnly(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	start := time.Now()
	at := func(after time.Duration) { s.conn.Now = strconv.FormatInt(start.Add(after).UnixMicro(), 10) }
	at(0)
	var jobs []store.Candidate
	for _, seconds := range []int{4, 3, 2, 1} {
		j := admission.NewJob("acme", "mail", "t", nil)
		j.ID, j.Deadline = "j"+strconv.Itoa(seconds), start.Add(time.Duration(seconds)*time.Second)
		jobs = append(jobs, store.Candidate{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}})
	}
	_, err = s.Admit(t.Context(), 0, jobs)
	check(t, err)
	for passed := range 2 {
		at(time.Duration(passed)*time.Second + 1500*time.Millisecond)
		next, err := s.Promote(t.Context(), "s1", time.Second)
		check(t, err)
		census, err := s.Census(t.Context())
		check(t, err)
		if census.Died["expired"] != int64(passed+1) || next.Next != 500*time.Millisecond+time.Microsecond {
			t.Errorf("after %d deadlines: %+v, next in %s", passed+1, census, next.Next)
		}
	}
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	_, err = s.Register(t.Context(), "w", pool, 1, time.Minute)
	check(t, err)
	leases, err := s.Read(t.Context(), "w", pool.ID(), 1, -1, false)
	check(t, err)
	if len(leases) != 1 || leases[0].Job.ID != "j3" {
		t.Errorf("the first to run is %+v, want j3", leases)
	}
}
