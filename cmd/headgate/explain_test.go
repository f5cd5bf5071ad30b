package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

func TestExplainCommand(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue("a:1")
	p.run(cli.ExitOK, "breaker open smtp --for 1h --reason maintenance")
	p.run(cli.ExitOK, "queue set mail --each-tenant 2 --type report")
	for line, want := range map[string]string{
		"explain job acme a:1":                "! workers: no worker that is registered serves queue mail\n    change: a worker: headgate worker --queue mail\n",
		"explain tenant acme":                 "- tier: its tier is standard\n    rule:   built in",
		"explain scope acme:mail":             "default of tier standard, /tiers/standard/limit = {",
		"explain scope acme:mail:type=report": "acme:mail:type=report has 2 of 2 tokens left and gets 2 tokens a second\n    rule:   default of queue mail, /queues/mail/each_tenant/type_limits/report = {",
		"explain queue mail":                  "queue mail: 1 of its jobs wait, 0 run, 0 workers serve it",
		"explain downstream smtp":             "forced: maintenance (",
	} {
		if out := p.run(cli.ExitOK, line); !strings.Contains(out.stdout, want) {
			t.Errorf("headgate %s: no %q in\n%s", line, want, out.stdout)
		}
		kind := strings.Fields(line)[1]
		object := p.object(cli.ExitOK, line)
		checkKeys(t, kind, object, strings.Fields("kind name policy_version reasons summary"))
		if object["kind"] != kind {
			t.Errorf("%v", object)
		}
	}
	p.run(cli.ExitNothing, "explain job acme never")
	for line, want := range map[string]string{
		"explain":                        "takes what to explain: job, tenant, scope, downstream",
		"explain queue":                  "explain queue takes a name, got 0 arguments",
		"explain job acme":               "explain job takes TENANT and ID, got 1 arguments",
		"explain tenant":                 "explain tenant takes a name, got 0 arguments",
		"explain job acme:mail a":        `invalid tenant "acme:mail"`,
		"explain scope acme:mail:urgent": "one whose priority is a class of queue mail",
	} {
		if out := p.run(cli.ExitUsage, line); !strings.Contains(out.stderr, want) {
			t.Errorf("headgate %s: %s", line, out.stderr)
		}
	}
	if out := runHeadgate(t.Context(), "__complete", "explain", ""); !strings.HasPrefix(out.stdout, "job\ntenant\nscope\ndownstream\n") {
		t.Errorf("%s", out.stdout)
	}
}
