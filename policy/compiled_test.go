package policy

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

func prepare(tb testing.TB, p Policy) *Compiled {
	tb.Helper()
	c, err := p.Prepare()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestDefaultHasThePapersFigures(t *testing.T) {
	t.Parallel()
	p := Default()
	p.Tenants = map[string]Tenant{"gold": {Tier: "premium"}, "tin": {Tier: "basic"}}
	c := prepare(t, p)
	for _, want := range []struct {
		tenant            string
		tokens, burst     admission.Tokens
		high, medium, low admission.Weight
	}{
		{"gold", 400, 100, 3, 2, 1},
		{"nobody-configured", 200, 50, 2, 1, 1},
		{"tin", 100, 25, 1, 1, 1},
	} {
		limits := Limits{{Disabled: true}, admission.PerSecond(want.tokens).WithBurst(want.burst), {Disabled: true}, {Disabled: true}}
		if got := c.LimitsFor(want.tenant, "mail", admission.High); got != limits {
			t.Errorf("limits of %s are %+v, want %+v", want.tenant, got, limits)
		}
		weights := [3]admission.Weight{
			c.WeightOf(want.tenant, admission.High), c.WeightOf(want.tenant, admission.Medium), c.WeightOf(want.tenant, admission.Low),
		}
		if weights != [3]admission.Weight{want.high, want.medium, want.low} {
			t.Errorf("weights of %s are %v", want.tenant, weights)
		}
		if got := c.WeightOf(want.tenant, admission.Critical); got != 1 {
			t.Errorf("weight of %s in a class nobody configured is %d, want 1", want.tenant, got)
		}
	}
	if c.Version() != 0 || c.DedupWindow() != 30*time.Second {
		t.Errorf("version %d and dedup window %s, want 0 and 30s", c.Version(), c.DedupWindow())
	}
}

func TestUnlimitedDisablesEveryLimitAndKeepsWeights(t *testing.T) {
	t.Parallel()
	c := prepare(t, Unlimited())
	if got := c.LimitsFor("acme", "mail", admission.High); got != (Limits{noLimit, noLimit, noLimit, noLimit}) {
		t.Errorf("LimitsFor = %+v, want all disabled", got)
	}
	if got := c.WeightOf("acme", admission.High); got != 2 {
		t.Errorf("WeightOf = %d, want 2", got)
	}
}

func TestResolutionFollowsTheDocument(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		c, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		type share struct {
			TenantWeight
			weight admission.Weight
		}
		var differing []share
		for _, tenant := range append([]string{"stranger"}, someTenants...) {
			for _, class := range append([]admission.Priority{admission.Critical}, someClasses...) {
				for _, queue := range append([]string{"other"}, someQueues...) {
					if got, want := c.LimitsFor(tenant, queue, class), naiveLimits(p, tenant, queue, class); got != want {
						t.Fatalf("LimitsFor(%s, %s, %s) = %+v, want %+v", tenant, queue, class, got, want)
					}
				}
				weight := naiveWeight(p, tenant, class)
				if got := c.WeightOf(tenant, class); got != weight {
					t.Fatalf("WeightOf(%s, %s) = %d, want %d", tenant, class, got, weight)
				}
				if weight != naiveWeight(p, "stranger", class) {
					differing = append(differing, share{TenantWeight{Tenant: tenant, Class: class}, weight})
				}
			}
		}
		slices.SortFunc(differing, func(a, b share) int {
			return slices.Compare([]string{a.Tenant, string(a.Class)}, []string{b.Tenant, string(b.Class)})
		})
		var yielded []share
		for at, weight := range c.ConfiguredWeights() {
			yielded = append(yielded, share{at, weight})
		}
		if !slices.Equal(yielded, differing) {
			t.Fatalf("ConfiguredWeights yields %v, want %v", yielded, differing)
		}
	})
}

func TestConfiguredWeightsStopsWhenTold(t *testing.T) {
	t.Parallel()
	c := prepare(t, Policy{Tenants: map[string]Tenant{"acme": {Tier: "premium"}, "tin": {Tier: "basic"}}})
	for at := range c.ConfiguredWeights() {
		if at != (TenantWeight{Tenant: "acme", Class: admission.High}) {
			t.Errorf("the first is %v", at)
		}
		break
	}
}

