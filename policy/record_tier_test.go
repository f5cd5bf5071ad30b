package policy

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// TestATierByARecordIsATierByTheDocument: whatever a policy says, a tenant whose record names a tier and weights has the limits, the weights and the place
// among those that are shed that it has where its entry of the document names them, on either side of a roll-out and in shadow.
func TestATierByARecordIsATierByTheDocument(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		p.TenantRecords = true
		if p.Rollout != nil {
			p.Rollout.Shadow = rapid.Bool().Draw(t, "shadow")
		}
		tenant := rapid.SampledFrom(append([]string{"stranger"}, someTenants...)).Draw(t, "tenant")
		record := OwnLimits{
			Tier: rapid.SampledFrom([]string{"", "standard", "premium", "basic", "gone"}).Draw(t, "record's tier"), Weights: drawWeights(t),
			MaxRunning: rapid.SampledFrom([]int{0, 0, 1, 7, MaxMaxRunning}).Draw(t, "record's cap"),
			Dispatch:   rapid.SampledFrom([]*admission.Limit{nil, nil, new(admission.PerMinute(7)), {Disabled: true}}).Draw(t, "record's rate"),
		}
		by, err := p.Prepare()
		if err != nil {
			t.Skip(err)
		}
		text, err := MarshalRecord(record)
		if err != nil {
			t.Fatal(err)
		}
		version := NoRecord
		if text != nil {
			version = 7
		}
		if err := by.Learn(tenant, version, text); err != nil {
			t.Fatal(err)
		}

		named := p
		entry := func(tenants map[string]Tenant) map[string]Tenant {
			own := tenants[tenant]
			if record.Tier != "" {
				own.Tier = record.Tier
				if _, there := p.Tiers[own.Tier]; !there {
					own.Tier = StandardTier
				}
			}
			own.Weights = overlay(own.Weights, record.Weights)
			own.MaxRunning, own.Dispatch = cmp.Or(record.MaxRunning, own.MaxRunning), cmp.Or(record.Dispatch, own.Dispatch)
			return overlay(tenants, map[string]Tenant{tenant: own})
		}
		named.Tenants = entry(p.Tenants)
		if p.Rollout != nil && p.Rollout.Rules.Tenants[tenant].MaxRunning > 0 {
			candidate := *p.Rollout
			candidate.Rules.Tenants = entry(candidate.Rules.Tenants)
			named.Rollout = &candidate
		}
		want, err := named.Prepare()
		if err != nil {
			t.Fatal(err)
		}

		same := func(what string, got, want any) {
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Fatalf("%s of %s with %s: %+v, by the document %+v", what, tenant, text, got, want)
			}
		}
		same("cap", by.MaxRunningOf(tenant), want.MaxRunningOf(tenant))
		same("rate", fmt.Sprintf("%+v", cmp.Or(by.DispatchOf(tenant), &admission.Limit{})), fmt.Sprintf("%+v", cmp.Or(want.DispatchOf(tenant), &admission.Limit{})))
		same("tier", by.TierOf(tenant), want.TierOf(tenant))
		same("tier for people", p.WithRecord(tenant, record).TierOf(tenant), named.TierOf(tenant))
		for _, queue := range append([]string{"", "other"}, someQueues...) {
			for _, class := range append([]admission.Priority{"", admission.Critical}, someClasses...) {
				same("limits", by.LimitsFor(tenant, queue, class), want.LimitsFor(tenant, queue, class))
				same("weight", by.WeightOf(tenant, class), want.WeightOf(tenant, class))
				from, over, tier := by.PressureFor(tenant, queue, class)
				wantFrom, wantOver, wantTier := want.PressureFor(tenant, queue, class)
				same("pressure", []any{from, over, tier}, []any{wantFrom, wantOver, wantTier})
				inShadow, in := by.ShadowFor(tenant, queue, class)
				wantShadow, wantIn := want.ShadowFor(tenant, queue, class)
				same("shadow", []any{inShadow, in}, []any{wantShadow, wantIn})
				for level := admission.LevelTenant; level <= admission.LevelPriority; level++ {
					same("clause", p.WithRecord(tenant, record).LimitClause(level, tenant, queue, class), named.LimitClause(level, tenant, queue, class))
				}
			}
			for _, jobType := range []string{"report", "other"} {
				same("limit of a type", fmt.Sprint(by.TypeLimit(tenant, queue, jobType)), fmt.Sprint(want.TypeLimit(tenant, queue, jobType)))
				same("counts of a type", by.CountsType(tenant, queue, jobType), want.CountsType(tenant, queue, jobType))
			}
		}
	})
}

