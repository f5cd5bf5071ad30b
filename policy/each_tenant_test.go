package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// TestWhatIsNamedAsTheRuleIsInForce: the place that LimitClause and OverflowClause name has in the document what is in force, and where they
// name none nothing is.
func TestWhatIsNamedAsTheRuleIsInForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		c := prepared(t, p)
		tenant := rapid.SampledFrom(append([]string{"stranger"}, someTenants...)).Draw(t, "who")
		queue := rapid.SampledFrom(append([]string{"other"}, someQueues...)).Draw(t, "queue")
		class := rapid.SampledFrom(append(someTypes, someClasses...)).Draw(t, "class")
		limits := c.LimitsFor(tenant, queue, class)
		if jobType, ofType := class.JobType(); ofType {
			own, of := limits[admission.LevelPriority], c.TypeLimit(tenant, queue, jobType)
			if (of == nil) != own.Disabled || of != nil && *of != own {
				t.Fatalf("jobs of type %s have %+v, and their scope %+v", jobType, of, own)
			}
		}
		for level, limit := range limits {
			rule := p.LimitClause(admission.Level(level), tenant, queue, class)
			if rule.Path == nil {
				if limit != noLimit || rule.Of != "" {
					t.Fatalf("no rule says %+v of level %d of %s:%s:%s", limit, level, tenant, queue, class)
				}
				continue
			}
			if got := limitAt(t, p, rule); got != unkept(limit) {
				t.Fatalf("%v (%s) is %+v, and %+v is in force", rule.Path, rule.Of, got, limit)
			}
		}
		for in, want := range map[string]Overflow{queue: naiveBound(p, tenant, queue), "": naiveTotal(p, tenant)} {
			rule := p.OverflowClause(tenant, in)
			var bound Overflow
			if rule.Path != nil {
				if err := json.Unmarshal(at(t, p, rule), &bound); err != nil {
					t.Fatal(err)
				}
			}
			if bound != want {
				t.Fatalf("%v (%s) is %+v in %q, and %+v is in force", rule.Path, rule.Of, bound, in, want)
			}
		}
	})
}

// someTypes stand in the place of classes: two that policies may name, and one that they do not.
var someTypes = []admission.Priority{admission.OfType("report"), admission.OfType("a:b"), admission.OfType("other")}

func at(t *rapid.T, p Policy, rule Clause) json.RawMessage {
	text, err := p.At(rule.Path...)
	if err != nil {
		t.Fatal(err)
	}
	if text == nil {
		t.Fatalf("nothing is at %v", rule.Path)
	}
	return text
}

func limitAt(t *rapid.T, p Policy, rule Clause) admission.Limit {
	var w limitJSON
	if err := json.Unmarshal(at(t, p, rule), &w); err != nil {
		t.Fatal(err)
	}
	var bad problems
	return w.limit("", &bad)
}

// TestBoundsOfTiersFollowTheDocument: what a store is told of bounds, a queue's and by tier, is for each tenant what the document says.
func TestBoundsOfTiersFollowTheDocument(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		c := prepared(t, p)
		tiers, own := c.BoundTiers(), c.Overflows()
		for _, tenant := range append([]string{"stranger"}, someTenants...) {
			for _, queue := range append([]string{"other"}, someQueues...) {
				got, is := own[admission.Scope(tenant+":"+queue)]
				if !is {
					got = toldBound(c, tiers[tenant], queue)
				}
				if want := naiveBound(p, tenant, queue); lifted(got) != lifted(want) {
					t.Fatalf("%s (tier %s) is told %+v in %s, and the document says %+v", tenant, p.TierOf(tenant), got, queue, want)
				}
			}
			got, is := own[admission.Scope(tenant)]
			if over, others := c.BoundsOverAll(); !is {
				got = over
				if other, differs := others[tiers[tenant]]; differs {
					got = other
				}
			}
			if want := naiveTotal(p, tenant); lifted(got) != lifted(want) {
				t.Fatalf("%s (tier %s) is told %+v over all its queues, and the document says %+v", tenant, p.TierOf(tenant), got, want)
			}
		}
	})
}

