package policy

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
)

// limitsPolicy is a policy with a queue mail that is measured and has limits, one that is measured alone and one that has limits alone, and how much
// of limits is in force as a says.
func limitsPolicy(a Adaptive) Policy {
	each := EachTenant{Limit: admission.PerSecond(5)}
	return Policy{
		Global: admission.PerSecond(100),
		Queues: map[string]Queue{
			"mail": {Pressure: &PressureRules{TargetWait: time.Second}, EachTenant: each}, "bare": {Pressure: &PressureRules{TargetWait: time.Second}}, "calm": {EachTenant: each},
		},
		Downstreams: map[string]Downstream{"smtp": {MaxRunning: 40}},
		Adaptive:    map[string]Adaptive{"let-in": a},
	}
}

// TestABadPartOfLimitsNamesItsField, the value and what is allowed: one error for each.
func TestABadPartOfLimitsNamesItsField(t *testing.T) {
	t.Parallel()
	const needs = `allowed is "queue NAME" with a pressure, and with limits: each_tenant, a tier's queues, queue_limits or priority_limits`
	for want, change := range map[string]func(a *Adaptive){
		`invalid adaptive.let-in.of "queue bare": ` + needs:                                                                func(a *Adaptive) { a.Of = "queue bare" },
		`invalid adaptive.let-in.of "queue calm": ` + needs:                                                                func(a *Adaptive) { a.Of = "queue calm" },
		`invalid adaptive.let-in.min 0: allowed is 1 to 100`:                                                               func(a *Adaptive) { a.Min = 0 },
		`invalid adaptive.let-in.max 101: allowed is min to 100 percent of what the policy says, or 0 for that`:            func(a *Adaptive) { a.Max = 101 },
		`invalid adaptive.let-in.interval 1ms: allowed is 200ms to 5m`:                                                     func(a *Adaptive) { a.Interval = time.Millisecond },
		`invalid adaptive.let-in.controller "gradient": allowed is "pid", "aimd" or "health": gradient looks for how many`: func(a *Adaptive) { a.Controller = Gradient },
		`invalid adaptive.let-in.target_pressure 0.99: allowed is 0.05 to 0.95`:                                            func(a *Adaptive) { a.TargetPressure = 0.99 },
		`invalid adaptive.let-in.target_pressure 0.5: allowed is none, but of pid and aimd`:                                func(a *Adaptive) { a.Controller, a.TargetPressure = Health, 0.5 },
		`invalid adaptive.let-in.kp 1: allowed is none, but of pid`:                                                        func(a *Adaptive) { a.Controller, a.Gains.Proportional = Health, 1 },
		`invalid adaptive.let-in.min_change_interval 1ms: allowed is 1s to 1h`:                                             func(a *Adaptive) { a.MinChange = time.Millisecond },
		`invalid adaptive.let-in.max_run_time 1s: allowed is none: a part of limits goes by pressure`:                      func(a *Adaptive) { a.MaxRunTime = time.Second },
		`invalid adaptive.let-in.moves "dispatch": allowed is none: a part of limits goes by pressure`:                     func(a *Adaptive) { a.Moves = MovesDispatch },
		`invalid adaptive.let-in.depends_on "a b": allowed is names of downstreams`:                                        func(a *Adaptive) { a.DependsOn = []string{"a b"} },
		`invalid adaptive.let-in.depends_on "smtp": allowed is each downstream once`:                                       func(a *Adaptive) { a.DependsOn = []string{"smtp", "smtp"} },
		`invalid adaptive.let-in.target_pressure 0.5: allowed is none, but of global or a queue`:                           func(a *Adaptive) { a.Of, a.TargetPressure = "downstream smtp", 0.5 },
		`invalid adaptive.let-in.min_change_interval 30s: allowed is none, but of global or a queue`:                       func(a *Adaptive) { a.Of, a.MinChange = "downstream smtp", 30*time.Second },
	} {
		a := Adaptive{Of: "queue mail", Min: 20}
		change(&a)
		err := limitsPolicy(a).Validate()
		if err == nil || !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	const global = `invalid adaptive.let-in.of "global": allowed is "global" where there is a global limit, and a queue with a pressure by which it moves`
	for _, change := range []func(p *Policy){func(p *Policy) { p.Global = admission.Limit{} }, func(p *Policy) { p.Queues = nil }} {
		p := limitsPolicy(Adaptive{Of: "global", Min: 20})
		if err := p.Validate(); err != nil {
			t.Errorf("good: %v", err)
		}
		if change(&p); p.Validate() == nil || p.Validate().Error() != global {
			t.Errorf("got %v", p.Validate())
		}
	}
	twice := limitsPolicy(Adaptive{Of: "global", Min: 20})
	twice.Adaptive["other"] = Adaptive{Of: "global", Min: 30}
	if err := twice.Validate(); err == nil || !strings.Contains(err.Error(), `allowed is something else than that of "let-in", which moves the same limits`) {
		t.Errorf("got %v", err)
	}
}

// TestAPartOfLimitsMoves in thousandths, with what is left out filled in, and is no cap.
func TestAPartOfLimitsMoves(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Moving{
		`{"of": "queue mail", "min": 20, "max": 90, "depends_on": ["smtp"]}`: {
			Queue: "mail", DependsOn: []string{"smtp"},
			Part: control.PartConfig{Controller: PID, Min: 200, Max: 900, Interval: 5 * time.Second, Target: 0.6, Gains: control.DefaultGains},
		},
		`{"of": "global", "min": 1, "controller": "aimd", "min_change_interval": "30s"}`: {
			Part: control.PartConfig{Controller: AIMD, Min: 10, Max: 1000, Interval: 5 * time.Second, Target: 0.6, MinChange: 30 * time.Second},
		},
		`{"of": "global", "min": 1, "controller": "health"}`: {
			Part: control.PartConfig{Controller: Health, Min: 10, Max: 1000, Interval: 5 * time.Second, MinChange: 30 * time.Second},
		},
	} {
		want.Name, want.Limits = "let-in", true
		p := limitsPolicy(Adaptive{})
		p.Adaptive = nil
		document, err := Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(document, &fields); err != nil {
			t.Fatal(err)
		}
		fields["adaptive"] = json.RawMessage(`{"let-in": ` + text + `}`)
		if document, err = json.Marshal(fields); err != nil {
			t.Fatal(err)
		}
		if p, err = Unmarshal(document); err != nil {
			t.Fatal(err)
		}
		c, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Moving(); !reflect.DeepEqual(got, []Moving{want}) || got[0].Interval() != 5*time.Second {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		for _, bound := range c.Caps() {
			if bound.Loop != "" {
				t.Errorf("a cap moves: %+v", bound)
			}
		}
	}
}

// TestWarnAtIsAPart of a limit; nothing says never, and what is written is read again.
func TestWarnAtIsAPart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{`{}`: 0, `{"warn_at": 0.8}`: 0.8, `{"warn_at": 1}`: 1, `{"warn_at": 0.01}`: 0.01} {
		p, err := Unmarshal([]byte(`{"anomalies": ` + text + `}`))
		if err != nil || p.Anomalies.WarnAt != want {
			t.Errorf("%s: %+v, %v", text, p.Anomalies, err)
			continue
		}
		c, err := p.Prepare()
		if err != nil || c.WarnAt() != want {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
	for _, text := range []string{"1.01", "-0.5", "80", "0.001"} {
		_, err := Unmarshal([]byte(`{"anomalies": {"warn_at": ` + text + `}}`))
		if err == nil || !strings.Contains(err.Error(), "anomalies.warn_at "+text+": allowed is 0.01 to 1 of a limit, or 0 for never") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
