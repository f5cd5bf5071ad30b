package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// TestWaitsAreTold lets jobs wait for every kind of gate and looks at them.
func TestWaitsAreTold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	by := store.Intervention{Author: "ada", Reason: "maintenance"}
	smtp, sms, called := mail("acme", "smtp"), mail("acme", "sms"), mail("acme", "called")
	smtp.Downstream, sms.Downstream, called.Downstream = "smtp", "sms", "sms"
	p.admit(called)
	p.register("w1", mailPool, 1)
	running := p.take("w1", mailPool, 1)
	nobody := mail("acme", "nobody")
	nobody.Queue = "report"
	p.admit(mail("acme", "first"), mail("acme", "second"), mail("acme", "third"), smtp, sms, mail("bakery", "b"), nobody)
	keys := []admission.Key{key("nobody"), key("first"), key("second"), key("third"), key("smtp"), key("sms"), {Tenant: "bakery", ID: "b"}}
	kinds := map[store.WaitKind]int{}
	for _, sight := range p.sights(keys...) {
		for _, w := range sight.Waits {
			kinds[w.Kind]++
		}
	}
	gates := []struct {
		name  store.GateName
		limit int
		kind  store.WaitKind
	}{
		{store.QueueGate("mail"), 0, store.WaitPause},
		{store.TenantGate("acme"), 1, store.WaitCap},
		{store.TenantQueueGate("acme", "mail"), 0, store.WaitPause},
		{store.DownstreamGate("smtp"), 0, store.WaitPause},
		{store.DownstreamGate("sms"), 1, store.WaitCap},
	}
	for _, g := range gates {
		p.same("gate "+string(g.name), func(s store.Partition) any {
			return replied(s.SetGate(p.ctx, store.Gate{Name: g.name, Limit: g.limit, For: time.Hour, Then: 3, By: by}))
		})
		p.move(time.Second)
		p.sights(keys...)
		p.overview()
	}
	for _, sight := range p.sights(keys...) {
		for _, w := range sight.Waits {
			kinds[w.Kind]++
		}
	}
	for _, g := range gates {
		if kinds[g.kind] == 0 {
			t.Errorf("no job waits for a %s: %v", g.kind, kinds)
		}
		p.same("no gate "+string(g.name), func(s store.Partition) any {
			return replied(s.SetGate(p.ctx, store.Gate{Name: g.name, Limit: store.Unlimited, By: by}))
		})
		p.move(time.Second)
		p.sights(keys...)
		p.overview()
	}
	p.finish("w1", mailPool, running, store.Finish{Outcome: store.Complete})
	leases := p.take("w1", mailPool, 1)
	p.finish("w1", mailPool, leases, store.Finish{Outcome: store.Release, Delay: time.Minute, Text: store.UnknownType + " welcome"})
	for _, sight := range p.sights(keys...) {
		for _, w := range sight.Waits {
			kinds[w.Kind]++
		}
	}
	for _, kind := range []store.WaitKind{store.WaitWorkers, store.WaitTurn, store.WaitType} {
		if kinds[kind] == 0 {
			t.Errorf("no job waits for %s: %v", kind, kinds)
		}
	}
	p.overview()
}

// TestPacesAreEqual lets workers come and go and take their time, and compares what is guessed.
func TestPacesAreEqual(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	pools := []store.Pool{mailPool, {Queues: []store.QueueWeight{{Queue: "mail", Weight: 2}, {Queue: "report", Weight: 1}}}}
	classes := []admission.Priority{admission.High, admission.Medium, admission.Low}
	var keys []admission.Key
	n, guessed := 0, 0
	for step := range 120 {
		p.move(time.Duration(step*step%700+1) * time.Millisecond)
		switch step % 6 {
		case 0, 3:
			var all []store.Candidate
			for range 1 + step%4 {
				j := mail([]string{"acme", "bakery", "cafe"}[n%3], fmt.Sprintf("j%d", n))
				if n%5 == 0 {
					j.Queue = "report"
				}
				if n%7 == 0 {
					j.Downstream = "smtp"
				}
				j.Priority = classes[n%2]
				all = append(all, store.Candidate{Job: &j, Class: n % 2, Limits: free})
				keys = append(keys, admission.Key{Tenant: j.Tenant, ID: j.ID})
				n++
			}
			p.same("admit", func(s store.Partition) any {
				verdicts, err := s.Admit(p.ctx, 0, all)
				return replied(verdicts, err)
			})
		case 2:
			if step < 40 {
				continue
			}
			p.register(fmt.Sprintf("w%d", step/6%2), pools[step/6%2], 1+step%3)
		case 5:
			for i, pool := range pools {
				if worker := fmt.Sprintf("w%d", i); step > 50 {
					p.finish(worker, pool, p.take(worker, pool, 2), store.Finish{Outcome: store.Complete})
				}
			}
		}
		p.same("queues", func(s store.Partition) any { return replied(s.Queues(p.ctx)) })
		if step%10 == 9 {
			for _, sight := range p.sights(keys...) {
				if sight.EstimatedWait > 0 {
					guessed++
				}
			}
		}
	}
	if guessed == 0 {
		t.Error("no wait was guessed")
	}
}

