package limiter

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// minutesOf sums up what was counted of a scope.
func minutesOf(tb testing.TB, store store.Deployment, scope admission.Scope) (sum store.Minute) {
	tb.Helper()
	minutes, err := store.Minutes(tb.Context(), scope)
	check(tb, err)
	for _, m := range minutes {
		sum.Allowed, sum.Refused, sum.Tokens = sum.Allowed+m.Allowed, sum.Refused+m.Refused, sum.Tokens+m.Tokens
	}
	return sum
}

// TestEachCheckIsCountedOnce, whoever answers it, at every level of its way, while the limiter is asked and by Close at the latest.
func TestEachCheckIsCountedOnce(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("partitions=%d", partitions), func(t *testing.T) {
			t.Parallel()
			s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: partitions})
			check(t, err)
			countEachOnce(t, s)
		})
	}
}

func countEachOnce(t *testing.T, s store.Deployment) {
	t.Helper()
	day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 20}
	l := start(t, s, Config{Policy: fourLevels(admission.PerSecond(1e9), day), Timeout: patient, Minutes: true})
	requests := []Request{
		{Tenant: "acme", Queue: "mail", Class: admission.High},
		{Tenant: "acme", Queue: "mail", Class: admission.High, Cost: 3},
		{Tenant: "bolt", Queue: "mail"},
		{Tenant: "bolt", Cost: 7},
		{},
	}
	var mu sync.Mutex
	want, sources := map[admission.Scope]store.Minute{}, map[Source]bool{}
	note := func(r *Request, v Verdict) {
		mu.Lock()
		defer mu.Unlock()
		sources[v.Source] = true
		at := r.route()
		for level := range 1 + admission.Level(at.depth()) {
			scope := admission.ScopeAt(level, r.Tenant, r.Queue, r.Class)
			m := want[scope]
			m.Tokens += max(1, r.Cost)
			if v.Admitted {
				m.Allowed++
			} else {
				m.Refused++
			}
			want[scope] = m
		}
	}
	ask := func() {
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				for i := range 500 {
					r := requests[i%len(requests)]
					v, err := l.Check(t.Context(), r)
					if err != nil {
						t.Error(err)
						return
					}
					note(&r, v)
				}
			})
		}
		asking.Wait()
	}
	ask()
	for end := time.Now().Add(time.Minute); minutesOf(t, s, admission.Global) == (store.Minute{}); {
		if time.Now().After(end) {
			t.Fatal("nothing is counted before Close")
		}
	}
	ask()
	check(t, l.Close(t.Context()))
	for scope, sum := range want {
		if got := minutesOf(t, s, scope); got != sum {
			t.Errorf("%s has %+v, want %+v", scope, got, sum)
		}
	}
	if len(want) != 6 || !sources[Leased] || !sources[Exact] || !sources[Cached] {
		t.Errorf("checks of %d scopes, answered by %v", len(want), sources)
	}
}

// heardCounts is a store that knows what it was told to count.
type heardCounts struct {
	store.Deployment

	mu      sync.Mutex
	allowed map[admission.Scope]int64
	most    int // scopes in one call
}

func (h *heardCounts) Count(ctx context.Context, counts []store.ScopeCount) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = max(h.most, len(counts))
	for _, c := range counts {
		h.allowed[c.Scope] += c.Allowed
	}
	return h.Deployment.Count(ctx, counts)
}

// TestCountsOfManyScopesAreStoredInParts: a second those of as many as are kept, the next one those that are left, without another check; all at once by
// Close. None is lost, and none is counted twice.
func TestCountsOfManyScopesAreStoredInParts(t *testing.T) {
	t.Parallel()
	const tenants, scopes = 600, 1 + 3*600
	for name, closes := range map[string]bool{"by itself": false, "by Close": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &heardCounts{Deployment: open(t, redistest.Shared(t).Client(t)), allowed: map[admission.Scope]int64{}}
			l := start(t, h, Config{Policy: fourLevels(admission.PerSecond(1e9), admission.PerSecond(1e9)), Timeout: patient, Minutes: true})
			for n := range 2 * tenants {
				_, err := l.Check(t.Context(), Request{Tenant: fmt.Sprint("tenant-", n%tenants), Queue: "mail", Class: admission.High})
				check(t, err)
			}
			if !closes {
				redistest.Await(t, "all are stored", func() bool {
					h.mu.Lock()
					defer h.mu.Unlock()
					return len(h.allowed) == scopes
				})
				if h.most > 1+store.TopScopes {
					t.Errorf("%d scopes are counted in one call", h.most)
				}
			}
			check(t, l.Close(t.Context()))
			for scope, n := range h.allowed {
				if scope != admission.Global && n != 2 {
					t.Errorf("%s has %d, want 2", scope, n)
				}
			}
			if len(h.allowed) != scopes || h.allowed[admission.Global] != 2*tenants {
				t.Errorf("%d scopes are counted, %d in all; want %d and %d", len(h.allowed), h.allowed[admission.Global], scopes, 2*tenants)
			}
		})
	}
}
