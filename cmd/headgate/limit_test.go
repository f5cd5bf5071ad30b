package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestLimitCommands(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	for line, want := range map[string]string{
		"limit get acme": "acme gets 200 tokens a second and holds 50, default of tier standard\n", "limit get acme:mail": "acme:mail has no limit, by default\n",
	} {
		if out := p.run(cli.ExitOK, line); out.stdout != want {
			t.Errorf("%s: %s", line, out.stdout)
		}
	}
	for _, scope := range []string{"global", "acme", "acme:mail", "acme:mail:high", "acme:mail:type=report", "acme:mail:type=*"} {
		set := p.object(cli.ExitOK, "limit set "+scope+" --tokens 7 --per 90s --burst 9 --reason launch")
		own, _ := set["own"].(map[string]any)
		if own["tokens"] != 7.0 || own["per"] != "1m30s" || own["burst"] != 9.0 {
			t.Errorf("%v", set)
		}
		if out := p.run(cli.ExitOK, "limit get "+scope); out.stdout != scope+" gets 7 tokens in 1m30s and holds 9, its own limit\n" {
			t.Errorf("%s", out.stdout)
		}
		if scope == "global" { // Where it is off the policy has none.
			p.run(cli.ExitOK, "limit delete global --reason over")
			continue
		}
		if out := p.run(cli.ExitOK, "limit set "+scope+" --off"); out.stdout != scope+" has no limit, its own limit\n" {
			t.Errorf("%s", out.stdout)
		}
		p.run(cli.ExitOK, "limit delete "+scope+" --reason over")
		if out := p.run(cli.ExitNothing, "limit delete "+scope); !strings.Contains(out.stderr, scope+": the scope has no limit of its own") {
			t.Errorf("%s", out.stderr)
		}
	}
	leaks := p.object(cli.ExitOK, "limit set acme --algorithm leaky_bucket --tokens 500 --reason launch")
	if force, _ := leaks["in_force"].(map[string]any); force["algorithm"] != nil || force["tokens"] != 500.0 || force["burst"] != 1.0 {
		t.Errorf("%v", leaks)
	}
	slides := p.object(cli.ExitOK, "limit set acme --algorithm sliding_log --tokens 500 --window 1m --reason launch")
	if force, _ := slides["in_force"].(map[string]any); force["algorithm"] != "sliding_log" || force["tokens"] != 500.0 || force["window"] != "1m" || force["zone"] != nil {
		t.Errorf("%v", slides)
	}
	quota := p.object(cli.ExitOK, "limit set acme --tokens 1000 --window 24h --zone Europe/Berlin --reason launch")
	if own, _ := quota["own"].(map[string]any); own["algorithm"] != "fixed_window" || own["window"] != "24h" || own["anchor"] != "00:00" || own["zone"] != "Europe/Berlin" || own["per"] != nil {
		t.Errorf("%v", quota)
	}
	if force, _ := quota["in_force"].(map[string]any); force["algorithm"] != "fixed_window" || force["tokens"] != 1000.0 || force["zone"] != "Europe/Berlin" {
		t.Errorf("%v", quota)
	}
	if out := p.run(cli.ExitOK, "limit get acme"); out.stdout != "acme gets 1000 tokens a day, new at 00:00 in Europe/Berlin, its own limit\n" {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "explain scope acme"); !strings.Contains(out.stdout, "acme has 1000 of 1000 tokens left and gets 1000 tokens a day, new at 00:00 in Europe/Berlin") {
		t.Errorf("%s", out.stdout)
	}
	p.run(cli.ExitOK, "limit delete acme --reason over")
	p.run(cli.ExitOK, "queue set mail --each-tenant 3 --class high")
	if out := p.run(cli.ExitOK, "limit get acme:mail:high"); out.stdout != "acme:mail:high gets 3 tokens a second and holds 3, default of queue mail\n" {
		t.Errorf("%s", out.stdout)
	}
	rule, _ := p.object(cli.ExitOK, "limit get acme:mail:high")["rule"].(map[string]any)
	if rule["of"] != "default of queue mail" || rule["path"] != "/queues/mail/each_tenant/priority_limits/high" {
		t.Errorf("%v", rule)
	}
	p.run(cli.ExitOK, "queue unset mail --reason over")
	if out := p.run(cli.ExitOK, "audit --limit 1"); !strings.Contains(out.stdout, "over") {
		t.Errorf("%s", out.stdout)
	}
	for line, want := range map[string]string{
		"limit":                                 "",
		"limit get a:b:c:d":                     "invalid scope",
		"limit set acme:mail:type=ü --tokens 5": "invalid scope",
		"limit set acme:mail:high:type=* --tokens 5":                               "invalid scope",
		"limit set acme:type=report --tokens 5":                                    "invalid scope",
		"limit set acme":                                                           "invalid --tokens 0: allowed is 1 to 1000000000; for no limit --off",
		"limit set acme --tokens 1 --off":                                          "invalid --off true: allowed is it or --tokens, not both",
		"limit set acme --tokens 1 --per 0":                                        "invalid --per 0s: allowed is 1ms to 744h",
		"limit set acme --tokens 1 --window 900h":                                  `invalid --window "900h": allowed is 1s to 744h0m0s in whole seconds, or "month"`,
		"limit set acme --tokens 1 --algorithm gcra":                               `invalid --algorithm "gcra": allowed is token_bucket, fixed_window, sliding_window, sliding_log, leaky_bucket`,
		"limit set acme --tokens 1 --algorithm sliding_window":                     `invalid --window "": allowed is 1s to 744h0m0s in whole seconds`,
		"limit set acme --tokens 1 --algorithm leaky_bucket --window 1h":           `invalid --window "1h": allowed is none with --algorithm leaky_bucket`,
		"limit set acme --tokens 1 --algorithm token_bucket --window 1h":           `invalid --window "1h": allowed is none with --algorithm token_bucket`,
		"limit set acme --tokens 1 --algorithm sliding_log --window 1h --zone UTC": `invalid --zone "UTC": allowed is none with "algorithm": "sliding_log"`,
		"limit set acme --tokens 1001 --algorithm sliding_log --window 1h":         "invalid limit.tokens 1001: allowed is 1 to 1000 of a sliding log",
		"limit set acme --tokens 1 --window 24h --burst 5":                         "invalid --burst 5: allowed is none beside --window",
		"limit set acme --tokens 1 --window 1h --zone Europe/Berlin":               `invalid --zone "Europe/Berlin"`,
		"limit set acme --tokens 1 --zone Europe/Berlin":                           `invalid --zone "Europe/Berlin": allowed is none without --window`,
		"tenant set acme --tokens 0 --window 24h":                                  "invalid --tokens 0",
	} {
		code := cli.ExitUsage
		if want == "" {
			code = cli.ExitOK
		}
		if out := p.run(code, line); !strings.Contains(out.stderr, want) {
			t.Errorf("headgate %s: %s", line, out.stderr)
		}
	}
}

