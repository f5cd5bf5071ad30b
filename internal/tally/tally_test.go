package tally

import (
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestQueuesAreCountedWhereRatesAreWatched: each over all its tenants, and nothing more than before where they are not.
func TestQueuesAreCountedWhereRatesAreWatched(t *testing.T) {
	t.Parallel()
	taken := map[Path]Sum{
		{Tenant: "acme", Queue: "mail", Class: admission.High}: {Allowed: 5, Refused: 1, Tokens: 6},
		{Tenant: "bee", Queue: "mail", Class: admission.Low}:   {Allowed: 2, Refused: 3, Tokens: 5},
		{Tenant: "bee"}: {Allowed: 7, Tokens: 7},
	}
	for rules, want := range map[*policy.AnomalyRules]map[string]store.ScopeCount{
		nil: {}, {}: {"mail": {Queue: "mail", Allowed: 7, Refused: 4, Watched: true}},
	} {
		p := policy.Unlimited()
		p.Anomalies = rules
		compiled, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]store.ScopeCount{}
		scopes := 0
		for _, c := range scopeCounts(taken, compiled) {
			if c.Watched != (rules != nil) {
				t.Errorf("%+v, watched by %+v", c, rules)
			}
			if c.Queue == "" {
				scopes++
				continue
			}
			got[c.Queue] = c
		}
		if len(got) != len(want) || got["mail"] != want["mail"] || scopes != 7 {
			t.Errorf("%+v: queues %+v, %d scopes", rules, got, scopes)
		}
	}
}
