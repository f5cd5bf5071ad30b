package limiter

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// openParts returns a store of three partitions.
func openParts(t *testing.T) store.Deployment {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
	check(t, err)
	return s
}

// TestTheGlobalLimitIsDividedExactly: what all partitions admit in the end is the burst, and no tenant has more than its
// partition's part.
func TestTheGlobalLimitIsDividedExactly(t *testing.T) {
	t.Parallel()
	store := openParts(t)
	l := start(t, store, Config{Policy: limited(admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 30}, none), Timeout: patient})
	admitted := map[string]int{}
	for _, tenant := range tenantsOf(store) {
		for range 20 {
			if v := ask(t, l, Request{Tenant: tenant}); v.Admitted {
				admitted[tenant]++
			} else if v.Scope != admission.Global || v.Burst != 10 {
				t.Fatalf("%s: %+v", tenant, v)
			}
		}
		if admitted[tenant] != 10 {
			t.Errorf("%d of %s admitted, want 10", admitted[tenant], tenant)
		}
	}
	if v := ask(t, l, Request{Tenant: tenantsOf(store)[0], Cost: 11}); v.Reason != admission.ReasonTooCostly {
		t.Errorf("more than the part of a partition: %+v", v)
	}
}

// TestChecksOfNoTenantHaveTheWholeGlobalLimit: they take it where there is some, and know without a call where there is none.
func TestChecksOfNoTenantHaveTheWholeGlobalLimit(t *testing.T) {
	t.Parallel()
	store := openParts(t)
	l := start(t, store, Config{Policy: limited(admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 30}, none), Timeout: patient})
	for range 7 {
		ask(t, l, Request{Tenant: tenantsOf(store)[1]})
	}
	admitted, exact := 0, 0
	for range 60 {
		v := ask(t, l, Request{})
		if v.Admitted {
			admitted++
		} else if v.Source == Exact {
			exact++
		}
	}
	if admitted != 23 || exact != 3 {
		t.Errorf("%d of 23 admitted, %d refused by a call, want 3: one of each partition", admitted, exact)
	}
}

// TestATenantIsLimitedExactlyInItsPartition: nothing of a tenant's own limit is divided.
func TestATenantIsLimitedExactlyInItsPartition(t *testing.T) {
	t.Parallel()
	store := openParts(t)
	l := start(t, store, Config{Policy: limited(none, admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 10}), Timeout: patient})
	if v := ask(t, l, Request{Tenant: "acme", Cost: 10}); !v.Admitted {
		t.Errorf("10 of 10: %+v", v)
	}
	if v := ask(t, l, Request{Tenant: "acme", Queue: "mail"}); v.Admitted || v.Scope != "acme" {
		t.Errorf("1 of 0: %+v", v)
	}
}

// TestALimiterFollowsThePolicyInEachPartition: every partition tells of a new version, and all of them have one copy of it.
func TestALimiterFollowsThePolicyInEachPartition(t *testing.T) {
	t.Parallel()
	store := openParts(t)
	l := start(t, store, Config{Timeout: patient})
	for version := range int64(3) {
		p := limited(admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: admission.Tokens(3 * (version + 1))}, none)
		p.Version = version + 1
		put(t, store, p)
		for _, tenant := range tenantsOf(store) {
			ask(t, l, Request{Tenant: tenant}) // A denial under the last version may answer what costs more.
			if v := ask(t, l, Request{Tenant: tenant, Cost: 9}); v.Reason != admission.ReasonTooCostly || v.Burst != admission.Tokens(version+1) {
				t.Errorf("version %d, %s: %+v", version+1, tenant, v)
			}
		}
		for _, part := range l.parts[1:] {
			if part.policy.Load() != l.parts[0].policy.Load() {
				t.Error("a partition has a copy of its own")
			}
		}
	}
}

