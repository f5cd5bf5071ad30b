package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// writePolicy writes a document and returns the name of its file.
func writePolicy(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policy.json")
	must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// TestAPolicyIsTriedSetAndTakenBack walks through a change of an operator: what would it do, do it, who did it, undo it.
func TestAPolicyIsTriedSetAndTakenBack(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	premium := writePolicy(t, `{"tenants": {"acme": {"tier": "premium"}}}`)
	if out := p.run(cli.ExitNothing, "policy diff "+premium); out.stdout != "+ /tenants/acme/tier \"premium\"\n" {
		t.Errorf("diff: %+v", out)
	}
	if out := p.run(cli.ExitOK, "policy diff default"); out.stdout != "" {
		t.Errorf("diff default: %+v", out)
	}
	if out := p.run(cli.ExitOK, "policy set "+premium+" --dry-run"); !strings.HasSuffix(out.stdout, "version 1 would follow version 0, with 1 changes\n") {
		t.Errorf("dry run: %+v", out)
	}
	if would := p.object(cli.ExitOK, "policy set "+premium+" --dry-run"); would["dry_run"] != true || would["version"] != 1.0 {
		t.Errorf("%v", would)
	}
	if out := p.run(cli.ExitOK, "policy dry-run "+premium); !strings.HasSuffix(out.stdout, "nothing was counted in the last hour\n") {
		t.Errorf("dry run: %+v", out)
	}
	_, err := p.store.Count(t.Context(), []store.ScopeCount{{Scope: "global", Allowed: 90, Tokens: 90}, {Scope: "acme", Allowed: 40, Refused: 5, Tokens: 45}})
	must(t, err)
	strict := writePolicy(t, `{"tenants": {"acme": {"limit": {"tokens": 1, "per": "24h", "burst": 30}}}}`)
	out := p.run(cli.ExitOK, "policy dry-run "+strict)
	for _, want := range []string{"would follow version 0", "50.00 %", "│ acme        │ standard │        45 │           0 │           15 │", "│ all of tier │ standard │", "│ all         │"} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, out.stdout)
		}
	}
	if forecast, _ := p.object(cli.ExitOK, "policy dry-run "+strict)["forecast"].(map[string]any); forecast["coverage"] != 0.5 {
		t.Errorf("%v", forecast)
	}
	if versions := p.object(cli.ExitOK, "policy history")["versions"]; len(versions.([]any)) != 0 {
		t.Errorf("after dry runs: %v", versions)
	}
	if out := p.run(cli.ExitOK, "policy set "+premium+" --reason launch"); out.stdout != "version 1 is in force\n" {
		t.Errorf("set: %+v", out)
	}
	if out := p.run(cli.ExitNothing, "policy set default"); !strings.HasPrefix(out.stderr, "- /tenants/acme/tier \"premium\"\n") || !strings.Contains(out.stderr, "--replace") {
		t.Errorf("a tenant would be lost: %+v", out)
	}
	p.run(cli.ExitOK, "policy set default --replace --reason end")
	if out := p.run(cli.ExitOK, "policy show 1"); !strings.Contains(out.stdout, `"acme"`) {
		t.Errorf("show: %+v", out)
	}
	if done := p.object(cli.ExitOK, "policy rollback 1 --reason mistake"); done["from"] != 2.0 || done["version"] != 3.0 {
		t.Errorf("%v", done)
	}
	if out := p.run(cli.ExitOK, "policy get"); !strings.Contains(out.stdout, `"acme"`) || !strings.Contains(out.stdout, `"version": 3`) {
		t.Errorf("get: %+v", out)
	}
	who, err := user.Current()
	must(t, err)
	out = p.run(cli.ExitOK, "policy history")
	for _, want := range []string{who.Username, "launch", "version 1 again (mistake)"} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("history lacks %q: %s", want, out.stdout)
		}
	}
	p.run(cli.ExitNothing, "policy show 9")
	p.run(cli.ExitNothing, "policy rollback 9")
	p.run(cli.ExitUsage, "policy show latest")
	p.run(cli.ExitUsage, "policy set default --replace --reason "+strings.Repeat("x", store.MaxReason+1))
	stale := writePolicy(t, `{"version": 1}`)
	p.run(cli.ExitFailure, "policy set "+stale+" --dry-run")
	p.run(cli.ExitFailure, "policy set "+stale)
}

