package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestOnlyWhatEndsAJobTruesUpItsCost: of a job that was cancelled while its worker had not heard of it, that comes back or is handed back the
// reservation stands, whatever the worker says that it has cost.
func TestOnlyWhatEndsAJobTruesUpItsCost(t *testing.T) {
	t.Parallel()
	limits := &[admission.Levels]admission.Limit{}
	for level := range limits {
		limits[level] = admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 100}
	}
	for name, c := range map[string]struct {
		outcome   store.Outcome
		cancelled bool
		ended     store.Ended
		spent     admission.Tokens
	}{
		"done": {store.Complete, false, store.EndedDone, 4}, "dead": {store.Kill, false, store.EndedDead, 4}, "done though cancelled": {store.Complete, true, store.EndedDone, 4},
		"cancelled": {store.Retry, true, store.EndedCancelled, 10}, "retried": {store.Retry, false, store.EndedRetried, 10}, "released": {store.Release, false, store.EndedReleased, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.register(1)
			j := mail("acme", "a")
			j.Cost = 10
			verdicts, err := y.store.Admit(t.Context(), 0, []store.Candidate{{Job: &j, Class: 1, Limits: limits}})
			check(t, err)
			check(t, verdicts[0].Err())
			leases, err := y.store.Read(t.Context(), "w1", yardPool.ID(), 1, -1, false)
			check(t, err)
			if c.cancelled {
				_, _, err = y.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: "a"}, store.Intervention{})
				check(t, err)
			}
			f := leases[0].Finish(c.outcome)
			f.Reason, f.Delay, f.Spent = "discarded", time.Hour, &store.Spent{Cost: 4, Class: admission.Medium, Limits: limits}
			ends, _, err := y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{f})
			check(t, err)
			again, _, err := y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{f})
			check(t, err)
			q := store.Question{Tenant: "acme", Queue: "mail", Class: admission.Medium, Cost: 1, Limits: *limits}
			_, answers, err := y.store.Check(t.Context(), 0, true, []store.Question{q})
			check(t, err)
			for level, left := range answers[0].Left {
				if ends[0] != c.ended || again[0] != store.EndedLost || left.Tokens() != 100-c.spent {
					t.Errorf("%s, then %s: level %d holds %d, want %d", ends[0], again[0], level, left.Tokens(), 100-c.spent)
				}
			}
		})
	}
}
