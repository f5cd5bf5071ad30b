package policy

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/control"
)

// adaptivePolicy is a policy with two downstreams and a limit of smtp that moves as a says.
func adaptivePolicy(a Adaptive) Policy {
	return Policy{
		Downstreams: map[string]Downstream{
			"smtp": {MaxRunning: 40}, "sms": {MaxParked: 7}, "push": {Dispatch: new(admission.PerMinute(600))}, "off": {Dispatch: &admission.Limit{Disabled: true}},
		},
		Adaptive: map[string]Adaptive{"mail-out": a},
	}
}

// TestABadSignalNamesItsField, the value and what is allowed: one error for each, of a downstream and of limits of admission.
func TestABadSignalNamesItsField(t *testing.T) {
	t.Parallel()
	smtp, queue := Adaptive{Of: "downstream smtp", Min: 5, Signal: SignalCPU, Target: 0.7}, Adaptive{Of: "queue mail", Min: 5, Signal: SignalWaitP95, Target: 10}
	const all = `one of "run_p95", "error_rate", "wait_p95", "cpu", "pressure"`
	for want, a := range map[string]func() Adaptive{
		`signal "luck": allowed is ` + all:                             func() Adaptive { smtp.Signal = "luck"; return smtp },
		`target 0.7: allowed is none without a signal`:                 func() Adaptive { smtp.Signal = ""; return smtp },
		`target 0.01: allowed is 0.05 to 0.95, where pressure is held`: func() Adaptive { smtp.Signal, smtp.Target = SignalPressure, .01; return smtp },
		`interval 4.9s: allowed is 5s to 5m`: func() Adaptive {
			smtp.Signal, smtp.Target, smtp.Interval = SignalPressure, .5, 4900*time.Millisecond
			return smtp
		},
		`interval 10s: allowed is 30s to 5m`:                                  func() Adaptive { smtp.Signal, smtp.Interval = SignalWaitP95, 10*time.Second; return smtp },
		`signal "cpu": allowed is none of gradient, which holds no target`:    func() Adaptive { smtp.Controller = Gradient; return smtp },
		`signal "wait_p95": allowed is none of health, which holds no target`: func() Adaptive { queue.Controller = Health; return queue },
		`controller "bang": allowed is "pid", "aimd" or "health"`:             func() Adaptive { queue.Controller = "bang"; return queue },
		`controller "gradient": allowed is "pid", "aimd" or "health": gradient looks for how many calls at a time throughput grows no more with, and a rate of admission has no such knee`: func() Adaptive { queue.Controller = Gradient; return queue },
		`kp 0.5: allowed is none, but of pid`: func() Adaptive { queue.Controller, queue.Gains.Proportional = AIMD, .5; return queue },
		`controller "gradient": allowed is "pid" or "aimd": gradient looks for how many calls at a time throughput grows no more with, and a rate of dispatches has no such knee`: func() Adaptive {
			smtp.Of, smtp.Moves, smtp.Controller = "downstream push", MovesDispatch, Gradient
			return smtp
		},
		`controller "health": allowed is "pid" or "aimd"`: func() Adaptive {
			smtp.Of, smtp.Moves, smtp.Controller = "downstream push", MovesDispatch, Health
			return smtp
		},
		`controller "bang": allowed is "pid" or "aimd"`: func() Adaptive {
			smtp.Of, smtp.Moves, smtp.Controller = "downstream push", MovesDispatch, "bang"
			return smtp
		},
		`ki 1: allowed is none, but of pid`: func() Adaptive {
			smtp.Of, smtp.Moves, smtp.Controller, smtp.Gains.Integral = "downstream push", MovesDispatch, AIMD, 1
			return smtp
		},
		`max_run_time 1s: allowed is none where a dispatch moves: it goes by its signal, and by what the receiver refuses`: func() Adaptive {
			smtp.Of, smtp.Moves, smtp.MaxRunTime = "downstream push", MovesDispatch, time.Second
			return smtp
		},
		`max_failures 0.5: allowed is none where a dispatch moves: it goes by its signal, and by what the receiver refuses`: func() Adaptive {
			smtp.Of, smtp.Moves, smtp.MaxFailures = "downstream push", MovesDispatch, .5
			return smtp
		},
		`min 601: allowed is 1 to 600`:                                                                                                             func() Adaptive { smtp.Of, smtp.Moves, smtp.Min = "downstream push", MovesDispatch, 601; return smtp },
		`target 0: allowed is 0.05 to 0.95, where cpu is held`:                                                                                     func() Adaptive { smtp.Target = 0; return smtp },
		`target 1: allowed is 0.05 to 0.95, where cpu is held`:                                                                                     func() Adaptive { smtp.Target = 1; return smtp },
		`target 1: allowed is 0.001 to 0.95, where error_rate is held`:                                                                             func() Adaptive { smtp.Signal, smtp.Target = SignalErrors, 1; return smtp },
		`target 301: allowed is 0.001 to 300 seconds, where run_p95 is held`:                                                                       func() Adaptive { smtp.Signal, smtp.Target = SignalRunP95, 301; return smtp },
		`target -1: allowed is 0.001 to 300 seconds, where wait_p95 is held`:                                                                       func() Adaptive { queue.Target = -1; return queue },
		`target 0.99: allowed is 0.05 to 0.95, where pressure is held`:                                                                             func() Adaptive { queue.Signal, queue.Target = SignalPressure, 0.99; return queue },
		`target_run_time 1s: allowed is none beside a signal, which has its target`:                                                                func() Adaptive { smtp.TargetRunTime = time.Second; return smtp },
		`target_pressure 0.6: allowed is none beside a signal, which has its target`:                                                               func() Adaptive { queue.TargetPressure = 0.6; return queue },
		`max_failures 0.25: allowed is above target: it cuts where error_rate is held`:                                                             func() Adaptive { smtp.Signal, smtp.Target = SignalErrors, 0.25; return smtp },
		`interval 29s: allowed is 30s to 5m`:                                                                                                       func() Adaptive { queue.Interval = 29 * time.Second; return queue },
		`of "queue fax": allowed is "queue NAME" with limits: each_tenant, a tier's queues, queue_limits or priority_limits`:                       func() Adaptive { queue.Of = "queue fax"; return queue },
		`of "global": allowed is "global" where there is a global limit`:                                                                           func() Adaptive { queue.Of = "global"; return queue },
		`of "queue mail": allowed is "queue NAME" with a pressure, and with limits: each_tenant, a tier's queues, queue_limits or priority_limits`: func() Adaptive { queue.Signal, queue.Target = SignalPressure, 0.5; return queue },
		"": func() Adaptive { return queue },
	} {
		of, ofQueue := smtp, queue
		p := adaptivePolicy(a())
		smtp, queue = of, ofQueue
		p.Load, p.Queues = &LoadRules{}, map[string]Queue{"mail": {EachTenant: EachTenant{Limit: admission.PerSecond(9)}}}
		err := p.Validate()
		if want == "" && err == nil {
			continue
		}
		if err == nil || !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), "invalid adaptive.mail-out."+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	p := adaptivePolicy(Adaptive{Of: "downstream smtp", Min: 5, Signal: SignalPressure, Target: .5})
	if err := p.Validate(); err != nil {
		t.Errorf("by a pressure without a load: %v", err)
	}
	p = adaptivePolicy(smtp)
	want := `invalid load (none): allowed is "load": {}, by which workers tell it, since adaptive.mail-out.signal is there`
	if err := p.Validate(); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("without a load: %v", err)
	}
}

