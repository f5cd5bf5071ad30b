package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func TestDeadCommands(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("a", "b", "c", "d")
	p.kill(4)
	p.enqueue("lives")
	if out := p.run(cli.ExitOK, "dead list --queue mail --reason discarded"); !strings.Contains(out.stdout, "discarded: bad [2J address") || strings.Contains(out.stdout, "\x1b") {
		t.Errorf("%s", out.stdout)
	}
	p.run(cli.ExitOK, "dead list --reason expired") // As in 0.1.
	dead := p.object(cli.ExitOK, "dead show acme a")
	if history, _ := dead["history"].([]any); dead["reason"] != "discarded" || len(history) != 1 {
		t.Errorf("%v", dead)
	}
	for _, line := range []string{"dead show acme lives", "dead purge acme lives"} {
		if out := p.run(cli.ExitNothing, line); !strings.Contains(out.stderr, "no dead letter: it is waiting") {
			t.Errorf("%s: %s", line, out.stderr)
		}
	}
	checkKeys(t, "a purge", p.object(cli.ExitOK, "dead purge acme a"), []string{"purged"})
	if out := p.run(cli.ExitUsage, "dead purge --queue ! --yes"); out.stdout != "" || !strings.Contains(out.stderr, `invalid queue "!"`) {
		t.Errorf("got %+v", out)
	}
	if out := p.run(cli.ExitUsage, "dead purge --queue mail"); !strings.Contains(out.stderr, "say so with --yes") {
		t.Errorf("%s", out.stderr)
	}
	p.run(cli.ExitNothing, "dead purge --queue mail --older-than 1h --yes")
	if out := p.run(cli.ExitOK, "redrive acme b"); out.stdout != "1 dead letters are on their way again\n" {
		t.Errorf("%s", out.stdout)
	}
	redriven := p.object(cli.ExitNothing, "redrive acme b c none")
	checkKeys(t, "a redrive", redriven, []string{"errors", "redriven", "refused"})
	if redriven["redriven"] != 1.0 || fmt.Sprint(redriven["refused"]) != "map[gone:2]" {
		t.Errorf("%v", redriven)
	}
	if out := p.run(cli.ExitOK, "dead purge --queue mail --reason discarded --yes"); out.stdout != "1 dead letters are purged\n" || !strings.Contains(out.stderr, "purged so far") {
		t.Errorf("%+v", out)
	}
	p.run(cli.ExitNothing, "redrive --queue mail")
}

// TestRedriveOfAQueueWaitsForTokens: what a limit refuses for a moment is tried again, what is refused for good is not.
func TestRedriveOfAQueueWaitsForTokens(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	late := admission.NewJob("acme", "mail", "welcome", nil)
	late.ID, late.Deadline = "late", time.Now().Add(time.Second)
	_, err := p.producer.Enqueue(t.Context(), late)
	must(t, err)
	eventually(t, func() bool {
		_, err := p.store.Partitions()[0].Promote(t.Context(), "s", time.Second)
		must(t, err)
		sight, err := p.store.Look(t.Context(), admission.Key{Tenant: "acme", ID: "late"})
		return err == nil && sight.Place == store.PlaceDead
	})
	p.enqueue("a", "b", "c", "d", "e")
	must(t, p.producer.Flush(t.Context()))
	p.kill(5)
	limited := policy.Policy{Version: 1, Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: admission.PerSecond(20).WithBurst(2)}}}
	text, err := policy.Marshal(limited)
	must(t, err)
	must(t, p.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: time.Minute}))
	for line, want := range map[string]float64{"redrive --queue mail": 6, "redrive --queue mail --limit 2": 2, "redrive --queue mail --reason expired": 1, "dead purge --queue mail": 6, "redrive --queue mail --tenant acme": 6} {
		if would := p.object(cli.ExitOK, line+" --dry-run"); would["dead"] != want || would["dry_run"] != true {
			t.Errorf("%s: %v, want %v dead letters", line, would, want)
		}
	}
	p.run(cli.ExitNothing, "dead purge --queue mail --reason poison --dry-run")
	for _, command := range []string{"redrive", "dead purge"} {
		p.run(cli.ExitNothing, command+" --queue mail --tenant bolt --dry-run")
		p.run(cli.ExitUsage, command+" acme a --tenant acme")
	}
	p.run(cli.ExitUsage, "redrive acme a --dry-run")
	p.run(cli.ExitUsage, "dead purge acme a --dry-run")
	first := p.object(cli.ExitNothing, "redrive --queue mail --limit 1") // The first to die.
	rest := p.object(cli.ExitNothing, "redrive --queue mail")
	if fmt.Sprint(first["refused"]) != "map[deadline:1]" || rest["redriven"] != 5.0 || fmt.Sprint(rest["refused"]) != "map[deadline:1]" {
		t.Errorf("%v, %v", first, rest)
	}
	p.run(cli.ExitOK, "redrive --queue mail --drop-deadline --without-limits")
	if allowed, refused := p.counted("acme:mail"); allowed != 6+5 || refused == 0 {
		t.Errorf("%d admitted, %d refused were counted, want six that were enqueued, five that were redriven, and some", allowed, refused)
	}
}

// counted is what is counted of a scope.
func (p *plant) counted(scope admission.Scope) (allowed, refused int64) {
	p.t.Helper()
	minutes, err := p.store.Minutes(p.t.Context(), scope)
	must(p.t, err)
	for _, m := range minutes {
		allowed, refused = allowed+m.Allowed, refused+m.Refused
	}
	return allowed, refused
}
