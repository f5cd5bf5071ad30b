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

// TestWithoutRedisOthersHaveTheirShare: what a limiter admits of them in an outage is counted by what is not kept, and owed to it on return.
func TestWithoutRedisOthersHaveTheirShare(t *testing.T) {
	t.Parallel()
	day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 20}
	o := newOutage(t, Config{Policy: keeping(day), Outage: OutageShare})
	low := Request{Tenant: "acme", Queue: "mail", Class: admission.Low}
	until(t, o.limiter, low)
	check(t, o.refill(t))
	fault := faults[0]
	fault.begin(t, o.server, o.proxy)
	blind := 0
	for range 64 {
		if v := ask(t, o.limiter, low); v.Admitted {
			blind++
		} else if v.Source == Blind && v.Scope != admission.Global {
			t.Fatalf("%+v", v)
		}
	}
	if blind != 12 {
		t.Errorf("%d of others admitted without Redis, of 12 that are not kept", blind)
	}
	fault.over(t, o.server, o.proxy)
	if v := until(t, o.limiter, low); v.Admitted {
		t.Errorf("what was admitted without Redis was not taken from what is not kept: %+v", v)
	}
	if v := until(t, o.limiter, Request{Tenant: "acme", Queue: "mail", Class: admission.High}); !v.Admitted {
		t.Errorf("and what is kept is gone: %+v", v)
	}
}
