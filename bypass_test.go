package headgate_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// TestUrgentJobsGoBesideTheirQueuesLimit, on Redis and in memory: within their tenant's share and the global reserve, which checks have no part of, and beyond
// that the way of all.
func TestUrgentJobsGoBesideTheirQueuesLimit(t *testing.T) {
	t.Parallel()
	inMemory, err := headgate.Open(t.Context(), "memory:", headgate.Config{Partitions: 1})
	check(t, err)
	t.Cleanup(func() { check(t, inMemory.Close()) })
	for name, hg := range map[string]*headgate.Client{"Redis": open(t, headgate.Config{}), "memory": inMemory} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, hg.Policy().Change(t.Context(), headgate.Edit{}, func(p *headgate.Policy) {
				p.Document.Global = aDay(6)
				p.Tier("standard").Limit = aDay(30)
				p.Queue("mail").EachTenant.Limit = aDay(2)
				p.Document.Bypass = &policy.Bypass{Classes: []headgate.Priority{headgate.High}, ReservePercent: 50, SharePercent: 20}
			}))
			checks, err := hg.Limiter(headgate.LimiterConfig{Strict: true, Timeout: 10 * time.Second})
			check(t, err)
			ask := func(class headgate.Priority) (in, bypassed bool) {
				receipt, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "mail", Priority: class, Args: welcome{}})
				return err == nil, receipt.Bypassed
			}
			for i, step := range []struct {
				class        headgate.Priority
				check        bool
				in, bypassed bool
			}{
				{headgate.Low, false, true, false},
				{headgate.Low, false, true, false},
				{headgate.Low, false, false, false}, // The queue's two are spent.
				{headgate.High, true, false, false},
				{headgate.High, false, true, true},
				{headgate.High, false, true, true},
				{headgate.High, false, true, true},
				{headgate.High, false, true, true}, // The global bucket is empty.
				{headgate.High, false, true, true}, // It owes one,
				{headgate.High, false, true, true}, // and two: the tenant's share of six is spent.
				{headgate.High, false, false, false},
			} {
				var in, bypassed bool
				if step.check {
					_, err := checks.Check(t.Context(), headgate.Request{Tenant: "acme", Queue: "mail", Class: step.class, Cost: 1})
					in = err == nil
				} else {
					in, bypassed = ask(step.class)
				}
				if in != step.in || bypassed != step.bypassed {
					t.Errorf("%d, of %s: it is in %t, beside limits %t", i, step.class, in, bypassed)
				}
			}
		})
	}
}