// TestARecordHasARateOfDispatches: written as that of a tenant in the policy, whose names queues may have, too; what cannot be is refused in words.
func TestARecordHasARateOfDispatches(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"dispatch":{"tokens":5,"per":"1s"}}`:                                                        `{"dispatch":{"tokens":5,"per":"1s","burst":5}}`,
		`{"dispatch":{"algorithm":"leaky_bucket","tokens":600,"per":"1m"}}`:                           `{"dispatch":{"tokens":600,"per":"1m","burst":1}}`,
		`{"dispatch":{"enabled":false}}`:                                                              `{"dispatch":{"enabled":false}}`,
		`{"queues":{"dispatch":{"limit":{"tokens":5,"per":"1s","burst":5}}}}`:                         `{"queues":{"dispatch":{"limit":{"tokens":5,"per":"1s","burst":5}}}}`,
		`{"limit":{"tokens":5,"per":"1s"},"dispatch":{"rate_per_second":7}}`:                          `{"dispatch":{"tokens":7,"per":"1s","burst":7},"limit":{"tokens":5,"per":"1s","burst":5}}`,
		`{"overflow":{"policy":"none"},"max_running":3,"dispatch":{"tokens":1,"per":"1h","burst":2}}`: `{"max_running":3,"dispatch":{"tokens":1,"per":"1h","burst":2},"overflow":{"policy":"none"}}`,
	} {
		r, err := UnmarshalRecord([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := MarshalRecord(r); string(got) != want || err != nil {
			t.Errorf("%s is %s, %v, want %s", text, got, err, want)
		}
	}
	for bad, told := range map[string]string{
		`{"dispatch":{"tokens":0,"per":"1s"}}`:                                    "dispatch.tokens 0: allowed is 1 to 1000000000",
		`{"dispatch":{"tokens":5,"per":"1s","rate":1}}`:                           "dispatch.rate (unknown)",
		`{"dispatch":{"algorithm":"fixed_window","tokens":5,"window":"1h"}}`:      `dispatch.algorithm "fixed_window": allowed is "token_bucket": jobs wait for a dispatch, they are not refused`,
		`{"queues":{"mail":{"dispatch":{"tokens":5,"per":"1s"}}}}`:                "queues.mail.dispatch (unknown)",
		`{"dispatch":{"tokens":5,"per":"1s"},"dispatch":{"tokens":6,"per":"1s"}}`: "dispatch",
		`{"dispatch":{"tokens":5,"per":"1us"}}`:                                   "dispatch.per",
	} {
		if _, err := UnmarshalRecord([]byte(bad)); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), told) {
			t.Errorf("%s: %v, want it to tell %s", bad, err, told)
		}
	}
}

// TestARecordHasCapsInQueues: as numbers of single queues, of which zero says nothing; what cannot be is refused in words.
func TestARecordHasCapsInQueues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"queues":{"mail":{"max_running":5}}}`: `{"queues":{"mail":{"max_running":5}}}`,
		`{"queues":{"mail":{"overflow":{"policy":"none"},"max_running":1000000},"fax":{"max_running":1}},"max_running":7}`: `{"max_running":7,"queues":{"fax":{"max_running":1},"mail":{"max_running":1000000,"overflow":{"policy":"none"}}}}`,
		`{"queues":{"mail":{"max_running":0,"limit":{"tokens":5,"per":"1s"}}}}`:                                            `{"queues":{"mail":{"limit":{"tokens":5,"per":"1s","burst":5}}}}`,
		`{"queues":{"mail":{"max_running":3,"limit":{"tokens":5,"per":"1s"}}}}`:                                            `{"queues":{"mail":{"limit":{"tokens":5,"per":"1s","burst":5},"max_running":3}}}`,
	} {
		r, err := UnmarshalRecord([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := MarshalRecord(r); string(got) != want || err != nil {
			t.Errorf("%s is %s, %v, want %s", text, got, err, want)
		}
	}
	for bad, told := range map[string]string{
		`{"queues":{"mail":{"max_running":-1}}}`:                "queues.mail.max_running -1: allowed is 1 to 1000000, or 0 for none",
		`{"queues":{"mail":{"max_running":1000001}}}`:           "queues.mail.max_running 1000001: allowed is 1 to 1000000, or 0 for none",
		`{"queues":{"mail":{"max_running_per_tenant":1}}}`:      "queues.mail.max_running_per_tenant (unknown)",
		`{"queues":{"ma il":{"max_running":1}}}`:                `queues "ma il"`,
		`{"queues":{"mail":{"max_running":1,"max_running":2}}}`: `queues.mail holds "max_running" twice`,
		`{"queues":{` + manyCaps(MaxRecordQueues+1) + `}}`:      "queues 65: allowed is up to 64",
		`{"queues":{"mail":{"max_running":1.5}}}`:               "max_running",
	} {
		if _, err := UnmarshalRecord([]byte(bad)); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), told) {
			t.Errorf("%s: %v, want it to tell %s", bad, err, told)
		}
	}
	r := OwnLimits{MaxRunningIn: map[string]int{"mail": 0}}
	if text, err := MarshalRecord(r); text != nil || err != nil || !r.Empty() {
		t.Errorf("nothing is said as %q, %v", text, err)
	}
	r = r.WithMaxRunning("mail", 3).WithMaxRunning("fax", 2).WithMaxRunning("", 9).WithMaxRunning("mail", 0)
	if text, err := MarshalRecord(r); string(text) != `{"max_running":9,"queues":{"fax":{"max_running":2}}}` || err != nil {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := Unmarshal([]byte(`{"tiers":{"gold":{"queues":{"mail":{"max_running":1}}}}}`)); err == nil {
		t.Error("a tier has a cap in a queue")
	}
}