// TestAFileThatIsWrongIsNamed by every command that reads one, with the exit code of a failure: the command line has no fault, so --help
// says nothing of it.
func TestAFileThatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	commands := []string{"policy merge FILE", "policy set FILE", "policy set FILE --dry-run", "policy dry-run FILE", "policy diff FILE"}
	for text, want := range map[string]string{
		`{"global":{"tokns":10}}`:                   "invalid global.tokns (unknown): allowed is one of algorithm, tokens",
		`{"global":{"tokens":0}}`:                   "invalid global.tokens 0: allowed is 1 to 1000000000",
		`{"global":{"tokens":"10"}}`:                `invalid global.tokens "10": allowed is a whole number, 1 to 1000000000, without quotes`,
		`{`:                                         "invalid policy: the text ends too soon, at line 1, column 2",
		`null`:                                      "invalid policy: null is no policy",
		`{"version":1,"version":1}`:                 `invalid policy: policy holds "version" twice`,
		`{"tenants":{"acme":{"tier":"gold"}}}`:      `invalid tenants.acme.tier "gold"`,
		`{"triggers":{"a":{"do":"pause"}}}`:         "invalid triggers",
		`{"shedding":{"spill":5}}`:                  "invalid shedding.spill (unknown)",
		`{"queues":{"mail":{"pressure":{"x":"y"}}}`: "invalid queues.mail.pressure.x (unknown)",
	} {
		file := writePolicy(t, text)
		for _, line := range commands {
			out := p.run(cli.ExitFailure, strings.Replace(line, "FILE", file, 1))
			if !strings.HasPrefix(out.stderr, "headgate: policy "+file+": ") || !strings.Contains(out.stderr, want) || strings.Contains(out.stderr, "--help") {
				t.Errorf("%s of %s: %s", line, text, out.stderr)
			}
		}
	}
	for _, line := range []string{"policy merge -", "policy set -", "policy dry-run -"} {
		if out := p.in(cli.ExitFailure, "{}}", line); !strings.HasPrefix(out.stderr, "headgate: policy of standard input: invalid policy: ") {
			t.Errorf("%s: %s", line, out.stderr)
		}
	}
	p.run(cli.ExitOK, "policy merge "+writePolicy(t, `{"load":{}}`))
	for line, text := range map[string]string{
		"trigger set deep FILE":                         `{"do":"dance"}`,
		"trigger try deep FILE":                         `{"dos":"pause"}`,
		"policy rollout start FILE --percent 5":         `{"tiers":{},"tiers":{}}`,
		"replay " + writeTrace(t, 3) + " --policy FILE": `{"global":{"tokns":10}}`,
	} {
		file := writePolicy(t, text)
		words := strings.Fields(strings.Replace(line, "FILE", file, 1))
		if words[0] != "replay" {
			words = append(words, p.where...)
		}
		if out := runHeadgate(t.Context(), words...); out.code != cli.ExitFailure || !strings.Contains(out.stderr, " "+file+": ") || strings.Contains(out.stderr, "--help") {
			t.Errorf("%s: exit code %d: %s", line, out.code, out.stderr)
		}
	}
}

// TestAPartOfAPolicyDoesAwayWithNothing: set tells what the file leaves out and does nothing, merge leaves it as it is.
func TestAPartOfAPolicyDoesAwayWithNothing(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.run(cli.ExitOK, "limit set acme --tokens 5")
	p.run(cli.ExitOK, "tier set standard --tokens 7")
	part := writePolicy(t, `{"tenants": {"bolt": {"tier": "premium"}}}`)
	out := p.run(cli.ExitNothing, "policy set "+part)
	for _, want := range []string{"- /tenants/acme/limit/tokens 5\n", "~ /tiers/standard/limit/tokens 7 → 200\n", "in force that the file does not name: 5 (the first 5"} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("%q is not in %s", want, out.stderr)
		}
	}
	if out := p.run(cli.ExitOK, "policy set "+part+" --dry-run"); !strings.Contains(out.stderr, "--replace") {
		t.Errorf("%+v", out)
	}
	const told = "headgate: policy set would refuse the file without --replace: settings in force that it does not name: 5; headgate policy merge would leave them\n"
	if out := p.run(cli.ExitOK, "policy dry-run "+part); out.stderr != told {
		t.Errorf("%+v", out)
	}
	if out := p.run(cli.ExitOK, "policy dry-run "+writePolicy(t, `{"version": 2}`)); out.stderr != "" { // It was made from what it drops.
		t.Errorf("%+v", out)
	}
	if out := p.run(cli.ExitOK, "policy merge "+part+" --reason part"); out.stdout != "+ /tenants/bolt/tier \"premium\"\nversion 3 is in force\n" {
		t.Errorf("%+v", out)
	}
	whole := filepath.Join(t.TempDir(), "whole.json")
	must(t, os.WriteFile(whole, []byte(p.run(cli.ExitOK, "policy get").stdout), 0o600))
	p.run(cli.ExitOK, "policy set "+whole)
	if out := p.run(cli.ExitOK, "policy merge "+writePolicy(t, `{"tenants":{"acme":null}}`)); !strings.HasPrefix(out.stdout, "- /tenants/acme/limit/burst") {
		t.Errorf("%+v", out)
	}
	p.run(cli.ExitFailure, "policy merge "+writePolicy(t, `{"version":1}`))
	if out := p.run(cli.ExitFailure, "policy merge "+writePolicy(t, "{\n bad")); !strings.Contains(out.stderr, "at line 2, column 2") {
		t.Errorf("%+v", out)
	}
	p.run(cli.ExitOK, "policy set "+part+" --replace")
	if list := p.run(cli.ExitOK, "tenant list").stdout; strings.Contains(list, "acme") || !strings.Contains(list, "bolt") {
		t.Errorf("%s", list)
	}
}

