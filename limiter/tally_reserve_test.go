package limiter

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestReservationsAreCountedAsChecksAre: each once, with what it estimated, of its way, and of values of dimensions where limits are warned of; the bucket that values share as its
// own. What is refused is counted, too. A limiter that counts nothing stores nothing.
func TestReservationsAreCountedAsChecksAre(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		partitions int
		warn       float64
		minutes    bool
	}{"one": {1, 0.8, true}, "three": {3, 0.8, true}, "unwarned": {3, 0, true}, "uncounted": {1, 0.8, false}, "three, uncounted": {3, 0.8, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, prefix := redistest.Shared(t).Client(t), redistest.Prefix(t)
			s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: c.partitions})
			check(t, err)
			p := beside(daily(300), map[string]policy.DimensionRules{"user": {Limit: daily(40)}, "one": {Limit: daily(100), MaxKeys: 1}})
			p.Anomalies, p.Version = &policy.AnomalyRules{WarnAt: c.warn}, 1
			put(t, s, p)
			l := start(t, s, Config{Timeout: patient, Minutes: c.minutes})
			now, err := s.Time(t.Context())
			check(t, err)
			reserve := func(cost admission.Tokens, also []Dimension) bool {
				_, err := l.Reserve(t.Context(), Request{Tenant: "acme", Queue: "mail", Cost: cost, Also: also})
				if _, refused := errors.AsType[*admission.RefusedError](err); !refused {
					check(t, err)
				}
				return err == nil
			}
			for range 3 {
				if !reserve(12, also("user", "1")) {
					t.Error("refused")
				}
			}
			if reserve(12, also("user", "1")) {
				t.Error("48 of 40 were reserved")
			}
			for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				reserve(1, also("one", key))
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
			way := store.Minute{Allowed: 11, Refused: 1, Tokens: 56}
			if !c.minutes {
				way = store.Minute{}
			}
			for _, scope := range []admission.Scope{admission.Global, "acme", "acme:mail"} {
				if got := minutesOf(t, s, scope); got != way {
					t.Errorf("%s has %+v, want %+v", scope, got, way)
				}
			}
			if c.warn == 0 || !c.minutes {
				if len(sum) > 0 {
					t.Errorf("%+v are counted of values", sum)
				}
				return
			}
			if want := (store.Minute{Allowed: 3, Refused: 1, Tokens: 48}); sum["+user:1"] != want {
				t.Errorf("+user:1 has %+v, want %+v", sum["+user:1"], want)
			}
			if shared, ones := sum["+one"], sum["+one:a"]; shared.Allowed < int64(8-c.partitions) || shared.Allowed+ones.Allowed > 8 {
				t.Errorf("shared %+v, of a %+v", shared, ones)
			}
		})
	}
}
