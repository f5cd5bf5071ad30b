package peers

import (
	"sync"
	"testing"

	"golang.org/x/time/rate"
)

// rates is golang.org/x/time/rate as it is used for four levels: a limiter each, out of a sync.Map by scope.
type rates struct{ limiters sync.Map }

func newRateLimiters(limit rate.Limit, burst int, scopes ...string) *rates {
	r := &rates{}
	for _, scope := range scopes {
		r.limiters.Store(scope, rate.NewLimiter(limit, burst))
	}
	return r
}

func (r *rates) allow(scopes []string) bool {
	for _, scope := range scopes {
		limiter, ok := r.limiters.Load(scope)
		if !ok || !limiter.(*rate.Limiter).Allow() {
			return false
		}
	}
	return true
}

// BenchmarkLocal is what a check in one process costs without Headgate: T3 and T4 divide package limiter's benchmark of the
// same name by it.
func BenchmarkLocal(b *testing.B) {
	scopes := []string{"global", "acme", "acme:mail", "acme:mail:high", "+user:123", "+route:GET-/v1/pay", "+ip:203.0.113.0/24"}
	for name, scopes := range map[string][]string{"": scopes[:4], "-7": scopes} { // With three dimensions the way of four levels has seven limits.
		b.Run("check=admitted/by=time-rate"+name, func(b *testing.B) {
			p := newRateLimiters(1e9, 1e9, scopes...)
			b.ReportAllocs()
			for b.Loop() {
				if !p.allow(scopes) {
					b.Fatal("refused")
				}
			}
		})
	}
}
