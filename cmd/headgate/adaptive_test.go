package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// adaptive lets the limit of smtp move between 5 and 40.
func (p *plant) adaptive() {
	p.t.Helper()
	document := policy.Policy{
		Downstreams: map[string]policy.Downstream{"smtp": {MaxRunning: 40}},
		Adaptive:    map[string]policy.Adaptive{"mail-out": {Of: "downstream smtp", Min: 5}},
	}
	_, err := rollout.Put(p.t.Context(), p.store, document, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(p.t, err)
}

func TestAdaptiveCommands(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "adaptive list"); out.stdout != "no limit moves by itself\n" {
		t.Errorf("%s", out.stdout)
	}
	for _, verb := range []string{"freeze", "thaw"} {
		if out := p.run(cli.ExitNothing, "adaptive "+verb+" mail-out"); !strings.Contains(out.stderr, "no adaptive limit is called mail-out: headgate adaptive list tells which there are") {
			t.Errorf("%s", out.stderr)
		}
	}
	p.adaptive()
	if out := p.run(cli.ExitNothing, "adaptive thaw mail-out"); !strings.Contains(out.stderr, "mail-out is not frozen") {
		t.Errorf("%s", out.stderr)
	}
	version, err := p.store.PolicyInForce(t.Context())
	must(t, err)
	_, err = p.store.Partitions()[0].Promote(t.Context(), "s1", time.Minute)
	must(t, err)
	_, err = p.store.Adapt(t.Context(), store.Adapt{Owner: "s1", Version: version, Gate: store.DownstreamGate("smtp"), Limit: 23, Cause: "no_gain", DeadBand: 7})
	must(t, err)
	list := p.run(cli.ExitOK, "adaptive list").stdout
	for _, part := range []string{"mail-out", "downstream smtp", "23", "40 to 23: throughput does not", "the dead band", "held it 7 times"} {
		if !strings.Contains(list, part) {
			t.Errorf("no %q in\n%s", part, list)
		}
	}
	shown, _ := p.object(cli.ExitOK, "adaptive list --json")["adaptive"].([]any)
	if len(shown) != 1 {
		t.Fatal(shown)
	}
	one, _ := shown[0].(map[string]any)
	checkKeys(t, "an adaptive limit", one, strings.Fields("before cause changed dead_band gate limit looked lowered max max_running min moves name raised running why"))
	if one["limit"] != 23.0 || one["min"] != 5.0 || one["max"] != 40.0 || one["before"] != 40.0 || one["why"] != "no_gain" || one["lowered"] != 1.0 || one["dead_band"] != 7.0 {
		t.Errorf("%v", one)
	}
	explained := p.run(cli.ExitOK, "explain downstream smtp").stdout
	for _, part := range []string{"adaptive mail-out has 23 running at a time in force, of 5 to 40 where the policy's own max_running is 40", "its last step at", "was 40 to 23: throughput does not grow with it", "/adaptive/mail-out"} {
		if !strings.Contains(explained, part) {
			t.Errorf("no %q in\n%s", part, explained)
		}
	}
	p.run(cli.ExitOK, "adaptive freeze mail-out --reason maintenance")
	if list = p.run(cli.ExitOK, "adaptive list").stdout; !strings.Contains(list, "frozen by") || !strings.Contains(list, "maintenance") {
		t.Errorf("%s", list)
	}
	if explained = p.run(cli.ExitOK, "explain downstream smtp").stdout; !strings.Contains(explained, "frozen since") || !strings.Contains(explained, "headgate adaptive thaw mail-out") {
		t.Errorf("%s", explained)
	}
	p.run(cli.ExitOK, "adaptive thaw mail-out")
	if out := p.run(cli.ExitNothing, "adaptive override mail-out --off"); !strings.Contains(out.stderr, "is not set for a time") {
		t.Errorf("%s", out.stderr)
	}
	for line, want := range map[string]string{
		"--limit 12": "invalid --for 0s: allowed is 1s to 168h", "--limit 12 --for 10m --off": "invalid --off true",
		"--limit 41 --for 10m": "invalid limit 41: allowed is 5 to 40", "--limit 1.5 --for 10m": "invalid limit 1.5: allowed is a whole number", "--for 10m": "invalid limit 0",
	} {
		if out := p.run(cli.ExitUsage, "adaptive override mail-out "+line); !strings.Contains(out.stderr, want) {
			t.Errorf("%s: %s", line, out.stderr)
		}
	}
	p.run(cli.ExitOK, "adaptive override mail-out --limit 12 --for 10m --reason calm")
	list = p.run(cli.ExitOK, "adaptive list").stdout
	explained = p.run(cli.ExitOK, "explain downstream smtp").stdout
	for _, part := range []string{"has 12 running at a time in force", ", set until", "calm, when 23 comes back", "override mail-out --off"} {
		if !strings.Contains(explained, part) {
			t.Errorf("no %q in\n%s", part, explained)
		}
	}
	for _, part := range []string{"12", "set until", "calm"} {
		if !strings.Contains(list, part) {
			t.Errorf("no %q in\n%s", part, list)
		}
	}
	p.run(cli.ExitOK, "adaptive override mail-out --off")
	if one, _ := p.object(cli.ExitOK, "adaptive list --json")["adaptive"].([]any)[0].(map[string]any); one["limit"] != 23.0 || one["override"] != nil || one["frozen"] != nil {
		t.Errorf("%v", one)
	}
}

