package limiter

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
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
	ask(t, l, Request{Tenant: "gold"})       // So that its own way is known.
	if v := ask(t, l, Request{Tenant: "gold", Cost: 6, Also: also("user", "123")}); !v.Admitted {
		t.Errorf("of a tier with another limit: %+v", v)
	}
	left("user", "123", "gold", 44)
	user, inForce := Dimension{"user", "123"}, l.policy.Load()
	if standard, premium := l.ways.beside(inForce, &user, "acme"), l.ways.beside(inForce, &user, "gold"); standard == nil || premium == nil || standard == premium {
		t.Errorf("the ways of a value for two tiers: %p, %p", standard, premium)
	}
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

// TestADimensionThatRefusesTakesNothingOfLeases: what is on lease of other ways stays there, so that in the end a burst is what was admitted and what
// Redis holds, to the token. The time is the test's own, and less of it passes than a lease lasts: what is not spent by then nobody gives back.
func TestADimensionThatRefusesTakesNothingOfLeases(t *testing.T) {
	t.Parallel()
	const burst, each, users = 4000, 60, 20
	slowly := admission.Limit{Tokens: 12, Per: 24 * time.Hour, Burst: burst}
	v := newVirtual()
	v.scopes = []admission.Scope{"acme", "+route:pay"}
	for user := range users {
		v.scopes = append(v.scopes, admission.Scope(fmt.Sprint("+user:", user)))
	}
	l := start(t, open(t, v.client(t)), Config{
		Policy:  beside(slowly, map[string]policy.DimensionRules{"route": {Limit: slowly}, "user": {Limit: daily(each)}}),
		Timeout: patient,
	})
	l.clock.set = &v.process
	admitted := admission.Tokens(0)
	for user := range users {
		for n := range 4 * each {
			v.pass(leaseLife / (8 * each * users))
			got := ask(t, l, Request{Tenant: "acme", Also: also("route", "pay", "user", strconv.Itoa(user))})
			switch {
			case got.Admitted:
				admitted++
			case got.Scope != admission.Scope(fmt.Sprint("+user:", user)) || n < each:
				t.Fatalf("%+v", got)
			}
		}
	}
	check(t, l.Close(t.Context()))
	if grants := l.Stats().Grants; admitted != users*each || grants == 0 {
		t.Errorf("%d admitted of %d, with %d leases", admitted, users*each, grants)
	}
	if left := leftOf(t, l, "acme"); left != burst-admitted {
		t.Errorf("acme has %d left, want %d", left, burst-admitted)
	}
	if left := leftIn(t, l, "route", "pay", "acme"); left != burst-admitted {
		t.Errorf("the route has %d left, want %d", left, burst-admitted)
	}
}

// TestNobodyWaitsForAPartitionWithTokensInHand: while Redis is asked of a user in one partition, what is on lease of the tenant's in another one lies
// there. Taken first it would be lost to a count, or to the end of the lease, that comes before the user is refused.
func TestNobodyWaitsForAPartitionWithTokensInHand(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	client := v.client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
	check(t, err)
	const tenant = "acme"
	user := "u"
	for s.PartitionOf("+user:"+user) == s.PartitionOf(tenant) {
		user += "u"
	}
	v.scopes = []admission.Scope{tenant}
	other := redisstore.KeysOf(s.Partitions()[s.PartitionOf("+user:"+user)]).State()
	l := start(t, s, Config{Policy: beside(admission.PerSecond(1000).WithBurst(1000), map[string]policy.DimensionRules{"user": {Limit: daily(2)}}), Timeout: patient})
	for _, part := range l.parts {
		part.clock.set = &v.process
	}
	home := l.parts[s.PartitionOf(tenant)]
	onLease := func() admission.Tokens {
		if of, ok := home.ways.scopes.Load(tenant); ok {
			return of.held.tokens()
		}
		return 0
	}
	meanwhile := make(chan admission.Tokens, 100)
	v.asked = func(state string) {
		if state == other {
			meanwhile <- onLease()
		}
	}
	for range 100 {
		v.pass(time.Millisecond)
		if ask(t, l, Request{Tenant: tenant}).Source == Leased && onLease() > 10 {
			break
		}
	}
	for n, admitted := range []bool{true, true, false} {
		for _, part := range l.parts { // What is fetched asks, too.
			part.line.flying.Wait()
		}
		for len(meanwhile) > 0 {
			<-meanwhile
		}
		before := onLease()
		if got := ask(t, l, Request{Tenant: tenant, Also: also("user", user)}); got.Admitted != admitted || before < 3 {
			t.Fatalf("check %d with %d on lease: %+v", n, before, got)
		}
		after := onLease()
		if during := <-meanwhile; during != before || before-after != map[bool]admission.Tokens{true: 1}[admitted] {
			t.Errorf("check %d: %d tokens on lease, %d while another partition was asked, then %d", n, before, during, after)
		}
	}
}

