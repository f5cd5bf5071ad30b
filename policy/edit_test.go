package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
)

// merged returns what a merge patch makes of a policy, and the places in which that differs.
func merged(t *testing.T, base, patch string) (Policy, string) {
	t.Helper()
	before, err := Unmarshal([]byte(base))
	if err != nil {
		t.Fatal(err)
	}
	after, err := before.Merge([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	changes, err := Diff(before, after)
	if err != nil {
		t.Fatal(err)
	}
	return after, kinds(changes)
}

func kinds(changes []Change) string {
	var all []string
	for _, c := range changes {
		all = append(all, c.Kind()+" "+c.Path)
	}
	return strings.Join(all, "\n")
}

// TestMergeLeavesTheRest: a part changes what it names, null takes it away, and the rest stays.
func TestMergeLeavesTheRest(t *testing.T) {
	t.Parallel()
	const base = `{"tenants":{"acme":{"tier":"basic","max_running":3},"bolt":{"max_running":9}},"queues":{"mail":{"max_wait":"1h"}},"observe":["acme"]}`
	for patch, want := range map[string]string{
		`{}`:                                           "",
		`{"tenants":{"acme":{"max_running":4}}}`:       "changed /tenants/acme/max_running",
		`{"tenants":{"acme":{"tier":null}}}`:           "removed /tenants/acme/tier",
		`{"tenants":{"acme":null}}`:                    "removed /tenants/acme/max_running\nremoved /tenants/acme/tier",
		`{"queues":{"mail":{"max_wait":null}}}`:        "removed /queues/mail/max_wait",
		`{"global":{"tokens":5,"per":"1s","burst":5}}`: "added /global/burst\nadded /global/per\nadded /global/tokens",
		`{"observe":["bolt"]}`:                         "changed /observe",
		`{"observe":null,"tenants":{"new":{"max_running":1,"tier":null}}}`: "removed /observe\nadded /tenants/new/max_running",
	} {
		if _, got := merged(t, base, patch); got != want {
			t.Errorf("%s: %q, want %q", patch, got, want)
		}
	}
	before, err := Unmarshal([]byte(base))
	if err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{bad`:                                 "at line 1, column 2",
		`{"tenant":{}}`:                        "invalid tenant (unknown)",
		`{"tenants":{"acme":{"tier":"gold"}}}`: `invalid tenants.acme.tier "gold"`,
		`[]`:                                   "JSON array",
		`null`:                                 "null is no policy",
	} {
		if _, err := before.Merge([]byte(patch)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", patch, err, want)
		}
	}
}

// TestATenantOfTheStandardTierSaysNothingOfIt: what nobody has chosen is not written as a choice of the tenant's own.
func TestATenantOfTheStandardTierSaysNothingOfIt(t *testing.T) {
	t.Parallel()
	p, err := Default().With(json.RawMessage(`{"tokens":5,"per":"1s","burst":5}`), "tenants", "acme", "limit")
	if err != nil {
		t.Fatal(err)
	}
	own, err := p.At("tenants", "acme")
	if err != nil || string(own) != `{"limit":{"tokens":5,"per":"1s","burst":5}}` {
		t.Errorf("%s, %v", own, err)
	}
	if p, err = p.With(nil, "tenants", "acme", "limit"); err != nil || len(p.Tenants) != 0 {
		t.Errorf("%+v, %v", p.Tenants, err)
	}
	old, err := Unmarshal([]byte(`{"tenants":{"acme":{"tier":"standard","max_running":2}}}`)) // as versions before wrote it
	if err != nil {
		t.Fatal(err)
	}
	if own, err := old.At("tenants", "acme"); err != nil || string(own) != `{"max_running":2}` {
		t.Errorf("%s, %v", own, err)
	}
}

// TestUnsaidIsWhatATextLeavesOut, and not what it says in other words.
func TestUnsaidIsWhatATextLeavesOut(t *testing.T) {
	t.Parallel()
	const base = `{"global":{"tokens":60,"per":"1m","burst":9},"tiers":{"standard":{"limit":{"tokens":7,"per":"1s","burst":7}}},
		"tenants":{"a/b":{"tier":"standard","max_running":3}},"queues":{"mail":{"max_wait":"1h","max_dead":5}}}`
	before, err := Unmarshal([]byte(base))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		base: "",
		`{"global":{"rate_per_second":1,"burst_capacity":9},"tiers":{"standard":{"limit":{"tokens":8,"per":"1s","burst":7}}},"tenants":{"a/b":{"max_running":4}},"queues":{"mail":{"max_wait":"2h","max_dead":6}}}`: "",
		`{"global":{"tokens":60,"per":"1m","burst":9},"tiers":{"standard":{"limit":{"tokens":7,"per":"1s","burst":7}}},"tenants":{"a/b":{"tier":"standard"}},"queues":{"mail":{"max_wait":"1h","max_dead":5}}}`:     "removed /tenants/a~1b/max_running",
		`{"tenants":{"a/b":{"max_running":3}}}`: "removed /global/burst\nremoved /global/per\nremoved /global/tokens\n" +
			"removed /queues/mail/classes\nremoved /queues/mail/expired_policy\nremoved /queues/mail/horizon\nremoved /queues/mail/max_dead\n" +
			"removed /queues/mail/max_wait\nremoved /queues/mail/poison_limit\n" +
			"changed /tiers/standard/limit/burst\nchanged /tiers/standard/limit/tokens",
	} {
		after, err := Unmarshal([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		changes, err := Diff(before, after)
		if err != nil {
			t.Fatal(err)
		}
		if got := kinds(Unsaid(changes, []byte(text))); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
	}
}

// TestOwnLimitIsWhatAtReturns, of every scope that a policy has a limit for, and of one that it has none for.
func TestOwnLimitIsWhatAtReturns(t *testing.T) {
	t.Parallel()
	p, err := Unmarshal([]byte(`{"global":{"tokens":7,"per":"1s","burst":3},"tenants":{"acme":{"limit":{"enabled":false}},"bolt":{"tier":"basic"}},
		"queue_limits":{"acme:mail":{"tokens":5,"per":"1m","burst":2}},"priority_limits":{"acme:mail:high":{"rate_per_second":9,"burst_capacity":4,"enabled":false}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, scope := range []admission.Scope{admission.Global, "acme", "bolt", "zeta", "acme:mail", "acme:sms", "acme:mail:high", "acme:mail:low"} {
		path, err := LimitPath(scope)
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.At(path...)
		if err != nil {
			t.Fatal(err)
		}
		if own, err := p.OwnLimit(scope); err != nil || string(own) != string(want) {
			t.Errorf("%s: %s, %v; At has %s", scope, own, err, want)
		}
	}
	if own, err := Default().OwnLimit(admission.Global); own != nil || err != nil {
		t.Errorf("%s, %v", own, err)
	}
	if _, err := p.OwnLimit("a:b:c:d"); err == nil {
		t.Error("a bad scope has a limit")
	}
}
