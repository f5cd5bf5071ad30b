package breaker_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/breaker"
)

// TestOneSickWorkerOpensNothing draws any schedule in which one worker fails and is slow as it likes, and others, of
// which at least one calls in any window, are well.
func TestOneSickWorkerOpensNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		config := breaker.Config{MinCalls: rapid.IntRange(1, 20).Draw(rt, "min"), FailureThreshold: rapid.IntRange(1, 20).Draw(rt, "threshold")}
		now := breaker.Instant(time.Hour)
		f, err := breaker.NewFleetAt(now, config)
		if err != nil {
			rt.Fatal(err)
		}
		period := f.SnapshotAt(now).Period
		report := func(n uint64, worker string, c breaker.Counts) breaker.Transition {
			return f.ReportAt(now, 0, config, breaker.Report{Worker: worker, Sequence: n, Period: period, Counts: c, Streak: c.Failures})
		}
		for n := range uint64(rapid.IntRange(1, 60).Draw(rt, "reports")) {
			now = now.Add(time.Duration(rapid.IntRange(0, 8000).Draw(rt, "ms")) * time.Millisecond)
			well := fmt.Sprint("well", rapid.IntRange(0, 3).Draw(rt, "well"))
			for worker, c := range map[string]breaker.Counts{
				well:   {Successes: 1 + uint64(rapid.IntRange(0, 3).Draw(rt, "ok"))},
				"sick": {Failures: uint64(rapid.IntRange(0, 1000).Draw(rt, "failed")), Slow: uint64(rapid.IntRange(0, 1000).Draw(rt, "slow"))},
			} {
				if worker == "sick" && n == 0 {
					continue // It has company first.
				}
				if change := report(n+1, worker, c); change.Happened() {
					rt.Fatalf("report %d of %s: %+v", n, worker, change)
				}
			}
		}
	})
}

// TestOneTenantOpensNothing draws any schedule in which one tenant fails and is slow as it likes, through any worker, while
// another's calls, of which there is one in each half of a window, are well but for one in ten.
func TestOneTenantOpensNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		config := breaker.Config{MinCalls: rapid.IntRange(1, 20).Draw(rt, "min"), Buckets: rapid.IntRange(1, 20).Draw(rt, "buckets")}
		tenants := tenantsApart(rapid.IntRange(2, 5).Draw(rt, "tenants"))
		f, report, advance := drawnFleet(rt, config)
		for _, well := range tenants[1:] {
			report("w0", well, breaker.Counts{Successes: 1})
		}
		for range rapid.IntRange(1, 20).Draw(rt, "rounds") {
			advance(4000)
			for _, well := range tenants[1:] {
				c := breaker.Counts{Successes: uint64(rapid.IntRange(9, 30).Draw(rt, "ok")), Failures: uint64(rapid.IntRange(0, 1).Draw(rt, "unlucky"))}
				report(drawWorker(rt), well, c)
			}
			evil := breaker.Counts{Failures: uint64(rapid.IntRange(0, 1000).Draw(rt, "failed")), Slow: uint64(rapid.IntRange(0, 1000).Draw(rt, "slow"))}
			for range rapid.IntRange(1, 4).Draw(rt, "workers") {
				report(drawWorker(rt), tenants[0], evil)
			}
		}
		if s := f(); s.State != breaker.Closed || s.Trips > 0 {
			rt.Fatalf("one tenant's failures opened the breaker: %+v", s)
		}
	})
}

// TestAnIllDownstreamOpensWhoeverCalls draws a downstream that has been well for any tenants, and then fails each call: it opens
// before one window is over, and after FailureThreshold failures of each where all call as often.
func TestAnIllDownstreamOpensWhoeverCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		tenants := tenantsApart(rapid.IntRange(1, 20).Draw(rt, "tenants"))
		f, report, advance := drawnFleet(rt, breaker.Config{})
		for range rapid.IntRange(0, 20).Draw(rt, "well") {
			report(drawWorker(rt), rapid.SampledFrom(tenants).Draw(rt, "caller"), breaker.Counts{Successes: 5})
			advance(2000)
		}
		for range 10 {
			for _, tenant := range tenants {
				for _, worker := range []string{"w0", "w1"} {
					report(worker, tenant, breaker.Counts{Failures: 1})
				}
			}
		}
		if s := f(); s.State != breaker.Open {
			rt.Fatalf("10 failures of each of %d tenants at each of two workers do not open: %+v", len(tenants), s)
		}
	})
}

// TestAnIllDownstreamOpensOnceTheOthersHaveLeft: one tenant calls on, the others do not, and it takes no longer than the window.
func TestAnIllDownstreamOpensOnceTheOthersHaveLeft(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		tenants := tenantsApart(rapid.IntRange(2, 20).Draw(rt, "tenants"))
		f, report, advance := drawnFleet(rt, breaker.Config{})
		for _, tenant := range tenants {
			report(drawWorker(rt), tenant, breaker.Counts{Successes: 5})
		}
		for range 101 {
			report("w0", tenants[0], breaker.Counts{Failures: 1})
			report("w1", tenants[0], breaker.Counts{Failures: 1})
			advance(-100)
		}
		if s := f(); s.State != breaker.Open {
			rt.Fatalf("closed though nothing else was heard of it for a window: %+v", s)
		}
	})
}

// drawnFleet is a breaker whose clock moves by milliseconds, up to so many, or exactly so many if negative.
func drawnFleet(rt *rapid.T, config breaker.Config) (look func() breaker.FleetSnapshot, report func(worker, tenant string, c breaker.Counts), advance func(ms int)) {
	now, sequence := breaker.Instant(time.Hour), uint64(0)
	f, err := breaker.NewFleetAt(now, config)
	if err != nil {
		rt.Fatal(err)
	}
	period := f.SnapshotAt(now).Period
	report = func(worker, tenant string, c breaker.Counts) {
		sequence++
		r := breaker.Report{Worker: worker, Sequence: sequence, Period: period, Counts: c, Streak: c.Failures}
		r.Tenants = tenantOf(tenant, r)
		f.ReportAt(now, 0, config, r)
	}
	advance = func(ms int) {
		if ms > 0 {
			ms = -rapid.IntRange(0, ms).Draw(rt, "ms")
		}
		now = now.Add(time.Duration(-ms) * time.Millisecond)
	}
	return func() breaker.FleetSnapshot { return f.SnapshotAt(now) }, report, advance
}

func drawWorker(rt *rapid.T) string { return fmt.Sprint("w", rapid.IntRange(0, 3).Draw(rt, "worker")) }

// tenantsApart returns names that are in groups of their own in the first epoch, in which the number itself says which.
func tenantsApart(n int) []string {
	var names []string
	seen := map[uint16]bool{}
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprint("t", i)
		if group := breaker.TenantNumber(name) % breaker.TenantGroups; !seen[group] {
			seen[group] = true
			names = append(names, name)
		}
	}
	return names
}
