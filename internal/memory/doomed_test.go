package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// TestJobsThatWouldStartTooLateAreRefused: one slot, a job each ten seconds, six that wait. A job that would start after its deadline, or
// after its queue's max_wait, is refused before it takes a token, and told how long it would have waited; nobody is whose turn comes before
// that, who has a slot, or whose wait nobody knows.
func TestJobsThatWouldStartTooLateAreRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const pace = 10 * time.Second
	put := func(maxWait time.Duration) {
		p.same("policy", func(s store.Partition) any {
			return s.PutPolicy(p.ctx, store.PolicyUpdate{
				Expected: p.version, Version: p.version + 1, Text: []byte("{}"), Window: time.Minute, Edit: "e1",
				Queues: []store.QueueSettings{{Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxWait: maxWait}},
			})
		})
		p.version++
	}
	put(0)
	limits := &[admission.Levels]admission.Limit{{Disabled: true}, {Tokens: 2, Per: time.Hour, Burst: 2}, {Disabled: true}, {Disabled: true}}
	asked := 0
	ask := func(tenant, downstream string, left time.Duration, percent int) admission.Verdict {
		asked++
		j := mail(tenant, fmt.Sprintf("asked%d", asked))
		j.Downstream = downstream
		if left > 0 {
			j.Deadline = p.now.Add(left)
		}
		all := candidates(limits, j)
		all[0].Doomed = percent
		got := p.same("admit "+j.ID, func(s store.Partition) any {
			verdicts, err := s.Admit(p.ctx, p.version, all)
			return replied(verdicts, err)
		}).(reply)
		return got.Values[0].([]admission.Verdict)[0]
	}
	// gone takes a job back.
	gone := func(tenant, id string) {
		p.same("cancel", func(s store.Partition) any {
			return replied(s.Cancel(p.ctx, admission.Key{Tenant: tenant, ID: id}, store.Intervention{}))
		})
		asked++ // A call that fills again sees that jobs wait for room.
		p.admit(mail("acme", fmt.Sprintf("more%d", asked)))
	}
	admitted := func(what, tenant string, v admission.Verdict) {
		t.Helper()
		if v.Decision != admission.Admitted {
			t.Errorf("%s: %+v", what, v)
		}
		gone(tenant, v.ID)
	}
	doomed := func(what string, v admission.Verdict, wait, retry time.Duration) {
		t.Helper()
		if v.Reason != admission.ReasonDoomed || v.EstimatedWait.Round(time.Second) != wait || v.RetryAfter.Round(time.Second) != retry {
			t.Errorf("%s: %+v, want a wait of %s and %s to retry", what, v, wait, retry)
		}
	}
	jobs := make([]admission.Job, 8)
	for i := range jobs {
		jobs[i] = mail("acme", fmt.Sprintf("j%d", i))
		jobs[i].Deadline = p.now.Add(24*time.Hour + time.Duration(i)*time.Second)
	}
	p.register("w1", mailPool, 1)
	p.admit(jobs...)
	if v := ask("acme", "", time.Hour, 10); v.Decision != admission.Admitted || v.EstimatedWait >= 0 {
		t.Errorf("before anybody knows how long jobs wait: %+v", v)
	}
	leases := p.take("w1", mailPool, 1)
	p.move(pace)
	p.finish("w1", mailPool, leases, store.Finish{Outcome: store.Complete}) // Six wait.

	doomed("the first in turn, with half of what it needs", ask("late", "", pace/2, 100), pace, pace/2)
	for range 3 {
		doomed("again, as nothing was charged", ask("late", "", pace/2, 100), pace, pace/2)
	}
	admitted("with a factor of three", "late", ask("late", "", pace/2, 300))
	admitted("with time", "rest", ask("rest", "", pace+time.Second, 100))
	admitted("before all of its own", "acme", ask("acme", "", pace+time.Second, 100))
	admitted("which may wait for as long as it takes", "other", ask("other", "", 0, 100))
	admitted("of a queue that refuses none", "calm", ask("calm", "", time.Millisecond, 0))
	put(pace / 2)
	doomed("by the queue's own bound", ask("fifth", "", 0, 100), pace, pace/2)

	p.same("breaker", func(s store.Partition) any {
		return replied(s.ForceBreaker(p.ctx, "smtp", breaker.Open, time.Hour, store.Intervention{}))
	})
	admitted("behind a breaker, of which nobody knows", "sixth", ask("sixth", "smtp", time.Millisecond, 100))
	pause := func(do func(s store.Partition) any) { p.same("pause", do) }
	pause(func(s store.Partition) any {
		return replied(s.Pause(p.ctx, store.TenantGate("held"), 0, store.Intervention{}))
	})
	admitted("of a paused tenant, of which nobody knows", "held", ask("held", "", time.Millisecond, 100))
	pause(func(s store.Partition) any {
		return replied(s.Pause(p.ctx, store.QueueGate("mail"), 0, store.Intervention{}))
	})
	admitted("of a paused queue, of which nobody knows", "seventh", ask("seventh", "", time.Millisecond, 100))
	pause(func(s store.Partition) any {
		return replied(s.Unpause(p.ctx, store.QueueGate("mail"), store.Intervention{}))
	})
	doomed("in turn again", ask("seventh", "", time.Millisecond, 100), pace, pace)
	p.register("w2", mailPool, 60) // For all that wait, and more.
	for i := range 2 {
		if v := ask(fmt.Sprintf("lucky%d", i), "", time.Millisecond, 100); v.Place != admission.PlaceReady {
			t.Errorf("with a slot free: %+v", v)
		}
	}
}