// TestASignalIsTakenByItsController: with its target instead of another, looked at once a minute where workers tell of the last one.
func TestASignalIsTakenByItsController(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a      Adaptive
		metric string
		want   any
	}{
		{
			Adaptive{Of: "downstream smtp", Min: 5, Signal: SignalRunP95, Target: 2},
			MetricRunP95,
			control.Config{Controller: PID, Min: 5, Max: 40, Interval: time.Minute, MaxFailures: 0.25, Target: 2, Gains: control.DefaultGains},
		},
		{
			Adaptive{Of: "downstream smtp", Min: 5, Controller: AIMD, Signal: SignalCPU, Target: 0.7},
			MetricCPU,
			control.Config{Controller: AIMD, Min: 5, Max: 40, Interval: 5 * time.Second, MaxFailures: 0.25, Target: 0.7},
		},
		{ // More calls at a time make less of a wait.
			Adaptive{Of: "downstream smtp", Min: 5, Signal: SignalWaitP95, Target: 10},
			MetricWaitP95,
			control.Config{Controller: PID, Min: 5, Max: 40, Interval: time.Minute, MaxFailures: 0.25, Target: 10, Falls: true, Gains: control.CallWaitGains},
		},
		{
			Adaptive{Of: "downstream smtp", Min: 5, Controller: AIMD, Signal: SignalWaitP95, Target: 10},
			MetricWaitP95,
			control.Config{Controller: AIMD, Min: 5, Max: 40, Interval: time.Minute, MaxFailures: 0.25, Target: 10, Falls: true},
		},
		{
			Adaptive{Of: "downstream smtp", Min: 5, Signal: SignalPressure, Target: .5},
			"",
			control.Config{Controller: PID, Min: 5, Max: 40, Interval: 10 * time.Second, MaxFailures: 0.25, Target: .5, Gains: control.DefaultGains},
		},
		{
			Adaptive{Of: "downstream push", Moves: MovesDispatch, Min: 60, Signal: SignalRunP95, Target: .8},
			MetricRunP95,
			control.PartConfig{Controller: PID, Min: control.RateUnit, Max: 10 * control.RateUnit, Interval: time.Minute, Target: .8, Signal: true, Gains: control.DefaultGains},
		},
		{
			Adaptive{Of: "downstream push", Moves: MovesDispatch, Min: 60, Max: 120, Controller: AIMD, Signal: SignalCPU, Target: .8},
			MetricCPU,
			control.PartConfig{Controller: AIMD, Min: control.RateUnit, Max: 2 * control.RateUnit, Interval: 5 * time.Second, Target: .8, Signal: true},
		},
		{
			Adaptive{Of: "downstream push", Moves: MovesDispatch, Min: 60, Signal: SignalWaitP95, Target: 60},
			MetricWaitP95,
			control.PartConfig{Controller: PID, Min: control.RateUnit, Max: 10 * control.RateUnit, Interval: time.Minute, Target: 60, Signal: true, Falls: true, Gains: control.CallWaitGains},
		},
		{
			Adaptive{Of: "downstream push", Moves: MovesDispatch, Min: 60, Signal: SignalPressure, Target: .5},
			"",
			control.PartConfig{Controller: PID, Min: control.RateUnit, Max: 10 * control.RateUnit, Interval: 10 * time.Second, Target: .5, Signal: true, Gains: control.DefaultGains},
		},
		{
			Adaptive{Of: "queue mail", Min: 5, Signal: SignalWaitP95, Target: 10},
			MetricWaitP95,
			control.PartConfig{Controller: PID, Min: 50, Max: 1000, Interval: time.Minute, Target: 10, Signal: true, Gains: control.WaitGains},
		},
		{
			Adaptive{Of: "queue mail", Min: 5, Controller: AIMD, Signal: SignalWaitP95, Target: 10},
			MetricWaitP95,
			control.PartConfig{Controller: AIMD, Min: 50, Max: 1000, Interval: time.Minute, Target: 10, Signal: true},
		},
		{
			Adaptive{Of: "queue mail", Min: 5, Controller: AIMD, Signal: SignalPressure, Target: .5},
			"",
			control.PartConfig{Controller: AIMD, Min: 50, Max: 1000, Interval: 5 * time.Second, Target: .5},
		},
		{
			Adaptive{Of: "queue mail", Min: 5, Signal: SignalErrors, Target: 0.1, Interval: 30 * time.Second},
			MetricErrors,
			control.PartConfig{Controller: PID, Min: 50, Max: 1000, Interval: 30 * time.Second, Target: 0.1, Signal: true, Gains: control.DefaultGains},
		},
		{
			Adaptive{Of: "queue mail", Min: 5, Signal: SignalPressure, Target: 0.5},
			"",
			control.PartConfig{Controller: PID, Min: 50, Max: 1000, Interval: 5 * time.Second, Target: 0.5, Gains: control.DefaultGains},
		},
	} {
		p := adaptivePolicy(c.a)
		p.Load, p.Queues = &LoadRules{}, map[string]Queue{"mail": {EachTenant: EachTenant{Limit: admission.PerSecond(9)}, Pressure: &PressureRules{MaxDepth: 9}}}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := PrepareStored(text)
		if err != nil {
			t.Fatal(err)
		}
		m := compiled.Moving()[0]
		var got any = m.Config
		if m.Limits || m.Dispatch {
			got = m.Part
		}
		if !reflect.DeepEqual(got, c.want) || m.Metric() != c.metric || m.Signal != c.a.Signal || m.Target() != c.a.Target {
			t.Errorf("%+v is taken as %+v", c.a, m)
		}
	}
}

