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

func (r *rates) allow(scopes *[4]string) bool {
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
	scopes := [4]string{"global", "acme", "acme:mail", "acme:mail:high"}
	b.Run("check=admitted/by=time-rate", func(b *testing.B) {
		p := newRateLimiters(1e9, 1e9, scopes[:]...)
		b.ReportAllocs()
		for b.Loop() {
			if !p.allow(&scopes) {
				b.Fatal("refused")
			}
		}
	})
}
