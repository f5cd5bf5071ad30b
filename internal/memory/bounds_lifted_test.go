package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestWhatEnteredWhileABoundWasLiftedCounts: what lifts a tenant's bound goes from the policy, so that another holds, which stays as it was. The jobs that
// came in meanwhile fill it.
func TestWhatEnteredWhileABoundWasLiftedCounts(t *testing.T) {
	t.Parallel()
	two, lifted := store.Overflow{Policy: store.Reject, MaxJobs: 2}, store.Overflow{Policy: store.NoBound}
	queue := func(o store.Overflow) []store.QueueSettings {
		return []store.QueueSettings{{Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxDead: 100, KeepDead: time.Hour, Overflow: o}}
	}
	tiered := queue(two)
	tiered[0].Tiers = map[string]store.Overflow{"gold": lifted}
	everywhere := store.TenantOverflow{Tenant: store.Every, Queue: store.Every, Overflow: two}
	for name, edits := range map[string]struct{ before, after store.PolicyUpdate }{
		"of a tenant in a queue": {
			store.PolicyUpdate{Queues: queue(two), Overflows: []store.TenantOverflow{{Tenant: "acme", Queue: "mail", Overflow: lifted}}},
			store.PolicyUpdate{Queues: queue(two)},
		},
		"of a tenant over all its queues": {
			store.PolicyUpdate{Overflows: []store.TenantOverflow{{Tenant: store.Every, Overflow: two}, {Tenant: "acme", Overflow: lifted}}},
			store.PolicyUpdate{Overflows: []store.TenantOverflow{{Tenant: store.Every, Overflow: two}}},
		},
		"by a tier": {store.PolicyUpdate{Queues: tiered, Tiers: map[string]string{"acme": "gold"}}, store.PolicyUpdate{Queues: tiered}},
		"of a queue": {
			store.PolicyUpdate{Queues: queue(lifted), Overflows: []store.TenantOverflow{everywhere}},
			store.PolicyUpdate{Queues: queue(store.Overflow{}), Overflows: []store.TenantOverflow{everywhere}},
		},
		"of a queue that goes": {
			store.PolicyUpdate{Queues: queue(lifted), Overflows: []store.TenantOverflow{everywhere}},
			store.PolicyUpdate{Overflows: []store.TenantOverflow{everywhere}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			put := func(version int64, u store.PolicyUpdate) {
				t.Helper()
				u.Expected, u.Version, u.Text, u.Window, u.Edit = version-1, version, []byte("{}"), time.Minute, fmt.Sprint("edit ", version)
				p.each(func(s store.Partition) error { return s.PutPolicy(p.ctx, u) })
				p.version = version
			}
			put(1, edits.before)
			p.admit(mail("acme", "a"), mail("acme", "b"), mail("acme", "c"))
			put(2, edits.after)
			p.each(func(s store.Partition) error {
				verdicts, err := s.Admit(p.ctx, p.version, candidates(nil, mail("acme", "d")))
				if err == nil && verdicts[0].Err() == nil {
					t.Errorf("%T lets a fourth job in where a tenant may have 2", s)
				}
				return err
			})
		})
	}
}