// TestAPressureIsLookedAtByItsWindow: as often as its circuit breaker's window is long, and not more often than each half of it.
func TestAPressureIsLookedAtByItsWindow(t *testing.T) {
	t.Parallel()
	slow, slower := &BreakerRules{Config: breaker.Config{Window: 40 * time.Second}}, &BreakerRules{Config: breaker.Config{Window: time.Hour}}
	for _, c := range []struct {
		own, anyone *BreakerRules
		want        time.Duration
		least       string
	}{
		{nil, nil, 10 * time.Second, "5s"},
		{slow, nil, 40 * time.Second, "20s"},
		{nil, slow, 40 * time.Second, "20s"},
		{slow, slower, 40 * time.Second, "20s"},
		{nil, slower, MaxAdaptiveInterval, "5m"},
		{&BreakerRules{}, slow, 10 * time.Second, "5s"},
	} {
		p := adaptivePolicy(Adaptive{Of: "downstream smtp", Min: 5, Signal: SignalPressure, Target: .5})
		p.Downstreams["smtp"], p.AnyDownstream = Downstream{MaxRunning: 40, Breaker: c.own}, Downstream{Breaker: c.anyone}
		compiled, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		if got := compiled.Moving()[0].Interval(); got != c.want {
			t.Errorf("%+v: each %s, want %s", c, got, c.want)
		}
		a := p.Adaptive["mail-out"]
		a.Interval = time.Second
		p.Adaptive = map[string]Adaptive{"mail-out": a}
		if _, err := p.Prepare(); err == nil || !strings.Contains(err.Error(), "invalid adaptive.mail-out.interval 1s: allowed is "+c.least+" to 5m") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestABadAdaptiveNamesItsField, the value and what is allowed: one error for each.
func TestABadAdaptiveNamesItsField(t *testing.T) {
	t.Parallel()
	good := Adaptive{Of: "downstream smtp", Min: 5}
	for want, change := range map[string]func(a *Adaptive){
		`invalid adaptive.mail-out.of "downstream pager": allowed is "downstream NAME", one of "downstreams" with a max_running; "queue NAME" or "global"`: func(a *Adaptive) { a.Of = "downstream pager" },
		`invalid adaptive.mail-out.of "downstream sms": allowed is "downstream NAME", one of "downstreams" with a max_running; "queue NAME" or "global"`:   func(a *Adaptive) { a.Of = "downstream sms" },
		`invalid adaptive.mail-out.controller "bang": allowed is "gradient", "aimd" or "pid"`:                                                              func(a *Adaptive) { a.Controller = "bang" },
		`invalid adaptive.mail-out.target_run_time 0s: allowed is above 0: pid holds the run time there`:                                                   func(a *Adaptive) { a.Controller = PID },
		`invalid adaptive.mail-out.target_run_time 1µs: allowed is 1ms to 24h`:                                                                             func(a *Adaptive) { a.Controller, a.TargetRunTime = PID, time.Microsecond },
		`invalid adaptive.mail-out.target_run_time 1s: allowed is none, but of pid`:                                                                        func(a *Adaptive) { a.TargetRunTime = time.Second },
		`invalid adaptive.mail-out.kp 0.5: allowed is none, but of pid`:                                                                                    func(a *Adaptive) { a.Gains.Proportional = 0.5 },
		`invalid adaptive.mail-out.ki -1: allowed is 0 to 10`:                                                                                              func(a *Adaptive) { a.Controller, a.TargetRunTime, a.Gains.Integral = PID, time.Second, -1 },
		`invalid adaptive.mail-out.kd 11: allowed is 0 to 10`:                                                                                              func(a *Adaptive) { a.Controller, a.TargetRunTime, a.Gains.Derivative = PID, time.Second, 11 },
		`invalid adaptive.mail-out.max_run_time 1s: allowed is above target_run_time: it cuts where pid holds; or none`: func(a *Adaptive) {
			a.Controller, a.TargetRunTime, a.MaxRunTime = PID, time.Second, time.Second
		},
		`invalid adaptive.mail-out.min 0: allowed is 1 to 40`:                                                      func(a *Adaptive) { a.Min = 0 },
		`invalid adaptive.mail-out.min 41: allowed is 1 to 40`:                                                     func(a *Adaptive) { a.Min = 41 },
		`invalid adaptive.mail-out.max 4: allowed is min to 40, the max_running of the downstream; or 0 for that`:  func(a *Adaptive) { a.Max = 4 },
		`invalid adaptive.mail-out.max 41: allowed is min to 40, the max_running of the downstream; or 0 for that`: func(a *Adaptive) { a.Max = 41 },
		`invalid adaptive.mail-out.interval 199ms: allowed is 200ms to 5m`:                                         func(a *Adaptive) { a.Interval = 199 * time.Millisecond },
		`invalid adaptive.mail-out.interval 6m: allowed is 200ms to 5m`:                                            func(a *Adaptive) { a.Interval = 6 * time.Minute },
		`invalid adaptive.mail-out.max_run_time 1µs: allowed is 1ms to 24h`:                                        func(a *Adaptive) { a.MaxRunTime = time.Microsecond },
		`invalid adaptive.mail-out.max_failures 1.5: allowed is above 0, at most 1`:                                func(a *Adaptive) { a.MaxFailures = 1.5 },
	} {
		a := good
		change(&a)
		err := adaptivePolicy(a).Validate()
		if err == nil || !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if err := adaptivePolicy(good).Validate(); err != nil {
		t.Error(err)
	}
	rate := Adaptive{Of: "downstream push", Moves: MovesDispatch, Min: 5}
	for want, change := range map[string]func(a *Adaptive){
		`invalid adaptive.mail-out.of "downstream smtp": allowed is "downstream NAME", one of "downstreams" with a dispatch; "queue NAME" or "global"`:                                                     func(a *Adaptive) { a.Of = "downstream smtp" },
		`invalid adaptive.mail-out.of "downstream off": allowed is "downstream NAME", one of "downstreams" with a dispatch; "queue NAME" or "global"`:                                                      func(a *Adaptive) { a.Of = "downstream off" },
		`invalid adaptive.mail-out.moves "burst": allowed is "max_running" or "dispatch"`:                                                                                                                  func(a *Adaptive) { a.Moves = "burst" },
		`invalid adaptive.mail-out.min 601: allowed is 1 to 600`:                                                                                                                                           func(a *Adaptive) { a.Min = 601 },
		`invalid adaptive.mail-out.max 4: allowed is min to 600, what dispatch of the downstream allows in its time; or 0`:                                                                                 func(a *Adaptive) { a.Max = 4 },
		`invalid adaptive.mail-out.controller "aimd": allowed is none where a dispatch moves: it goes by what the receiver refuses; or pid or aimd beside a signal`:                                        func(a *Adaptive) { a.Controller = AIMD },
		`invalid adaptive.mail-out.controller "gradient": allowed is none where a dispatch moves: it goes by what the receiver refuses; or pid or aimd beside a signal: gradient looks for how many calls`: func(a *Adaptive) { a.Controller = Gradient },
		`invalid adaptive.mail-out.max_run_time 1s: allowed is none where a dispatch moves`:                                                                                                                func(a *Adaptive) { a.MaxRunTime = time.Second },
		`invalid adaptive.mail-out.max_failures 0.1: allowed is none where a dispatch moves`:                                                                                                               func(a *Adaptive) { a.MaxFailures = 0.1 },
		`invalid adaptive.mail-out.target_run_time 1s: allowed is none where a dispatch moves`:                                                                                                             func(a *Adaptive) { a.TargetRunTime = time.Second },
		`invalid adaptive.mail-out.kp, ki, kd {0 0.1 0}: allowed is none where a dispatch moves`:                                                                                                           func(a *Adaptive) { a.Gains.Integral = 0.1 },
	} {
		a := rate
		change(&a)
		err := adaptivePolicy(a).Validate()
		if err == nil || !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	both := adaptivePolicy(rate)
	push := both.Downstreams["push"]
	push.MaxRunning = 9
	both.Downstreams["push"] = push
	both.Adaptive["other"] = Adaptive{Of: "downstream push", Min: 1}
	if err := both.Validate(); err != nil {
		t.Errorf("both limits of a downstream move: %v", err)
	}
	twice := adaptivePolicy(good)
	twice.Adaptive["other"] = good
	if err := twice.Validate(); err == nil || !strings.Contains(err.Error(), `another downstream than that of "mail-out"`) {
		t.Errorf("two loops on one limit: %v", err)
	}
}

// TestMoving: what is left out is filled in, and what moves is nowhere above the downstream's own bound.
func TestMoving(t *testing.T) {
	t.Parallel()
	p, err := Unmarshal([]byte(`{"tiers": {"standard": {"limit": {"enabled": false}}}, "downstreams": {"smtp": {"max_running": 40}},
		"adaptive": {"mail-out": {"of": "downstream smtp", "min": 5, "max_run_time": "2s"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	want := []Moving{{
		Name: "mail-out", Downstream: "smtp", MaxRunning: 40,
		Config: control.Config{Controller: Gradient, Min: 5, Max: 40, Interval: 5 * time.Second, MaxRunTime: 2 * time.Second, MaxFailures: 0.25},
	}}
	if got := c.Moving(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if !slices.Contains(c.Caps(), Cap{Downstream: "smtp", MaxRunning: 40, Least: 5, Most: 40, Loop: "mail-out"}) {
		t.Errorf("caps are %+v", c.Caps())
	}
}

// TestAPIDHasItsTarget, and gains that are filled in where there are none.
func TestAPIDHasItsTarget(t *testing.T) {
	t.Parallel()
	for text, gains := range map[string]Gains{"": control.DefaultGains, `, "ki": 0.3`: {Integral: 0.3}} {
		p, err := Unmarshal([]byte(`{"tiers": {"standard": {"limit": {"enabled": false}}}, "downstreams": {"smtp": {"max_running": 40}},
			"adaptive": {"mail-out": {"of": "downstream smtp", "min": 5, "controller": "pid", "target_run_time": "400ms"` + text + `}}}`))
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Moving()[0].Config; got.Controller != PID || got.TargetRunTime != 400*time.Millisecond || got.Gains != gains {
			t.Errorf("got %+v", got)
		}
	}
}

// TestADispatchMoves in its own time, and in no other of a compiled policy.
func TestADispatchMoves(t *testing.T) {
	t.Parallel()
	c, err := adaptivePolicy(Adaptive{Of: "downstream push", Moves: MovesDispatch, Min: 6}).Prepare()
	if err != nil {
		t.Fatal(err)
	}
	const unit = control.RateUnit
	want := []Moving{{Name: "mail-out", Downstream: "push", Dispatch: true, Own: 10 * unit, Rate: control.RateConfig{Min: unit / 10, Max: 10 * unit, Interval: 5 * time.Second}}}
	if got := c.Moving(); !reflect.DeepEqual(got, want) || got[0].Interval() != 5*time.Second {
		t.Errorf("got %+v", got)
	}
	if !c.DispatchMoves("push") || c.DispatchMoves("smtp") || c.DispatchMoves("") {
		t.Error("it is not told whose dispatch moves")
	}
	for _, bound := range c.Caps() {
		if bound.Loop != "" {
			t.Errorf("a cap moves: %+v", bound)
		}
	}
	rate := DispatchRate{Downstream: "push", Limit: admission.PerMinute(600), Own: 10 * unit, Least: unit / 10, Most: 10 * unit, Loop: "mail-out"}
	if got := c.DispatchRates(); !slices.Contains(got, rate) {
		t.Errorf("rates are %+v", got)
	}
}

// TestDiffNamesWhatMoves as any other value.
func TestDiffNamesWhatMoves(t *testing.T) {
	t.Parallel()
	before, after := adaptivePolicy(Adaptive{Of: "downstream smtp", Min: 5}), adaptivePolicy(Adaptive{Of: "downstream smtp", Min: 6, Controller: AIMD})
	changes, err := Diff(before, after)
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{Path: "/adaptive/mail-out/controller", Before: json.RawMessage(`"gradient"`), After: json.RawMessage(`"aimd"`)},
		{Path: "/adaptive/mail-out/min", Before: json.RawMessage(`5`), After: json.RawMessage(`6`)},
	}
	if !reflect.DeepEqual(changes, want) {
		t.Errorf("got %s", changes)
	}
}