func TestPreparedPolicyDoesNotChange(t *testing.T) {
	t.Parallel()
	p := Policy{
		Tenants: map[string]Tenant{"acme": {Limit: new(admission.PerSecond(5)), Weights: Weights{admission.High: 7}}},
		Queues:  map[string]Queue{"mail": {Classes: PresetCritical()}},
	}
	c := prepare(t, p)
	p.Tenants["acme"].Limit.Burst = 99
	p.Tenants["acme"].Weights[admission.High] = 99
	p.Queues["mail"].Classes[0].Name = "changed"
	c.ClassesOf("mail")[1].Name = "changed"
	c.QueueOf("sms").Classes[0].Name = "changed"
	if got := c.LimitsFor("acme", "mail", admission.High)[admission.LevelTenant].Burst; got != 5 {
		t.Errorf("burst is %d, want 5", got)
	}
	if got := c.WeightOf("acme", admission.High); got != 7 {
		t.Errorf("weight is %d, want 7", got)
	}
	if got := c.ClassesOf("mail"); !slices.Equal(got, PresetCritical()) {
		t.Errorf("classes are %v", got)
	}
	if got := c.ClassesOf("sms"); !slices.Equal(got, admission.DefaultClasses()) {
		t.Errorf("default classes are %v", got)
	}
}

func TestQueueOfFillsInDefaults(t *testing.T) {
	t.Parallel()
	c := prepare(t, Policy{Queues: map[string]Queue{"mail": {Classes: PresetCritical(), ExpiredPolicy: Drop}, "sms": {Horizon: time.Minute}}})
	mail, sms, other := c.QueueOf("mail"), c.QueueOf("sms"), c.QueueOf("other")
	if mail.Horizon != time.Hour || mail.ExpiredPolicy != Drop || len(mail.Classes) != 4 {
		t.Errorf("mail is %+v", mail)
	}
	if sms.Horizon != time.Minute || sms.ExpiredPolicy != DeadLetter || len(sms.Classes) != 3 {
		t.Errorf("sms is %+v", sms)
	}
	if other.Horizon != time.Hour || other.ExpiredPolicy != DeadLetter || len(other.Classes) != 3 {
		t.Errorf("a queue nobody configured is %+v", other)
	}
	for _, want := range []struct {
		queue string
		class admission.Priority
		index int
		ok    bool
	}{
		{"mail", admission.Critical, 0, true},
		{"mail", admission.Low, 3, true},
		{"sms", admission.High, 0, true},
		{"other", admission.Low, 2, true},
		{"sms", admission.Critical, 0, false},
		{"sms", "", 0, false},
	} {
		if index, ok := c.ClassIndex(want.queue, want.class); index != want.index || ok != want.ok {
			t.Errorf("ClassIndex(%s, %q) = %d, %t, want %d, %t", want.queue, want.class, index, ok, want.index, want.ok)
		}
		if class, ok := c.ClassAt(want.queue, want.index); want.ok && (class != want.class || !ok) {
			t.Errorf("ClassAt(%s, %d) = %q, %t, want %q", want.queue, want.index, class, ok, want.class)
		}
	}
}

func TestNoClassBeyondTheLast(t *testing.T) {
	t.Parallel()
	c := prepare(t, Policy{})
	for _, place := range []int{-1, len(admission.DefaultClasses())} {
		if class, ok := c.ClassAt("mail", place); class != "" || ok {
			t.Errorf("ClassAt(mail, %d) = %q, %t", place, class, ok)
		}
	}
}

// It is not parallel: other tests would allocate while it counts.
func TestLookupsDoNotAllocate(t *testing.T) {
	c := prepare(t, Policy{
		Tenants:        map[string]Tenant{"acme": {Tier: "premium"}},
		QueueLimits:    map[admission.Scope]admission.Limit{"acme:mail": admission.PerSecond(1)},
		PriorityLimits: map[admission.Scope]admission.Limit{"acme:mail:high": admission.PerSecond(1)},
	})
	allocations := testing.AllocsPerRun(100, func() {
		for _, tenant := range []string{"acme", "stranger"} {
			c.LimitsFor(tenant, "mail", admission.High)
			c.WeightOf(tenant, admission.High)
			c.ClassIndex("mail", admission.Low)
			c.ClassAt("mail", 0)
		}
	})
	if allocations != 0 {
		t.Errorf("lookups allocate %g times, want 0", allocations)
	}
}
