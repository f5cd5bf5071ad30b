package memory_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// lived does at random what becomes of jobs, with two workers in two pools, while the policy is edited and breakers change.
type lived struct {
	governed

	hands   map[string]*taken // by worker
	keys    []admission.Key
	letters []uint64
	reports uint64
}

var livedPools = map[string]store.Pool{
	"w1": {Queues: []store.QueueWeight{{Queue: "mail", Weight: 2}, {Queue: "hook", Weight: 1}}}, "w2": {Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}, Strict: true},
	"w3": {Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}, Strict: true},
}

// TestJobsLiveAlike walks 28 times 400 steps.
func TestJobsLiveAlike(t *testing.T) {
	t.Parallel()
	for seed := range uint64(28) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			g := &lived{governed: governed{pair: newPair(t), draw: rand.New(rand.NewPCG(seed, 7))}, hands: map[string]*taken{"w1": {}, "w2": {}, "w3": {}}}
			for i := range 400 {
				g.step()
				if i%8 == 7 {
					g.compare()
				}
			}
		})
	}
}

func (g *lived) step() {
	g.tb.Helper()
	worker := one(&g.governed, "w1", "w2", "w3")
	switch g.draw.IntN(20) {
	case 0, 1, 2, 3, 4:
		g.come()
	case 5:
		slots, lease := g.draw.IntN(5), time.Duration(5+g.draw.IntN(20))*time.Second
		g.same("register "+worker, func(s store.Partition) any {
			return replied(s.Register(g.ctx, worker, livedPools[worker], slots, lease))
		})
	case 6, 7, 8:
		g.read(worker)
	case 9, 10, 11:
		g.end(worker)
	case 12:
		g.keep(worker)
	case 13:
		g.operate()
	case 14:
		g.intervene()
	case 15:
		g.call()
	case 16:
		if g.maybe(3) {
			g.edit()
		}
	default:
		g.pass()
	}
}

// read takes jobs with a worker, who may be gone.
func (g *lived) read(worker string) {
	g.tb.Helper()
	n, history := 1+g.draw.IntN(3), g.maybe(10)
	var all [2][]store.Lease
	i := 0
	g.same(fmt.Sprintf("read %d by %s", n, worker), func(s store.Partition) any {
		leases, err := s.Read(g.ctx, worker, livedPools[worker].ID(), n, -1, history)
		all[i] = leases
		i++
		if err != nil {
			return "gone" // What Redis says besides is its own.
		}
		shown := make([]store.Lease, len(leases))
		for k, l := range leases {
			l.Token, l.Plain, l.Uncounted = "", false, "" // The latter are hints of a store to itself.
			shown[k] = l
		}
		return shown
	})
	if hand := g.hands[worker]; !history {
		hand[0], hand[1] = append(hand[0], all[0]...), append(hand[1], all[1]...)
	}
}

// end ends jobs that a worker holds, or held, in every way.
func (g *lived) end(worker string) {
	g.tb.Helper()
	hand := g.hands[worker]
	n := min(len(hand[0]), 1+g.draw.IntN(3))
	hows := make([]store.Finish, n)
	for i := range hows {
		hows[i] = one(&g.governed,
			store.Finish{Outcome: store.Complete}, store.Finish{Outcome: store.Complete, Result: []byte("ok"), KeepResult: time.Minute, Ran: time.Second},
			store.Finish{Outcome: store.Retry, Delay: time.Duration(g.draw.IntN(3)) * time.Second, Text: "busy"}, store.Finish{Outcome: store.Kill, Reason: "failed", Text: "no"},
			store.Finish{Outcome: store.Release, Delay: time.Duration(g.draw.IntN(2)) * time.Second}, store.Finish{Outcome: store.Expire})
	}
	plain, stale := g.maybe(2), g.maybe(8)
	i := 0
	g.same(fmt.Sprintf("finish %+v by %s", hows, worker), func(s store.Partition) any {
		var ends []store.Finish
		for k, how := range hows {
			l := hand[i][k]
			f := l.Finish(how.Outcome)
			f.Delay, f.Reason, f.Text, f.Ran, f.Result, f.KeepResult = how.Delay, how.Reason, how.Text, how.Ran, how.Result, how.KeepResult
			if !plain {
				f.Plain, f.Queue, f.Downstream, f.Uncounted = false, "", "", ""
			}
			ends = append(ends, f)
		}
		i++
		if len(ends) == 0 {
			return nil
		}
		return replied(s.Finish(g.ctx, livedPools[worker].ID(), worker, ends))
	})
	if !stale { // Else they are ended again, later.
		hand[0], hand[1] = hand[0][n:], hand[1][n:]
	}
}

