package memory_test

import (
	"testing"

	"github.com/headgate/headgate/store"
)

// TestALimitThatAnOperatorHasSetMovesNoMore: where an edit says the same and lets nothing move it, by one who has to read what is there.
func TestALimitThatAnOperatorHasSetMovesNoMore(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	gate := store.DownstreamGate("smtp")
	edits := []store.Cap{{Gate: gate, Limit: 40, Least: 5, Most: 30, Loop: "mail-out"}, {Gate: gate, Limit: 4}}
	for i, c := range edits {
		u := store.PolicyUpdate{Expected: int64(i), Version: int64(i) + 1, Text: []byte("{}"), Caps: []store.Cap{c}, Edit: c.Loop}
		p.same("policy", func(s store.Partition) any { return replied(true, s.PutPolicy(p.ctx, u)) })
		p.same("set", func(s store.Partition) any {
			_, _, err := s.SetGate(p.ctx, store.Gate{Name: gate, Limit: 4, Then: store.Unlimited})
			return replied(true, err)
		})
	}
	for name, s := range map[string]store.Partition{"redis": p.redis, "memory": p.memory} {
		gates, err := s.Gates(p.ctx)
		check(t, err)
		if len(gates) != 1 || gates[0].Limit != 4 {
			t.Errorf("%s: %+v, want 4 at a time", name, gates)
		}
		if all, err := s.Adaptations(p.ctx); err != nil || len(all) != 0 {
			t.Errorf("%s: %+v still move, %v", name, all, err)
		}
	}
}
