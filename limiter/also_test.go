package limiter

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// daily is a limit of a burst to which almost nothing comes.
func daily(burst admission.Tokens) admission.Limit {
	return admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: burst}
}

// beside is a policy of one tenant's limit and of dimensions.
func beside(tenant admission.Limit, dimensions map[string]policy.DimensionRules) *policy.Policy {
	p := limited(none, tenant)
	p.Dimensions = dimensions
	return p
}

func also(pairs ...string) (all []Dimension) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, Dimension{Name: pairs[i], Value: pairs[i+1]})
	}
	return all
}

// leftIn is what Redis holds of the key of a dimension, rounded: what a refund leaves is less than a micro-token or two below.
func leftIn(tb testing.TB, l *Limiter, name, value, tenant string) admission.Tokens {
	tb.Helper()
	inForce := l.leader().policy.Load()
	owner, key, err := inForce.Dimension(name, value, tenant)
	check(tb, err)
	q, err := questionOf(inForce, route{tenant: owner, queue: key}, 1)
	check(tb, err)
	_, answers, err := l.store.Check(tb.Context(), inForce.Version(), true, []store.Question{q})
	check(tb, err)
	left := answers[0].Left[admission.LevelQueue]
	if answers[0].Shared {
		left = answers[0].Left[admission.LevelTenant]
	}
	return (left + admission.MicroPerToken/2).Tokens()
}

func TestARequestTakesTokensOfAllItsDimensionsOrOfNone(t *testing.T) {
	t.Parallel()
	p := beside(daily(10), map[string]policy.DimensionRules{
		"user": {Limit: daily(5), Tiers: map[string]admission.Limit{"premium": daily(50)}, Keys: map[string]admission.Limit{"root": daily(2)}},
		"ip":   {Limit: daily(8), By: []string{"/24", "/64"}},
		"seen": {},
	})
	p.Tenants["gold"] = policy.Tenant{Tier: "premium", Limit: &none}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: p, Timeout: patient, Exact: true})
	asked := Request{Tenant: "acme", Cost: 4, Also: also("user", "123", "ip", "203.0.113.7", "seen", "x")}
	if v := ask(t, l, asked); !v.Admitted || v.Source != Exact || v.Scope != "" {
		t.Fatalf("%+v", v)
	}
	left := func(name, value, tenant string, want admission.Tokens) {
		t.Helper()
		if got := leftIn(t, l, name, value, tenant); got != want {
			t.Errorf("%s %s has %d left, want %d", name, value, got, want)
		}
	}
	left("user", "123", "acme", 1)
	left("ip", "203.0.113.200", "acme", 4) // of the same /24
	left("ip", "203.0.114.7", "acme", 8)
	v := ask(t, l, asked)
	if v.Admitted || v.Scope != "+user:123" || v.TokensLeft != 1 || v.Burst != 5 || v.RetryAfter <= 0 || v.Reason != admission.ReasonLimited || v.Rate != daily(5).Rate() {
		t.Errorf("%+v", v)
	}
	left("user", "123", "acme", 1)
	left("ip", "203.0.113.7", "acme", 4)
	if left := leftOf(t, l, "acme"); left != 6 {
		t.Errorf("acme has %d left of 6: a refusal by a dimension took something", left)
	}
	if v := ask(t, l, asked); v.Source != Cached || v.Scope != "+user:123" {
		t.Errorf("a denial that is known: %+v", v)
	}
	asked.Also, asked.Remaining = also("ip", "2001:db8::1"), true
	if v := ask(t, l, asked); !v.Admitted || v.Scope != "acme" || v.TokensLeft != 2 || v.Burst != 10 {
		t.Errorf("what is left of the least: %+v", v)
	}
	left("ip", "2001:db8::ffff:1", "acme", 4)
	left("ip", "2001:db8:0:1::1", "acme", 8) // of another /64
	if v := ask(t, l, Request{Tenant: "gold", Cost: 6, Also: also("user", "123")}); !v.Admitted {
		t.Errorf("of a tier with another limit: %+v", v)
	}
	left("user", "123", "gold", 44)
	if v := ask(t, l, Request{Tenant: "gold", Cost: 3, Also: also("user", "root")}); v.Admitted || v.Scope != "+user:root" || v.Reason != admission.ReasonTooCostly {
		t.Errorf("of a value with its own limit: %+v", v)
	}
	if v := ask(t, l, Request{Cost: 1, Also: also("user", "a b")}); !v.Admitted {
		t.Errorf("of no tenant, a value that is no name: %+v", v)
	}
	left("user", "a b", "", 4)
	for what, bad := range map[string][]Dimension{
		"undeclared": also("model", "x"), "twice": also("user", "1", "user", "2"), "no value": also("user", ""), "no address": also("ip", "localhost"),
		"too many": also("user", "1", "ip", "1.1.1.1", "seen", "x", "a", "b", "c", "d"),
	} {
		if v, err := l.Check(t.Context(), Request{Tenant: "acme", Also: bad}); err == nil {
			t.Errorf("%s: %+v", what, v)
		}
	}
	if v, err := l.Check(t.Context(), Request{Tenant: "+user", Queue: "123"}); err == nil {
		t.Errorf("a tenant that is a dimension: %+v", v)
	}
	if r, err := l.Reserve(t.Context(), Request{Tenant: "acme", Also: also("user", "1")}); err == nil {
		t.Errorf("a reservation with a dimension: %+v", r)
	}
}

