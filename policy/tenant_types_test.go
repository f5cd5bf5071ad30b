package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

func ofTypes(limits map[string]admission.Limit) map[string]TenantQueue {
	return map[string]TenantQueue{"mail": {TypeLimits: limits}}
}

// TestALimitOfATypeOfATenantsOwnComesFirst: its record's before its own in the policy, and that before its tier's and the queue's; in each a type by its name
// goes before every type, and one without a limit ends the search.
func TestALimitOfATypeOfATenantsOwnComesFirst(t *testing.T) {
	t.Parallel()
	type limits = map[string]admission.Limit
	p := Policy{
		TenantRecords: true,
		Tiers:         map[string]Tier{StandardTier: {Limit: noLimit}, "gold": {Limit: noLimit, Queues: map[string]TierQueue{"mail": {TypeLimits: limits{"report": admission.PerSecond(1), "tier": admission.PerSecond(2)}}}}},
		Tenants: map[string]Tenant{
			"acme": {Tier: "gold", Queues: ofTypes(limits{"report": admission.PerSecond(3), "free": noLimit, "own": admission.PerSecond(4)})},
			"bolt": {Tier: "gold", Queues: ofTypes(limits{Every: admission.PerSecond(5)})},
		},
		Queues: map[string]Queue{"mail": {EachTenant: EachTenant{TypeLimits: limits{Every: admission.PerSecond(6)}}}},
	}
	c := prepare(t, p)
	if err := c.Learn("acme", 7, []byte(`{"queues": {"mail": {"type_limits": {"own": {"tokens": 8, "per": "1s"}, "off": {"enabled": false}}}}}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Learn("cy", 8, []byte(`{"queues": {"mail": {"type_limits": {"*": {"tokens": 9, "per": "1s"}}}}}`)); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		tenant, jobType string
		want            admission.Tokens
		of, path        string
	}{
		{"acme", "own", 8, "record", "/queues/mail/type_limits/own"},
		{"acme", "off", 0, "record", "/queues/mail/type_limits/off"},
		{"cy", "any", 9, "record", "/queues/mail/type_limits/*"},
		{"acme", "report", 3, "override of acme:mail:type=report", "/tenants/acme/queues/mail/type_limits/report"},
		{"acme", "free", 0, "override of acme:mail:type=free", "/tenants/acme/queues/mail/type_limits/free"},
		{"acme", "tier", 2, "default of tier gold in queue mail", "/tiers/gold/queues/mail/type_limits/tier"},
		{"acme", "other", 6, "default of queue mail", "/queues/mail/each_tenant/type_limits/*"},
		{"bolt", "report", 5, "override of bolt:mail:type=report", "/tenants/bolt/queues/mail/type_limits/*"},
		{"dot", "report", 6, "default of queue mail", "/queues/mail/each_tenant/type_limits/*"},
	} {
		class := admission.OfType(row.jobType)
		limits, got, version := c.WayOfType(row.tenant, "mail", admission.High, row.jobType)
		if (got != nil) != (row.want > 0) || got != nil && *got != admission.PerSecond(row.want) {
			t.Errorf("jobs of type %s of %s have %+v, want %d a second", row.jobType, row.tenant, got, row.want)
		}
		own := c.LimitsFor(row.tenant, "mail", class)[admission.LevelPriority]
		if of := c.TypeLimit(row.tenant, "mail", row.jobType); (of == nil) != own.Disabled || of != nil && (*of != own || *of != *got) {
			t.Errorf("type %s of %s: %+v, its scope %+v, with its way %+v", row.jobType, row.tenant, of, own, got)
		}
		if limits != c.LimitsFor(row.tenant, "mail", admission.High) || version != c.RecordVersion(row.tenant) {
			t.Errorf("the way of %s is %+v of version %d", row.tenant, limits, version)
		}
		if c.CountsType(row.tenant, "mail", row.jobType) != (row.want > 0) {
			t.Errorf("type %s of %s is counted, or not: want it where there is a limit", row.jobType, row.tenant)
		}
		rule := p.LimitClause(admission.LevelPriority, row.tenant, "mail", class)
		if record := c.RecordOf(row.tenant); row.of == "record" {
			rule = Clause{"", record.Path(admission.LevelPriority, "mail", class)}
			if _, said := record.LimitAt(admission.LevelPriority, "mail", class); said {
				rule.Of = "record"
			}
		}
		if rule.Of != row.of || rule.Pointer() != row.path {
			t.Errorf("of type %s of %s %q decides at %s, want %q at %s", row.jobType, row.tenant, rule.Of, rule.Pointer(), row.of, row.path)
		}
	}
	if rule := p.LimitClause(admission.LevelQueue, "acme", "mail", admission.OfType("report")); rule.Path != nil {
		t.Errorf("the limit of a type is told as the queue's: %+v", rule)
	}
}

// TestARecordOfAnotherTenantSaysNothing of types: what one has learned is not asked of others, and is gone with the record.
func TestLimitsOfTypesOfARecordGoWithIt(t *testing.T) {
	t.Parallel()
	c := prepare(t, Policy{TenantRecords: true})
	if err := c.Learn("acme", 2, []byte(`{"queues": {"mail": {"type_limits": {"report": {"tokens": 8, "per": "1s"}}}}}`)); err != nil {
		t.Fatal(err)
	}
	if got := c.TypeLimit("acme", "mail", "report"); got == nil || got.Tokens != 8 {
		t.Errorf("acme has %+v", got)
	}
	for _, none := range [][3]string{{"bolt", "mail", "report"}, {"acme", "fax", "report"}, {"acme", "mail", "send"}} {
		if got := c.TypeLimit(none[0], none[1], none[2]); got != nil {
			t.Errorf("%v has %+v", none, got)
		}
	}
	if err := c.Learn("acme", NoRecord, nil); err != nil || c.TypeLimit("acme", "mail", "report") != nil {
		t.Errorf("a record that is gone limits a type: %v", err)
	}
}

// It is not parallel: other tests would allocate while it counts.
func TestRecordsWithoutLimitsOfTypesCostNothing(t *testing.T) {
	c := prepare(t, Policy{TenantRecords: true})
	if err := c.Learn("acme", 2, []byte(`{"queues": {"mail": {"limit": {"tokens": 8, "per": "1s"}}}}`)); err != nil {
		t.Fatal(err)
	}
	ask := func() {
		limits, ofType, version := c.WayOfType("acme", "mail", admission.High, "report")
		if ofType != nil || version != 2 || limits[admission.LevelQueue].Tokens != 8 || c.CountsType("acme", "mail", "report") {
			t.Error("a type has a limit that nobody said")
		}
	}
	if with, without := testing.AllocsPerRun(10, ask), testing.AllocsPerRun(10, func() { c.WayFor("acme", "mail", admission.High) }); with != without {
		t.Errorf("looking for one allocates %g times, beside %g", with, without)
	}
}

// TestALimitOfATypeIsSetAndTakenAway by its scope, in the policy and in a record, and what is left of a tenant goes with the last.
func TestALimitOfATypeIsSetAndTakenAway(t *testing.T) {
	t.Parallel()
	five := json.RawMessage(`{"tokens":5,"per":"1s","burst":5}`)
	for _, scope := range []admission.Scope{"ann:mail:type=report", "ann:mail:type=a:b", "ann:mail:type=*"} {
		path, err := LimitPath(scope)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(string(scope), "ann:mail:type=")
		if want := []string{"tenants", "ann", "queues", "mail", "type_limits", name}; !slices.Equal(path, want) {
			t.Errorf("%s is put at %v", scope, path)
		}
		with, err := Default().With(five, path...)
		if err != nil {
			t.Fatal(err)
		}
		if own, err := with.OwnLimit(scope); err != nil || string(own) != string(five) {
			t.Errorf("%s has %s, %v", scope, own, err)
		}
		if own, err := with.OwnLimit("ann:mail:type=other"); err != nil || own != nil {
			t.Errorf("another type has %s, %v", own, err)
		}
		if without, err := with.With(nil, path...); err != nil || len(without.Tenants) != 0 {
			t.Errorf("without it the tenants are %+v, %v", without.Tenants, err)
		}
		limit := admission.PerSecond(5)
		record, err := OwnLimits{}.WithLimit(scope, &limit)
		if text, _ := MarshalRecord(record); err != nil || string(text) != fmt.Sprintf(`{"queues":{"mail":{"type_limits":{%q:{"tokens":5,"per":"1s","burst":5}}}}}`, name) {
			t.Errorf("%s in a record: %s, %v", scope, text, err)
		}
		before, _ := MarshalRecord(record)
		if none, err := record.WithLimit(scope, nil); err != nil || !none.Empty() {
			t.Errorf("%s is still there: %+v, %v", scope, none, err)
		}
		if after, _ := MarshalRecord(record); string(after) != string(before) {
			t.Errorf("the record that it was made from is %s", after)
		}
	}
	for _, bad := range []admission.Scope{"type=*", "ann:type=*", "ann:mail:high:type=*", "ann:mail:type=a:type=*", "global:mail:type=*", "ann:mail:type=", "ann:mail:type=a b"} {
		if path, err := LimitPath(bad); !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s is put at %v, %v", bad, path, err)
		}
		if _, err := (OwnLimits{}).WithLimit(bad, nil); !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s in a record: %v", bad, err)
		}
	}
}

// TestARecordWithLimitsOfTypes is read as it was written, keeps buckets as long as they fill, and tells what is wrong by its place.
func TestARecordWithLimitsOfTypes(t *testing.T) {
	t.Parallel()
	const text = `{"queues":{"mail":{"limit":{"tokens":9,"per":"1s","burst":9},"type_limits":{"*":{"enabled":false},"a:b":{"algorithm":"sliding_log","tokens":10,"window":"24h"},"report":{"tokens":1,"per":"1h","burst":3}}}}}`
	r, err := UnmarshalRecord([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if written, err := MarshalRecord(r); err != nil || string(written) != text {
		t.Errorf("%s, %v", written, err)
	}
	if r.LongestFill() != 48*time.Hour {
		t.Errorf("buckets are kept for %s", r.LongestFill())
	}
	c := prepare(t, Policy{TenantRecords: true})
	if err := c.CheckRecord(r); err != nil {
		t.Error(err)
	}
	changes, err := DiffRecords(OwnLimits{}, r)
	if err != nil || !slices.ContainsFunc(changes, func(c Change) bool { return c.Path == "/queues/mail/type_limits/report/tokens" && c.Kind() == "added" }) {
		t.Errorf("%+v, %v", changes, err)
	}
	for bad, told := range map[string]string{
		`{"queues":{"mail":{"type_limits":{"":{"tokens":1,"per":"1s"}}}}}`:           `queues.mail.type_limits "": allowed is 1-128 bytes`,
		`{"queues":{"mail":{"type_limits":{"a b":{"tokens":1,"per":"1s"}}}}}`:        `queues.mail.type_limits "a b"`,
		`{"queues":{"mail":{"type_limits":{"report":{"tokens":0,"per":"1s"}}}}}`:     `queues.mail.type_limits.report.tokens 0: allowed is 1 to 1000000000`,
		`{"queues":{"mail":{"type_limits":{"report":{}}}}}`:                          `queues.mail.type_limits.report.tokens 0`,
		`{"queues":{"*":{"type_limits":{"report":{"tokens":1,"per":"1s"}}}}}`:        `queues "*"`,
		`{"queues":{"mail":{"type_limits":{"t":{"tokens":1,"per":"1s","rate":1}}}}}`: `queues.mail.type_limits.t.rate (unknown)`,
	} {
		if _, err := UnmarshalRecord([]byte(bad)); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), told) {
			t.Errorf("%s: %v, want it to tell %s", bad, err, told)
		}
	}
	many := EachTenant{TypeLimits: map[string]admission.Limit{}}
	for i := range MaxTypeLimits + 1 {
		many.TypeLimits[fmt.Sprint("t", i)] = admission.PerSecond(1)
	}
	if err := c.CheckRecord(OwnLimits{Queues: map[string]EachTenant{"mail": many}}); err == nil || err.Error() != "invalid queues.mail.type_limits 1001 types: allowed is up to 1000" {
		t.Errorf("%d types in a record: %v", len(many.TypeLimits), err)
	}
	own := Policy{Tenants: map[string]Tenant{"ann": {Queues: ofTypes(many.TypeLimits)}}}
	if err := own.Validate(); err == nil || err.Error() != "invalid tenants.ann.queues.mail.type_limits 1001 types: allowed is up to 1000" {
		t.Errorf("%d types of a tenant: %v", len(many.TypeLimits), err)
	}
	delete(many.TypeLimits, "t7")
	if err := own.Validate(); err != nil {
		t.Errorf("%d types of a tenant: %v", len(many.TypeLimits), err)
	}
	slow := Policy{Tenants: map[string]Tenant{"ann": {Queues: ofTypes(map[string]admission.Limit{"report": {Tokens: 1, Per: time.Hour, Burst: 10}})}}}
	if got := slow.LongestFill(); got < 10*time.Hour || got > 10*time.Hour+time.Second {
		t.Errorf("the longest fill is %s", got)
	}
}

// TestACandidateHasLimitsOfTypesOfATenantsOwn: for who is in they take the place of those of the policy, whole entry by whole entry, and a candidate in shadow
// is asked them beside the tenant's record.
func TestACandidateHasLimitsOfTypesOfATenantsOwn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		p.TenantRecords = true
		if p.Rollout == nil {
			p.Rollout = drawRollout(t, &p)
		}
		record := rapid.SampledFrom([]string{"", `{"queues":{"mail":{"type_limits":{"report":{"tokens":7,"per":"1s","burst":7}}}}}`}).Draw(t, "record")
		learned := func(p Policy) *Compiled {
			c := prepared(t, p)
			if record != "" {
				if err := c.Learn("acme", 2, []byte(record)); err != nil {
					t.Fatal(err)
				}
			}
			return c
		}
		same := func(what string, got, want *admission.Limit) {
			if (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Fatalf("%s has %+v, want %+v", what, got, want)
			}
		}
		p.Rollout.Shadow = false
		in := learned(p)
		p.Rollout.Shadow = true
		shadow, promoted := learned(p), learned(p.Promoted())
		p.Rollout = nil
		base := learned(p)
		for _, tenant := range append([]string{"stranger"}, someTenants...) {
			for _, queue := range someQueues {
				for _, jobType := range []string{"report", "a:b", "other"} {
					side := base
					if in.rollout.Has(tenant) {
						side = promoted
					}
					what := fmt.Sprint(tenant, ":", queue, ":", jobType)
					same(what, in.TypeLimit(tenant, queue, jobType), side.TypeLimit(tenant, queue, jobType))
					same(what+" of the policy beside a shadow", shadow.TypeLimit(tenant, queue, jobType), base.TypeLimit(tenant, queue, jobType))
					same(what+" in shadow", shadow.ShadowTypeLimit(tenant, queue, jobType), promoted.TypeLimit(tenant, queue, jobType))
				}
			}
		}
	})
}
