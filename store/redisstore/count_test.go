package redisstore

import (
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/hyperloglog"
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

// TestAnAnomalyIsKeptOnce while it goes on, and told anew after it was quiet; the last MaxAnomalies are kept.
func TestAnAnomalyIsKeptOnce(t *testing.T) {
	t.Parallel()
	s, err := openOnly(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	note := func(all ...store.Anomaly) int {
		t.Helper()
		kept, err := s.NoteAnomalies(t.Context(), all)
		check(t, err)
		return kept
	}
	surge := store.Anomaly{Kind: "surge", Of: "tenant", Name: "acme", Minute: time.Unix(1800000060, 0), Rate: 120, Usual: 12.5, Deviation: 3.53553, Score: 30.4056}
	if first, again, other := note(surge), note(surge, surge), note(store.Anomaly{Kind: "surge", Of: "queue", Name: "acme"}); first != 1 || again != 0 || other != 1 {
		t.Errorf("first %d, again %d, another's %d", first, again, other)
	}
	alarm := s.conn.Partition.Base() + "alarm:surge:tenant:acme"
	if ttl := redisconn.Client(s.conn).TTL(t.Context(), alarm).Val(); ttl <= store.AnomalyQuiet-time.Minute || ttl > store.AnomalyQuiet {
		t.Errorf("it is known for %s", ttl)
	}
	check(t, redisconn.Client(s.conn).Del(t.Context(), alarm).Err()) // It was quiet.
	if n := note(surge); n != 1 {
		t.Errorf("after it was quiet %d are kept", n)
	}
	of, err := s.AnomaliesAfter(t.Context(), "", 10)
	check(t, err)
	if len(of.Entries) != 3 {
		t.Fatalf("%+v", of)
	}
	got := of.Entries[0]
	if time.Since(got.At).Abs() > time.Hour || got.ID == "" {
		t.Errorf("%+v", got)
	}
	if got.ID, got.At = "", (time.Time{}); got != surge {
		t.Errorf("%+v, want %+v", got, surge)
	}
	for i := range store.MaxAnomalies/store.MaxAnomalyNotes + 2 {
		var all []store.Anomaly
		for k := range store.MaxAnomalyNotes {
			all = append(all, store.Anomaly{Kind: "silence", Of: "tenant", Name: fmt.Sprint(i, "-", k)})
		}
		note(all...)
	}
	note(store.Anomaly{Kind: "scope_scan", Of: "credential", Name: "ops"})
	rest, err := s.AnomaliesAfter(t.Context(), of.Position, 5000)
	check(t, err)
	if n := len(rest.Entries); n > store.MaxAnomalies || rest.Gone+rest.Kept != 4+1088 || rest.Kept != store.MaxAnomalies {
		t.Errorf("%d are behind, %d gone, %d kept", n, rest.Gone, rest.Kept)
	}
	counters, err := s.Counters(t.Context())
	check(t, err)
	if want := map[string]int64{"surge": 3, "silence": 1088, "scope_scan": 1}; !reflect.DeepEqual(counters.Anomalies, want) {
		t.Errorf("%+v, want %+v", counters.Anomalies, want)
	}
}

// TestDifferentNamesOfAnHour: in portions, told again or not, for two hours, of MaxDistinctQueues. Package hyperloglog has a million of them.
func TestDifferentNamesOfAnHour(t *testing.T) {
	t.Parallel()
	s, err := openOnly(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	const hour = int64(500_000)
	at := func(h int64) { s.conn.Now = strconv.FormatInt(h*time.Hour.Microseconds()+1, 10) }
	at(hour)
	count := func(queue string, tenants, jobs int) {
		t.Helper()
		c := store.ScopeCount{Queue: queue, Allowed: 1, Watched: true}
		for i := range tenants {
			c.Tenants = append(c.Tenants, fmt.Sprint("tenant-", i))
		}
		for i := range jobs {
			c.Jobs = append(c.Jobs, fmt.Sprint("tenant:", i))
		}
		for range 2 {
			_, err := s.Count(t.Context(), []store.ScopeCount{c})
			check(t, err)
		}
	}
	of := func(queue string) (this, last store.DistinctNames) {
		t.Helper()
		all, err := s.Distincts(t.Context(), queue)
		check(t, err)
		return all[queue].ThisHour, all[queue].LastHour
	}
	var tenants, jobs hyperloglog.Sketch
	for i := range 1203 {
		tenants.Add(fmt.Sprint("tenant-", i))
		jobs.Add(fmt.Sprint("tenant:", i))
	}
	count("mail", 7, 1203)
	if this, last := of("mail"); this != (store.DistinctNames{Tenants: 7, Jobs: jobs.Count()}) || last != (store.DistinctNames{}) {
		t.Errorf("%+v, %+v", this, last)
	}
	count("mail", 1203, 7)
	both := store.DistinctNames{Tenants: tenants.Count(), Jobs: jobs.Count()}
	if this, _ := of("mail"); this != both {
		t.Errorf("%+v, want %+v", this, both)
	}
	for _, key := range []string{s.conn.Partition.DistinctTenants(hour, "mail"), s.conn.Partition.DistinctJobs(hour, "mail"), s.conn.Partition.Distinct(hour)} {
		if ttl := redisconn.Client(s.conn).TTL(t.Context(), key).Val(); ttl <= store.DistinctKept-time.Minute || ttl > store.DistinctKept {
			t.Errorf("%s is kept for %s", key, ttl)
		}
	}
	at(hour + 1)
	count("mail", 3, 0)
	if this, last := of("mail"); this != (store.DistinctNames{Tenants: 3}) || last != both {
		t.Errorf("in the next hour %+v, %+v", this, last)
	}
	at(hour + 10)
	for i := range store.MaxDistinctQueues + 5 {
		count(fmt.Sprint("q", i), 1, 1)
	}
	if all, err := s.Distincts(t.Context(), ""); err != nil || len(all) != store.MaxDistinctQueues {
		t.Errorf("%d queues, %v", len(all), err)
	}
}