func TestAClosedLimiterOfPartitionsGivesAllBack(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	s, err := redisstore.Open(t.Context(), v.client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
	check(t, err)
	f := newFleet(v, s, Config{Timeout: patient})
	f.put(t, admission.PerSecond(300).WithBurst(3000))
	f.join(t)
	for range 40 {
		f.ask(t, 0, 4, 1)
		v.pass(10 * time.Millisecond)
	}
	if f.leased == 0 {
		t.Fatal("nothing was leased")
	}
	v.pass(20 * time.Second) // All buckets are full, but for what is on lease.
	for i := range f.tenants {
		f.asking = f.tenants[i : i+1]
		f.ask(t, 0, 1, 1)
	}
	spent := f.moments[len(f.moments)-1].admitted
	check(t, f.limiters[0].Close(t.Context()))
	for _, tenant := range f.tenants {
		_, err := f.limiters[0].Check(t.Context(), Request{Tenant: tenant, Queue: "new"})
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", tenant, err)
		}
	}
	left := admission.Tokens(0)
	for _, tenant := range f.tenants {
		w := policyWay(t, f, tenant)
		_, answers, err := s.Check(t.Context(), f.version, true, []store.Question{w.question(1)})
		check(t, err)
		left += answers[0].Left[admission.LevelGlobal].Tokens()
	}
	if left != 3000-spent {
		t.Errorf("%d left of 3000 after %d were spent", left, spent)
	}
}

// TestAClosedLimiterTakesNothing, whatever it is asked for, of one partition and of several.
func TestAClosedLimiterTakesNothing(t *testing.T) {
	t.Parallel()
	for _, s := range []store.Deployment{open(t, redistest.Shared(t).Client(t)), openParts(t)} {
		l, r := start(t, s, Config{Policy: limited(admission.PerSecond(10), admission.PerSecond(10)), Timeout: patient}), Request{Tenant: "acme", Cost: 1}
		ask(t, l, r)
		check(t, l.Close(t.Context()))
		for what, take := range map[string]func() error{
			"Check":         func() error { _, err := l.Check(t.Context(), r); return err },
			"Wait":          func() error { _, err := l.Wait(t.Context(), r); return err },
			"CheckTogether": func() error { _, err := l.CheckTogether(t.Context(), []Request{r}); return err },
			"Reserve":       func() error { _, err := l.Reserve(t.Context(), r); return err },
			"ReserveWait":   func() error { _, err := l.ReserveWait(t.Context(), r); return err },
			"TryAcquire":    func() error { _, err := l.Semaphore("gpu").TryAcquire(t.Context(), 1); return err },
			"Acquire":       func() error { _, err := l.Semaphore("gpu").Acquire(t.Context(), 1); return err },
		} {
			if err := take(); !errors.Is(err, ErrClosed) {
				t.Errorf("%d partitions, %s: %v", len(s.Partitions()), what, err)
			}
		}
	}
}

// policyWay is the way of a tenant under the policy in force.
func policyWay(t *testing.T, f *fleet, tenant string) *way {
	t.Helper()
	l := start(t, f.store, f.config)
	ask(t, l, Request{Tenant: tenant, Cost: admission.MaxCost})
	return l.parts[f.store.PartitionOf(tenant)].ways.find(&Request{Tenant: tenant})
}

// TestAnOutageOfAPartitionIsItsTenantsAlone: law L13. Others' checks are answered by Redis all the while.
func TestAnOutageOfAPartitionIsItsTenantsAlone(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
	check(t, err)
	tenants := tenantsOf(s)
	l := start(t, s, Config{Policy: limited(admission.PerSecond(1000).WithBurst(100_000), none), Timeout: patient, Outage: OutageClosed})
	away := redisstore.KeysOf(s.Partitions()[1]).State()
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if len(c.Args) > 2 && c.Args[2] == away {
			return redistest.Action{Cut: redistest.CutBefore}
		}
		return redistest.Action{}
	})
	for range 20 {
		for i, tenant := range tenants {
			if v := ask(t, l, Request{Tenant: tenant}); v.Admitted == (i == 1) || (v.Source == Blind) != (i == 1) {
				t.Fatalf("tenant of partition %d: %+v", i, v)
			}
		}
	}
}

// TestLeasesOfAllPartitionsAreWithinOneBound: law L1 for leases, where as much is on lease in every partition as may be when the
// buckets are full again.
func TestLeasesOfAllPartitionsAreWithinOneBound(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		v := newVirtual()
		s, err := redisstore.Open(t.Context(), v.client(t), redisstore.Config{Prefix: redistest.Prefix(t) + strconv.FormatBool(strict), Partitions: 3})
		check(t, err)
		f := newFleet(v, s, Config{Strict: strict, Timeout: patient})
		f.put(t, admission.PerSecond(5000).WithBurst(1200))
		for range 12 {
			f.join(t)
		}
		for range 3 {
			f.rush(t)
			v.pass(leaseLife)
		}
		if over := f.broken(); over != "" || f.leased == 0 {
			t.Errorf("strict %t: %d leased, %s", strict, f.leased, over)
		}
	}
}
