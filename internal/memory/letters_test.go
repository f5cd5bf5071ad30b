package memory_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestTheFirstLetterOfAQueueGoesWhenItIsOld: it dies in a call that looks at the letters of all queues, for an edit that came before, and in which
// the first job of its queue comes into a lane: in Redis and in memory its time is the same.
func TestTheFirstLetterOfAQueueGoesWhenItIsOld(t *testing.T) {
	t.Parallel()
	const keep = 2 * time.Second
	p := newPair(t)
	p.register("w1", mailPool, 1)
	p.put(store.PolicyUpdate{Queues: []store.QueueSettings{{Queue: store.Every, Classes: admission.DefaultClasses(), Horizon: time.Hour, KeepDead: keep}}})
	late, other := mail("acme", "late"), mail("acme", "other")
	late.Delay, late.Deadline, other.Delay = time.Second, p.now.Add(2*time.Second), time.Second
	p.admit(late, other)
	p.move(10 * time.Second)
	promote := func() store.Promotion {
		return p.same("promote", func(s store.Partition) any {
			return replied(s.PromoteAfter(p.ctx, store.LeapSilence, "s1", time.Second))
		}).(reply).Values[0].(store.Promotion)
	}
	if done := promote(); done.More || done.Next != keep {
		t.Errorf("the next promote is due in %s, more %t, want it in %s", done.Next, done.More, keep)
	}
	p.move(keep)
	promote()
	if dead := p.list(store.ListQuery{Place: store.PlaceDead}); len(dead) != 0 {
		t.Errorf("%d letters are left", len(dead))
	}
}
