package limiter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// keeping is a policy that keeps 40 percent of a global limit for high.
func keeping(global admission.Limit) *policy.Policy {
	p := limited(global, none)
	p.GlobalReserved = &policy.GlobalReserved{Classes: []admission.Priority{admission.High}, Percent: 40}
	return p
}

// TestOthersLeaveWhatIsKept: over one partition and over three, several limiters admit no more of others than what is not kept, and a denial of theirs is
// nobody's for whom it is.
func TestOthersLeaveWhatIsKept(t *testing.T) {
	t.Parallel()
	day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 300}
	for name, open := range map[string]store.Deployment{"one": open(t, redistest.Shared(t).Client(t)), "three": openParts(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiters := []*Limiter{start(t, open, Config{Policy: keeping(day), Timeout: patient}), start(t, open, Config{Policy: keeping(day), Timeout: patient})}
			admitted := func(class admission.Priority, requests int) (n int) {
				for i := range requests {
					for _, tenant := range tenantsOf(open) {
						r := Request{Tenant: tenant, Queue: "mail", Class: class}
						if class == "" {
							r.Queue = ""
						}
						v := ask(t, limiters[i%2], r)
						if v.Admitted {
							n++
						} else if v.Scope != admission.Global || v.Reason != admission.ReasonLimited {
							t.Fatalf("%s: %+v", class, v)
						}
						if class != admission.High && v.Source == Leased {
							t.Fatalf("%s is answered from a lease: %+v", class, v)
						}
					}
				}
				return n
			}
			if n := admitted(admission.Low, 100) + admitted("", 200); n != 180 {
				t.Errorf("%d of others admitted of 300 tokens, of which 120 are kept", n)
			}
			if v := ask(t, limiters[0], Request{Tenant: tenantsOf(open)[0], Queue: "mail", Class: admission.Low}); v.Burst != 180/admission.Tokens(len(open.Partitions())) {
				t.Errorf("others are told of the bucket of all: %+v", v)
			}
			if n := admitted(admission.High, 400); n != 120 {
				t.Errorf("%d of high admitted, of 120 that are kept", n)
			}
		})
	}
}

// TestLeasesOfHighLeaveOthersTheirBound: high is answered from leases of the global limit, while others are asked of Redis, and have no more than theirs.
func TestLeasesOfHighLeaveOthersTheirBound(t *testing.T) {
	t.Parallel()
	limit := admission.PerSecond(20_000).WithBurst(20_000)
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: keeping(limit), Timeout: patient})
	leased, others := 0, 0
	for range 4000 {
		if v := ask(t, l, Request{Tenant: "acme", Queue: "mail", Class: admission.High}); v.Source == Leased {
			leased++
		}
	}
	if leased < 1000 {
		t.Errorf("%d of 4000 checks of high were answered from leases", leased)
	}
	begun := time.Now()
	for range 1000 {
		ask(t, l, Request{Tenant: "acme", Queue: "mail", Class: admission.High})
		if v := ask(t, l, Request{Tenant: "acme", Queue: "mail", Class: admission.Low}); v.Source == Leased {
			t.Fatalf("%+v", v)
		} else if v.Admitted {
			others++
		}
	}
	for range 40 {
		v := ask(t, l, Request{Tenant: "acme", Queue: "mail", Class: admission.Low, Cost: 1000})
		if v.Source == Leased {
			t.Fatalf("%+v", v)
		}
		if v.Admitted {
			others += 1000
		}
	}
	if bound := 0.6 * (20_000 + 20_000*time.Since(begun).Seconds()); float64(others) > bound {
		t.Errorf("others have %d tokens, bound %.0f", others, bound)
	}
	if v := ask(t, l, Request{Tenant: "acme", Queue: "mail", Class: admission.Low, Cost: 12_001}); v.Reason != admission.ReasonTooCostly || v.Burst != 12_000 {
		t.Errorf("more than others may ever have: %+v", v)
	}
}

// TestWhatNeverPassesIsNotToldToWait: others ask for more than they may ever have while the global bucket is empty, which the limiter remembers.
func TestWhatNeverPassesIsNotToldToWait(t *testing.T) {
	t.Parallel()
	limit := admission.Limit{Tokens: 1, Per: time.Hour, Burst: 100}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: keeping(limit), Exact: true, Timeout: patient})
	of := func(class admission.Priority, cost admission.Tokens) Verdict {
		return ask(t, l, Request{Tenant: "acme", Queue: "mail", Class: class, Cost: cost})
	}
	if v := of(admission.High, 100); !v.Admitted {
		t.Fatalf("%+v", v)
	}
	if v := of(admission.High, 1); v.Reason != admission.ReasonLimited || v.Scope != admission.Global {
		t.Fatalf("%+v", v)
	}
	if v := of(admission.Low, 60); v.Reason != admission.ReasonLimited || v.Source != Cached {
		t.Errorf("what others may have once the bucket is full: %+v", v)
	}
	if v := of(admission.Low, 61); v.Reason != admission.ReasonTooCostly || v.Burst != 60 {
		t.Errorf("more than others may ever have: %+v", v)
	}
}

// TestWithoutRedisOthersHaveTheirShare: what a limiter admits of them in an outage is counted by what is not kept as well, and owed to both buckets.
func TestWithoutRedisOthersHaveTheirShare(t *testing.T) {
	t.Parallel()
	day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 20}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: keeping(day), Outage: OutageShare, Timeout: patient})
	ask(t, l, Request{Tenant: "acme", Queue: "mail", Class: admission.High})
	inForce := l.policy.Load()
	blind := func(class admission.Priority, requests int) (admitted int) {
		w, err := l.ways.open(l.clock.now(), route{"acme", "mail", class}, inForce)
		check(t, err)
		for range requests {
			v, _ := l.blind.answer(w, 1, l.clock.now(), 1, 100)
			if v.Admitted {
				admitted++
			} else if v.Scope != admission.Global || v.Reason != admission.ReasonLimited {
				t.Fatalf("%s: %+v", class, v)
			}
		}
		return admitted
	}
	l.blind.begin(l.clock.now())
	if n := blind(admission.Low, 64); n != 12 {
		t.Errorf("%d of others admitted without Redis, of 12 that are not kept", n)
	}
	if n := blind(admission.High, 64); n != 8 {
		t.Errorf("%d of high admitted without Redis behind them, of 20 in all", n)
	}
	f := &flight{}
	l.blind.collect(f, inForce)
	owed := map[admission.Level]admission.Tokens{}
	for _, a := range f.grant.Accounts {
		owed[a.Level] += a.Owed
	}
	if len(owed) != 2 || owed[admission.LevelGlobal] != 20 || owed[store.LevelOthers] != 12 {
		t.Errorf("by level %v is owed", owed)
	}
}