// TestASignalIsTold with its target and what workers told of it last, by the list, as JSON and in the explanation; and that nobody knows it, or does no more.
func TestASignalIsTold(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	document := policy.Policy{
		Global:      admission.PerSecond(100),
		Queues:      map[string]policy.Queue{"mail": {EachTenant: policy.EachTenant{Limit: admission.PerSecond(5)}, Pressure: &policy.PressureRules{MaxDepth: 9}}},
		Downstreams: map[string]policy.Downstream{"smtp": {MaxRunning: 40}, "sms": {MaxRunning: 40}, "fax": {MaxRunning: 40, Dispatch: new(admission.PerSecond(10))}, "push": {MaxRunning: 40}},
		Load:        &policy.LoadRules{},
		Adaptive: map[string]policy.Adaptive{
			"mail-out": {Of: "downstream smtp", Min: 5, Signal: policy.SignalCPU, Target: .7}, "sms-out": {Of: "downstream sms", Min: 5},
			"fax-rate": {Of: "downstream fax", Moves: policy.MovesDispatch, Min: 2, Controller: policy.AIMD, Signal: policy.SignalCPU, Target: .8},
			"fax-out":  {Of: "downstream fax", Min: 5, Signal: policy.SignalWaitP95, Target: 30}, "push-out": {Of: "downstream push", Min: 5, Signal: policy.SignalPressure, Target: .25},
			"all-in": {Of: "global", Min: 20, Signal: policy.SignalRunP95, Target: 2.5}, "mail-in": {Of: "queue mail", Min: 20, Signal: policy.SignalPressure, Target: .5},
		},
	}
	_, err := rollout.Put(t.Context(), p.store, document, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	part := p.store.Partitions()[0]
	_, err = part.Register(t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 1, time.Minute)
	must(t, err)
	signals := func() map[any]any {
		all := map[any]any{}
		shown, _ := p.object(cli.ExitOK, "adaptive list --json")["adaptive"].([]any)
		for _, one := range shown {
			one, _ := one.(map[string]any)
			all[one["name"]] = one["signal"]
		}
		return all
	}
	if got := signals(); fmt.Sprint(got) != "map[all-in:map[name:run_p95 target:2.5] fax-out:map[name:wait_p95 target:30] fax-rate:map[name:cpu target:0.8] mail-in:map[name:pressure target:0.5] mail-out:map[name:cpu target:0.7] push-out:map[name:pressure target:0.25] sms-out:<nil>]" {
		t.Errorf("before anybody tells: %v", got)
	}
	told := func(line string) string { // Without the lines of a table.
		return strings.Join(strings.Fields(strings.ReplaceAll(p.run(cli.ExitOK, line).stdout, "│", " ")), " ")
	}
	if list := told("adaptive list"); !strings.Contains(list, "cpu is not known, its target is 0.7") {
		t.Errorf("%s", list)
	}
	var ran load.Counts
	ran.Began(time.Now(), "mail", "fax", 20*time.Second)
	ran.Ended(time.Now(), "mail", "", time.Second, false)
	sample := ran.Sample(time.Now(), load.Use{CPU: .875, Memory: .1}, nil)
	sample.AddRunning("mail", "smtp", 1)
	rules, err := breaker.Config{}.Complete()
	must(t, err)
	_, _, err = part.ReportOutcomes(t.Context(), store.Reporter{Name: "w"}, []store.Outcomes{{Downstream: "push", Config: rules, Report: breaker.Report{Sequence: 1, Counts: breaker.Counts{Successes: 18, Failures: 2}}}})
	must(t, err)
	_, err = part.Heartbeat(t.Context(), "w", time.Minute, sample.Text())
	must(t, err)
	version, err := p.store.PolicyInForce(t.Context())
	must(t, err)
	_, err = part.Promote(t.Context(), "s1", time.Minute)
	must(t, err)
	_, err = p.store.Press(t.Context(), store.Press{Owner: "s1", Version: version, Queue: "mail", Pressure: admission.Pressure{Level: admission.PressureLow, Score: .625}, Life: time.Minute})
	must(t, err)
	got := signals()
	for name, want := range map[string]float64{"mail-out": .875, "mail-in": .625, "push-out": .2} {
		if one, _ := got[name].(map[string]any); one["reading"] != want {
			t.Errorf("%s: %v", name, got[name])
		}
	}
	for line, part := range map[string]string{
		"explain downstream smtp": "it goes by a signal: cpu is 0.875, its target 0.7", "explain queue mail": "it goes by a signal: pressure is 0.625, its target 0.5",
		"adaptive list": "nobody has looked at it yet; cpu is 0.875, its target 0.7", "explain downstream push": "it goes by a signal: pressure is 0.2, its target 0.25",
		"explain downstream fax --json": "of 2/s to 10/s where the policy's own dispatch is 10/s; nobody has looked at it yet; it goes by a signal: cpu is 0.875, its target 0.8",
		"explain downstream fax":        "it goes by a signal: wait_p95 is 20.8 s, its target 30 s",
	} {
		if out := told(line); !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	if out := p.run(cli.ExitOK, "explain downstream sms").stdout; strings.Contains(out, "signal") {
		t.Errorf("without a signal:\n%s", out)
	}
	_, err = p.store.Press(t.Context(), store.Press{Owner: "s1", Version: version, Queue: "mail", Pressure: admission.Pressure{Level: admission.PressureLow, Score: .625}, Life: time.Second})
	must(t, err)
	eventually(t, func() bool { // Nobody has measured it since.
		pressed, _ := signals()["mail-in"].(map[string]any)
		return pressed["name"] == policy.SignalPressure && pressed["reading"] == nil
	})
}

// TestADispatchThatMovesIsTold in jobs a second, by the list, as JSON and in the explanation of its downstream.
func TestADispatchThatMovesIsTold(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	document := policy.Policy{
		Downstreams: map[string]policy.Downstream{"push": {Dispatch: new(admission.PerMinute(6000))}},
		Adaptive:    map[string]policy.Adaptive{"push-rate": {Of: "downstream push", Moves: policy.MovesDispatch, Min: 60}},
	}
	_, err := rollout.Put(t.Context(), p.store, document, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	version, err := p.store.PolicyInForce(t.Context())
	must(t, err)
	_, err = p.store.Partitions()[0].Promote(t.Context(), "s1", time.Minute)
	must(t, err)
	_, err = p.store.Adapt(t.Context(), store.Adapt{Owner: "s1", Version: version, Gate: store.DownstreamRateGate("push"), Limit: 38.5 * store.RateUnit, Cause: "refused"})
	must(t, err)
	list := p.run(cli.ExitOK, "adaptive list").stdout
	for _, part := range []string{"push-rate", "38.5/s", "1/s", "100/s to 38.5/s: the"} {
		if !strings.Contains(list, part) {
			t.Errorf("no %q in\n%s", part, list)
		}
	}
	shown, _ := p.object(cli.ExitOK, "adaptive list --json")["adaptive"].([]any)
	if len(shown) != 1 {
		t.Fatal(shown)
	}
	one, _ := shown[0].(map[string]any)
	if one["moves"] != "dispatch" || one["limit"] != 38.5 || one["min"] != 1.0 || one["max"] != 100.0 || one["dispatch"] != 100.0 || one["max_running"] != nil {
		t.Errorf("%v", one)
	}
	explained := p.run(cli.ExitOK, "explain downstream push").stdout
	if want := "adaptive push-rate has 38.5/s dispatched in force, of 1/s to 100/s where the policy's own dispatch is 100/s"; !strings.Contains(explained, want) {
		t.Errorf("no %q in\n%s", want, explained)
	}
}
