package crash_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
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

// triggersAtATime are walked beside each other. They wait nearly all of the time.
const triggersAtATime = 12

// triggerEnd is why triggers end in a walk, and by when the writes count of which one is the last of their scheduler.
type triggerEnd struct {
	name string
	// least is how many writes there are at least.
	least int64
	// begin has those count by which they begin, too.
	begin bool
	// gone says that their cause is gone before another scheduler takes over from one that died as they began, edited that the policy has them no more.
	gone, edited bool
	cuts         []redistest.Cut
}

// TestASchedulerDiesAtEachWriteOfTriggers has one die at each of the writes by which triggers of all kinds begin, and by which they end. It is cut off from Redis for
// good, before Redis has that write or after. Nothing that it reads changes anything, so these are all of its moments. All that triggers act on is as
// they leave it, or as the policy says, and nothing else, at any time; and when another scheduler has gone on, it is all the one, and in the end
// all the other, by what that one did and not for what was done has an end of its own.
func TestASchedulerDiesAtEachWriteOfTriggers(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var running sync.WaitGroup
	before := []redistest.Cut{redistest.CutBefore} // After a write that is the last is before the next one: one of the three shows it.
	for _, end := range []triggerEnd{
		{name: "their cause is gone", least: 24, begin: true, cuts: []redistest.Cut{redistest.CutBefore, redistest.CutAfter}},
		{name: "their cause is gone meanwhile", least: 13, begin: true, gone: true, cuts: before},
		{name: "the policy has none", least: 9, edited: true, cuts: before},
	} {
		for _, cut := range end.cuts {
			redistest.EveryPoint(t, &running, triggersAtATime, end.name, cut, end.least, func(t *testing.T, k int) (killed, over bool) {
				t.Helper()
				killed = newTriggerWalk(t, server, int64(k), cut).walk(end)
				return killed, !killed
			})
		}
	}
	running.Wait()
}

// triggerWalk is one run.
type triggerWalk struct {
	*desk
	// first is the deployment through the proxy that cuts its scheduler off, at its write number k since it counts.
	first  store.Deployment
	k      int64
	counts atomic.Bool
	mu     struct {
		sync.Mutex
		writes int64
		last   string
	}
	dead atomic.Bool
	// leave ends the first scheduler, nil when the second has taken over.
	leave func()
}

func newTriggerWalk(t *testing.T, server *redistest.Server, k int64, cut redistest.Cut) *triggerWalk {
	t.Helper()
	w := &triggerWalk{desk: newDesk(t, server), k: k}
	proxy := redistest.NewProxy(t, server.Addr())
	var err error
	w.first, err = redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: w.prefix})
	w.check(err)
	proxy.Decide(func(c redistest.Command) redistest.Action {
		switch {
		case w.dead.Load():
			return redistest.Action{Cut: redistest.CutBefore}
		case w.counts.Load() && c.IsScript() && w.isNext(c.Args[0]):
			w.dead.Store(true)
			return redistest.Action{Cut: cut}
		}
		return redistest.Action{}
	})
	return w
}

// isNext counts a script that does something for triggers, and reports whether it is the kth. A level is measured again and again: of several in a row the
// first one counts.
func (w *triggerWalk) isNext(script string) bool {
	name := script[strings.LastIndex(script, "_")+1:]
	w.mu.Lock()
	defer w.mu.Unlock()
	switch name {
	case "trigger", "gate", "suspend", "adapt":
	case "pressure":
		if w.mu.last == name {
			return false
		}
	default:
		return false
	}
	w.mu.last = name
	w.mu.writes++
	return w.mu.writes == w.k
}