// TestATenantHasLimitsOfTypesOfItsOwn, set by scope or by part, before what each tenant has, told wherever limits are, and taken away with the rest.
func TestATenantHasLimitsOfTypesOfItsOwn(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.run(cli.ExitOK, "queue set mail --each-tenant 2 --type report")
	p.run(cli.ExitOK, "limit set acme:mail:type=report --tokens 5 --reason launch")
	p.run(cli.ExitOK, "tenant set acme --queue mail --type * --tokens 7")
	for line, want := range map[string]string{
		"limit get acme:mail:type=report":     "acme:mail:type=report gets 5 tokens a second and holds 5, its own limit\n",
		"limit get acme:mail:type=send":       "acme:mail:type=send gets 7 tokens a second and holds 7, override of acme:mail:type=send\n",
		"limit get bolt:mail:type=report":     "bolt:mail:type=report gets 2 tokens a second and holds 2, default of queue mail\n",
		"limit get acme:mail:type=*":          "acme:mail:type=* gets 7 tokens a second and holds 7, its own limit\n",
		"explain scope acme:mail:type=report": "acme:mail:type=report has 5 of 5 tokens left and gets 5 tokens a second\n    rule:   override of acme:mail:type=report, /tenants/acme/queues/mail/type_limits/report = {",
		"explain scope bolt:mail:type=report": "change: headgate limit set bolt:mail:type=report --tokens NUMBER --per DURATION",
		"tenant show acme --json":             `"type_limits": {`,
	} {
		if out := p.run(cli.ExitOK, line); !strings.Contains(out.stdout, want) {
			t.Errorf("headgate %s: no %q in %s", line, want, out.stdout)
		}
	}
	if out := p.run(cli.ExitNothing, "policy diff default"); !strings.Contains(out.stdout, "- /tenants/acme/queues/mail/type_limits/report/tokens 5") {
		t.Errorf("%s", out.stdout)
	}
	for line, want := range map[string]string{
		"tenant set acme --queue mail --tokens 5":                `invalid --queue "mail": allowed is it beside --type`,
		"tenant set acme --type report --tokens 5":               `invalid --type "report": allowed is it beside --queue`,
		"tenant set acme --type report --queue mail":             `invalid --type "report": allowed is it beside --tokens or --off`,
		"tenant set acme --type a --queue * --tokens 5":          `invalid tenants.acme.queues "*"`,
		"tenant set acme --type ü --queue mail --tokens 5":       `invalid tenants.acme.queues.mail.type_limits "ü"`,
		"tenant set acme --type a --queue mail --tokens 5 --off": "it or --tokens, not both",
	} {
		if out := p.run(cli.ExitUsage, line); !strings.Contains(out.stderr, want) {
			t.Errorf("headgate %s: %s", line, out.stderr)
		}
	}
	p.run(cli.ExitOK, "limit delete acme:mail:type=report")
	if out := p.run(cli.ExitOK, "limit get acme:mail:type=report"); !strings.Contains(out.stdout, "gets 7 tokens a second and holds 7, override of acme:mail:type=report") {
		t.Errorf("%s", out.stdout)
	}
	p.run(cli.ExitOK, "tenant unset acme queues")
	if out := p.run(cli.ExitOK, "limit get acme:mail:type=report"); !strings.Contains(out.stdout, "gets 2 tokens a second and holds 2, default of queue mail") {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "tenant list"); out.stdout != "" {
		t.Errorf("%s", out.stdout)
	}
}