// TestHotKeysAreAnsweredFromLeases: a route that is asked for all the time, beside users who are.
func TestHotKeysAreAnsweredFromLeases(t *testing.T) {
	t.Parallel()
	many := admission.PerSecond(1_000_000).WithBurst(1_000_000)
	p := beside(many, map[string]policy.DimensionRules{"route": {Limit: many}, "user": {Limit: many}})
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: p, Timeout: patient, Count: true})
	asked := Request{Tenant: "acme", Also: also("route", "/v1/pay", "user", "1")}
	deadline := time.Now().Add(patient)
	for n := 0; ; n++ {
		if v := ask(t, l, asked); v.Source == Leased {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is on lease")
		}
	}
	asked.Remaining = true
	if v := ask(t, l, asked); v.Source == Leased && (v.Scope == "" || v.Burst != many.Burst) {
		t.Errorf("%+v", v)
	}
	check(t, l.Close(t.Context()))
}

// TestADimensionThatRefusesTakesNothingOfLeases: what is on lease of other ways is put back, so that in the end a burst is what was admitted and what
// Redis holds.
func TestADimensionThatRefusesTakesNothingOfLeases(t *testing.T) {
	t.Parallel()
	const burst, each = 4000, 60
	slowly := admission.Limit{Tokens: 12, Per: 24 * time.Hour, Burst: burst}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{
		Policy:  beside(slowly, map[string]policy.DimensionRules{"route": {Limit: slowly}, "user": {Limit: daily(each)}}),
		Timeout: patient,
	})
	admitted := admission.Tokens(0)
	for user := range 20 {
		for n := range 4 * each {
			v := ask(t, l, Request{Tenant: "acme", Also: also("route", "pay", "user", fmt.Sprint(user))})
			switch {
			case v.Admitted:
				admitted++
			case v.Scope != admission.Scope(fmt.Sprint("+user:", user)) || n < each:
				t.Fatalf("%+v", v)
			}
		}
	}
	check(t, l.Close(t.Context()))
	if grants := l.Stats().Grants; admitted != 20*each || grants == 0 {
		t.Errorf("%d admitted of %d, with %d leases", admitted, 20*each, grants)
	}
	if left := leftOf(t, l, "acme"); left != burst-admitted {
		t.Errorf("acme has %d left, want %d", left, burst-admitted)
	}
	if left := leftIn(t, l, "route", "pay", "acme"); left != burst-admitted {
		t.Errorf("the route has %d left, want %d", left, burst-admitted)
	}
}

// stores are those on which properties of dimensions are held.
func stores(tb testing.TB, client *redis.Client) map[string]func(prefix string) store.Deployment {
	onRedis := func(partitions int) func(string) store.Deployment {
		return func(prefix string) store.Deployment {
			s, err := redisstore.Open(tb.Context(), client, redisstore.Config{Prefix: prefix, Partitions: partitions})
			check(tb, err)
			return s
		}
	}
	return map[string]func(prefix string) store.Deployment{
		"redis": onRedis(1), "three partitions": onRedis(3),
		"memory": func(string) store.Deployment { return store.Single(memory.New(memory.Config{}), nil) },
	}
}

