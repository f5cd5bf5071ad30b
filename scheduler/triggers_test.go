package scheduler_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
)

// triggerBench is a deployment with triggers that look at how many jobs of mail wait, of which more than 10 are too many.
type triggerBench struct {
	t     *testing.T
	store store.Deployment
	put   func(triggers map[string]policy.Trigger, adaptive map[string]policy.Adaptive)
}

func deep(do, of string) policy.Trigger {
	return policy.Trigger{Metric: policy.MetricDepth, MeasuredOf: "queue mail", When: policy.TriggerBound{Above: new(10.0), For: time.Second}, Do: do, Of: of}
}

func newTriggerBench(t *testing.T) *triggerBench {
	t.Helper()
	return triggerBenchOn(t, open(t, redistest.Shared(t).Client(t)))
}

func triggerBenchOn(t *testing.T, s store.Deployment) *triggerBench {
	t.Helper()
	b := &triggerBench{t: t, store: s}
	b.put = func(triggers map[string]policy.Trigger, adaptive map[string]policy.Adaptive) {
		t.Helper()
		p := policy.Unlimited()
		p.Load, p.Global = &policy.LoadRules{}, admission.PerSecond(1000)
		p.Queues = map[string]policy.Queue{"mail": {
			EachTenant: policy.EachTenant{Limit: admission.PerSecond(100)}, Pressure: &policy.PressureRules{MaxDepth: 1000, Interval: 200 * time.Millisecond},
		}}
		p.Shedding = &policy.Shedding{Order: []admission.Priority{"low", "medium"}, Reserve: []admission.Priority{"high"}, At: map[string][]string{"HIGH": {"low"}}}
		p.Downstreams = map[string]policy.Downstream{"smtp": {MaxRunning: 40}, "sms": {Dispatch: new(admission.PerSecond(10))}}
		p.Triggers, p.Adaptive = triggers, adaptive
		if _, err := rollout.Put(t.Context(), b.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// part is how much is in force of a limit that triggers reduce, and why.
func (b *triggerBench) part(gate store.GateName) (float64, string) {
	b.t.Helper()
	all, err := b.store.Adaptations(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range all {
		if a.Gate == gate {
			return float64(a.Limit) / float64(a.Own), a.Why
		}
	}
	b.t.Fatalf("nothing moves %s", gate)
	return 0, ""
}

// heldBy is who holds a queue back, jobs of it (HeldDispatch) or ones that come to it.
func (b *triggerBench) heldBy(gate store.GateName, what store.Held) string {
	b.t.Helper()
	holds, err := b.store.Holds(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, h := range holds {
		if h.Name == gate && h.What == what {
			return h.Author
		}
	}
	return ""
}

func (b *triggerBench) level() admission.PressureLevel {
	b.t.Helper()
	loads, err := b.store.Loads(b.t.Context(), []string{"mail"})
	if err != nil {
		b.t.Fatal(err)
	}
	return loads[0].Level
}

// acting are the triggers that are noted, by name.
func (b *triggerBench) acting() (names []string, since time.Time) {
	b.t.Helper()
	all, err := b.store.Triggers(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range all {
		names, since = append(names, s.Name), s.Since
	}
	return names, since
}

// until is until when a trigger is taken to act.
func (b *triggerBench) until(name string) time.Time {
	b.t.Helper()
	all, err := b.store.Triggers(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			return s.Until
		}
	}
	b.t.Fatalf("%s does not act", name)
	return time.Time{}
}

// told counts what the audit says of triggers.
func (b *triggerBench) told(action string) int {
	b.t.Helper()
	page, err := b.store.Audit(b.t.Context(), store.AuditQuery{Limit: store.MaxPage, Action: action})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(page.Entries)
}

func (b *triggerBench) empty() {
	b.t.Helper()
	if _, _, err := b.store.Partitions()[0].ClearTenant(b.t.Context(), "acme", "mail", store.Intervention{}); err != nil {
		b.t.Fatal(err)
	}
}

// TestTriggersAct on everything that they may, while too many jobs wait: under a scheduler that takes over as before, and until the jobs are gone. Then
// all is as the policy says, and the audit has a begin and an end of each.
func TestTriggersAct(t *testing.T) {
	t.Parallel()
	b := newTriggerBench(t)
	half, fifth, sms := deep(policy.ReduceLimit, "downstream smtp"), deep(policy.ReduceLimit, "downstream smtp"), deep(policy.ReduceLimit, "downstream sms")
	half.By, fifth.By, fifth.Priority, sms.By, sms.Moves = -.5, -.2, 200, -.5, policy.MovesDispatch
	mail, global := deep(policy.ReduceLimit, "queue mail"), deep(policy.ReduceLimit, "global")
	mail.By, global.By = -.3, -.9
	never := deep(policy.PauseJobs, "queue fax")
	never.Disabled = true
	b.put(map[string]policy.Trigger{
		"half": half, "fifth": fifth, "sms": sms, "mail": mail, "global": global, "stop": deep(policy.PauseJobs, "queue hook"), "stop-too": deep(policy.PauseJobs, "queue hook"),
		"quiet": deep(policy.PauseJobs, "downstream slow"), "close": deep(policy.SuspendQueue, "queue hook"), "shed": deep(policy.ShedJobs, "queue mail"), "never": never,
	}, nil)
	hook := store.QueueGate("hook")
	state := func() map[string]any {
		got := map[string]any{
			"paused": b.heldBy(hook, store.HeldDispatch), "slow": b.heldBy(store.DownstreamGate("slow"), store.HeldDispatch), "suspended": b.heldBy(hook, store.HeldEnqueue),
			"fax": b.heldBy(store.QueueGate("fax"), store.HeldDispatch), "level": b.level(),
		}
		for _, gate := range []store.GateName{store.DownstreamGate("smtp"), store.DownstreamRateGate("sms"), store.QueueLimitsGate("mail"), store.GlobalLimitGate} {
			got[string(gate)], _ = b.part(gate)
		}
		return got
	}
	is := func(smtp, sms, mail, global float64, by string, level admission.PressureLevel) func() bool {
		return func() bool {
			want := map[string]any{
				"paused": by, "slow": by, "suspended": by, "fax": "", "level": level,
				"d:smtp": smtp, "s:sms": sms, "l:q:mail": mail, "l:global": global,
			}
			got := state()
			for name := range want {
				if got[name] != want[name] {
					return false
				}
			}
			return true
		}
	}
	stop := run(t, b.store, scheduler.Config{TimerLease: time.Second})
	await(t, "a level", func() bool { return b.level() == admission.PressureNone })
	fill(t, b.store, 20)
	await(t, "all to act", is(.8, .5, .7, .1, store.TriggerAuthor, admission.PressureHigh))
	if _, why := b.part(store.DownstreamGate("smtp")); why != "trigger fifth" {
		t.Errorf("smtp is reduced for %q", why)
	}
	await(t, "notes", func() bool { names, _ := b.acting(); return len(names) == 10 })
	_, since := b.acting()
	stop()
	again := run(t, b.store, scheduler.Config{TimerLease: time.Second})
	time.Sleep(3 * time.Second)                                                                                     //nolint:forbidigo // three looks of the one that took over, none of which may change anything
	await(t, "all to act after another took over", is(.8, .5, .7, .1, store.TriggerAuthor, admission.PressureHigh)) // A level may have lapsed between them.
	all, err := b.store.Adaptations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Raised != 0 {
			t.Errorf("%s has come back for a moment: %v", a.Gate, state())
		}
	}
	if _, after := b.acting(); !after.Equal(since) {
		t.Errorf("they act since %v, before since %v", after, since)
	}
	b.empty()
	await(t, "the end of all", is(1, 1, 1, 1, "", admission.PressureNone))
	await(t, "no notes", func() bool { names, _ := b.acting(); return len(names) == 0 })
	again()
	if begun, ended := b.told(store.AuditTrigger), b.told(store.AuditTriggerEnd); begun != 10 || ended != 10 {
		t.Errorf("the audit has %d that began and %d that ended", begun, ended)
	}
	if pauses, ends := b.told(store.AuditPause), b.told(store.AuditUnpause); pauses != 2 || ends != 2 {
		t.Errorf("the audit has %d pauses and %d ends of one", pauses, ends)
	}
}

// TestWhatATriggerDidEndsWithIt: as it leaves the policy, also where nothing is left by which there is anything to look at; and what it holds back has an end
// of its own, for where nobody looks any more.
func TestWhatATriggerDidEndsWithIt(t *testing.T) {
	t.Parallel()
	b := newTriggerBench(t)
	cut := deep(policy.ReduceLimit, "global")
	cut.By = -.5
	stop := deep(policy.PauseJobs, "queue hook")
	b.put(map[string]policy.Trigger{"stop": stop, "stop-too": stop, "cut": cut}, nil)
	run(t, b.store, scheduler.Config{TimerLease: time.Second})
	hook := store.QueueGate("hook")
	fill(t, b.store, 20)
	await(t, "a pause", func() bool { return b.heldBy(hook, store.HeldDispatch) == store.TriggerAuthor })
	holds, err := b.store.Holds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(holds, func(h store.Hold) bool { return h.Name == hook })
	now, err := b.store.Time(t.Context())
	if left := holds[at].Until.Sub(now); err != nil || left <= 0 || left > store.TriggerLife {
		t.Errorf("the pause lasts %v more, %v", left, err)
	}
	await(t, "notes", func() bool { names, _ := b.acting(); return len(names) == 3 })
	b.put(map[string]policy.Trigger{"stop-too": stop, "cut": cut}, nil)
	await(t, "one to be gone", func() bool { names, _ := b.acting(); return len(names) == 2 })
	if ends := b.told(store.AuditUnpause); ends != 0 || b.heldBy(hook, store.HeldDispatch) != store.TriggerAuthor {
		t.Errorf("what another trigger does too has ended: %d", ends)
	}
	if _, err := rollout.Put(t.Context(), b.store, policy.Unlimited(), rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	await(t, "its end", func() bool { return b.heldBy(hook, store.HeldDispatch) == "" })
	await(t, "no notes", func() bool { names, _ := b.acting(); return len(names) == 0 })
}

// TestTriggersLeaveOperatorsAlone: what somebody else has paused stays so, a limit that is frozen too, and one that moves by itself is never above what
// it was, nor below its min.
func TestTriggersLeaveOperatorsAlone(t *testing.T) {
	t.Parallel()
	b := newTriggerBench(t)
	cut, sms := deep(policy.ReduceLimit, "downstream smtp"), deep(policy.ReduceLimit, "downstream sms")
	cut.By, sms.By, sms.Moves = -.9, -.5, policy.MovesDispatch
	b.put(map[string]policy.Trigger{"cut": cut, "sms": sms, "stop": deep(policy.PauseJobs, "queue hook"), "close": deep(policy.SuspendQueue, "queue hook")},
		map[string]policy.Adaptive{"out": {Of: "downstream smtp", Min: 10, Max: 20}})
	hook, by := store.QueueGate("hook"), store.Intervention{Author: "ada"}
	if _, err := b.store.Pause(t.Context(), hook, time.Hour, by); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Suspend(t.Context(), hook, time.Minute, by); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.Freeze(t.Context(), store.DownstreamRateGate("sms"), true, by); err != nil {
		t.Fatal(err)
	}
	run(t, b.store, scheduler.Config{TimerLease: time.Second})
	fill(t, b.store, 20)
	await(t, "the limit at its min", func() bool { part, _ := b.part(store.DownstreamGate("smtp")); return part == .25 })
	await(t, "notes", func() bool { names, _ := b.acting(); return len(names) == 4 })
	b.empty()
	await(t, "the limit as it was", func() bool { part, _ := b.part(store.DownstreamGate("smtp")); return part == .5 })
	await(t, "no notes", func() bool { names, _ := b.acting(); return len(names) == 0 })
	if pause, suspend := b.heldBy(hook, store.HeldDispatch), b.heldBy(hook, store.HeldEnqueue); pause != "ada" || suspend != "ada" {
		t.Errorf("ada's pause is %q's, and the suspension %q's", pause, suspend)
	}
	if part, why := b.part(store.DownstreamRateGate("sms")); part != 1 || why != "" {
		t.Errorf("what is frozen is %g for %q", part, why)
	}
}

// TestAReducedLimitComesBackToWhereItWas, whoever reduced it: what it was is not what the trigger left, by any scheduler that takes over meanwhile, nor by an
// operator who freezes it meanwhile.
func TestAReducedLimitComesBackToWhereItWas(t *testing.T) {
	t.Parallel()
	b := newTriggerBench(t)
	cut := deep(policy.ReduceLimit, "downstream smtp")
	cut.By = -.9
	b.put(map[string]policy.Trigger{"cut": cut}, map[string]policy.Adaptive{"out": {Of: "downstream smtp", Min: 10, Max: 20}})
	smtp, by := store.DownstreamGate("smtp"), store.Intervention{Author: "ada"}
	is := func(want float64) func() bool { return func() bool { part, _ := b.part(smtp); return part == want } }
	stop := run(t, b.store, scheduler.Config{TimerLease: 200 * time.Millisecond})
	fill(t, b.store, 20)
	await(t, "the limit at its min", is(.25))
	stop()
	stop = run(t, b.store, scheduler.Config{TimerLease: 200 * time.Millisecond})
	noted := b.until("cut")
	await(t, "the second to go on", func() bool { return b.until("cut").After(noted) })
	stop()
	if _, err := b.store.Freeze(t.Context(), smtp, true, by); err != nil {
		t.Fatal(err)
	}
	b.empty()
	run(t, b.store, scheduler.Config{TimerLease: 200 * time.Millisecond})
	await(t, "no notes", func() bool { names, _ := b.acting(); return len(names) == 0 })
	if !is(.25)() {
		t.Error("what is frozen has moved")
	}
	if _, err := b.store.Freeze(t.Context(), smtp, false, by); err != nil {
		t.Fatal(err)
	}
	await(t, "the limit as it was", is(.5))
}
