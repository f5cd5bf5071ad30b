package redisstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestFullRedisRefusesAndDrains: admission is refused with its reason and changes nothing, and everything else goes on.
func TestFullRedisRefusesAndDrains(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	s, err := openOnly(t.Context(), client, Config{})
	check(t, err)
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	admit := func(n int) admission.Verdict {
		j := admission.NewJob("acme", "mail", "t", nil)
		j.ID = "j" + strconv.Itoa(n)
		verdicts, err := s.Admit(t.Context(), 0, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
		check(t, err)
		return verdicts[0]
	}
	register := func(worker string) {
		_, err := s.Register(t.Context(), worker, pool, 3, time.Hour)
		check(t, err)
	}
	register("w1")
	for n := range 4 {
		check(t, admit(n).Err())
	}
	leases, err := s.Read(t.Context(), "w1", pool.ID(), 3, -1, false)
	check(t, err)

	check(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if v := admit(4); v.Decision != admission.Refused || v.Reason != admission.ReasonMemory {
		t.Errorf("a job for a full Redis: %+v", v)
	}
	var ends []store.Finish
	for i, outcome := range []store.Outcome{store.Complete, store.Retry, store.Kill} {
		l := leases[i]
		ends = append(ends, store.Finish{Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: outcome, Reason: "discarded"})
	}
	_, _, err = s.Finish(t.Context(), pool.ID(), "w1", ends)
	check(t, err)
	_, err = s.Promote(t.Context(), "s1", time.Second)
	check(t, err)
	check(t, s.Alive(t.Context(), "s1", time.Minute))
	_, _, err = s.SetGate(t.Context(), store.Gate{Name: store.TenantGate("acme"), Limit: 1, By: store.Intervention{Reason: "test"}})
	check(t, err)
	_, err = s.Heartbeat(t.Context(), "w1", time.Hour, "")
	check(t, err)
	register("w2")
	_, err = s.Reclaim(t.Context(), "w1")
	check(t, err)
	check(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err()) // A full Redis refuses MULTI, which Census needs.
	census, err := s.Census(t.Context())
	check(t, err)
	if !census.Conserved() || census.Accepted != 4 || census.Left["completed"] != 1 {
		t.Errorf("%+v", census)
	}
}