// lifted is no bound where there is none.
func lifted(o Overflow) Overflow {
	if o.Policy == NoBound {
		return Overflow{}
	}
	return o
}

// naiveTotal is what bounds a tenant over all its queues: its own, its tier's, that of every other.
func naiveTotal(p Policy, tenant string) Overflow {
	p = sideOf(p, tenant)
	if own, ok := p.Overflows[admission.Scope(tenant)]; ok {
		return own
	}
	if of := p.Tiers[p.TierOf(tenant)].Overflow; of != (Overflow{}) {
		return of
	}
	return p.Overflows[Every]
}

// toldBound is what a store makes of BoundsIn: that of the queue where it has settings, unless it is zero, else that of Every.
func toldBound(c *Compiled, tier, queue string) Overflow {
	for _, name := range c.QueueNames() {
		if name != queue {
			continue
		}
		bound, others := c.BoundsIn(queue)
		if other, differs := others[tier]; differs {
			return other
		}
		if bound != (Overflow{}) || len(others) > 0 {
			return bound
		}
	}
	bound, others := c.BoundsIn(Every)
	if other, differs := others[tier]; differs {
		return other
	}
	return bound
}

// It is not parallel: other tests would allocate while it counts.
func TestTenantsWithNothingOfTheirOwnCostNothing(t *testing.T) {
	gold := Tier{Limit: noLimit, Queues: map[string]TierQueue{"mail": {Limit: admission.PerSecond(9)}}}
	p := Policy{
		Tiers: map[string]Tier{StandardTier: {Limit: noLimit}, "gold": gold},
		Queues: map[string]Queue{
			"mail": {EachTenant: EachTenant{Limit: admission.PerSecond(50), PriorityLimits: map[admission.Priority]admission.Limit{admission.High: admission.PerSecond(5)}}},
			Every:  {EachTenant: EachTenant{Limit: admission.PerSecond(7)}},
		},
	}
	c := prepare(t, p)
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
	}
	allocations := testing.AllocsPerRun(1, func() {
		for _, name := range names {
			if got := c.LimitsFor(name, "mail", admission.High); got != (Limits{noLimit, noLimit, admission.PerSecond(50), admission.PerSecond(5)}) {
				t.Errorf("%s has %+v", name, got)
			}
			if got := c.LimitsFor(name, "anything", admission.High)[admission.LevelQueue]; got != admission.PerSecond(7) {
				t.Errorf("%s has %+v in a queue nobody named", name, got)
			}
		}
	})
	if allocations != 0 || len(c.tenants) != 0 {
		t.Errorf("10,000 tenants cost %g allocations and %d views, want none", allocations, len(c.tenants))
	}
	p.Tenants = map[string]Tenant{}
	for _, name := range names {
		p.Tenants[name] = Tenant{Tier: "gold"}
	}
	c = prepare(t, p)
	if a, b := c.tenants[names[0]], c.tenants[names[1]]; a.inTier["mail"] != b.inTier["mail"] || a.queues != nil {
		t.Error("tenants of a tier do not share its figures")
	}
}

func TestAWayEndsWhereItsNamesDo(t *testing.T) {
	t.Parallel()
	c := prepare(t, Policy{Queues: map[string]Queue{Every: {EachTenant: EachTenant{
		Limit: admission.PerSecond(7), PriorityLimits: map[admission.Priority]admission.Limit{admission.High: admission.PerSecond(5)},
	}}}})
	if got := c.LimitsFor("acme", "", ""); got[admission.LevelQueue] != noLimit || got[admission.LevelPriority] != noLimit {
		t.Errorf("a way without a queue has %+v", got)
	}
	if got := c.LimitsFor("acme", "mail", ""); got[admission.LevelQueue].Disabled || got[admission.LevelPriority] != noLimit {
		t.Errorf("a way without a class has %+v", got)
	}
}

