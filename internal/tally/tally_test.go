package tally

import (
	"reflect"
	"strconv"
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
		for _, c := range scopeCounts(taken, nil, compiled) {
			if c.Watched != (rules != nil) {
				t.Errorf("%+v, watched by %+v", c, rules)
			}
			if c.Queue == "" {
				scopes++
				continue
			}
			got[c.Queue] = c
		}
		if len(got) != len(want) || !reflect.DeepEqual(got["mail"], want["mail"]) || scopes != 7 {
			t.Errorf("%+v: queues %+v, %d scopes", rules, got, scopes)
		}
	}
}

// TestNamesAreToldOnce in an hour, tenants and jobs of up to maxNamed queues, again where they were not stored, and none where nobody asks.
func TestNamesAreToldOnce(t *testing.T) {
	t.Parallel()
	var all Tally
	note := func(queue string, ids ...string) {
		all.NoteJobs(func(add func(queue, tenant, id string)) {
			for _, id := range ids {
				add(queue, "acme", id)
			}
		})
		all.mu.Lock()
		defer all.mu.Unlock()
		all.addLocked(Path{Tenant: "acme", Queue: queue}, Sum{Allowed: int64(len(ids))})
	}
	note("mail", "1", "2", "1")
	taken, told := all.take(true)
	if want := map[string]fresh{"mail": {[]string{"acme"}, []string{"acme:1", "acme:2"}}}; !reflect.DeepEqual(told, want) || len(taken) != 1 {
		t.Errorf("%+v, want %+v", told, want)
	}
	all.giveBack(nil, told)
	note("mail", "2", "3")
	if _, told = all.take(true); !reflect.DeepEqual(told, map[string]fresh{"mail": {[]string{"acme"}, []string{"acme:1", "acme:2", "acme:3"}}}) {
		t.Errorf("what was not stored, and the next: %+v", told)
	}
	note("mail", "1", "2", "3")
	if _, told = all.take(true); len(told) != 0 {
		t.Errorf("what was told: %+v", told)
	}
	all.mu.names.hour-- // It was told in the hour before.
	note("mail", "1")
	if _, told = all.take(true); !reflect.DeepEqual(told, map[string]fresh{"mail": {[]string{"acme"}, []string{"acme:1"}}}) {
		t.Errorf("in the next hour: %+v", told)
	}
	for i := range 2 * maxNamed {
		note(strconv.Itoa(i), "1")
	}
	if _, told = all.take(true); len(told) != maxNamed-1 {
		t.Errorf("%d queues have names", len(told))
	}
	note("mail", "9")
	if _, told = all.take(false); told != nil || all.mu.names.of != nil {
		t.Errorf("where nobody asks: %+v", told)
	}
}
