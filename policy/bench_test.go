package policy

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
)

func BenchmarkLimitsFor(b *testing.B) {
	p := Policy{Tenants: map[string]Tenant{}, QueueLimits: map[admission.Scope]admission.Limit{}, PriorityLimits: map[admission.Scope]admission.Limit{}}
	for i := range 10_000 {
		tenant := fmt.Sprintf("tenant-%d", i)
		p.Tenants[tenant] = Tenant{Tier: "premium"}
		p.QueueLimits[admission.Scope(tenant+":mail")] = admission.PerSecond(100)
		p.PriorityLimits[admission.Scope(tenant+":mail:high")] = admission.PerSecond(10)
	}
	c := prepare(b, p)
	for _, tenant := range []string{"tenant-5000", "stranger"} {
		b.Run("tenants=10000/tenant="+tenant, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.LimitsFor(tenant, "mail", admission.High)
			}
		})
	}
}
