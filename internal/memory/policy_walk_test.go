package memory_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

type governed struct {
	*pair

	draw   *rand.Rand
	held   taken
	ids    int
	before *store.PolicyUpdate
}

func one[T any](g *governed, of ...T) T { return of[g.draw.IntN(len(of))] }

func (g *governed) maybe(n int) bool { return g.draw.IntN(n) == 0 }

func (g *governed) step() {
	g.tb.Helper()
	switch g.draw.IntN(10) {
	case 0, 1:
		g.edit()
	case 2, 3, 4:
		g.come()
	case 5:
		g.takeMore()
	case 6, 7:
		g.leave()
	case 8:
		g.intervene()
	default:
		g.move(time.Duration(g.draw.IntN(1500)) * time.Millisecond)
		g.same("promote", func(s store.Partition) any {
			done, err := s.PromoteAfter(g.ctx, store.LeapSilence, "s1", time.Second)
			return replied(done.More, done.Moved, done.Stepped, err)
		})
	}
	g.same("gates", func(s store.Partition) any { return replied(s.Gates(g.ctx)) })
	g.same("queues", func(s store.Partition) any { return replied(s.Queues(g.ctx)) })
	g.same("census", func(s store.Partition) any { return replied(s.Census(g.ctx)) })
}

var governedNames = []string{"ann", "bob", "cat"}

func (g *governed) edit() {
	g.tb.Helper()
	u := store.PolicyUpdate{Edit: fmt.Sprint("e", g.draw.IntN(1000)), MaxParked: map[string]int{}}
	for _, queue := range []string{"mail", "hook"} {
		if g.maybe(3) {
			continue
		}
		u.Queues = append(u.Queues, store.QueueSettings{
			Queue: queue, Classes: admission.DefaultClasses(), Horizon: time.Duration(g.draw.IntN(3)) * time.Hour, Overflow: g.overflow(),
			MaxDead: g.draw.IntN(4), DropExpired: g.maybe(2), MaxWait: time.Duration(max(0, g.draw.IntN(20)-10)) * time.Second,
		})
	}
	for _, name := range []string{"ann", "bob", store.Every} {
		switch g.draw.IntN(4) {
		case 0:
			u.Overflows = append(u.Overflows, store.TenantOverflow{Tenant: name, Queue: one(g, "mail", "hook"), Overflow: g.overflow()})
			if name == store.Every {
				u.Overflows[len(u.Overflows)-1].Queue = store.Every
			}
		case 1:
			u.Overflows = append(u.Overflows, store.TenantOverflow{Tenant: name, Overflow: store.Overflow{Policy: store.Reject, MaxJobs: g.draw.IntN(9)}})
		}
	}
	for _, class := range admission.DefaultClasses() {
		for _, name := range []string{"", "ann", "cat"} {
			if g.maybe(2) {
				u.Weights = append(u.Weights, store.TenantWeight{Class: class.Name, Tenant: name, Weight: admission.Weight(1 + g.draw.IntN(9))})
			}
		}
	}
	for _, name := range []store.GateName{
		store.QueueGate("mail"), store.TenantGate("ann"), store.TenantQueueGate("bob", "hook"), store.DownstreamGate("api"),
		store.TenantGate(store.Every), store.TenantQueueGate(store.Every, "mail"), store.DownstreamGate(store.Every),
	} {
		if g.maybe(3) {
			u.Caps = append(u.Caps, store.Cap{Gate: name, Limit: 1 + g.draw.IntN(3)})
		}
	}
	for _, name := range []store.GateName{store.TenantRateGate("ann"), store.DownstreamRateGate("api")} {
		if g.maybe(3) {
			u.Caps = append(u.Caps, store.Cap{Gate: name, Rate: admission.Limit{Tokens: admission.Tokens(1 + g.draw.IntN(3)), Per: time.Second, Burst: 2}})
		}
	}
	if g.maybe(2) {
		u.MaxParked[one(g, "", "api")] = 1 + g.draw.IntN(3)
	}
	if u.Before = nil; g.maybe(2) {
		u.Before = g.before
	}
	if g.put(u).Err == "" {
		u.Before = nil
		g.before = &u
	}
}

func (g *governed) overflow() store.Overflow {
	return store.Overflow{
		Policy: one(g, "", store.NoBound, store.Reject, store.DropOldest, store.Spillover), MaxJobs: g.draw.IntN(6), MaxSpilled: 3,
		LowWater: g.draw.IntN(101),
	}
}

func (g *governed) come() {
	g.tb.Helper()
	var jobs []store.Candidate
	for range 1 + g.draw.IntN(5) {
		g.ids++
		j := mail(one(g, governedNames...), fmt.Sprint("j", g.ids))
		j.Queue, j.Downstream = one(g, "mail", "hook"), one(g, "", "api", "db")
		if g.maybe(6) {
			j.Deadline = g.now.Add(time.Duration(g.draw.IntN(4)) * time.Second)
		}
		c := candidates(nil, j)
		c[0].Class = g.draw.IntN(3)
		c[0].Job.Priority = admission.DefaultClasses()[c[0].Class].Name
		jobs = append(jobs, c...)
	}
	g.same("admit", func(s store.Partition) any { return replied(s.Admit(g.ctx, g.version, jobs)) })
}

func (g *governed) takeMore() {
	g.tb.Helper()
	more := g.take("w1", governedPool, 1+g.draw.IntN(3))
	for i := range more[0] {
		if a, b := more[0][i].Job, more[1][i].Job; a.Tenant != b.Tenant || a.ID != b.ID {
			g.tb.Fatalf("redis gives %s, memory %s", a.ID, b.ID)
		}
	}
	g.held[0], g.held[1] = append(g.held[0], more[0]...), append(g.held[1], more[1]...)
}

func (g *governed) leave() {
	g.tb.Helper()
	if len(g.held[0]) == 0 {
		g.takeMore()
	}
	n := min(len(g.held[0]), 1+g.draw.IntN(2))
	if n == 0 {
		return
	}
	how := one(g, store.Finish{Outcome: store.Complete}, store.Finish{Outcome: store.Kill, Reason: "failed"}, store.Finish{Outcome: store.Retry, Delay: time.Second})
	g.finish("w1", governedPool, taken{g.held[0][:n], g.held[1][:n]}, how)
	g.held[0], g.held[1] = g.held[0][n:], g.held[1][n:]
}

func (g *governed) intervene() {
	g.tb.Helper()
	by := store.Intervention{Author: "ada", Reason: "to see"}
	name := one(g, store.QueueGate("mail"), store.TenantGate("ann"), store.TenantQueueGate("bob", "hook"), store.DownstreamGate("api"))
	length := time.Duration(g.draw.IntN(3)) * time.Second
	switch g.draw.IntN(3) {
	case 0:
		g.pause(name, length, by)
	case 1:
		g.same("unpause", func(s store.Partition) any { return replied(s.Unpause(g.ctx, name, by)) })
	default:
		set := store.Gate{Name: name, Limit: g.draw.IntN(4) - 1, For: length, Then: g.draw.IntN(4) - 1, By: by}
		g.same(fmt.Sprintf("gate %+v", set), func(s store.Partition) any { return replied(s.SetGate(g.ctx, set)) })
	}
}
