package limiter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
)

// fourLevels is a policy with a limit at each level of acme, mail, high.
func fourLevels(global, rest admission.Limit) *policy.Policy {
	p := limited(global, rest)
	p.QueueLimits = map[admission.Scope]admission.Limit{"acme:mail": rest}
	p.PriorityLimits = map[admission.Scope]admission.Limit{"acme:mail:high": rest}
	return p
}

// leasedChecks measures checks that are admitted, and how many of them by a lease.
func leasedChecks(b *testing.B, l *Limiter, r Request) {
	b.Helper()
	ctx, leased := b.Context(), 0
	warm(b, l, r)
	b.ReportAllocs()
	for b.Loop() {
		v, err := l.Check(ctx, r)
		if err != nil || !v.Admitted {
			b.Fatal(v, err)
		}
		if v.Source == Leased {
			leased++
		}
	}
	b.ReportMetric(float64(leased)/float64(b.N), "leased/op")
}

// T3 and T4: a leased check, and a denied one while the denial is cached. loadtest/peers has what they are divided by.
func BenchmarkLocal(b *testing.B) {
	b.Run("check=admitted/by=lease", func(b *testing.B) {
		limit := admission.PerSecond(1e9)
		l := start(b, open(b, redistest.Shared(b).Client(b)), Config{Policy: fourLevels(limit, limit), Timeout: patient})
		r := Request{Tenant: "acme", Queue: "mail", Class: admission.High, Cost: 1}
		leasedChecks(b, l, r)
	})
	limit := admission.PerSecond(1e9)
	for limits, r := range map[string]Request{"7": {Tenant: "acme", Queue: "mail", Class: admission.High}, "4": {Tenant: "acme"}} {
		b.Run("check=admitted/by=lease-also/limits="+limits, func(b *testing.B) { // B3.4: loadtest/peers has as many limiters of x/time/rate.
			p := fourLevels(limit, limit)
			if limits == "4" {
				p = limited(none, limit)
			}
			p.Dimensions = map[string]policy.DimensionRules{"user": {Limit: limit}, "route": {Limit: limit}, "ip": {Limit: limit, By: []string{"/24", "/64"}}}
			l := start(b, open(b, redistest.Shared(b).Client(b)), Config{Policy: p, Timeout: patient})
			r.Cost, r.Also = 1, also("user", "123", "route", "GET-/v1/pay", "ip", "203.0.113.7")
			leasedChecks(b, l, r)
		})
	}
	b.Run("check=denied/by=cache", func(b *testing.B) {
		proxy := redistest.NewProxy(b, redistest.Shared(b).Addr())
		day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}
		l := start(b, open(b, proxy.Client(b)), Config{Policy: fourLevels(admission.PerSecond(1e9), day), Timeout: patient})
		r := Request{Tenant: "acme", Queue: "mail", Class: admission.High, Cost: 1}
		for range 2 {
			_, err := l.Check(b.Context(), r)
			check(b, err)
		}
		ctx, before, cached := b.Context(), proxy.Commands(), 0
		b.ReportAllocs()
		for b.Loop() {
			v, err := l.Check(ctx, r)
			if err != nil || v.Admitted {
				b.Fatal(v, err)
			}
			if v.Source == Cached {
				cached++
			}
		}
		b.ReportMetric(float64(cached)/float64(b.N), "cached/op")
		b.ReportMetric(float64(proxy.Commands()-before)/b.Elapsed().Seconds(), "calls/s")
	})
}

// warm checks until the way is leased.
func warm(b *testing.B, l *Limiter, r Request) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		v, err := l.Check(b.Context(), r)
		check(b, err)
		if v.Source == Leased {
			return
		}
	}
	b.Fatal("never leased")
}
