package limiter

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// stores are those on which properties of dimensions are held, in the time of v.
func stores(tb testing.TB, v *virtual) map[string]func(prefix string) store.Deployment {
	tb.Helper()
	client := v.client(tb)
	onRedis := func(partitions int) func(string) store.Deployment {
		return func(prefix string) store.Deployment {
			s, err := redisstore.Open(tb.Context(), client, redisstore.Config{Prefix: prefix, Partitions: partitions})
			check(tb, err)
			return s
		}
	}
	return map[string]func(prefix string) store.Deployment{
		"redis": onRedis(1), "three partitions": onRedis(3),
		"memory": func(string) store.Deployment {
			return store.Single(memory.New(memory.Config{Now: func() time.Time { return time.UnixMicro(v.redis.Load()) }}), nil)
		},
	}
}

// TestNoDimensionAdmitsMoreThanItsBurst: whatever ways requests take, exactly or from leases, each bucket loses what was admitted on its way and
// nothing else: a request that is refused takes nothing anywhere. That is L1 of each dimension's bucket, of which there are as many as there is room for.
// In the test's own time no lease ends: what is on one that does is lost to its bucket, with dimensions or without.
func TestNoDimensionAdmitsMoreThanItsBurst(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	for on := range stores(t, newVirtual()) {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			v := newVirtual()
			v.scopes = append(v.scopes, "acme")
			for _, name := range besideNames {
				for key := range besideKeys {
					v.scopes = append(v.scopes, admission.Scope(fmt.Sprintf("+%s:k%d", name, key+1)))
				}
			}
			openOne, runs, grants := stores(t, v)[on], 0, uint64(0)
			rapid.Check(t, func(rt *rapid.T) {
				runs++
				defer redistest.Clear(t, prefix+on[:1]+strconv.Itoa(runs))
				grants += besideRun(t, rt, v, openOne(prefix+on[:1]+strconv.Itoa(runs)))
			})
			if grants == 0 {
				t.Errorf("%d runs without a lease", runs)
			}
		})
	}
}

var besideNames = []string{"user", "route", "model", "region"}

const (
	besideKeys     = 3
	besideRequests = 40
)

// besideRun makes random requests of one limiter, and returns how many leases it had.
func besideRun(t *testing.T, rt *rapid.T, v *virtual, s store.Deployment) (grants uint64) {
	t.Helper()
	bursts, rules := map[string]admission.Tokens{}, map[string]policy.DimensionRules{}
	for _, name := range besideNames {
		bursts[name] = admission.Tokens(rapid.IntRange(1, 200).Draw(rt, "burst of "+name))
		rules[name] = policy.DimensionRules{Limit: daily(bursts[name])}
	}
	tenantBurst := admission.Tokens(rapid.IntRange(1, 360).Draw(rt, "burst"))
	l := start(t, s, Config{Policy: beside(daily(tenantBurst), rules), Timeout: patient, Exact: rapid.IntRange(0, 3).Draw(rt, "exact") == 3, Count: true})
	for _, part := range units(l) {
		part.clock.set = &v.process
	}
	spent, counted := map[string]admission.Tokens{}, map[bool]uint64{}
	var r Request
	var ways map[string]admission.Tokens
	for range rapid.IntRange(besideRequests/2, besideRequests).Draw(rt, "requests") {
		v.pass(time.Duration(rapid.Int64Range(0, int64(leaseLife)/besideRequests-1).Draw(rt, "pass")))
		if again := rapid.IntRange(0, 2).Draw(rt, "again") > 0; !again || ways == nil { // What is asked for often is leased.
			r = Request{Tenant: "acme", Cost: admission.Tokens(rapid.IntRange(1, 8).Draw(rt, "cost"))}
			ways = map[string]admission.Tokens{"acme": tenantBurst}
			for _, name := range besideNames {
				if key := rapid.IntRange(0, besideKeys).Draw(rt, name); key > 0 {
					r.Also = append(r.Also, Dimension{name, fmt.Sprint("k", key)})
					ways[name+strconv.Itoa(key)] = bursts[name]
				}
			}
		}
		fits := true
		for way, burst := range ways {
			fits = fits && spent[way]+r.Cost <= burst
		}
		got, err := l.Check(t.Context(), r)
		check(t, err)
		if got.Admitted && !fits {
			rt.Fatalf("%+v is admitted, spent is %v", r, spent)
		}
		if !got.Admitted && fits && l.config.Exact && got.RetryAfter > time.Minute { // Less is what came in between a taking and its refund.
			rt.Fatalf("%+v is refused: %+v, spent is %v", r, got, spent)
		}
		counted[got.Admitted]++
		for way := range ways {
			if got.Admitted {
				spent[way] += r.Cost
			}
		}
	}
	for _, c := range l.Stats().Checks {
		counted[c.Admitted] -= c.N
	}
	if counted[true] != 0 || counted[false] != 0 {
		rt.Errorf("checks that are not counted as what they were: %v", counted) // One that another partition refused is none that was admitted.
	}
	check(t, l.Close(t.Context()))
	for _, name := range besideNames {
		for key := 1; key <= besideKeys; key++ {
			if left := leftIn(t, l, name, fmt.Sprint("k", key), "acme"); left != bursts[name]-spent[name+strconv.Itoa(key)] {
				rt.Fatalf("%s %d has %d left of %d, spent %d", name, key, left, bursts[name], spent[name+strconv.Itoa(key)])
			}
		}
	}
	return l.Stats().Grants
}