// TestARolloutIsBegunGrownAndEnded walks through one that is promoted and one that is abandoned.
func TestARolloutIsBegunGrownAndEnded(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	rules := writePolicy(t, `{"tenants": {"acme": {"tier": "premium"}}}`)
	for _, command := range []string{"show", "share 5", "promote", "abandon"} {
		p.run(cli.ExitNothing, "policy rollout "+command)
	}
	p.run(cli.ExitUsage, "policy rollout share 101")
	if out := p.run(cli.ExitOK, "policy rollout start "+rules+" --percent 5 --id gold --reason try"); out.stdout != "version 1 is in force\n" {
		t.Errorf("start: %+v", out)
	}
	p.run(cli.ExitFailure, "policy rollout start "+rules+" --percent 5 --id other")
	p.run(cli.ExitOK, "policy rollout share 100")
	if out := p.run(cli.ExitOK, "policy rollout show"); !strings.Contains(out.stdout, `"percent": 100`) || !strings.Contains(out.stdout, `"gold"`) {
		t.Errorf("show: %+v", out)
	}
	p.run(cli.ExitOK, "policy rollout promote")
	if out := p.run(cli.ExitOK, "policy get"); !strings.Contains(out.stdout, `"premium"`) || strings.Contains(out.stdout, "rollout") {
		t.Errorf("after promote: %+v", out)
	}
	p.run(cli.ExitOK, "policy rollout start "+writePolicy(t, `{"tenants": {"acme": {"tier": "basic"}}}`)+" --percent 50")
	p.run(cli.ExitOK, "policy rollout abandon --reason no")
	if out := p.run(cli.ExitOK, "policy get"); !strings.Contains(out.stdout, `"premium"`) || strings.Contains(out.stdout, "rollout") {
		t.Errorf("after abandon: %+v", out)
	}
	p.run(cli.ExitNothing, "policy rollout shadow")
	p.run(cli.ExitOK, "policy rollout start "+rules+" --percent 100 --id s --shadow")
	limits, ok := policyInForce(t, p).ShadowFor("acme", "mail", admission.High)
	if !ok {
		t.Fatal("acme is not in")
	}
	must(t, p.store.Shadow(t.Context(), 6, "s", []store.Question{{Tenant: "acme", Queue: "mail", Cost: 1, Limits: limits}}))
	if out := p.run(cli.ExitOK, "policy rollout shadow"); !strings.Contains(out.stdout, "1 allowed") || !strings.Contains(out.stdout, "by tenant: 0") {
		t.Errorf("shadow: %+v", out)
	}
	if out := p.run(cli.ExitFailure, "policy rollout start "+writePolicy(t, `{"colour": 1}`)); !strings.Contains(out.stderr, "invalid rollout.rules.colour (unknown)") {
		t.Errorf("%+v", out)
	}
	p.run(cli.ExitFailure, "policy rollout start "+writePolicy(t, `{`))
}

func policyInForce(t *testing.T, p *plant) *policy.Compiled {
	t.Helper()
	current, err := rollout.Current(t.Context(), p.store)
	must(t, err)
	compiled, err := current.Prepare()
	must(t, err)
	return compiled
}
