package redisstore

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestAShadowCountsAndChargesNobody: it answers as a check of the same limits would, level by level, from buckets of its
// own; all other keys stay as they are, and another candidate begins anew.
func TestAShadowCountsAndChargesNobody(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s, err := openOnly(t.Context(), client, Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	day := func(burst admission.Tokens) admission.Limit {
		return admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: burst}
	}
	ask := func(queue string) store.Question {
		return store.Question{Tenant: "acme", Queue: queue, Class: admission.High, Cost: 1, Limits: [admission.Levels]admission.Limit{
			day(100), day(7), day(5), {Disabled: true},
		}}
	}
	inForce := ask("mail")
	inForce.Cost = 3
	_, _, err = s.Check(t.Context(), 0, false, []store.Question{inForce})
	check(t, err)
	before := others(t, s)
	var questions []store.Question
	for range 8 {
		questions = append(questions, ask("mail"), ask("sms"))
	}
	check(t, s.Shadow(t.Context(), 0, "a", questions[:6]))
	check(t, s.Shadow(t.Context(), 0, "a", questions[6:]))
	counts, err := s.ShadowCounts(t.Context())
	check(t, err)
	if want := [admission.Levels]int64{0, 9, 0, 0}; counts.ID != "a" || counts.Allowed != 7 || counts.Refused != want || counts.Since.IsZero() {
		t.Errorf("counted %+v, want 7 allowed and %v", counts, want)
	}
	if after := others(t, s); !maps.Equal(before, after) {
		t.Errorf("keys were\n%q\nand are\n%q", before, after)
	}
	check(t, s.Shadow(t.Context(), 0, "b", questions[:1]))
	if counts, err = s.ShadowCounts(t.Context()); err != nil || counts.ID != "b" || counts.Allowed != 1 || counts.Refused != [admission.Levels]int64{} {
		t.Errorf("another candidate begins with %+v, %v", counts, err)
	}
	if err := s.Shadow(t.Context(), 9, "b", questions[:1]); !errors.Is(err, store.ErrStale) {
		t.Errorf("of another version: %v", err)
	}
}

// others returns every key but those of shadows, and the state without its clocks.
func others(t *testing.T, s *Partition) map[string]string {
	t.Helper()
	all := map[string]string{}
	keys, err := redisconn.Client(s.conn).Keys(t.Context(), s.conn.Partition.Base()+"*").Result()
	check(t, err)
	for _, key := range keys {
		name := strings.TrimPrefix(key, s.conn.Partition.Base())
		if name == "shadow" || strings.HasPrefix(name, "x:") {
			continue
		}
		if name != "state" {
			all[name], err = redisconn.Client(s.conn).Dump(t.Context(), key).Result()
			check(t, err)
			continue
		}
		fields, err := redisconn.Client(s.conn).HGetAll(t.Context(), key).Result()
		check(t, err)
		for field, value := range keyspace.Unpacked(fields) {
			if field != "xgb" && field != "bt" && field != "dc" && field != "t" {
				all["state "+field] = value
			}
		}
	}
	return all
}
