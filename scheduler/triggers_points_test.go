package scheduler_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// triggerWrites are the scripts by which triggers do what they do.
var triggerWrites = []string{"trigger", "gate", "suspend", "adapt"}

// TestTriggersAtEveryPoint has a scheduler die at each of the writes by which triggers begin and end, at two partitions: it is cut off from Redis for good, before
// Redis has that write, and after. Another takes over, and all acts, then nothing does; each trigger is told of once; no limit is ever beyond its bounds, and the one that moves by itself is in the end
// what it was.
func TestTriggersAtEveryPoint(t *testing.T) {
	t.Parallel()
	dieAtEveryPoint(t, "write of triggers", 6, 20, triggersDieAt)
}

// dieAtEveryPoint plays runs whose first scheduler dies at each of its writes, before Redis has that and after.
func dieAtEveryPoint(t *testing.T, what string, atATime int, least int64, dieAt func(t *testing.T, k int64, cut redistest.Cut) bool) {
	t.Helper()
	var running sync.WaitGroup
	for _, cut := range []redistest.Cut{redistest.CutBefore, redistest.CutAfter} {
		redistest.EveryPoint(t, &running, atATime, what, cut, least, func(t *testing.T, k int) (died, over bool) {
			t.Helper()
			died = dieAt(t, int64(k), cut)
			return died, !died
		})
	}
	running.Wait()
}

// triggersDieAt is a run whose first scheduler dies at a write, and reports whether it came to that.
func triggersDieAt(t *testing.T, k int64, cut redistest.Cut) bool {
	t.Helper()
	server, prefix := redistest.Shared(t), redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{Prefix: prefix, Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	b := &triggerBench{t: t, store: s}
	b.putTwo()
	proxy := redistest.NewProxy(t, server.Addr())
	first, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: prefix, Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	var writes atomic.Int64
	var dead atomic.Bool
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if dead.Load() {
			return redistest.Action{Cut: redistest.CutBefore}
		}
		if !c.IsScript() || !writesOfTriggers(c) || writes.Add(1) != k {
			return redistest.Action{}
		}
		dead.Store(true)
		return redistest.Action{Cut: cut}
	})
	lease := scheduler.Config{TimerLease: 200 * time.Millisecond}
	leave := run(t, first, lease)
	took := false
	// all waits until as many triggers as there are act, or none does, and until then has the second scheduler take over where the first one dies.
	all := func(what string, act bool) {
		t.Helper()
		await(t, what, func() bool {
			if dead.Load() && !took {
				leave()
				run(t, s, lease)
				took = true
			}
			return b.two(act)
		})
	}
	fill(t, s, 20)
	all("all to act", true)
	b.empty()
	all("none to act", false)
	if begun, ended := b.told(store.AuditTrigger), b.told(store.AuditTriggerEnd); begun != 4 || ended != 4 {
		t.Errorf("the audit has %d that began and %d that ended", begun, ended)
	}
	return dead.Load()
}

// writesOfTriggers reports whether a script is one of triggerWrites.
func writesOfTriggers(c redistest.Command) bool {
	for _, name := range triggerWrites {
		if strings.HasSuffix(c.Args[0], "_"+name) {
			return true
		}
	}
	return false
}

// putTwo stores a policy by which each kind of what triggers do lasts.
func (b *triggerBench) putTwo() {
	b.t.Helper()
	cut, mail := deep(policy.ReduceLimit, "downstream smtp"), deep(policy.ReduceLimit, "queue mail")
	cut.By, mail.By = -.9, -.3
	p := policy.Unlimited()
	p.Load = &policy.LoadRules{}
	p.Queues = map[string]policy.Queue{"mail": {EachTenant: policy.EachTenant{Limit: admission.PerSecond(100)}}}
	p.Downstreams = map[string]policy.Downstream{"smtp": {MaxRunning: 40}}
	p.Adaptive = map[string]policy.Adaptive{"out": {Of: "downstream smtp", Min: 10, Max: 20}}
	p.Triggers = map[string]policy.Trigger{"cut": cut, "mail": mail, "stop": deep(policy.PauseJobs, "queue hook"), "close": deep(policy.SuspendQueue, "queue hook")}
	if _, err := rollout.Put(b.t.Context(), b.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		b.t.Fatal(err)
	}
}

// two reports whether in both partitions all that putTwo has triggers do is done, or nothing of it. No limit is beyond its bounds.
func (b *triggerBench) two(act bool) bool {
	b.t.Helper()
	by, smtp, mail, notes := "", 20, 1000, 0
	if act {
		by, smtp, mail, notes = store.TriggerAuthor, 10, 700, 4
	}
	hook, is := store.QueueGate("hook"), true
	for _, part := range b.store.Partitions() {
		adapted, err := part.Adaptations(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		for _, a := range adapted {
			want := smtp
			if a.Gate == store.QueueLimitsGate("mail") {
				want = mail
			}
			if a.Limit < a.Least || a.Limit > a.Most {
				b.t.Errorf("%s is %d, of %d to %d", a.Gate, a.Limit, a.Least, a.Most)
			}
			is = is && a.Limit == want && (a.Back > 0) == act
		}
		is = is && len(adapted) == 2
		holds, err := part.Holds(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		held := map[store.Held]string{}
		for _, h := range holds {
			if h.Name == hook {
				held[h.What] = h.Author
			}
		}
		is = is && held[store.HeldDispatch] == by && held[store.HeldEnqueue] == by
	}
	names, _ := b.acting()
	return is && len(names) == notes
}
