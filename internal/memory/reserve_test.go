package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// kept is a queue mail of which slots are kept, and how many jobs of each class workers have.
type kept struct {
	*pair

	jobs int
}

// put keeps slots of the queue, with a cap of its own where that is not zero.
func (k *kept) put(most int, reserves ...store.Reserve) {
	k.tb.Helper()
	u := store.PolicyUpdate{
		Expected: k.version, Version: k.version + 1, Text: []byte("{}"), Window: time.Minute, Edit: "e1", Reserves: reserves,
		Queues: []store.QueueSettings{{Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour}},
	}
	if most > 0 {
		u.Caps = []store.Cap{{Gate: store.QueueGate("mail"), Limit: most}}
	}
	k.same("policy", func(s store.Partition) any { return s.PutPolicy(k.ctx, u) })
	k.version++
}

// enter lets jobs of a class in, each in a call of its own, and returns how many went straight to workers.
func (k *kept) enter(class, n int) (straight int) {
	k.tb.Helper()
	for range n {
		k.jobs++
		j := mail(fmt.Sprintf("tenant%d", k.jobs%3), fmt.Sprintf("j%d", k.jobs))
		j.Priority = admission.DefaultClasses()[class].Name
		got := k.same("admit", func(s store.Partition) any {
			verdicts, err := s.Admit(k.ctx, k.version, []store.Candidate{{Job: &j, Class: class, Limits: free}})
			return replied(verdicts, err)
		}).(reply)
		if v := got.Values[0].([]admission.Verdict)[0]; v.Place == admission.PlaceReady {
			straight++
		}
	}
	return straight
}

// finishOf ends n jobs of a class that the worker has.
func (k *kept) finishOf(pool store.Pool, held taken, class, n int) taken {
	k.tb.Helper()
	var ends, rest taken
	for i := range held {
		left := n
		for _, l := range held[i] {
			if l.Class == class && left > 0 {
				left--
				ends[i] = append(ends[i], l)
			} else {
				rest[i] = append(rest[i], l)
			}
		}
	}
	k.finish("w1", pool, ends, store.Finish{Outcome: store.Complete})
	return rest
}

// want fails unless workers have so many jobs of the classes that are no reserved ones, and so many in all.
func (k *kept) want(when string, others, all int) {
	k.tb.Helper()
	state := k.same("queue", func(s store.Partition) any { return replied(s.Queue(k.ctx, "mail")) }).(reply).Values[0].(store.QueueState)
	if state.Others != others || int(state.Ready+state.Running) != all {
		k.tb.Errorf("%s: %d of others, %d in all, want %d and %d", when, state.Others, state.Ready+state.Running, others, all)
	}
}

// TestSlotsAreKeptForAClass: with ten slots of which four are kept for high, the others take six and never more, a high job that comes while they
// hold all that they may starts at once, and a slot that it gives back is not theirs.
func TestSlotsAreKeptForAClass(t *testing.T) {
	t.Parallel()
	k := &kept{pair: newPair(t)}
	k.put(0, store.Reserve{Queue: "mail", Classes: []int{0}, Slots: 4})
	k.register("w1", mailPool, 10)
	if n := k.enter(2, 20); n != 6 {
		t.Errorf("%d low jobs started, want 6", n)
	}
	if n := k.enter(1, 3); n != 0 {
		t.Errorf("%d medium jobs started beside six low ones", n)
	}
	k.want("the others have what they may", 6, 6)
	if n := k.enter(0, 6); n != 4 {
		t.Errorf("%d of six high jobs started at once, want 4", n)
	}
	k.want("full", 6, 10)
	held := k.take("w1", mailPool, 10)
	held = k.finishOf(mailPool, held, 2, 2)
	k.want("what two low jobs left goes by the pattern, to the two high ones that wait", 4, 10)
	held = k.finishOf(mailPool, held, 0, 4)
	k.want("no high job waits: two low ones come back to six, and two slots stay free", 6, 8)
	if n := k.enter(0, 2); n != 2 {
		t.Errorf("%d of two high jobs started at once", n)
	}
	k.put(5, store.Reserve{Queue: "mail", Classes: []int{0}, Slots: 4})
	k.finishOf(mailPool, held, 2, 4)
	k.want("of a cap of five one is the others', who have two still", 2, 6)
	k.put(0, store.Reserve{Queue: "mail", Classes: []int{0}, Percent: 75})
	k.want("of ten slots 75 percent, rounded up, leave two", 2, 6)
	k.put(0, store.Reserve{Queue: "mail", Classes: []int{0}, Slots: 50})
	k.want("one is left in any case", 2, 6)
	k.put(0, store.Reserve{Queue: "mail", Classes: []int{0, 1}, Slots: 6})
	k.want("low alone is another: three medium jobs take what is kept, a third low one what is left", 3, 10)
	k.register("w2", store.Pool{Strict: true, Queues: mailPool.Queues}, 4)
	k.want("four slots more, of workers of another kind, are the others'", 7, 14)
	k.put(0)
	k.want("nothing is kept: all counts are gone", 0, 14)
}