// TestALimitOfATypeIsTheFirstThatSaysSomethingOfIt: the tier's in the queue, the queue's, the tier's in every queue, every queue's; in each a type by its
// name goes before every type, and one without a limit ends the search.
func TestALimitOfATypeIsTheFirstThatSaysSomethingOfIt(t *testing.T) {
	t.Parallel()
	ofTypes := func(limits map[string]admission.Limit) Queue {
		return Queue{EachTenant: EachTenant{TypeLimits: limits}}
	}
	p := Policy{
		Tiers: map[string]Tier{StandardTier: {Limit: noLimit}, "gold": {Limit: noLimit, Queues: map[string]TierQueue{
			"mail": {TypeLimits: map[string]admission.Limit{"report": admission.PerSecond(1)}},
			Every:  {TypeLimits: map[string]admission.Limit{"sync": admission.PerSecond(2)}},
		}}},
		Tenants: map[string]Tenant{"acme": {Tier: "gold"}},
		Queues: map[string]Queue{
			"mail": ofTypes(map[string]admission.Limit{"report": admission.PerSecond(3), "free": noLimit, Every: admission.PerSecond(4)}),
			Every:  ofTypes(map[string]admission.Limit{"free": admission.PerSecond(5), "sync": admission.PerSecond(6)}),
		},
	}
	c := prepare(t, p)
	for _, row := range []struct {
		tenant, queue, jobType string
		want                   admission.Tokens
		of                     string
	}{
		{"acme", "mail", "report", 1, "default of tier gold in queue mail"},
		{"acme", "mail", "sync", 4, "default of queue mail"},
		{"acme", "hook", "sync", 2, "default of tier gold in every queue"},
		{"bolt", "mail", "report", 3, "default of queue mail"},
		{"bolt", "mail", "free", 0, "default of queue mail"},
		{"bolt", "hook", "free", 5, "default of every queue"},
		{"bolt", "hook", "sync", 6, "default of every queue"},
		{"bolt", "hook", "report", 0, ""},
	} {
		got := c.TypeLimit(row.tenant, row.queue, row.jobType)
		if (got != nil) != (row.want > 0) || got != nil && *got != admission.PerSecond(row.want) {
			t.Errorf("jobs of type %s of %s in %s have %+v, want %d a second", row.jobType, row.tenant, row.queue, got, row.want)
		}
		if rule := p.LimitClause(admission.LevelPriority, row.tenant, row.queue, admission.OfType(row.jobType)); rule.Of != row.of {
			t.Errorf("of type %s of %s in %s %q decides, want %q", row.jobType, row.tenant, row.queue, rule.Of, row.of)
		}
	}
}

// It is not parallel: other tests would allocate while it counts.
func TestPoliciesWithoutLimitsOfTypesCostNothing(t *testing.T) {
	c := prepare(t, Policy{Queues: map[string]Queue{"mail": {EachTenant: EachTenant{Limit: admission.PerSecond(50)}}}})
	if n := testing.AllocsPerRun(10, func() {
		if c.TypeLimit("acme", "mail", "report") != nil {
			t.Error("a type has a limit that nobody said")
		}
	}); n != 0 {
		t.Errorf("looking for one allocates %g times", n)
	}
}

func TestTypesThatMayHaveLimitsAreBounded(t *testing.T) {
	t.Parallel()
	limits := map[string]admission.Limit{}
	for i := range MaxTypeLimits {
		limits[fmt.Sprint("t", i)] = admission.PerSecond(1)
	}
	p := Policy{Queues: map[string]Queue{"mail": {EachTenant: EachTenant{TypeLimits: limits}}}}
	if err := p.Validate(); err != nil {
		t.Errorf("%d types: %v", len(limits), err)
	}
	limits[Every] = admission.PerSecond(1)
	if err := p.Validate(); err == nil || err.Error() != "invalid queues.mail.each_tenant.type_limits 1001 types: allowed is up to 1000" {
		t.Errorf("%d types: %v", len(limits), err)
	}
}