// rules is a policy with a trigger of each kind, or with none.
func (w *triggerWalk) rules(triggers bool) {
	w.Helper()
	p := policy.Unlimited()
	p.Load, p.Global = &policy.LoadRules{}, admission.PerSecond(1000)
	p.Queues = map[string]policy.Queue{"mail": {
		EachTenant: policy.EachTenant{Limit: admission.PerSecond(100)}, Pressure: &policy.PressureRules{MaxDepth: 1000, Interval: 200 * time.Millisecond},
	}}
	p.Shedding = &policy.Shedding{Order: []admission.Priority{"low", "medium"}, Reserve: []admission.Priority{"high"}, At: map[string][]string{"HIGH": {"low"}}}
	p.Downstreams = map[string]policy.Downstream{"smtp": {MaxRunning: 40}, "sms": {Dispatch: new(admission.PerSecond(10))}}
	if triggers {
		p.Triggers = map[string]policy.Trigger{}
		for name, does := range map[string]policy.Trigger{
			"smtp": {Do: policy.ReduceLimit, Of: "downstream smtp", By: -.5}, "sms": {Do: policy.ReduceLimit, Of: "downstream sms", Moves: policy.MovesDispatch, By: -.5},
			"mail": {Do: policy.ReduceLimit, Of: "queue mail", By: -.3}, "all": {Do: policy.ReduceLimit, Of: "global", By: -.9},
			"stop": {Do: policy.PauseJobs, Of: "queue hook"}, "close": {Do: policy.SuspendQueue, Of: "queue hook"}, "shed": {Do: policy.ShedJobs, Of: "queue mail"},
		} {
			does.Metric, does.MeasuredOf, does.When = policy.MetricDepth, "queue mail", policy.TriggerBound{Above: new(2.0), For: time.Second}
			p.Triggers[name] = does
		}
	}
	_, err := rollout.Put(w.Context(), w.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	w.check(err)
}

// What is in force of all that triggers act on, as the policy says and as they leave it.
var (
	asThePolicySays  = map[string]string{"smtp": "40", "sms": "10", "mail": "1", "all": "1", "stop": "", "close": "", "shed": "NONE"}
	asTriggersLeave  = map[string]string{"smtp": "20", "sms": "5", "mail": "0.7", "all": "0.1", "stop": store.TriggerAuthor, "close": store.TriggerAuthor, "shed": "HIGH"}
	partInForceUnder = map[string]string{"l:q:mail": "mail", "l:global": "all"}
)

// inForce reads it, each from what scripts go by. Whatever is neither as the policy says nor as triggers leave it is an error.
func (w *triggerWalk) inForce() map[string]string {
	w.Helper()
	got := map[string]string{"mail": "1", "all": "1", "stop": "", "close": ""}
	gates, err := w.store.Gates(w.Context())
	w.check(err)
	for _, g := range gates {
		switch g.Name {
		case store.DownstreamGate("smtp"):
			got["smtp"] = strconv.Itoa(g.Limit)
		case store.DownstreamRateGate("sms"):
			got["sms"] = strconv.FormatFloat(g.Rate, 'g', 6, 64)
		}
	}
	scales, err := w.client.HGetAll(w.Context(), redisstore.Keys(w.store).Base()+"scales").Result()
	w.check(err)
	for gate, name := range partInForceUnder {
		if text, is := scales[gate]; is {
			got[name], _, _ = strings.Cut(text, "|")
		}
	}
	holds, err := w.store.Holds(w.Context())
	w.check(err)
	for _, h := range holds {
		switch {
		case h.Name != store.QueueGate("hook"):
		case h.What == store.HeldDispatch:
			got["stop"] = h.Author
		case h.What == store.HeldEnqueue:
			got["close"] = h.Author
		}
	}
	loads, err := w.store.Loads(w.Context(), []string{"mail"})
	w.check(err)
	got["shed"] = max(loads[0].Level, admission.PressureNone).String() // A level lapses where nobody has measured for three intervals.
	for name, is := range got {
		if is != asThePolicySays[name] && is != asTriggersLeave[name] {
			w.Errorf("%s is %q, which is neither what the policy says, %q, nor what triggers leave of it, %q", name, is, asThePolicySays[name], asTriggersLeave[name])
		}
	}
	return got
}

// walk has triggers begin and end, and reports whether the first scheduler died over it.
func (w *triggerWalk) walk(end triggerEnd) (died bool) {
	w.rules(true)
	w.counts.Store(end.begin)
	w.leave = w.schedule(w.first)
	version, err := w.store.PolicyInForce(w.Context())
	w.check(err)
	for n := range 4 {
		j := admission.NewJob("acme", "mail", "send", nil)
		j.ID = fmt.Sprint("j", n)
		w.admit(version, candidate(j))
	}
	if !w.await("all to act", asTriggersLeave, 7, end.gone) {
		w.counts.Store(!end.gone)
	}
	if end.edited {
		w.rules(false)
	}
	_, _, err = w.store.Partitions()[0].ClearTenant(w.Context(), "acme", "mail", store.Intervention{})
	w.check(err)
	w.await("none to act", asThePolicySays, 0, false)
	told := map[string]int{}
	for _, action := range []string{store.AuditTrigger, store.AuditTriggerEnd, store.AuditPause, store.AuditUnpause, store.AuditSuspend, store.AuditResume} {
		page, err := w.store.Audit(w.Context(), store.AuditQuery{Limit: store.MaxPage, Action: action})
		w.check(err)
		told[action] = len(page.Entries)
	}
	if told[store.AuditTrigger] != told[store.AuditTriggerEnd] || told[store.AuditPause] != told[store.AuditUnpause] || told[store.AuditSuspend] != told[store.AuditResume] || !end.gone && told[store.AuditTrigger] != 7 {
		w.Errorf("the audit has %v", told)
	}
	return w.dead.Load()
}

// await waits until all that is in force is so and as many triggers are noted, and has another scheduler take over from one that has died; or, if it is to end by that,
// until one has, which it reports.
func (w *triggerWalk) await(what string, want map[string]string, noted int, orDead bool) (dead bool) {
	w.Helper()
	for deadline := time.Now().Add(pointPatience); ; w.pause(60 * time.Millisecond) {
		if w.dead.Load() && orDead {
			return true
		}
		if w.dead.Load() && w.leave != nil {
			w.leave()
			w.leave = nil
			w.schedule(w.store)
		}
		got := w.inForce()
		notes, err := w.store.Triggers(w.Context())
		w.check(err)
		if maps.Equal(got, want) && len(notes) == noted {
			return false
		}
		if time.Now().After(deadline) {
			w.Fatalf("waited in vain for %s: %v, %d noted", what, got, len(notes))
		}
	}
}

// schedule runs a scheduler until leave is called, or the test ends.
func (w *triggerWalk) schedule(of store.Deployment) (leave func()) {
	w.Helper()
	s, err := scheduler.New(of, scheduler.Config{TimerLease: 200 * time.Millisecond})
	w.check(err)
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	leave = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.Cleanup(leave)
	return leave
}
