package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestCountsAreExactForThoseWithTheMost: beside any number of scopes with one decision each, those with many, and one that
// is counted always, have all of theirs; no minute keeps more than TopScopes and those.
func TestCountsAreExactForThoseWithTheMost(t *testing.T) {
	t.Parallel()
	s, err := openOnly(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	s.conn.Now = "1800000060000000" // The whole test is one minute.
	const rounds, heavy = 4, 10
	for round := range rounds {
		var counts []store.ScopeCount
		for i := range heavy {
			counts = append(counts, store.ScopeCount{Scope: admission.Scope(fmt.Sprintf("heavy-%d", i)), Allowed: 1000, Refused: 1, Tokens: 2000})
		}
		counts = append(counts, store.ScopeCount{Scope: "rare", Always: true, Allowed: 1, Tokens: 1})
		for i := range store.TopScopes {
			counts = append(counts, store.ScopeCount{Scope: admission.Scope(fmt.Sprintf("light-%d-%d", round, i)), Allowed: 1, Tokens: 1})
		}
		done, err := s.Count(t.Context(), counts)
		check(t, err)
		if done != len(counts) {
			t.Errorf("%d of %d scopes are counted", done, len(counts))
		}
	}
	key := s.conn.Partition.Counts(1800000060 / 60)
	for scope, want := range map[string]string{"heavy-0": "4000:4:8000:1", "heavy-9": "4000:4:8000:1", "rare": "4:0:4:0"} {
		if got := redisconn.Client(s.conn).HGet(t.Context(), key, scope).Val(); got != want {
			t.Errorf("%s is %s, want %s", scope, got, want)
		}
	}
	if n := redisconn.Client(s.conn).HLen(t.Context(), key).Val(); n != store.TopScopes+1 {
		t.Errorf("%d scopes are kept", n)
	}
	for _, name := range []string{key, s.conn.Partition.Base() + "ranks"} {
		if ttl := redisconn.Client(s.conn).TTL(t.Context(), name).Val(); ttl <= store.CountedFor || ttl > 2*store.CountedFor {
			t.Errorf("%s is kept for %s", name, ttl)
		}
	}
	s.conn.Now = "1800000120000000"
	_, err = s.Count(t.Context(), []store.ScopeCount{{Scope: "heavy-0", Allowed: 1, Tokens: 1}})
	check(t, err)
	if got := redisconn.Client(s.conn).HGet(t.Context(), s.conn.Partition.Counts(1800000120/60), "heavy-0").Val(); got != "1:0:1:0" {
		t.Errorf("in the minute after it came in it is %s, want all of it", got)
	}
}

// TestMinutesAreThoseOfTheLastHour by the time of Redis.
func TestMinutesAreThoseOfTheLastHour(t *testing.T) {
	t.Parallel()
	s, err := openOnly(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	_, err = s.Count(t.Context(), []store.ScopeCount{{Scope: "acme", Allowed: 2, Refused: 3, Tokens: 7}})
	check(t, err)
	minutes, err := s.Minutes(t.Context(), "acme")
	check(t, err)
	if len(minutes) != 1 {
		t.Fatalf("%+v", minutes)
	}
	want := store.Minute{At: minutes[0].At, Allowed: 2, Refused: 3, Tokens: 7, Partial: true}
	if minutes[0] != want || want.At.Second() != 0 || time.Since(want.At) > 10*time.Minute {
		t.Errorf("%+v", minutes[0])
	}
	if minutes, err = s.Minutes(t.Context(), "other"); err != nil || len(minutes) != 0 {
		t.Errorf("of a scope without any: %+v, %v", minutes, err)
	}
}