func TestFaultsOfWhatEachTenantHas(t *testing.T) {
	t.Parallel()
	const standard = `"standard": {"limit": {"tokens": 1, "per": "1s", "burst": 1}}`
	for _, c := range []struct{ text, want string }{
		{`{"queues": {"mail": {"each_tenant": {"limit": {"tokens": 5, "per": "1s", "burst": -1}}}}}`, `queues.mail.each_tenant.limit.burst -1`},
		{`{"queues": {"mail": {"each_tenant": {"limit": {}}}}}`, `queues.mail.each_tenant.limit.tokens 0`},
		{`{"queues": {"mail": {"each_tenant": {"limits": {}}}}}`, `queues.mail.each_tenant.limits (unknown): allowed is one of limit, priority_limits, type_limits`},
		{`{"queues": {"mail": {"each_tenant": {"type_limits": {"": {"tokens": 1, "per": "1s", "burst": 1}}}}}}`, `queues.mail.each_tenant.type_limits "": allowed is 1-128 bytes of [A-Za-z0-9._:@/-]`},
		{`{"queues": {"mail": {"each_tenant": {"type_limits": {"a b": {"tokens": 1, "per": "1s", "burst": 1}}}}}}`, `queues.mail.each_tenant.type_limits "a b"`},
		{`{"queues": {"mail": {"each_tenant": {"type_limits": {"report": {"tokens": 0, "per": "1s", "burst": 1}}}}}}`, `queues.mail.each_tenant.type_limits.report.tokens 0: allowed is 1 to 1000000000 tokens`},
		{`{"queues": {"*": {"each_tenant": {"type_limits": {"*": {"algorithm": "sliding_log", "tokens": 5000, "window": "1m"}}}}}}`, `queues.*.each_tenant.type_limits.*.tokens 5000`},
		{`{"tiers": {` + standard + `, "gold": {"limit": {"enabled": false}, "queues": {"mail": {"type_limits": {"report": {"tokens": 1, "per": "1s", "burst": -2}}}}}}}`, `tiers.gold.queues.mail.type_limits.report.burst -2`},
		{`{"observe": ["acme:mail:type=*"]}`, `"acme:mail:type=*": allowed is global, tenant, tenant:queue, tenant:queue:priority or tenant:queue:type=TYPE`},
		{`{"tenants": {"ann": {"queues": {"*": {"type_limits": {"report": {"tokens": 1, "per": "1s"}}}}}}}`, `tenants.ann.queues "*": allowed is 1-128 bytes`},
		{`{"tenants": {"ann": {"queues": {"mail": {"limit": {"tokens": 1, "per": "1s"}}}}}}`, `tenants.ann.queues.mail.limit (unknown): allowed is one of type_limits`},
		{`{"tenants": {"ann": {"queues": {"mail": {"type_limits": {"a b": {"tokens": 1, "per": "1s"}}}}}}}`, `tenants.ann.queues.mail.type_limits "a b": allowed is 1-128 bytes of [A-Za-z0-9._:@/-]`},
		{`{"tenants": {"ann": {"queues": {"mail": {"type_limits": {"report": {"tokens": 0, "per": "1s"}}}}}}}`, `tenants.ann.queues.mail.type_limits.report.tokens 0: allowed is 1 to 1000000000 tokens`},
		{`{"tenants": {"ann": {"queues": {"mail": {"type_limits": {"*": {"tokens": 1, "per": "1s", "burst": 0}}}}}}}`, `tenants.ann.queues.mail.type_limits.*.burst 0`},
		{`{"tiers": {` + standard + `}, "rollout": {"id": "a", "percent": 5, "rules": {"tenants": {"ann": {"queues": {"mail": {"type_limits": {"report": {"tokens": -1, "per": "1s"}}}}}}}}}`, `tenants.ann.queues.mail.type_limits.report.tokens -1`},
		{`{"priority_limits": {"acme:mail:type=report": {"tokens": 1, "per": "1s", "burst": 1}}}`, `priority_limits "acme:mail:type=report": allowed is for a class of queue mail`},
		{`{"queues": {"mail": {"each_tenant": {"priority_limits": {"hihg": {"tokens": 1, "per": "1s", "burst": 1}}}}}}`, `queues.mail.each_tenant.priority_limits "hihg": allowed is a class of queue mail: "high", "medium", "low"`},
		{`{"queues": {"*": {"each_tenant": {"priority_limits": {"high": {"tokens": 1, "per": "1h", "burst": 0}}}}}}`, `queues.*.each_tenant.priority_limits.high.burst 0`},
		{`{"tiers": {` + standard + `, "gold": {"limit": {"enabled": false}, "queues": {"*": {"priority_limits": {"urgent": {"tokens": 1, "per": "1s", "burst": 1}}}}}}}`, `tiers.gold.queues.*.priority_limits "urgent": allowed is a class of any queue: "high", "low", "medium"`},
		{`{"tiers": {` + standard + `, "gold": {"limit": {"enabled": false}, "queues": {"mail": {"limit": {"tokens": 0, "per": "1s", "burst": 1}}}}}}`, `tiers.gold.queues.mail.limit.tokens 0`},
		{`{"tiers": {` + standard + `, "gold": {"limit": {"enabled": false}, "queues": {"mail": {"overflow": {"policy": "reject"}}}}}}`, `tiers.gold.queues.mail.overflow.max_jobs 0`},
		{`{"tiers": {` + standard + `, "gold": {"limit": {"enabled": false}, "queues": {"a b": {"limit": {"enabled": false}}}}}}`, `tiers.gold.queues "a b"`},
		{`{"tiers": {` + standard + `, "gold": {"limit": {"enabled": false}, "overflow": {"policy": "spillover", "max_jobs": 3}}}}`, `tiers.gold.overflow.policy "spillover": allowed is "none" or "reject" over all queues`},
		{`{"tiers": {` + standard + `}, "rollout": {"id": "a", "percent": 5, "rules": {"tiers": {"standard": {"limit": {"enabled": false}, "overflow": {"policy": "reject", "max_jobs": 1}}}}}}`, `rollout.rules.tiers.standard.overflow "reject"`},
		{`{"queues": {"*": {"classes": [{"name": "one", "weight": 0}]}}}`, `queues.*.classes[0].weight 0`},
		{`{"queues": {"*": {"max_running": 3}}}`, `queues.*.max_running 3`},
		{`{"queues": {"*": {"max_running_per_tenant": 3}}}`, `queues.*.max_running_per_tenant 3`},
		{`{"queues": {"*": {"pressure": {"max_depth": 3}}}}`, `queues.*.pressure {…}`},
		{`{"queues": {"*": {"overflow": {"policy": "reject", "max_jobs": 1}}}, "overflows": {"*:*": {"policy": "reject", "max_jobs": 1}}}`, `queues.*.overflow "reject": allowed is none beside "*:*" of overflows`},
		{`{"tiers": {` + standard + `}, "rollout": {"id": "a", "percent": 5, "rules": {"tiers": {"standard": {"limit": {"enabled": false}, "queues": {"mail": {"overflow": {"policy": "reject", "max_jobs": 1}}}}}}}}`, `rollout.rules.tiers.standard.queues.mail.overflow "reject"`},
	} {
		_, err := Unmarshal([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n is %v\n want %s", c.text, err, c.want)
		}
	}
}

func TestTheLongestFillIsAlsoThatOfEachTenant(t *testing.T) {
	t.Parallel()
	slow := admission.Limit{Tokens: 1, Per: time.Hour, Burst: 10}
	for name, p := range map[string]Policy{
		"a queue's":  {Queues: map[string]Queue{"mail": {EachTenant: EachTenant{Limit: slow}}}},
		"a type's":   {Queues: map[string]Queue{"mail": {EachTenant: EachTenant{TypeLimits: map[string]admission.Limit{Every: slow}}}}},
		"a class's":  {Queues: map[string]Queue{Every: {EachTenant: EachTenant{PriorityLimits: map[admission.Priority]admission.Limit{admission.Low: slow}}}}},
		"a tier's":   {Tiers: map[string]Tier{StandardTier: {Limit: noLimit, Queues: map[string]TierQueue{Every: {Limit: slow}}}}},
		"a shadow's": {Rollout: &Rollout{ID: "a", Rules: Rules{Tiers: map[string]Tier{"gold": {Limit: noLimit, Queues: map[string]TierQueue{"mail": {Limit: slow}}}}}}},
	} {
		if got := p.LongestFill(); got < 10*time.Hour || got > 10*time.Hour+time.Second {
			t.Errorf("%s limit fills in %s, and the longest fill is %s", name, 10*time.Hour, got)
		}
	}
}

// TestTheGuideSaysWhichOneHolds: the table of docs/guides/limits-and-tiers.md is true of the policy above it.
func TestTheGuideSaysWhichOneHolds(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "docs", "guides", "limits-and-tiers.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	text, _, _ := strings.Cut(rest, "```")
	p, err := Unmarshal([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := prepare(t, p)
	minute := func(tokens, burst admission.Tokens) admission.Limit {
		return admission.Limit{Tokens: tokens, Per: time.Minute, Burst: burst}
	}
	for _, row := range []struct {
		tenant, queue   string
		class           admission.Priority
		queued, inClass admission.Limit
		of              string
		jobs            int
	}{
		{"bolt", "llm", admission.High, minute(100, 20), minute(5, 2), "override of bolt:llm", 1000},
		{"acme", "llm", admission.High, minute(120, 30), minute(5, 2), "default of tier gold in queue llm", 5000},
		{"someone", "llm", admission.Low, minute(20, 5), noLimit, "default of queue llm", 1000},
		{"acme", "mail", admission.High, admission.PerSecond(50).WithBurst(100), admission.PerSecond(50).WithBurst(100), "default of every queue", 0},
		{"someone", "mail", admission.High, admission.PerSecond(50).WithBurst(100), noLimit, "default of every queue", 0},
	} {
		limits := c.LimitsFor(row.tenant, row.queue, row.class)
		if limits[admission.LevelQueue] != row.queued || limits[admission.LevelPriority] != row.inClass {
			t.Errorf("%s in %s has %+v", row.tenant, row.queue, limits)
		}
		if got := p.LimitClause(admission.LevelQueue, row.tenant, row.queue, row.class); got.Of != row.of {
			t.Errorf("%s in %s: %s decides, want %s", row.tenant, row.queue, got.Of, row.of)
		}
		bound, others := c.BoundsIn(row.queue)
		if other, differs := others[p.TierOf(row.tenant)]; differs {
			bound = other
		}
		if bound.MaxJobs != row.jobs {
			t.Errorf("%d jobs of %s may wait in %s, want %d", bound.MaxJobs, row.tenant, row.queue, row.jobs)
		}
	}
	if got := c.QueueOf("mail").MaxWait; got != time.Hour {
		t.Errorf("a job waits %s in a queue nobody named", got)
	}
}

// unkept is a limit without what is kept of it.
func unkept(limit admission.Limit) admission.Limit {
	return admission.Limit{Tokens: limit.Tokens, Per: limit.Per, Burst: limit.Burst, Disabled: limit.Disabled, Window: limit.Window}
}