// manyCaps writes caps of so many queues.
func manyCaps(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"q%d":{"max_running":1}`, i)
	}
	return strings.Join(all, ",")
}

// TestCapsByRecordsAreToldByTier: a store is told the caps of tiers, and of those of tenants which are their own, also where these are what everybody has; where
// tenants have no records it is told neither.
func TestCapsByRecordsAreToldByTier(t *testing.T) {
	t.Parallel()
	const tiers = `"tiers": {"gold": {"limit": {"enabled": false}, "max_running": 9}, "tin": {"limit": {"enabled": false}}, "lead": {"limit": {"enabled": false}, "max_running": 2},
		"standard": {"limit": {"enabled": false}, "max_running": 2}},
		"tenants": {"acme": {"tier": "gold", "max_running": 2}, "bolt": {"tier": "gold"}, "core": {"tier": "lead"}, "dust": {"tier": "tin"}}`
	told := func(c *Compiled) string {
		var all []string
		for _, of := range c.Caps() {
			all = append(all, fmt.Sprintf("%s=%d %t", of.Tenant, of.MaxRunning, of.ByTier))
		}
		return strings.Join(all, ", ") + fmt.Sprint(" ", c.TierCaps())
	}
	if got, want := told(compiledWith(t, `{"tenant_records": true, `+tiers+`}`)), "*=2 false, acme=2 false, bolt=9 true, dust=1000000 true map[gold:9 tin:1000000]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := told(compiledWith(t, `{`+tiers+`}`)), "*=2 false, bolt=9 false, dust=1000000 false map[]"; got != want {
		t.Errorf("without records %s, want %s", got, want)
	}
}

// TestWeightsByRecordsAreToldByTier: a store is told the weights of tiers, and of those of tenants which are their own; where tenants have no records it is
// told neither.
func TestWeightsByRecordsAreToldByTier(t *testing.T) {
	t.Parallel()
	const tiers = `"tiers": {"gold": {"limit": {"enabled": false}, "priority_weights": {"high": 5, "low": 3}}, "tin": {"limit": {"enabled": false}, "priority_weights": {"high": 2}},
		"standard": {"limit": {"enabled": false}, "priority_weights": {"high": 2}}},
		"tenants": {"acme": {"tier": "gold", "priority_weights": {"low": 3, "high": 2}}, "bolt": {"tier": "gold"}}`
	told := func(c *Compiled) string {
		var all []string
		for at, weight := range c.ConfiguredWeights() {
			all = append(all, fmt.Sprintf("%s:%s=%d %t", at.Class, at.Tenant, weight, at.ByTier))
		}
		return strings.Join(all, ", ")
	}
	c := compiledWith(t, `{"tenant_records": true, `+tiers+`}`)
	if got, want := told(c), "high:acme=2 false, low:acme=3 false, high:bolt=5 true, low:bolt=3 true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(c.TierWeights("high"), c.TierWeights("low"), c.TierWeights("medium")), "map[gold:5] map[gold:3] map[]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c = compiledWith(t, `{`+tiers+`}`)
	if got, want := told(c), "low:acme=3 false, high:bolt=5 false, low:bolt=3 false"; got != want || c.TierWeights("high") != nil {
		t.Errorf("without records %s, want %s; %v", got, want, c.TierWeights("high"))
	}
}

// TestATierThatARecordMayNotName is told with the field that forbids it.
func TestATierThatARecordMayNotName(t *testing.T) {
	t.Parallel()
	const records = `"tenant_records": true, "tiers": {"standard": {"limit": {"enabled": false}}, "gold": {"limit": {"enabled": false}%s}, "tin": {"limit": {"enabled": false}}}`
	for _, row := range []struct{ gold, rest, tier, want string }{
		{``, ``, "gold", ""},
		{``, ``, "lead", `invalid tier "lead": allowed is one of "gold", "standard", "tin"`},
		{`, "max_running": 5`, ``, "gold", ""},
		{``, `, "rollout": {"id": "a", "percent": 5, "rules": {"tiers": {"lead": {"limit": {"enabled": false}, "max_running": 5}}}}`, "lead", `invalid tier "lead"`},
		{``, `, "tenants": {"acme": {"max_running": 5}}`, "gold", ""},
	} {
		c := compiledWith(t, `{`+fmt.Sprintf(records, row.gold)+row.rest+`}`)
		err := c.CheckRecord(OwnLimits{Tier: row.tier})
		if (err == nil) != (row.want == "") || err != nil && (!errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s%s, tier %s: %v, want %s", row.gold, row.rest, row.tier, err, row.want)
		}
		if err := c.CheckRecord(OwnLimits{Weights: Weights{"high": 3}}); err != nil {
			t.Errorf("weights alone: %v", err)
		}
	}
	for _, row := range [][2]string{{`"priority_weights": {"high": 900}`, "rollout.rules.tiers.premium.priority_weights.high 900"}, {`"max_running": 900`, "rollout.rules.tiers.premium.max_running 900"}} {
		_, err := Unmarshal([]byte(`{"tenant_records": true, "rollout": {"id": "a", "percent": 5, "rules": {"tiers": {"premium": {"limit": {"enabled": false}, ` + row[0] + `}}}}}`))
		if err == nil || !strings.Contains(err.Error(), row[1]) {
			t.Errorf("a candidate by whose tier records would have %s: %v", row[0], err)
		}
	}
}

// TestACapOfARecordIsOneThatAPolicyMayHave, or the error says what is allowed, where it is written and where it is checked.
func TestACapOfARecordIsOneThatAPolicyMayHave(t *testing.T) {
	t.Parallel()
	for most, allowed := range map[int]bool{-1: false, 0: true, 1: true, MaxMaxRunning: true, MaxMaxRunning + 1: false} {
		_, written := UnmarshalRecord(fmt.Appendf(nil, `{"max_running": %d}`, most))
		checked := compiledWith(t, `{"tenant_records": true}`).CheckRecord(OwnLimits{MaxRunning: most})
		for _, err := range []error{written, checked} {
			if want := fmt.Sprintf("invalid max_running %d: allowed is 1 to 1000000, or 0 for none", most); allowed && err != nil || !allowed && (err == nil || err.Error() != want || !errors.Is(err, admission.ErrInvalid)) {
				t.Errorf("%d: %v", most, err)
			}
		}
	}
	for _, text := range []string{`{"max_running": "5"}`, `{"max_running": 1.5}`, `{"max_running": 5, "max_running": 5}`} {
		if _, err := UnmarshalRecord([]byte(text)); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), "max_running") {
			t.Errorf("%s: %v", text, err)
		}
	}
	text, err := MarshalRecord(OwnLimits{Tier: "gold", Weights: Weights{"high": 3}, MaxRunning: 5, Limit: &admission.Limit{Disabled: true}})
	if want := `{"tier":"gold","priority_weights":{"high":3},"max_running":5,"limit":`; err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("%s begins otherwise than with %s, as scripts read it: %v", text, want, err)
	}
}