// TestNoDimensionAdmitsMoreThanItsBurst: whatever ways requests take, exactly or from leases, each bucket loses what was admitted on its way and
// nothing else: a request that is refused takes nothing anywhere. That is L1 of each dimension's bucket, of which there are as many as there is room for.
func TestNoDimensionAdmitsMoreThanItsBurst(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix(t)
	for on, openOne := range stores(t, client) {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			run := 0
			rapid.Check(t, func(rt *rapid.T) {
				run++
				bursts := map[string]admission.Tokens{}
				rules := map[string]policy.DimensionRules{}
				for _, name := range []string{"user", "route", "model", "region"} {
					bursts[name] = admission.Tokens(rapid.IntRange(1, 60).Draw(rt, "burst of "+name))
					rules[name] = policy.DimensionRules{Limit: daily(bursts[name])}
				}
				tenantBurst := admission.Tokens(rapid.IntRange(1, 100).Draw(rt, "burst"))
				l := start(t, openOne(prefix+on[:1]+strconv.Itoa(run)), Config{Policy: beside(daily(tenantBurst), rules), Timeout: patient, Exact: rapid.Bool().Draw(rt, "exact")})
				spent := map[string]admission.Tokens{}
				for range rapid.IntRange(1, 40).Draw(rt, "requests") {
					r := Request{Tenant: "acme", Cost: admission.Tokens(rapid.IntRange(1, 8).Draw(rt, "cost"))}
					ways := map[string]admission.Tokens{"acme": tenantBurst}
					for name := range bursts {
						if key := rapid.IntRange(0, 3).Draw(rt, name); key > 0 {
							r.Also = append(r.Also, Dimension{name, fmt.Sprint("k", key)})
							ways[name+fmt.Sprint(key)] = bursts[name]
						}
					}
					fits := true
					for way, burst := range ways {
						fits = fits && spent[way]+r.Cost <= burst
					}
					v, err := l.Check(t.Context(), r)
					check(t, err)
					if v.Admitted && !fits {
						rt.Fatalf("%+v is admitted, spent is %v", r, spent)
					}
					if !v.Admitted && fits && l.config.Exact && v.RetryAfter > time.Minute { // Less is what came in between a taking and its refund.
						rt.Fatalf("%+v is refused: %+v, spent is %v", r, v, spent)
					}
					for way := range ways {
						if v.Admitted {
							spent[way] += r.Cost
						}
					}
				}
				check(t, l.Close(t.Context()))
				for name, burst := range bursts {
					for key := 1; key <= 3; key++ {
						if left := leftIn(t, l, name, fmt.Sprint("k", key), "acme"); left != burst-spent[name+fmt.Sprint(key)] {
							rt.Fatalf("%s %d has %d left of %d, spent %d", name, key, left, burst, spent[name+fmt.Sprint(key)])
						}
					}
				}
			})
		})
	}
}

// TestWhoVariesTheKeyFillsNoRedis: beyond max_keys new keys share one bucket, and those that have one keep what they have.
func TestWhoVariesTheKeyFillsNoRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for on, openOne := range stores(t, client) {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			const most, burst = 300, 10
			s := openOne(redistest.Prefix(t))
			l := start(t, s, Config{Policy: beside(none, map[string]policy.DimensionRules{"user": {Limit: daily(burst), MaxKeys: most}}), Timeout: patient, Exact: true})
			admitted, own := 0, map[string]bool{}
			for n := range 4 * most {
				user := fmt.Sprint("u", n)
				v := ask(t, l, Request{Tenant: "acme", Also: also("user", user), Remaining: true})
				if v.Scope == admission.Scope("+user:"+user) {
					own[user] = true
				} else if v.Scope != "+user" {
					t.Fatalf("%+v", v)
				}
				if v.Admitted {
					admitted++
				}
			}
			partitions := len(s.Partitions())
			if len(own) > most || len(own) < most*9/10 {
				t.Errorf("%d keys have buckets, of %d at most", len(own), most)
			}
			if admitted != len(own)+burst*partitions {
				t.Errorf("%d admitted of %d with buckets of their own and %d shared", admitted, len(own), burst*partitions)
			}
			if got := l.Stats().Shared; got != uint64(4*most-len(own)) {
				t.Errorf("%d checks were answered by the shared bucket, want %d", got, 4*most-len(own))
			}
			for user := range own {
				if left := leftIn(t, l, "user", user, "acme"); left != burst-1 {
					t.Fatalf("%s has %d left, want %d: it lost its bucket", user, left, burst-1)
				}
			}
		})
	}
}

// TestADimensionThatIsDeclaredIsHeardOf: a limiter whose policy is older reads it anew.
func TestADimensionThatIsDeclaredIsHeardOf(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	l := start(t, s, Config{Timeout: patient, Exact: true})
	asked := Request{Tenant: "acme", Also: also("user", "1")}
	if v, err := l.Check(t.Context(), asked); err == nil {
		t.Fatalf("undeclared: %+v", v)
	}
	p := beside(none, map[string]policy.DimensionRules{"user": {Limit: daily(1)}})
	p.Version = 1
	put(t, s, p)
	l.declaredAt.Store(0)
	if v := ask(t, l, asked); !v.Admitted {
		t.Fatalf("%+v", v)
	}
	if v := ask(t, l, asked); v.Admitted || v.Scope != "+user:1" {
		t.Fatalf("%+v", v)
	}
}

// TestADimensionWithoutRedisGoesByTheOutageMode.
func TestADimensionWithoutRedisGoesByTheOutageMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[Outage]bool{OutageOpen: true, OutageClosed: false} {
		server := redistest.Start(t, redistest.Options{})
		l := start(t, open(t, server.Client(t)), Config{
			Policy: beside(none, map[string]policy.DimensionRules{"user": {Limit: daily(5)}}), Timeout: time.Second, Outage: mode,
		})
		server.Kill(t)
		v, err := l.Check(context.WithoutCancel(t.Context()), Request{Tenant: "acme", Also: also("user", "1")})
		check(t, err)
		if v.Source != Blind || v.Admitted != want {
			t.Errorf("%s: %+v", mode, v)
		}
	}
}
