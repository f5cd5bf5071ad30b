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

// TestPartsOfLimitsAreTold in percent of what the policy says, by list and explain, and are set so by override.
func TestPartsOfLimitsAreTold(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	document := policy.Policy{
		Global:   admission.PerSecond(100),
		Queues:   map[string]policy.Queue{"mail": {EachTenant: policy.EachTenant{Limit: admission.PerSecond(5)}, Pressure: &policy.PressureRules{MaxDepth: 9}}},
		Adaptive: map[string]policy.Adaptive{"all-in": {Of: "global", Min: 20}, "mail-in": {Of: "queue mail", Min: 10, Max: 90}},
	}
	_, err := rollout.Put(t.Context(), p.store, document, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	version, err := p.store.PolicyInForce(t.Context())
	must(t, err)
	_, err = p.store.Partitions()[0].Promote(t.Context(), "s1", time.Minute)
	must(t, err)
	_, err = p.store.Adapt(t.Context(), store.Adapt{Owner: "s1", Version: version, Gate: store.GlobalLimitGate, Limit: 437, Cause: "above_target"})
	must(t, err)
	list := p.run(cli.ExitOK, "adaptive list").stdout
	for _, part := range []string{"all-in", "the global limit", "43.7%", "20%", "100%", "100% to 43.7%: what is", "mail-in", "limits of queue mail", "90%", "nobody has looked"} {
		if !strings.Contains(list, part) {
			t.Errorf("no %q in\n%s", part, list)
		}
	}
	for what, parts := range map[string][]string{
		"scope acme:mail": {"adaptive all-in has 43.7% of the global limit in force, of 20% to 100% of what the policy says", "adaptive mail-in has 90% of limits of queue mail in force", "/adaptive/all-in"},
		"queue mail":      {"adaptive mail-in has 90%"},
	} {
		explained := p.run(cli.ExitOK, "explain "+what).stdout
		for _, part := range parts {
			if !strings.Contains(explained, part) {
				t.Errorf("no %q in\n%s", part, explained)
			}
		}
	}
	if explained := p.run(cli.ExitOK, "explain scope acme:hook").stdout; strings.Contains(explained, "mail-in") {
		t.Errorf("of another queue:\n%s", explained)
	}
	if out := p.run(cli.ExitUsage, "adaptive override all-in --limit 19 --for 1m"); !strings.Contains(out.stderr, "invalid limit 19: allowed is 20 to 100, between which the policy lets it move") {
		t.Errorf("%s", out.stderr)
	}
	p.run(cli.ExitOK, "adaptive override all-in --limit 62.5 --for 1m --reason launch")
	if list = p.run(cli.ExitOK, "adaptive list").stdout; !strings.Contains(list, "62.5%") || !strings.Contains(list, "then 43.7%, by") {
		t.Errorf("%s", list)
	}
	if out := p.run(cli.ExitOK, "limit scale"); out.stdout != "no limit is scaled\n" {
		t.Errorf("what moves by itself is told as an operator's: %s", out.stdout)
	}
}