// TestTheGlobalLimitIsShownWithItsShares, where several partitions divide it, and no other limit is.
func TestLimitsOfDimensions(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "limit get +user:123"); out.stdout != "+user:123 has no limit, by default\n" {
		t.Errorf("%s", out.stdout)
	}
	for _, step := range []struct{ line, want string }{
		{"limit set +user --tokens 60 --per 1m --burst 20", "+user gets 60 tokens a minute and holds 20, its own limit\n"},
		{"limit get +user:123", "+user:123 gets 60 tokens a minute and holds 20, dimension user\n"},
		{"limit set +user@premium --tokens 600 --per 1m --burst 50", "+user@premium gets 600 tokens a minute and holds 50, its own limit\n"},
		{"limit set +user:123 --off", "+user:123 has no limit, its own limit\n"},
		{"limit delete +user:123", "+user:123 gets 60 tokens a minute and holds 20, dimension user\n"},
	} {
		if out := p.run(cli.ExitOK, step.line); out.stdout != step.want {
			t.Errorf("%s: %q, want %q", step.line, out.stdout, step.want)
		}
	}
	if out := p.run(cli.ExitUsage, "limit get +user@premium:1"); !strings.Contains(out.stderr, "+DIMENSION, +DIMENSION@TIER or +DIMENSION:KEY") {
		t.Errorf("%s", out.stderr)
	}
	p.run(cli.ExitNothing, "limit delete +user:123")
}

func TestTheGlobalLimitIsShownWithItsShares(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Shared(t), redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{Prefix: prefix, Partitions: 2})
	must(t, err)
	p := &plant{t: t, store: s, where: []string{"--redis", server.URL(), "--prefix", prefix}}
	for scope, want := range map[string]string{"global": "; the partitions have 3.5, 3.5 of that", "acme": ""} {
		if out := p.run(cli.ExitOK, "limit set "+scope+" --tokens 7 --per 24h --burst 8"); out.stdout != scope+" gets 7 tokens a day and holds 8, its own limit"+want+"\n" {
			t.Errorf("%s", out.stdout)
		}
	}
	if config := p.object(cli.ExitOK, "limit get global"); fmt.Sprint(config["shares"]) != "[3.5 3.5]" {
		t.Errorf("%v", config)
	}
	if config := p.object(cli.ExitOK, "limit get acme"); config["shares"] != nil {
		t.Errorf("%v", config)
	}
}

