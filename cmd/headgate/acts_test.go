package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/store"
)

// TestEveryCommandThatChangesSomethingIsAudited runs each and finds it in the audit, under the name of who ran it.
func TestEveryCommandThatChangesSomethingIsAudited(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("a")
	letter := func() { p.enqueue("dead"); p.kill(1) }
	for _, row := range []struct {
		line, action, name string
		before             func()
	}{
		{line: "pause --queue mail --reason why", action: "pause", name: "q:mail"},
		{line: "resume --queue mail --reason why", action: "unpause", name: "q:mail"},
		{line: "pause --downstream smtp --reason why", action: "pause", name: "d:smtp"},
		{line: "resume --downstream smtp --reason why", action: "unpause", name: "d:smtp"},
		{line: "pause --tenant acme --enqueue --reason why", action: "suspend", name: "t:acme"},
		{line: "resume --tenant acme --enqueue --reason why", action: "resume", name: "t:acme"},
		{line: "job cancel acme a --reason why", action: "cancel", name: "acme:a"},
		{line: "drain mail", action: "resume", name: "q:mail"},
		{line: "redrive acme dead --why why", action: "redrive", name: "q:mail", before: letter},
		{line: "redrive acme dead --without-limits --why why", action: "redrive_without_limits", name: "q:mail", before: func() { p.kill(1) }},
		{line: "dead purge --queue mail --yes --why why", action: "purge", name: "q:mail", before: func() { p.kill(1) }},
		{line: "breaker open smtp --reason why", action: "open"},
		{line: "breaker reset smtp --reason why", action: "reset"},
		{line: "adaptive freeze mail-out --reason why", action: "freeze", name: "d:smtp", before: p.adaptive},
		{line: "adaptive thaw mail-out --reason why", action: "thaw", name: "d:smtp"},
		{line: "adaptive override mail-out --limit 12 --for 10m --reason why", action: "override", name: "d:smtp"},
		{line: "adaptive override mail-out --off --reason why", action: "override_end", name: "d:smtp"},
		{line: "tenant set acme --tier basic --reason why", action: "policy"},
		{line: "limit set acme --tokens 5 --per 1s --burst 5 --reason why", action: "policy"},
	} {
		if row.before != nil {
			row.before()
		}
		p.run(cli.ExitOK, row.line)
		entries, _ := p.object(cli.ExitOK, "audit --limit 1 --action "+row.action+" --author "+cli.Author())["entries"].([]any)
		if len(entries) != 1 {
			t.Fatalf("%s: %v", row.line, entries)
		}
		entry, _ := entries[0].(map[string]any)
		name, _ := entry["name"].(string)
		at, err := time.Parse(time.RFC3339Nano, entry["at"].(string))
		why := entry["reason"]
		if strings.HasPrefix(row.line, "drain") {
			why = "why" // It has one of its own.
		}
		if name != row.name || why != "why" || err != nil || time.Since(at) > time.Minute {
			t.Errorf("%s is told as %v", row.line, entry)
		}
	}
	drains, _ := p.object(cli.ExitOK, "audit --action drain")["entries"].([]any)
	if len(drains) != 1 {
		t.Errorf("a drain is %d entries", len(drains))
	}
	if out := p.run(cli.ExitOK, "audit --name q:mail"); !strings.Contains(out.stdout, "pause queue mail") || strings.Contains(out.stdout, "policy") {
		t.Errorf("%s", out.stdout)
	}
	if out := p.run(cli.ExitUsage, "audit --action dance"); !strings.Contains(out.stderr, "allowed is policy, open") {
		t.Errorf("%s", out.stderr)
	}
}

// TestHoldsCommand lists who holds back what, since when and why, for people and for programs.
func TestHoldsCommand(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "holds"); !strings.Contains(out.stdout, "nothing is paused, suspended or scaled") {
		t.Errorf("%s", out.stdout)
	}
	p.run(cli.ExitOK, "pause --queue mail --for 1h --reason they\x1b[2Jmove")
	p.run(cli.ExitOK, "pause --tenant acme --enqueue")
	p.run(cli.ExitOK, "limit scale all 0.5 --for 10m --reason fire")
	_, _, err := p.store.SetGate(t.Context(), store.Gate{Name: store.TenantGate("capped"), Limit: 2})
	must(t, err)
	text := p.run(cli.ExitOK, "holds").stdout
	for _, want := range []string{"queue mail", "dispatch", cli.Author(), "they [2Jmove", "tenant acme", "enqueueing", "limits, 0.5 is left", "fire"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "capped") {
		t.Errorf("a cap is no hold:\n%s", text)
	}
	holds := p.object(cli.ExitOK, "holds")
	gates, _ := holds["gates"].([]any)
	suspensions, _ := holds["suspensions"].([]any)
	if len(gates) != 2 || len(suspensions) != 1 || !strings.Contains(fmt.Sprint(suspensions[0]), "author:"+cli.Author()) {
		t.Errorf("%v", holds)
	}
}
