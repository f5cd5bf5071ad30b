package memory_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// held compares what stands, and returns the holds.
func (p *pair) held() []store.Hold {
	p.tb.Helper()
	p.same("gates", func(s store.Partition) any { return replied(s.Gates(p.ctx)) })
	p.same("suspensions", func(s store.Partition) any { return replied(s.Suspensions(p.ctx)) })
	all := p.same("holds", func(s store.Partition) any { return replied(s.Holds(p.ctx)) })
	return all.(reply).Values[0].([]store.Hold)
}

func (p *pair) pause(name store.GateName, length time.Duration, by store.Intervention) {
	p.tb.Helper()
	p.same("pause "+string(name), func(s store.Partition) any { return replied(s.Pause(p.ctx, name, length, by)) })
}

func (p *pair) unpause(name store.GateName, want bool) {
	p.tb.Helper()
	was := p.same("unpause "+string(name), func(s store.Partition) any {
		return replied(s.Unpause(p.ctx, name, store.Intervention{Author: "bea", Reason: "over"}))
	})
	if was.(reply).Values[0] != want {
		p.tb.Errorf("unpaused %s: %v", name, was)
	}
}

func (p *pair) suspend(name store.GateName, length time.Duration) {
	p.tb.Helper()
	p.same("suspend "+string(name), func(s store.Partition) any {
		return replied(s.Suspend(p.ctx, name, length, store.Intervention{Author: "ada", Reason: "full"}))
	})
}

func (p *pair) resume(name store.GateName, want bool) {
	p.tb.Helper()
	was := p.same("resume "+string(name), func(s store.Partition) any { return replied(s.Resume(p.ctx, name, store.Intervention{})) })
	if was.(reply).Values[0] != want {
		p.tb.Errorf("resumed %s: %v", name, was)
	}
}

func (p *pair) drain(length time.Duration, by store.Intervention) {
	p.tb.Helper()
	p.same("drain", func(s store.Partition) any { return replied(s.Drain(p.ctx, "mail", length, by)) })
}

func TestHoldsAreKept(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	by := store.Intervention{Author: "ada", Reason: "maintenance"}
	mailGate, acme, both := store.QueueGate("mail"), store.TenantGate("acme"), store.TenantQueueGate("acme", "mail")
	p.pause(mailGate, time.Hour, by)
	p.pause(acme, 0, store.Intervention{})
	p.pause(store.DownstreamGate("smtp"), time.Microsecond/2, by)
	p.suspend(mailGate, time.Minute)
	p.suspend(both, 0)
	p.move(time.Second)
	p.suspend(both, time.Hour)
	p.pause(mailGate, time.Minute, by)
	if n := len(p.held()); n != 5 {
		t.Errorf("%d holds", n)
	}
	p.move(30 * time.Second)
	p.unpause(acme, true)
	p.unpause(acme, false)
	p.unpause(both, false)
	p.resume(both, true)
	p.resume(acme, false)
	if n := len(p.held()); n != 3 {
		t.Errorf("%d holds", n)
	}
	for _, bad := range []store.Intervention{{Author: "a\nb"}, {Reason: string(make([]byte, 5000))}} {
		p.pause(mailGate, 0, bad)
		p.same("suspend", func(s store.Partition) any { return replied(s.Suspend(p.ctx, mailGate, 0, bad)) })
		p.same("unpause", func(s store.Partition) any { return replied(s.Unpause(p.ctx, mailGate, bad)) })
		p.same("resume", func(s store.Partition) any { return replied(s.Resume(p.ctx, mailGate, bad)) })
		p.drain(time.Minute, bad)
	}
	p.held()
}

// TestADrainKeepsALongerSuspension suspends a queue for a drain, which renews it.
func TestADrainKeepsALongerSuspension(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	by := store.Intervention{Author: "ada", Act: "drain 1"}
	p.drain(30*time.Second, by)
	p.held()
	p.move(10 * time.Second)
	p.drain(30*time.Second, by)
	p.held()
	p.drain(10*time.Second, by) // The one before ends later.
	p.held()
	p.suspend(store.QueueGate("mail"), 0)
	p.drain(30*time.Second, by)
	holds := p.held()
	if len(holds) != 1 || !holds[0].Until.IsZero() || holds[0].Reason != "full" {
		t.Errorf("%+v", holds)
	}
	p.resume(store.QueueGate("mail"), true)
	p.drain(0, by)
	p.drain(time.Hour, by)
	if holds = p.held(); len(holds) != 1 || holds[0].Reason != store.DrainReason {
		t.Errorf("%+v", holds)
	}
}

// gate limits the downstream api.
func (p *pair) gate(limit int) {
	p.tb.Helper()
	g := store.Gate{Name: store.DownstreamGate("api"), Limit: limit, By: store.Intervention{Reason: p.tb.Name()}}
	p.same("gate", func(s store.Partition) any { return replied(s.SetGate(p.ctx, g)) })
}

// TestAPauseThatLastsAtLeast begins one, makes one longer, and leaves one alone that ends later or a second sooner at most: its cap comes back
// with its end, whoever has made it longer.
func TestAPauseThatLastsAtLeast(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	gate := store.DownstreamGate("smtp")
	hold := func(length time.Duration, want bool) {
		t.Helper()
		did := p.same("hold", func(s store.Partition) any {
			return replied(s.PauseAtLeast(p.ctx, gate, length, store.RetryAfterBy(length)))
		})
		if did.(reply).Values[0] != want {
			t.Errorf("for %s: %v", length, did)
		}
		if all := p.held(); len(all) != 1 {
			t.Errorf("for %s: %v", length, all)
		}
	}
	p.same("cap", func(s store.Partition) any { return replied(s.SetGate(p.ctx, store.Gate{Name: gate, Limit: 7})) })
	hold(10*time.Second, true)
	hold(10*time.Second, false)
	hold(11*time.Second, false)
	p.move(time.Second)
	hold(10*time.Second+time.Microsecond, true)
	hold(9*time.Second, false)
	hold(time.Minute, true)
	p.move(time.Minute)
	p.same("promote", func(s store.Partition) any { return replied(s.Promote(p.ctx, "s1", time.Hour)) })
	gates := p.same("gates", func(s store.Partition) any { return replied(s.Gates(p.ctx)) })
	if all := gates.(reply).Values[0].([]store.GateState); len(all) != 1 || all[0].Limit != 7 {
		t.Errorf("after it: %+v", all)
	}
	hold(0, true)
	hold(time.Hour, false)
}