// TestTheTopScopesAreListed by what is asked for, and nothing else is.
func TestTheTopScopesAreListed(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "limit top"); out.stdout != "" || !strings.Contains(out.stderr, "nothing like that was counted") {
		t.Errorf("%+v", out)
	}
	_, err := p.store.Count(t.Context(), []store.ScopeCount{{Scope: "acme", Allowed: 9, Tokens: 9}, {Scope: "bolt", Allowed: 1, Refused: 4, Tokens: 50}, {Scope: "cobra", Allowed: 2, Refused: 1, Tokens: 3}})
	must(t, err)
	for flags, want := range map[string]string{"": "acme bolt cobra", "--sort refused": "bolt cobra", "--sort tokens --limit 1": "bolt", "--sort allowed --minutes 61": "acme cobra bolt"} {
		var names []string
		for _, one := range p.object(cli.ExitOK, strings.TrimSpace("limit top "+flags))["scopes"].([]any) {
			names = append(names, one.(map[string]any)["scope"].(string))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s", flags, got)
		}
	}
	if out := p.run(cli.ExitOK, "limit top --sort refused"); !strings.Contains(out.stdout, "│ bolt  │        5 │       1 │       4 │     50 │") || !strings.Contains(out.stdout, "Since 20") {
		t.Errorf("%s", out.stdout)
	}
	for line, want := range map[string]string{
		"limit top --sort name": `invalid --sort "name": allowed is one of requests, allowed, refused, tokens`, "limit top --limit 0": "invalid --limit 0", "limit top --minutes 62": "invalid --minutes 62: allowed is 1 to 61",
	} {
		if out := p.run(cli.ExitUsage, line); !strings.Contains(out.stderr, want) {
			t.Errorf("%s: %s", line, out.stderr)
		}
	}
}

// TestAnEditThatARecordOverrulesSaysSo: it is stored, changes nothing that the tenant's record says, and explain names the command that does.
func TestAnEditThatARecordOverrulesSaysSo(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.setPolicy(`{"tenant_records": true}`)
	p.run(cli.ExitOK, "record set acme --tokens 5 --per 1s --weight high=3")
	for line, want := range map[string]string{
		"limit set acme --tokens 9":                  "the limit of acme is in the record of tenant acme, which goes before the policy: headgate record set acme --tokens NUMBER",
		"limit delete acme":                          "the limit of acme is in the record of tenant acme",
		"limit set acme:mail --tokens 9":             "",
		"tenant set acme --tier standard":            "",
		"tenant set acme --weight high=2,low=1":      "the record of tenant acme says something of priority_weights.high, and goes before the policy: headgate record set acme changes it",
		"tenant set acme --tokens 9 --tier standard": "says something of limit, and goes",
		"tenant unset acme":                          "says something of limit, priority_weights, and goes",
		"tenant set bolt --tokens 9":                 "",
	} {
		if strings.HasPrefix(line, "limit delete") || strings.HasPrefix(line, "tenant unset") {
			p.run(cli.ExitOK, "tenant set acme --tokens 8")
		}
		out := p.run(cli.ExitOK, line)
		if !strings.Contains(out.stderr, want) || strings.Contains(out.stderr, "note:") != (want != "") {
			t.Errorf("%s: %s", line, out.stderr)
		}
	}
	if set := p.object(cli.ExitOK, "limit set acme --tokens 9"); !strings.Contains(fmt.Sprint(set["note"]), "goes before the policy") || set["recorded"] != true {
		t.Errorf("%v", set)
	}
	if set := p.object(cli.ExitOK, "tenant set acme --tokens 9"); !strings.Contains(fmt.Sprint(set["note"]), "says something of limit") {
		t.Errorf("%v", set)
	}
	if shows := p.object(cli.ExitOK, "tenant show acme"); shows["note"] != nil {
		t.Errorf("%v", shows)
	}
	told := p.run(cli.ExitOK, "explain tenant acme").stdout
	if !strings.Contains(told, "change: headgate record set acme --tokens NUMBER --per DURATION") || strings.Contains(told, "headgate limit set acme ") {
		t.Error(told)
	}
}

