package redisstore_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// TestValuesThatUseMostOfTheirLimitsAreCounted: beside any number of values that somebody makes up, those that use most of theirs have all that they had, no minute has more
// than CountedValues, and those of tenants are as they were. In Redis and in memory.
func TestValuesThatUseMostOfTheirLimitsAreCounted(t *testing.T) {
	t.Parallel()
	inRedis, inMemory, pass := both(t)
	both := []store.Partition{inRedis, inMemory}
	count := func(counts []store.ScopeCount) {
		t.Helper()
		for _, s := range both {
			done, err := s.Count(t.Context(), counts)
			check(t, err)
			if done != len(counts) {
				t.Errorf("%T: %d of %d are counted", s, done, len(counts))
			}
		}
	}
	now, err := inRedis.Time(t.Context())
	check(t, err)
	pass(now.Truncate(time.Minute).Add(time.Minute).Sub(now)) // The whole of it is one minute.
	count([]store.ScopeCount{{Scope: "acme", Allowed: 3, Tokens: 3}})
	const rounds = 6
	for round := range rounds {
		counts := []store.ScopeCount{{Scope: "+user:near", Allowed: 1, Tokens: 15, OfLimit: 150_000}, {Scope: "+user", Allowed: 2, Refused: 1, Tokens: 30, OfLimit: 300_000}}
		for i := range 3 * store.CountedValues {
			counts = append(counts, store.ScopeCount{Scope: admission.Scope(fmt.Sprintf("+user:made-up-%d-%d", round, i)), Allowed: 1, Tokens: 1, OfLimit: 10})
		}
		count(counts)
		pass(time.Second)
	}
	now, err = inRedis.Time(t.Context())
	check(t, err)
	var told []map[admission.Scope]store.Minute
	for _, s := range both {
		all, err := s.Nearby(t.Context(), now)
		check(t, err)
		if len(all) != store.CountedValues {
			t.Errorf("%T: %d values are kept", s, len(all))
		}
		if near, shared := all["+user:near"], all["+user"]; near.Tokens != rounds*15 || shared.Tokens != rounds*30 || shared.Refused != rounds {
			t.Errorf("%T: near %+v, shared %+v", s, near, shared)
		}
		rates, err := s.Rates(t.Context(), now)
		check(t, err)
		if len(rates.Scopes) != 1 || rates.Scopes["acme"].Tokens != 3 || len(rates.Tenants) != 1 {
			t.Errorf("%T: rates have %+v", s, rates)
		}
		told = append(told, all)
		if none, err := s.Nearby(t.Context(), now.Add(-time.Minute)); err != nil || len(none) != 0 {
			t.Errorf("%T: a minute of nothing has %+v, %v", s, none, err)
		}
	}
	if !reflect.DeepEqual(told[0], told[1]) {
		t.Error("memory counts others than Redis")
	}
	client, keys := redisconn.Client(inRedis.Conn()), inRedis.Conn().Partition
	for _, key := range []string{keys.Values(now.Unix() / 60), keys.Base() + "valueranks"} {
		if ttl := client.TTL(t.Context(), key).Val(); ttl <= store.NearbyFor || ttl > 2*store.NearbyFor {
			t.Errorf("%s is kept for %s", key, ttl)
		}
	}
}
