package policy

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// triggerPolicy is a policy in which each trigger has what it may need.
func triggerPolicy(triggers map[string]Trigger) Policy {
	return Policy{
		Load: &LoadRules{}, Global: admission.PerSecond(100),
		Queues: map[string]Queue{
			"mail": {Pressure: &PressureRules{TargetWait: time.Second}, EachTenant: EachTenant{Limit: admission.PerSecond(5)}}, "bare": {},
		},
		Shedding:    &Shedding{Order: []admission.Priority{"low", "medium", "high"}, At: map[string][]string{"HIGH": {"low"}}},
		Downstreams: map[string]Downstream{"smtp": {MaxRunning: 40}, "sms": {Dispatch: new(admission.PerSecond(10))}, "none": {MaxParked: 5}},
		Triggers:    triggers,
	}
}

func aTrigger() Trigger {
	return Trigger{Metric: MetricErrors, MeasuredOf: "queue mail", When: TriggerBound{Above: new(.05)}, Do: ReduceLimit, Of: "downstream smtp", By: -.2}
}

// TestABadTriggerNamesItsField, the value and what is allowed: one error for each.
func TestABadTriggerNamesItsField(t *testing.T) {
	t.Parallel()
	const queueOrGlobal = `allowed is "queue NAME", or "global" for all queues`
	const limits = `allowed is "global" with a global limit, "queue NAME" with limits, or "downstream NAME", one of "downstreams" with a `
	for want, change := range map[string]func(a *Trigger){
		`invalid triggers.t.when.metric "cpu": allowed is one of "cpu_utilization", "memory_utilization", "error_rate", "queue_depth", "wait", "wait_p95", "run_p95", "backpressure_level", "redis_memory", "breaker_state"`: func(a *Trigger) { a.Metric = "cpu" },
		`invalid triggers.t.when.of "queue a b": ` + queueOrGlobal:                                                            func(a *Trigger) { a.MeasuredOf = "queue a b" },
		`invalid triggers.t.when.of "downstream smtp": ` + queueOrGlobal:                                                      func(a *Trigger) { a.Metric, a.MeasuredOf = MetricDepth, "downstream smtp" },
		`invalid triggers.t.when.of "downstream a b": allowed is "downstream NAME"`:                                           func(a *Trigger) { a.MeasuredOf = "downstream a b" },
		`invalid triggers.t.when.of "queue mail": allowed is "downstream NAME", whose circuit breaker it is`:                  func(a *Trigger) { a.Metric = MetricBreaker },
		`invalid triggers.t.when.of "queue mail": allowed is "global", or nothing: it is the memory of Redis`:                 func(a *Trigger) { a.Metric = MetricRedis },
		`invalid triggers.t.when.of "queue bare": allowed is "queue NAME" with a pressure, or "global" where a queue has one`: func(a *Trigger) { a.Metric, a.MeasuredOf = MetricPressure, "queue bare" },
		`invalid triggers.t.when.for 1ms: allowed is 1s to 1h`:                                                                func(a *Trigger) { a.When.For, a.Until.For = time.Millisecond, time.Second },
		`invalid triggers.t.until.for 2h: allowed is 1s to 1h`:                                                                func(a *Trigger) { a.Until.For = 2 * time.Hour },
		`invalid triggers.t.when 2e+12: allowed is a bound of 0 to 1e+12`:                                                     func(a *Trigger) { a.When.Above, a.Until.Below = new(2e12), new(1.0) },
		`invalid triggers.t.when neither or both of above and below: allowed is one of them`:                                  func(a *Trigger) { a.When.Below, a.Until.Below = new(.1), new(.01) },
		`invalid triggers.t.until above 0.1 for 30s: allowed is on the other side of when`:                                    func(a *Trigger) { a.Until.Above = new(.1) },
		`invalid triggers.t.until below 0.1 for 30s: allowed is on the other side of when`:                                    func(a *Trigger) { a.Until.Below = new(.1) },
		`invalid triggers.t.do "burn": allowed is one of "reduce_limit", "suspend", "pause", "shed"`:                          func(a *Trigger) { a.Do, a.By = "burn", 0 },
		`invalid triggers.t.of "downstream none": ` + limits + `max_running`:                                                  func(a *Trigger) { a.Of = "downstream none" },
		`invalid triggers.t.of "downstream smtp": ` + limits + `dispatch`:                                                     func(a *Trigger) { a.Moves = MovesDispatch },
		`invalid triggers.t.of "queue bare": ` + limits + `max_running`:                                                       func(a *Trigger) { a.Of = "queue bare" },
		`invalid triggers.t.moves "all": allowed is "max_running" or "dispatch", of a downstream`:                             func(a *Trigger) { a.Moves = "all" },
		`invalid triggers.t.moves "dispatch": allowed is "max_running" or "dispatch", of a downstream`:                        func(a *Trigger) { a.Of, a.Moves = "global", MovesDispatch },
		`invalid triggers.t.by 0: allowed is -0.99 to -0.01: by which part the limit is less`:                                 func(a *Trigger) { a.By = 0 },
		`invalid triggers.t.by 0.2: allowed is -0.99 to -0.01`:                                                                func(a *Trigger) { a.By = .2 },
		`invalid triggers.t.by NaN: allowed is -0.99 to -0.01`:                                                                func(a *Trigger) { a.By = math.NaN() },
		`invalid triggers.t.by -0.2: allowed is none, but of reduce_limit`:                                                    func(a *Trigger) { a.Do = PauseJobs },
		`invalid triggers.t.of "global": allowed is "queue NAME" or "downstream NAME"`:                                        func(a *Trigger) { a.Do, a.Of, a.By = PauseJobs, "global", 0 },
		`invalid triggers.t.of "downstream smtp": allowed is "queue NAME"`:                                                    func(a *Trigger) { a.Do, a.By = SuspendQueue, 0 },
		`invalid triggers.t.of "queue bare": allowed is "queue NAME" with a pressure, in a policy with a shedding`:            func(a *Trigger) { a.Do, a.Of, a.By = ShedJobs, "queue bare", 0 },
		`invalid triggers.t.level "NONE": allowed is "LOW", "MEDIUM", "HIGH" or "CRITICAL"`:                                   func(a *Trigger) { a.Do, a.Of, a.By, a.Level = ShedJobs, "queue mail", 0, "NONE" },
		`invalid triggers.t.level "HIGH": allowed is none, but of shed`:                                                       func(a *Trigger) { a.Level = "HIGH" },
		`invalid triggers.t.when.metric "backpressure_level": allowed is another, of shed`:                                    func(a *Trigger) { a.Metric, a.Do, a.Of, a.By = MetricPressure, ShedJobs, "queue mail", 0 },
		`invalid triggers.t.priority 1001: allowed is 1 to 1000`:                                                              func(a *Trigger) { a.Priority = 1001 },
	} {
		a := aTrigger()
		change(&a)
		err := triggerPolicy(map[string]Trigger{"t": a}).Validate()
		if err == nil || !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	p := triggerPolicy(map[string]Trigger{"t": aTrigger()})
	p.Load = nil
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), `invalid triggers 1 triggers: allowed is none without a load`) {
		t.Errorf("without a load: %v", err)
	}
	p = triggerPolicy(map[string]Trigger{"t": aTrigger()})
	p.Adaptive = map[string]Adaptive{"t": {Of: "downstream smtp", Min: 1}}
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), `invalid triggers "t": allowed is another name than one of adaptive`) {
		t.Errorf("with the name of an adaptive: %v", err)
	}
}

