package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
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
