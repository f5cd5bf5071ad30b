package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

func TestTenantCommands(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "tenant list"); out.stdout != "" {
		t.Errorf("a list of none says %q", out.stdout)
	}
	if got := p.object(cli.ExitOK, "tenant show acme"); got["tier"] != "standard" || got["own"] != nil {
		t.Errorf("%v", got)
	}
	p.run(cli.ExitOK, "tenant set acme --tier premium --weight high=5,low=1 --reason launch")
	p.run(cli.ExitOK, "tenant set acme --tokens 7 --per 1m --burst 9 --weight low=2 --max-running 20 --dispatch 600 --dispatch-per 1h")
	p.run(cli.ExitOK, "tenant set basil --tier basic")
	p.run(cli.ExitOK, "limit set acme:mail --tokens 3")
	p.run(cli.ExitOK, "pause --tenant acme --queue mail --reason moving")
	p.run(cli.ExitOK, "pause --tenant basil --enqueue --reason late")

	acme := p.object(cli.ExitOK, "tenant show acme")
	checkKeys(t, "a tenant", acme, strings.Fields("dispatch gates limit max_running own scales suspensions tenant tier"))
	own, _ := acme["own"].(map[string]any)
	checkKeys(t, "its own", own, strings.Fields("dispatch limit max_running priority_weights tier"))
	weights, _ := own["priority_weights"].(map[string]any)
	if acme["tier"] != "premium" || weights["high"] != 5.0 || weights["low"] != 2.0 || own["max_running"] != 20.0 || acme["max_running"] != 20.0 {
		t.Errorf("%v", acme)
	}
	out := p.run(cli.ExitOK, "tenant show acme").stdout
	for _, want := range []string{"7 tokens a minute, at most 9 at once", "tenant acme in queue mail", "paused (moving)", `"priority_weights":{"high":5, "low":2}`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if out := p.run(cli.ExitOK, "tenant show basil").stdout; !strings.Contains(out, "enqueueing suspended (late)") || strings.Contains(out, "moving") {
		t.Errorf("%s", out)
	}
	if list, _ := p.object(cli.ExitOK, "tenant list")["tenants"].([]any); len(list) != 2 {
		t.Errorf("%v", list)
	}
	if out := p.run(cli.ExitOK, "tenant list --tier basic").stdout; !strings.Contains(out, "basil") || strings.Contains(out, "acme") {
		t.Errorf("%s", out)
	}

	p.run(cli.ExitOK, "tenant unset acme limit weights --reason over")
	acme = p.object(cli.ExitOK, "tenant show acme")
	checkKeys(t, "what is left", acme["own"], strings.Fields("dispatch max_running tier"))
	if out := p.run(cli.ExitNothing, "tenant unset acme limit"); !strings.Contains(out.stderr, "acme: the tenant has nothing like that of its own") {
		t.Errorf("%s", out.stderr)
	}
	p.run(cli.ExitOK, "tenant unset acme")
	if acme = p.object(cli.ExitOK, "tenant show acme"); acme["own"] != nil || acme["tier"] != "standard" {
		t.Errorf("%v", acme)
	}
	if out := p.run(cli.ExitOK, "limit get acme:mail"); !strings.Contains(out.stdout, "3 tokens a second and holds 3, its own limit") {
		t.Errorf("the limit of its queue is gone: %s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "tenant list"); strings.Contains(out.stdout, "acme") {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "audit"); !strings.Contains(out.stdout, "launch") {
		t.Errorf("%s", out.stdout)
	}
}

func TestMistakesOfTenantAreNamed(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	for line, want := range map[string]string{
		"tenant set acme":                                "say what the tenant is to have",
		"tenant set acme --tier gold":                    `invalid tenants.acme.tier "gold": allowed is one of "basic", "premium", "standard"`,
		"tenant set acme --tokens 0":                     "invalid --tokens 0: allowed is 1 to 1000000000; for no limit --off",
		"tenant set acme --tokens 1 --off":               "invalid --off true: allowed is it or --tokens, not both",
		"tenant set acme --dispatch 0":                   "invalid --dispatch 0: allowed is 1 to 1000000000; for no limit headgate tenant unset TENANT dispatch",
		"tenant set acme --weight high=0":                "invalid tenants.acme.priority_weights.high 0",
		"tenant set acme --max-running -1":               "invalid tenants.acme.max_running -1: allowed is 1 to 1000000, or 0 for none",
		"tenant set global --tier basic":                 `invalid tenant "global"`,
		"tenant show a:b":                                `invalid tenant "a:b"`,
		"tenant unset acme colour":                       `there is no setting "colour": there are tier, limit, weights, max-running, dispatch`,
		"tenant unset":                                   "takes a TENANT, and perhaps what to take away",
		"tenant set acme --dispatch 1 --dispatch-per 0s": "invalid --dispatch-per 0s: allowed is 1ms to 744h",
		"tenant list --tier basic --weight high=1":       "unknown flag: --weight",
	} {
		if out := p.run(cli.ExitUsage, line); !strings.Contains(out.stderr, want) {
			t.Errorf("headgate %s: %s", line, out.stderr)
		}
	}
	if out := runHeadgate(t.Context(), cobra.ShellCompRequestCmd, "tenant", "unset", "acme", ""); !strings.HasPrefix(out.stdout, "tier\nlimit\nweights\nmax-running\n") {
		t.Errorf("completed by %q", out.stdout)
	}
}