// TestTriggersAreWrittenAndRead as they were, with the defaults filled in.
func TestTriggersAreWrittenAndRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := aTrigger()
		a.Priority, a.Disabled = rapid.IntRange(0, MaxTriggerPriority).Draw(t, "priority"), rapid.Bool().Draw(t, "disabled")
		a.When.For = time.Duration(rapid.IntRange(0, 60).Draw(t, "for")) * time.Second
		if rapid.Bool().Draw(t, "until") {
			a.Until = TriggerBound{Below: new(rapid.Float64Range(0, .05).Draw(t, "below")), For: time.Minute}
		}
		p := triggerPolicy(map[string]Trigger{"t": a})
		text, err := Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Unmarshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if changes, err := Diff(p, again); err != nil || len(changes) > 0 {
			t.Fatalf("%s differs: %v, %v", text, changes, err)
		}
		compiled, err := again.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(compiled.Triggers()); n != 1 && !a.Disabled || n != 0 && a.Disabled {
			t.Fatalf("%d triggers of one that is disabled: %v", n, a.Disabled)
		}
	})
}

// TestWhatTriggersReduceMoves between the policy's limit and the least that one of them leaves; what an adaptive moves keeps its own bounds.
func TestWhatTriggersReduceMoves(t *testing.T) {
	t.Parallel()
	of := func(of string, by float64) Trigger {
		a := aTrigger()
		a.Of, a.By = of, by
		return a
	}
	sms, off := of("downstream sms", -.5), of("queue mail", -.9)
	sms.Moves, off.Disabled = MovesDispatch, true
	p := triggerPolicy(map[string]Trigger{
		"a": of("downstream smtp", -.1), "b": of("downstream smtp", -.5), "c": of("global", -.25), "d": of("queue mail", -.3), "e": sms, "off": off,
	})
	bounds := func(p Policy) (got []string) {
		t.Helper()
		c, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range c.Moving() {
			least, most := m.Config.Min+m.Rate.Min+m.Part.Min, m.Config.Max+m.Rate.Max+m.Part.Max
			got = append(got, m.Name+" "+m.bound()+" "+string(rune('0'+least*10/most))+map[bool]string{true: " driven"}[m.Driven])
		}
		return got
	}
	want := []string{"a max_running smtp 5 driven", "c global 7 driven", "d queue mail 7 driven", "e dispatch sms 5 driven"}
	if got := bounds(p); !slices.Equal(got, want) {
		t.Errorf("what moves is %q, want %q", got, want)
	}
	p.Adaptive = map[string]Adaptive{"out": {Of: "downstream smtp", Min: 36}}
	want = []string{"out max_running smtp 9", "c global 7 driven", "d queue mail 7 driven", "e dispatch sms 5 driven"}
	if got := bounds(p); !slices.Equal(got, want) {
		t.Errorf("with an adaptive what moves is %q, want %q", got, want)
	}
	p.Triggers, p.Adaptive = map[string]Trigger{"off": off}, nil
	if got := bounds(p); len(got) > 0 {
		t.Errorf("what is disabled moves %q", got)
	}
}