// TestLimitScale scales limits by the command line, as an operator does in an emergency, and sees everywhere that they are.
func TestLimitScale(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.run(cli.ExitOK, "limit set acme --tokens 100 --per 24h --burst 10 --reason test")
	if out := p.run(cli.ExitOK, "limit scale"); out.stdout != "no limit is scaled\n" {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitNothing, "limit scale all --off"); !strings.Contains(out.stderr, "limits of all are not scaled: headgate limit scale tells what is") {
		t.Errorf("%s", out.stderr)
	}
	p.refuses(map[string]string{
		"limit scale all":                     "say to what part, as in headgate limit scale all 0.5 --for 10m, or --off to end it",
		"limit scale all 0.5":                 "invalid --for 0s: allowed is 1s to 24h",
		"limit scale all 0.5 --for 25h":       "invalid for 25h: allowed is 1s to 24h",
		"limit scale all 0.001 --for 10m":     "invalid part 0.001: allowed is 0.01 to 1 of what the policy says",
		"limit scale all NaN --for 10m":       "invalid part NaN: allowed is 0.01 to 1",
		"limit scale all half --for 10m":      `invalid part "half": allowed is 0.01 to 1`,
		"limit scale acme:mail 0.5 --for 10m": `invalid scope "acme:mail": allowed is all, global or a tenant`,
		"limit scale all 0.5 --off":           "neither PART nor --for beside it",
		"limit scale --off":                   "say whose limits: all, global or a tenant",
	})
	if out := p.run(cli.ExitOK, "limit scale all 0.5 --for 10m --reason fire"); !strings.HasPrefix(out.stdout, "limits of all are scaled to 0.5, until 2") {
		t.Errorf("%s", out.stdout)
	}
	p.run(cli.ExitOK, "limit scale acme 0.25 --for 1h")
	for line, parts := range map[string][]string{
		"limit scale":        {"all", "0.5", "fire", "tenant acme", "0.25", cli.Author()},
		"holds":              {"limits, 0.5 is left", "tenant acme", "limits, 0.25 is left"},
		"doctor":             {"all limits are scaled to 0.5 by " + cli.Author(), "headgate limit scale SCOPE --off ends one"},
		"explain scope acme": {"acme has 2 of 2 tokens left and gets 100 tokens a day, scaled to 0.25", "headgate limit scale all --off", "headgate limit scale acme --off"},
		"audit":              {"scale all for 10m0s", "to 0.5: fire", "scale tenant acme for 1h0m0s"},
		"limit get acme":     {"acme gets 100 tokens a day and holds 10, its own limit, scaled to 0.25, until 2"},
		"limit get bolt":     {"scaled to 0.5, until 2"},
		"limit get global":   {"global has no limit, by default\n"},
		"tenant show acme":   {"scaled to 0.25, until 2"},
		"tenant show bolt":   {"scaled to 0.5, until 2"},
	} {
		out := p.run(cli.ExitOK, line)
		for _, part := range parts {
			if !strings.Contains(out.stdout, part) {
				t.Errorf("no %q in %s:\n%s", part, line, out.stdout)
			}
		}
	}
	shown, _ := p.object(cli.ExitOK, "limit scale")["scales"].([]any)
	if one, _ := shown[0].(map[string]any); len(shown) != 2 || one["scope"] != "all" || one["part"] != 0.5 || one["reason"] != "fire" || one["author"] != cli.Author() || one["until"] == nil {
		t.Errorf("%v", shown)
	}
	if scaled, _ := p.object(cli.ExitOK, "limit get acme")["scaled"].(map[string]any); scaled["part"] != 0.25 || scaled["until"] == nil {
		t.Errorf("%v", scaled)
	}
	if out := p.object(cli.ExitOK, "limit scale t:acme --off"); out["off"] != true || out["scope"] != "t:acme" {
		t.Errorf("%v", out)
	}
	if out := p.run(cli.ExitOK, "limit scale all --off --reason out"); out.stdout != "limits of all are the policy's again\n" {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "limit get acme"); out.stdout != "acme gets 100 tokens a day and holds 10, its own limit\n" {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitOK, "explain scope acme"); !strings.Contains(out.stdout, "acme has 10 of 10 tokens left and gets 100 tokens a day\n") {
		t.Errorf("%s", out.stdout)
	}
}
