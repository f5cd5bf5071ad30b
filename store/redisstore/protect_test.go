package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestProtectedLimitsAreCutLast as their floors say, in each partition, those of types of jobs too.
func TestProtectedLimitsAreCutLast(t *testing.T) {
	t.Parallel()
	b := newAdaptiveBench(t, redistest.Shared(t).Client(t), 1)
	mail := store.QueueLimitsGate("mail")
	b.put(store.Cap{Gate: mail, Limit: store.PartWhole, Least: 120, Most: 1000, Loop: "let-in"})
	n := 0
	for part, want := range map[int][2]admission.Tokens{1000: {100, 100}, 500: {50, 100}, 200: {20, 100}, 160: {20, 80}, 120: {20, 60}} {
		_, err := b.store.Adapt(t.Context(), store.Adapt{Owner: "one", Version: b.version, Gate: mail, Limit: part, Cause: "above_target"})
		check(t, err)
		for i, floor := range [2][2]int{{100, 20}, {20, 60}} {
			for cost, admitted := range map[admission.Tokens]bool{want[i]: true, min(want[i]+1, 100): want[i] == 100} {
				n++
				q := ofTenant("t"+time.Duration(n).String(), cost)
				q.Queue = "mail"
				q.Limits[admission.LevelTenant].Disabled = true
				q.Limits[admission.LevelQueue] = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 100}.WithFloor(floor[0], floor[1])
				_, answers, err := b.store.Check(t.Context(), b.version, true, []store.Question{q})
				check(t, err)
				if v := answers[0].Verdict; (v.Decision == admission.Admitted) != admitted {
					t.Errorf("part %d, floor %v, %d tokens: %+v", part, floor, cost, v)
				}
				j, none := admission.NewJob(q.Tenant+"-typed", "mail", "t", nil), &[admission.Levels]admission.Limit{{Disabled: true}, {Disabled: true}, {Disabled: true}, {Disabled: true}}
				j.ID, j.Cost = "a", cost
				verdicts, err := b.store.Partitions()[0].Admit(t.Context(), b.version, []store.Candidate{{Job: &j, Class: 1, Limits: none, TypeLimit: &q.Limits[admission.LevelQueue]}})
				check(t, err)
				if v := verdicts[0]; (v.Decision == admission.Admitted) != admitted {
					t.Errorf("part %d, floor %v, a job of %d tokens: %+v", part, floor, cost, v)
				}
			}
		}
	}
}
