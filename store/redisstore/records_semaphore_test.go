package redisstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// permitsOf is a record of so many permits of the semaphore gpu.
func permitsOf(most int) string { return fmt.Sprintf(`{"semaphores":{"gpu":{"max":%d}}}`, most) }

// record stores the record of ann and returns its version.
func (y *yard) record(text string) int64 {
	y.tb.Helper()
	version, err := y.store.PutRecord(y.tb.Context(), store.RecordEdit{Tenant: "ann", Text: []byte(text), By: store.Intervention{Own: true}})
	check(y.tb, err)
	return version
}

// permits asks for two permits of ann's for a token.
func (y *yard) permits(token string, most int, record int64) store.SemaphoreAnswer {
	y.tb.Helper()
	p, err := y.store.Acquire(y.tb.Context(), store.Acquire{Name: "ann:gpu", Token: token, Permits: 2, Max: most, Record: record, Lease: time.Minute, Queue: true})
	check(y.tb, err)
	return p.Answer
}

// TestAReleaseServesNobodyByAnOlderRecord: between an edit of a record that lowers a semaphore and the next who acquires nobody who stands in line gets permits by the limit before.
func TestAReleaseServesNobodyByAnOlderRecord(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	four := y.record(permitsOf(4))
	for token, want := range map[string]store.SemaphoreAnswer{"a": store.SemaphoreGranted, "b": store.SemaphoreGranted} {
		if got := y.permits(token, 4, four); got != want {
			t.Fatalf("%s is %s, want %s", token, got, want)
		}
	}
	if got := y.permits("c", 4, four); got != store.SemaphoreWaiting {
		t.Fatalf("the third is %s", got)
	}
	two := y.record(permitsOf(2))
	_, err := y.store.Acquire(t.Context(), store.Acquire{Name: "ann:gpu", Token: "d", Permits: 2, Max: 4, Record: four, Lease: time.Minute})
	if stale, is := errors.AsType[*store.StaleRecordsError](err); !is || stale.Records[0].Version != two || string(stale.Records[0].Text) != permitsOf(2) {
		t.Errorf("by the record before: %v", err)
	}
	check(t, y.store.Release(t.Context(), "ann:gpu", "a"))
	if s, err := y.store.Semaphore(t.Context(), "ann:gpu"); err != nil || s.Held != 2 || s.Waiting != 1 {
		t.Errorf("%+v, %v, want 2 held and one who waits", s, err)
	}
	if got := y.permits("c", 2, two); got != store.SemaphoreWaiting {
		t.Errorf("the third is %s beside two of two", got)
	}
	check(t, y.store.Release(t.Context(), "ann:gpu", "b"))
	if got := y.permits("c", 2, two); got != store.SemaphoreGranted {
		t.Errorf("the third is %s", got)
	}
}

// TestARecordCountsForSemaphoresOfEachPartition: they are where their names say, which may be another partition than that of the tenant's record.
func TestARecordCountsForSemaphoresOfEachPartition(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 0)
	text := []byte(`{"semaphores":{"*":{"max":2}}}`)
	version, err := s.PutRecord(t.Context(), store.RecordEdit{Tenant: "ann", Text: text, By: store.Intervention{Own: true}})
	check(t, err)
	beside, elsewhere := 0, 0
	for n := range 20 {
		ask := store.Acquire{Name: fmt.Sprint("ann:gpu-", n), Token: "a", Permits: 1, Max: 9, Record: store.NoRecord, Lease: time.Minute}
		_, err := s.Acquire(t.Context(), ask)
		if stale, is := errors.AsType[*store.StaleRecordsError](err); !is || stale.Records[0].Version != version || string(stale.Records[0].Text) != string(text) {
			t.Errorf("%s without the record: %v", ask.Name, err)
		}
		ask.Record, ask.Max = version, 2
		if p, err := s.Acquire(t.Context(), ask); err != nil || !p.Granted() || p.Max != 2 {
			t.Errorf("%s by the record: %+v, %v", ask.Name, p, err)
		}
		if s.PartitionOf(ask.Name) == s.PartitionOf("ann") {
			beside++
		} else {
			elsewhere++
		}
	}
	if beside == 0 || elsewhere == 0 {
		t.Errorf("%d were beside the record and %d elsewhere", beside, elsewhere)
	}
}

// TestSemaphoresCostNothingMoreWithoutRecords: one of nobody's, and of a tenant whose tenants have no records, takes as many commands beside records as without any; one that goes by a record one
// more to acquire, and none to release.
func TestSemaphoresCostNothingMoreWithoutRecords(t *testing.T) {
	t.Parallel()
	y := newYardOn(t, redistest.Start(t, redistest.Options{}).Client(t), "")
	y.store.SetTime(time.Now().Add(time.Hour))
	costs := func(name string, record int64) (all [2]int64) {
		t.Helper()
		before := commandsOf(t, y.store)
		p, err := y.store.Acquire(t.Context(), store.Acquire{Name: name, Token: "a", Permits: 1, Max: 9, Record: record, Lease: time.Minute})
		if check(t, err); !p.Granted() {
			t.Fatalf("%+v", p)
		}
		all[0], before = commandsOf(t, y.store)-before, commandsOf(t, y.store)
		check(t, y.store.Release(t.Context(), name, "a"))
		all[1] = commandsOf(t, y.store) - before
		return all
	}
	names := []string{"gpu", "ann:gpu"}
	none := map[string][2]int64{}
	for range 3 { // The first of each makes keys.
		for _, name := range names {
			none[name] = costs(name, 0)
		}
	}
	version := y.record(permitsOf(9))
	for _, name := range names {
		if with := costs(name, 0); with != none[name] {
			t.Errorf("%s takes %v commands beside a record, without %v", name, with, none[name])
		}
	}
	of := none["ann:gpu"]
	if with := costs("ann:gpu", version); with[0]-with[1] != of[0]-of[1]+1 || with[0] > of[0]+1 {
		t.Errorf("by a record ann's takes %v commands, without %v", with, of)
	}
}