// TestAJobThatIsPutOffEndsTheWaitOfAQueue that nobody serves: its pace is not measured over the time without a worker.
func TestAJobThatIsPutOffEndsTheWaitOfAQueue(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for i := range 3 {
		j := mail("acme", fmt.Sprint("j", i))
		if i == 2 {
			j.Delay = time.Hour
		}
		p.admit(j)
		p.move(10 * time.Second)
	}
	p.register("w1", mailPool, 1)
	if wait := p.sights(key("j1"))[0].EstimatedWait; wait >= 0 {
		t.Errorf("j1 is to wait %s, of which nobody knows anything", wait)
	}
}

// TestWhatAPolicyHoldsBack looks at jobs that are kept aside, and behind caps of all, rates and a breaker.
func TestWhatAPolicyHoldsBack(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.same("policy", func(s store.Partition) any {
		return s.PutPolicy(p.ctx, store.PolicyUpdate{
			Version: 1, Text: []byte("{}"), Window: time.Minute, Edit: "e1",
			Queues: []store.QueueSettings{
				{Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxWait: time.Hour},
				{
					Queue: "report", Classes: []admission.Class{{Name: "first", Weight: 5}, {Name: "rest", Weight: 1}}, Horizon: time.Hour,
					Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 9, LowWater: 50},
				},
			},
			Caps: []store.Cap{
				{Gate: store.TenantGate(store.Every), Limit: 2},
				{Gate: store.QueueGate("mail"), Limit: 4},
				{Gate: store.TenantRateGate("bakery"), Rate: admission.Limit{Tokens: 1, Per: time.Minute, Burst: 1}},
				{Gate: store.DownstreamRateGate("smtp"), Rate: admission.Limit{Tokens: 3, Per: time.Second, Burst: 2}},
			},
		})
	})
	p.register("w1", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}, {Queue: "report", Weight: 3}}}, 8)
	var keys []admission.Key
	for i := range 24 {
		j := mail([]string{"acme", "bakery", "cafe"}[i%3], fmt.Sprintf("j%d", i))
		switch i % 4 {
		case 0:
			j.Queue, j.Priority = "report", "rest"
		case 1:
			j.Downstream = []string{"smtp", "sms"}[i%2]
		}
		if i == 16 {
			j.RunAt = p.now.Add(time.Hour)
		}
		keys = append(keys, admission.Key{Tenant: j.Tenant, ID: j.ID})
		p.same("admit", func(s store.Partition) any {
			verdicts, err := s.Admit(p.ctx, 1, candidates(nil, j))
			return replied(verdicts, err)
		})
	}
	p.same("breaker", func(s store.Partition) any {
		return replied(s.ForceBreaker(p.ctx, "sms", breaker.Open, time.Hour, store.Intervention{Author: "ada", Reason: "it is ill"}))
	})
	kinds := map[store.WaitKind]int{}
	for range 3 {
		p.move(time.Second)
		p.pause(store.QueueGate("mail"), time.Minute, store.Intervention{Author: "ada", Reason: "maintenance"})
		p.pause(store.TenantGate("cafe"), 0, store.Intervention{})
		for range 2 {
			for _, sight := range p.sights(keys...) {
				for _, w := range sight.Waits {
					kinds[w.Kind]++
				}
			}
			p.overview()
			p.list(store.ListQuery{})
			for _, place := range []admission.Place{admission.PlaceSpilled, admission.PlaceLater} {
				if rows := p.list(store.ListQuery{Place: place, Limit: 3}); place == admission.PlaceSpilled && len(rows) == 0 {
					t.Error("nothing is kept aside")
				}
			}
			p.unpause(store.QueueGate("mail"), len(p.held()) == 2)
		}
		p.unpause(store.TenantGate("cafe"), true)
	}
	for _, kind := range []store.WaitKind{store.WaitCap, store.WaitRate, store.WaitBreaker, store.WaitPause, store.WaitDepth, store.WaitTime} {
		if kinds[kind] == 0 {
			t.Errorf("no job waits for a %s: %v", kind, kinds)
		}
	}
}