// TestTokensGoBackWhereSomebodyElseWasQuicker: what a way had a moment ago is gone, here because the way is asked twice.
func TestTokensGoBackWhereSomebodyElseWasQuicker(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	l := start(t, open(t, v.client(t)), Config{Policy: limited(none, admission.PerSecond(1000).WithBurst(1000)), Timeout: patient})
	l.clock.set = &v.process
	r := Request{Tenant: "acme"}
	onLease := func() admission.Tokens {
		l.line.flying.Wait()
		if w := l.ways.find(&r); w != nil {
			return w.scopes[0].held.tokens()
		}
		return 0
	}
	for range 100 {
		if v.pass(time.Millisecond); ask(t, l, r).Source == Leased && onLease() > 10 {
			break
		}
	}
	before, ways := onLease(), []*way{l.ways.find(&r), l.ways.find(&r)}
	r.Cost = before/2 + 1
	var verdict Verdict
	if before < 10 || l.takeAll(t.Context(), ways, r.Cost, false, &verdict) || onLease() != before {
		t.Errorf("of %d on lease %d were asked twice, and %d are left: %+v", before, r.Cost, onLease(), verdict)
	}
	if made, ok := l.locally(t.Context(), ways, []Request{r, r}, group{own: 2, last: true}); ok || onLease() != before {
		t.Errorf("of %d on lease %d were asked twice together, and %d are left: %+v", before, r.Cost, onLease(), made)
	}
}

// TestWhoVariesTheKeyFillsNoRedis: beyond max_keys new keys share one bucket, and those that have one keep what they have.
func TestWhoVariesTheKeyFillsNoRedis(t *testing.T) {
	t.Parallel()
	for on, openOne := range stores(t, newVirtual()) {
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

// TestAnAddressIsCountedByThePolicyInForce: what a value is counted by is kept, and is another where the policy is.
func TestAnAddressIsCountedByThePolicyInForce(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	l := start(t, s, Config{Timeout: patient, Exact: true})
	address := func(value string) Request { return Request{Tenant: "acme", Also: also("ip", value)} }
	var before *way
	for version, by := range []string{"/24", "/32"} {
		p := beside(none, map[string]policy.DimensionRules{"ip": {Limit: daily(1), By: []string{by, "/64"}}})
		p.Version = int64(version) + 1
		put(t, s, p)
		ask(t, l, address(fmt.Sprint("198.51.100.", version))) // By then the policy is known.
		for n := range 3 {
			if v := ask(t, l, address("203.0.113.7")); v.Admitted != (n == 0) || n > 0 && v.Scope != admission.Scope("+ip:203.0.113."+[]string{"0", "7"}[version]+by) {
				t.Errorf("by %s, check %d: %+v", by, n, v)
			}
		}
		d := Dimension{"ip", "203.0.113.7"}
		if before != nil { // Nobody has cleared the cache since the policy changed.
			l.ways.named.Load().place(&d).Store(&namedWay{d, before})
		}
		before = l.ways.beside(l.policy.Load(), &d, "acme")
		if before == nil || !strings.HasSuffix(before.route.queue, by) {
			t.Errorf("by %s: %+v", by, before)
		}
	}
}
