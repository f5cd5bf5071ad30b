package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestUsageFromTheCommandLine: none where the policy keeps none, then a table with a sum, JSON and CSV.
func TestUsageFromTheCommandLine(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	if out := p.run(cli.ExitOK, "usage"); !strings.Contains(out.stderr, "no usage is kept: a policy with {\"usage\": {}} has it kept") {
		t.Errorf("%q", out.stderr)
	}
	_, err := rollout.Change(t.Context(), p.store, rollout.Edit{Author: "ada", Expected: rollout.AnyVersion}, func(current policy.Policy) (policy.Policy, error) {
		current.Usage = &policy.UsageRules{}
		return current, nil
	})
	must(t, err)
	if out := p.run(cli.ExitOK, "usage"); !strings.Contains(out.stderr, "usage is kept, and none was like that") {
		t.Errorf("%q", out.stderr)
	}
	version, err := p.store.PolicyInForce(t.Context())
	must(t, err)
	for tenant, cost := range map[string]admission.Tokens{"acme": 3, "zeta": 4} {
		j := admission.NewJob(tenant, "llm", "t", nil)
		j.ID, j.Cost = "one", cost
		_, err := p.store.Partitions()[p.store.PartitionOf(tenant)].Admit(t.Context(), version, []store.Candidate{{
			Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}, Usage: 10,
		}})
		must(t, err)
	}
	now, err := p.store.Time(t.Context())
	must(t, err)
	day := now.UTC().Format(time.DateOnly)
	list := p.run(cli.ExitOK, "usage").stdout
	for _, want := range []string{day, "acme", "zeta", "llm", "committed", "all", "7"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list has no %s:\n%s", want, list)
		}
	}
	var got struct {
		Usage []map[string]any `json:"usage"`
	}
	must(t, json.Unmarshal([]byte(p.run(cli.ExitOK, "usage --tenant zeta --json").stdout), &got))
	if len(got.Usage) != 1 || got.Usage[0]["committed"] != 4.0 || got.Usage[0]["day"] != day {
		t.Errorf("%v", got)
	}
	want := "day,tenant,queue,jobs,calls,reserved,committed,refunded,added\n" + day + ",acme,llm,1,0,3,3,0,0\n" + day + ",zeta,llm,1,0,4,4,0,0\n"
	if out := p.run(cli.ExitOK, "usage --csv --queue llm --from "+day+" --to "+day); out.stdout != want {
		t.Errorf("%q, want %q", out.stdout, want)
	}
	p.run(cli.ExitOK, "usage --queue mail")
	for args, says := range map[string]string{
		"usage --from 2026-13-01": "from", "usage --csv --json": "csv", "usage --from 2026-11-02 --to 2026-11-01": "to", "usage --tenant a:b": "tenant",
	} {
		if out := p.run(cli.ExitUsage, args); !strings.Contains(out.stderr, says) {
			t.Errorf("%s: %q", args, out.stderr)
		}
	}
}
