package tally

import (
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

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
		for _, c := range scopeCounts(counted{paths: taken}, compiled) {
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

// TestThoseWithTheMostAreFirst: of scopes TopScopes, beside those that are counted always and queues; of the rest maxRest are kept, those with the most.
func TestThoseWithTheMostAreFirst(t *testing.T) {
	t.Parallel()
	counts := []store.ScopeCount{{Scope: "always", Always: true, Allowed: 1}, {Queue: "mail", Allowed: 1}}
	for i := range store.TopScopes + maxRest + 5 {
		counts = append(counts, store.ScopeCount{Scope: admission.Scope(fmt.Sprint("t", i)), Allowed: int64(i / 2), Refused: int64(i - i/2), Tokens: 7})
	}
	first, rest := most(counts)
	if len(first) != store.TopScopes+2 || len(rest) != maxRest {
		t.Fatalf("%d are first, %d are left", len(first), len(rest))
	}
	for i, c := range first {
		if n := c.Allowed + c.Refused; i < 2 && n != 1 || i >= 2 && n < maxRest+5 {
			t.Errorf("number %d is %+v", i, c)
		}
	}
	for scope, s := range rest {
		if n := s.Allowed + s.Refused; n < 5 || n >= maxRest+5 || s.Tokens != 7 || scope != admission.Scope(fmt.Sprint("t", n)) {
			t.Errorf("%s is left with %+v", scope, s)
		}
	}
	var all Tally
	for range 2 {
		all.giveBack(counted{rest: map[admission.Scope]Sum{"t1": {1, 2, 3}}})
	}
	if got := all.take(false).rest["t1"]; got != (Sum{2, 4, 6}) {
		t.Errorf("what was left twice is %+v", got)
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
	taken := all.take(true)
	told := taken.told
	if want := map[string]fresh{"mail": {[]string{"acme"}, []string{"acme:1", "acme:2"}}}; !reflect.DeepEqual(told, want) || len(taken.paths) != 1 {
		t.Errorf("%+v, want %+v", told, want)
	}
	all.giveBack(counted{told: told})
	note("mail", "2", "3")
	if told = all.take(true).told; !reflect.DeepEqual(told, map[string]fresh{"mail": {[]string{"acme"}, []string{"acme:1", "acme:2", "acme:3"}}}) {
		t.Errorf("what was not stored, and the next: %+v", told)
	}
	note("mail", "1", "2", "3")
	if told = all.take(true).told; len(told) != 0 {
		t.Errorf("what was told: %+v", told)
	}
	all.mu.names.hour-- // It was told in the hour before.
	note("mail", "1")
	if told = all.take(true).told; !reflect.DeepEqual(told, map[string]fresh{"mail": {[]string{"acme"}, []string{"acme:1"}}}) {
		t.Errorf("in the next hour: %+v", told)
	}
	for i := range 2 * maxNamed {
		note(strconv.Itoa(i), "1")
	}
	if told = all.take(true).told; len(told) != maxNamed-1 {
		t.Errorf("%d queues have names", len(told))
	}
	note("mail", "9")
	if told = all.take(false).told; told != nil || all.mu.names.of != nil {
		t.Errorf("where nobody asks: %+v", told)
	}
}

// TestValuesOfDimensionsAreCountedApart, up to a number, those that use most of their limits, and only where the policy says when a limit is nearly used.
func TestValuesOfDimensionsAreCountedApart(t *testing.T) {
	t.Parallel()
	prepared := func(warn float64) *policy.Compiled {
		p := policy.Unlimited()
		p.Anomalies = &policy.AnomalyRules{WarnAt: warn}
		p.Dimensions = map[string]policy.DimensionRules{
			"user": {Limit: admission.PerSecond(10), Keys: map[string]admission.Limit{"small": {Tokens: 5, Per: 24 * time.Hour, Burst: 5}}}, "seen": {},
		}
		compiled, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		return compiled
	}
	var all Tally
	all.mu.Lock()
	for i := range maxValues + 10 {
		all.addLocked(Path{Tenant: "+user", Queue: fmt.Sprint("k", i)}, Sum{Allowed: 1, Tokens: admission.Tokens(1 + i%7)})
	}
	all.addLocked(Path{Tenant: "+user", Queue: "k0"}, Sum{Allowed: 1, Refused: 2, Tokens: 599})
	all.addLocked(Path{Tenant: "acme"}, Sum{Allowed: 1, Tokens: 1})
	all.mu.Unlock()
	taken := all.take(true)
	if len(taken.values) != maxValues || len(taken.paths) != 1 {
		t.Errorf("%d values and %d ways", len(taken.values), len(taken.paths))
	}
	taken.values[Path{Tenant: "+user", Queue: "small"}], taken.values[Path{Tenant: "+seen", Queue: "x"}] = Sum{Allowed: 4, Tokens: 4}, Sum{Allowed: 9, Tokens: 900}
	taken.values[Path{Tenant: "+user"}] = Sum{Allowed: 540, Tokens: 540}
	counts := valueCounts(taken.values, prepared(0.8))
	if len(counts) != store.CountedValues {
		t.Fatalf("%d are counted", len(counts))
	}
	want := []store.ScopeCount{
		{Scope: "+user:k0", Allowed: 2, Refused: 2, Tokens: 600, OfLimit: 1_000_000}, {Scope: "+user", Allowed: 540, Tokens: 540, OfLimit: 900_000}, {Scope: "+user:small", Allowed: 4, Tokens: 4, OfLimit: 800_000},
	}
	if !reflect.DeepEqual(counts[:3], want) || counts[3].Tokens != 7 {
		t.Errorf("%+v, want %+v", counts[:4], want)
	}
	for _, c := range scopeCounts(taken, prepared(0.8)) {
		if c.Tokens != 1 {
			t.Errorf("%s counts values of dimensions: %+v", c.Scope, c)
		}
	}
	if counts = valueCounts(taken.values, prepared(0)); counts != nil {
		t.Errorf("where nobody asks: %+v", counts[0])
	}
}
