package limiter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestChecksOfValuesAreCountedWhereLimitsAreWarnedOf: each once, whoever answers it, that of the bucket which values share as its own; without warn_at nothing is sent.
func TestChecksOfValuesAreCountedWhereLimitsAreWarnedOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		partitions int
		warn       float64
	}{"one": {1, 0.8}, "three": {3, 0.8}, "off": {1, 0}, "three, off": {3, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, prefix := redistest.Shared(t).Client(t), redistest.Prefix(t)
			s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: c.partitions})
			check(t, err)
			p := beside(daily(300), map[string]policy.DimensionRules{"user": {Limit: daily(40)}, "route": {Limit: admission.PerSecond(1e6)}, "one": {Limit: daily(100), MaxKeys: 1}, "seen": {}})
			p.Anomalies = &policy.AnomalyRules{WarnAt: c.warn}
			l := start(t, s, Config{Policy: p, Timeout: patient, Minutes: true})
			now, err := s.Time(t.Context())
			check(t, err)
			if now.Second() > 50 { // What follows is to lie in two minutes at most.
				now = now.Add(time.Minute)
			}
			sources, refused := map[Source]bool{}, 0
			for range 25 {
				v := ask(t, l, Request{Tenant: "acme", Cost: 2, Also: also("user", "1", "route", "/a", "seen", "x")})
				if sources[v.Source] = true; !v.Admitted {
					refused++
				}
			}
			for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				ask(t, l, Request{Tenant: "acme", Also: also("one", key)})
			}
			check(t, l.Close(t.Context()))
			sum := map[admission.Scope]store.Minute{}
			for minute := -1; minute <= 2; minute++ {
				all, err := s.Nearby(t.Context(), now.Add(time.Duration(minute)*time.Minute))
				check(t, err)
				for scope, m := range all {
					of := sum[scope]
					of.Allowed, of.Refused, of.Tokens = of.Allowed+m.Allowed, of.Refused+m.Refused, of.Tokens+m.Tokens
					sum[scope] = of
				}
			}
			if c.warn == 0 {
				if keys, _ := client.Keys(t.Context(), prefix+"*value*").Result(); len(sum) > 0 || len(keys) > 0 {
					t.Errorf("without warn_at %+v, %q", sum, keys)
				}
				return
			}
			want := store.Minute{Allowed: 25 - int64(refused), Refused: int64(refused), Tokens: 50}
			for _, scope := range []admission.Scope{"+user:1", "+route:" + admission.Scope(routeKey(t, l))} {
				if sum[scope] != want {
					t.Errorf("%s has %+v, want %+v of %+v", scope, sum[scope], want, sum)
				}
			}
			if refused < 5 || len(sources) < 2 {
				t.Errorf("%d are refused, sources %v", refused, sources)
			}
			if shared, ones := sum["+one"], sum["+one:a"]; shared.Allowed < int64(8-c.partitions) || shared.Allowed+ones.Allowed > 8 {
				t.Errorf("shared %+v, of a %+v", shared, ones)
			}
			if _, seen := sum["+seen:x"]; seen {
				t.Error("a value without a limit is counted")
			}
		})
	}
}

// routeKey is the key of route /a.
func routeKey(t *testing.T, l *Limiter) string {
	t.Helper()
	_, key, err := l.leader().policy.Load().Dimension("route", "/a", "")
	check(t, err)
	return key
}

// TestNothingIsNotedOfValuesThatNobodyIsWarnedOf: not in the process either.
func TestNothingIsNotedOfValuesThatNobodyIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, warn := range []float64{0, 0.5} {
		p := beside(daily(300), map[string]policy.DimensionRules{"user": {Limit: daily(40)}})
		p.Anomalies = &policy.AnomalyRules{WarnAt: warn}
		l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: p, Timeout: patient, Minutes: true})
		for range 3 {
			ask(t, l, Request{Tenant: "acme", Also: also("user", "1")})
		}
		w := l.ways.at("+user", "1", "")
		if noted := w.decided.checks.Load(); w.warned() != (warn > 0) || warn == 0 && noted > 0 {
			t.Errorf("warned at %g: warned %t, %d are noted", warn, w.warned(), noted)
		}
	}
}