// TestSlotsThatAreKeptMayBeLent: others have them while no job of those for whom they are kept waits, and give them back as they end.
func TestSlotsThatAreKeptMayBeLent(t *testing.T) {
	t.Parallel()
	k := &kept{pair: newPair(t)}
	k.put(0, store.Reserve{Queue: "mail", Classes: []int{0}, Slots: 4, Lends: true})
	k.register("w1", mailPool, 10)
	if n := k.enter(2, 20); n != 10 {
		t.Errorf("%d low jobs started, want all 10", n)
	}
	if n := k.enter(0, 5); n != 0 {
		t.Errorf("%d high jobs started, and all slots were lent", n)
	}
	held := k.take("w1", mailPool, 10)
	for i, want := range []int{9, 8, 7, 6, 5} {
		held = k.finishOf(mailPool, held, 2, 1)
		k.want(fmt.Sprintf("%d low jobs have ended, and high ones took their slots", i+1), want, 10)
	}
	k.finishOf(mailPool, held, 2, 1)
	k.want("no high job waits any more", 5, 10)
}

// TestASlotThatIsKeptIsNoReasonToWait: a downstream has its half of the slots, and the only others that are runnable wait for slots that are kept
// for its jobs, which have the rest, however few moves a call may make.
func TestASlotThatIsKeptIsNoReasonToWait(t *testing.T) {
	t.Parallel()
	k := &kept{pair: newPair(t)}
	k.put(0, store.Reserve{Queue: "mail", Classes: []int{0}, Slots: 199})
	k.enter(2, 3)
	var calls []store.Candidate
	for i := range 200 {
		j := mail(fmt.Sprintf("caller%d", i), "call")
		j.Priority, j.Downstream = admission.DefaultClasses()[0].Name, "smtp"
		calls = append(calls, store.Candidate{Job: &j, Class: 0, Limits: free})
	}
	k.same("admit", func(s store.Partition) any { return replied(s.Admit(k.ctx, k.version, calls)) })
	k.register("w1", mailPool, 200)
	for calls := 0; k.promote().More; calls++ {
		if calls == 20 {
			t.Fatal("promote has ever more to do")
		}
		k.move(100 * time.Millisecond)
	}
	k.want("one of the others, and as many as there is room for of those that call smtp", 1, 200)
}

// TestSlotsOfAnotherPoolAreTheOthersToo: a worker of another pool brings slots, which jobs of another queue take, and the others run on as many more
// in their pool.
func TestSlotsOfAnotherPoolAreTheOthersToo(t *testing.T) {
	t.Parallel()
	k := &kept{pair: newPair(t)}
	k.put(0, store.Reserve{Queue: "mail", Classes: []int{0}, Slots: 4})
	k.register("w1", mailPool, 8)
	k.enter(2, 9)
	k.want("four of eight", 4, 4)
	both := store.Pool{Strict: true, Queues: []store.QueueWeight{{Queue: "sms", Weight: 1}, {Queue: "mail", Weight: 1}}}
	var first []admission.Job
	for i := range 2 {
		j := mail("acme", fmt.Sprintf("sms%d", i))
		j.Queue = "sms"
		first = append(first, j)
	}
	k.admit(first...)
	k.register("w2", both, 0)
	k.want("no slot more", 4, 4)
	k.register("w2", both, 2)
	k.want("two slots more", 6, 6)
}

// TestPartsCountForNoLess: what the whole is told to be less than a part, and what comes after it, is as in Redis.
func TestPartsCountForNoLess(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	q := store.Question{Tenant: "acme", Queue: "llm", Cost: 40}
	for level := range q.Limits {
		q.Limits[level] = admission.Limit{Disabled: true}
	}
	q.Limits[admission.LevelTenant] = admission.PerSecond(1).WithBurst(100)
	taken := map[store.Partition]store.Taken{}
	p.same("take", func(s store.Partition) any {
		verdict, receipt, err := s.Take(p.ctx, 0, q)
		taken[s] = receipt
		return replied(verdict, err)
	})
	for i, told := range []admission.Tokens{25, 60, 30, 10, 80} {
		p.move(time.Second)
		p.same("tell", func(s store.Partition) any {
			if i == 3 {
				return replied(s.Commit(p.ctx, "work", taken[s], told))
			}
			return replied(s.CommitPart(p.ctx, "work", taken[s], told))
		})
		p.same("look", func(s store.Partition) any {
			granted, answers, err := s.Check(p.ctx, 0, true, []store.Question{q})
			return replied(granted, answers, err)
		})
	}
}