// keep does what a worker does beside its jobs.
func (g *lived) keep(worker string) {
	g.tb.Helper()
	id := livedPools[worker].ID()
	switch g.draw.IntN(4) {
	case 0:
		g.same("reclaim "+worker, func(s store.Partition) any { return replied(s.Reclaim(g.ctx, worker)) })
	case 1:
		g.same("registration", func(s store.Partition) any { return replied(s.Registration(g.ctx, id, worker)) })
		g.same("demand", func(s store.Partition) any { return replied(s.Demand(g.ctx, livedPools[worker])) })
	case 2:
		i := 0
		g.same("started", func(s store.Partition) any {
			leases := g.hands[worker][i]
			i++
			at := slices.IndexFunc(leases, func(l store.Lease) bool { return l.Suspect }) // Of others no worker says it.
			if at < 0 {
				return nil
			}
			l := leases[at]
			return replied(s.Started(g.ctx, id, worker, l.Token, admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}))
		})
	default:
		g.same("heartbeat "+worker, func(s store.Partition) any {
			beat, err := s.Heartbeat(g.ctx, worker, 10*time.Second)
			for i := range beat.Cancelled {
				beat.Cancelled[i].Token = ""
			}
			return replied(beat, err)
		})
	}
}

// operate does to jobs what people do.
func (g *lived) operate() {
	g.tb.Helper()
	by := store.Intervention{Author: "ada", Reason: "to see", Act: one(&g.governed, "", "x")}
	key := admission.Key{Tenant: one(&g.governed, governedNames...), ID: fmt.Sprint("j", 1+g.draw.IntN(g.ids+1))}
	switch g.draw.IntN(8) {
	case 0, 1:
		g.same("cancel "+key.String(), func(s store.Partition) any { return replied(s.Cancel(g.ctx, key, by)) })
	case 2:
		g.same("purge", func(s store.Partition) any { return replied(s.Purge(g.ctx, g.keys, by)) })
	case 3:
		g.same("clear", func(s store.Partition) any { return replied(s.ClearTenant(g.ctx, key.Tenant, "mail", by)) })
	case 4:
		name := one(&g.governed, store.QueueGate("mail"), store.TenantGate("ann"), store.TenantQueueGate("bob", "hook"))
		length := time.Duration(g.draw.IntN(3)) * time.Second
		g.same("suspend", func(s store.Partition) any { return replied(s.Suspend(g.ctx, name, length, by)) })
	case 5:
		name := one(&g.governed, store.QueueGate("mail"), store.TenantGate("ann"), store.TenantQueueGate("bob", "hook"))
		g.same("resume", func(s store.Partition) any { return replied(s.Resume(g.ctx, name, by)) })
	case 6:
		g.same("result", func(s store.Partition) any { return replied(s.Result(g.ctx, key)) })
		g.same("payload", func(s store.Partition) any { return replied(s.Payload(g.ctx, key)) })
	default:
		to := one(&g.governed, breaker.Open, breaker.Closed)
		g.same("force", func(s store.Partition) any { return replied(s.ForceBreaker(g.ctx, "api", to, 2*time.Second, by)) })
	}
}

// call tells of calls of a downstream.
func (g *lived) call() {
	g.tb.Helper()
	g.reports++
	o := outcomes(g.reports, 0, uint64(g.draw.IntN(3)), uint64(g.draw.IntN(9)))
	o.Downstream = one(&g.governed, "api", "db")
	g.report(store.Reporter{Name: "w1"}, o)
}

// pass lets time pass.
func (g *lived) pass() {
	g.tb.Helper()
	g.move(time.Duration(g.draw.IntN(3000)) * time.Millisecond)
	g.same("promote", func(s store.Partition) any {
		done, err := s.PromoteAfter(g.ctx, store.LeapSilence, "s1", time.Second)
		return replied(done.More, done.Moved, done.Stepped, err)
	})
}

// compare looks at everything.
func (g *lived) compare() {
	g.tb.Helper()
	g.same("gates", func(s store.Partition) any { return replied(s.Gates(g.ctx)) })
	g.same("queues", func(s store.Partition) any { return replied(s.Queues(g.ctx)) })
	g.same("census", func(s store.Partition) any { return replied(s.Census(g.ctx)) })
	g.same("workers", func(s store.Partition) any { return replied(s.Workers(g.ctx)) })
	g.keys = g.keys[:0]
	for _, row := range g.list(store.ListQuery{Limit: 1000}) {
		g.keys = append(g.keys, row.Key)
	}
}
