package memory_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestAReceiverPushesBack: the rate of its downstream is cut at once by how much, by the strongest of several, as long as it asks for, and
// eases by a level with each look after that, a second each at least; also while it is frozen, and in the memory as in Redis. Without the
// policy's adaptive entry nothing of it counts.
func TestAReceiverPushesBack(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const unit = store.RateUnit
	gate := store.DownstreamRateGate("smtp")
	limit := admission.PerSecond(100)
	sequence, version := uint64(0), int64(0)
	put := func(c store.Cap) {
		t.Helper()
		version++
		u := store.PolicyUpdate{Expected: version - 1, Version: version, Text: []byte("{}"), Caps: []store.Cap{c}, Edit: time.Duration(version).String()}
		p.same("policy", func(s store.Partition) any { return replied(true, s.PutPolicy(p.ctx, u)) })
	}
	push := func(level admission.PressureLevel, hold time.Duration) {
		t.Helper()
		sequence++
		o := outcomes(sequence, 0, 1, 0)
		o.Push, o.PushFor = level, hold
		p.report(store.Reporter{Name: "w"}, o)
	}
	look := func() {
		t.Helper()
		p.same("look", func(s store.Partition) any {
			return replied(s.Adapt(p.ctx, store.Adapt{Owner: "s1", Version: version, Gate: gate, Limit: 80 * unit, Cause: "pushback"}))
		})
	}
	rate := func(what string, want float64) {
		t.Helper()
		gates := p.same("gates", func(s store.Partition) any { return replied(s.Gates(p.ctx)) })
		p.same("adaptive limits", func(s store.Partition) any { return replied(s.Adaptations(p.ctx)) })
		all, _ := gates.(reply).Values[0].([]store.GateState)
		if len(all) != 1 || all[0].Rate != want {
			t.Errorf("%s: not %g a second: %+v", what, want, all)
		}
	}
	put(store.Cap{Gate: gate, Rate: limit})
	push(admission.PressureCritical, 0)
	rate("where it does not move", 100)
	put(store.Cap{Gate: gate, Rate: limit, Limit: 100 * unit, Least: unit, Most: 100 * unit, Loop: "rate"})
	p.same("promote", func(s store.Partition) any { return replied(s.Promote(p.ctx, "s1", time.Hour)) })
	look()
	rate("at first", 80)
	push(admission.PressureNone, time.Minute)
	rate("NONE", 80)
	for level, want := range map[admission.PressureLevel]float64{admission.PressureLow: 64, admission.PressureMedium: 40, admission.PressureHigh: 16, admission.PressureCritical: 1} {
		push(level, 0)
		rate(level.String(), want)
		for range 5 {
			p.move(3 * time.Second)
			look()
		}
		rate("after "+level.String(), 80)
	}
	push(admission.PressureHigh, 0)
	push(admission.PressureLow, time.Minute)
	rate("the strongest", 16)
	p.move(1999 * time.Millisecond)
	look()
	rate("it is heeded for two seconds", 16)
	p.move(time.Millisecond)
	look()
	rate("after two seconds", 40)
	look()
	rate("not two steps at once", 40)
	push(admission.PressureMedium, 10*time.Second)
	p.move(9 * time.Second)
	look()
	rate("as long as it asks for", 40)
	p.same("freeze", func(s store.Partition) any {
		return replied(s.Freeze(p.ctx, gate, true, store.Intervention{Author: "ada"}))
	})
	p.move(time.Second)
	look()
	rate("frozen, and it eases", 64)
	p.move(time.Second)
	look()
	rate("at the end", 80)
}
