package limiter

import (
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
