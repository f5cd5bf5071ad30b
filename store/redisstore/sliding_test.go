package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

func slidingWindow(tb testing.TB, tokens admission.Tokens, window string) admission.Limit {
	tb.Helper()
	l, err := admission.SlidingWindow(tokens, window)
	check(tb, err)
	return l
}

func slidingLog(tb testing.TB, tokens admission.Tokens, window string) admission.Limit {
	tb.Helper()
	l, err := admission.SlidingLog(tokens, window)
	check(tb, err)
	return l
}

// TestSlidingWindowsStandBesideTheOthers on one way: a refusal names its scope, what is left and, to the microsecond, when enough is as old as the
// window, and takes nothing anywhere.
func TestSlidingWindowsStandBesideTheOthers(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	q := ofTenant("a", 3)
	q.Queue, q.Class = "mail", admission.High
	q.Limits = [admission.Levels]admission.Limit{
		slidingWindow(t, 20, "1m"), fixedWindow(t, 100, "24h", "", ""), admission.PerHour(1).WithBurst(50), slidingLog(t, 5, "10s"),
	}
	const none = time.Duration(0)
	ask := func(at string, cost admission.Tokens, scope admission.Scope, held admission.Tokens, wait time.Duration, left ...admission.Tokens) {
		t.Helper()
		s.SetTime(timeAt(t, "2027-03-27T12:"+at+"Z"))
		q.Cost = cost
		_, answers, err := s.Check(t.Context(), 0, false, []store.Question{q})
		check(t, err)
		got := answers[0]
		if v := got.Verdict; (v.Decision == admission.Admitted) != (wait == none) || v.Scope != scope || v.TokensLeft != held || v.RetryAfter != wait {
			t.Errorf("at %s: %+v, want %d left of %s and a wait of %s", at, v, held, scope, wait)
		}
		leftAt(t, at, &got, left)
	}
	ask("00:00", 3, "", 0, none, 17, 97, 47, 2)
	ask("00:04.5", 2, "", 0, none, 15, 95, 45, 0)
	ask("00:05", 1, "a:mail:high", 0, 5*time.Second, 15, 95, 45, 0)
	ask("00:05", 4, "a:mail:high", 0, 9500*time.Millisecond, 15, 95, 45, 0)
	ask("00:10", 3, "", 0, none, 12, 92, 42, 0)
	ask("00:20", 5, "", 0, none, 7, 87, 37, 0)
	ask("00:30", 5, "", 0, none, 2, 82, 32, 0)
	// What was taken from 12:00:00 to 12:00:05.999999 is a minute old at 12:01:05.999999.
	ask("00:40", 3, "global", 2, 25999999*time.Microsecond, 2, 82, 32, 5)
	ask("01:05.999998", 3, "global", 2, time.Microsecond)
	ask("01:05.999999", 3, "", 0, none, 4, 79, 29, 2)
}

// TestWhatAWayTookComesBackToSlidingWindows as it was taken: less than was reserved from then on, more as a debt of the limit at most.
func TestWhatAWayTookComesBackToSlidingWindows(t *testing.T) {
	t.Parallel()
	for _, limit := range []admission.Limit{slidingWindow(t, 1000, "1m"), slidingLog(t, 1000, "1m")} {
		s := newYard(t).store
		begun := timeAt(t, "2027-03-27T12:00:00Z")
		q := ofTenant("a", 400)
		q.Limits[admission.LevelTenant] = limit
		at := func(seconds float64) { s.SetTime(begun.Add(time.Duration(seconds * float64(time.Second)))) }
		left := func(want admission.Tokens) {
			t.Helper()
			peek := q
			peek.Cost = 1
			_, answers, err := s.Check(t.Context(), 0, true, []store.Question{peek})
			check(t, err)
			if got := answers[0].Left[admission.LevelTenant].Tokens(); got != want {
				t.Errorf("%s: %d left, want %d", limit.Words(), got, want)
			}
		}
		take := func() store.Taken {
			t.Helper()
			verdict, taken, err := s.Take(t.Context(), 0, q)
			check(t, err)
			check(t, verdict.Err())
			return taken
		}
		told := func(id string, taken store.Taken, actual admission.Tokens) {
			t.Helper()
			done, err := s.Commit(t.Context(), id, taken, actual)
			check(t, err)
			if done != store.Refunded {
				t.Errorf("%s: %s", id, done)
			}
		}
		at(0)
		first := take()
		at(12)
		second := take()
		left(200)
		at(20)
		told("first", first, 100)
		left(500)
		at(30)
		told("second", second, 1300) // 900 more
		left(-400)
		at(66)
		left(-300) // the 100 of the first
		at(78)
		left(100) // the 400 of the second
		at(96)
		left(1000)
	}
}

// TestASlidingWindowIsSmall: 63 bytes however much it admits, so that the hash of a tenant stays a list of small values; a log 18 and 11 for each.
func TestASlidingWindowIsSmall(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.store
	begun := timeAt(t, "2027-03-27T12:00:00Z")
	key := s.Conn().Partition.Base() + "b:a"
	for name, c := range map[string]struct {
		limit admission.Limit
		bytes int
	}{"counted": {slidingWindow(t, 1_000_000_000, "744h"), 63}, "logged": {slidingLog(t, 1000, "1m"), 18 + 11*60}} {
		q := ofTenant("a", 1)
		q.Queue = name
		q.Limits[admission.LevelTenant], q.Limits[admission.LevelQueue] = admission.Limit{Disabled: true}, c.limit
		for i := range 60 {
			s.SetTime(begun.Add(time.Duration(i) * 997 * time.Millisecond))
			_, answers, err := s.Check(t.Context(), 0, false, []store.Question{q})
			check(t, err)
			check(t, answers[0].Verdict.Err())
		}
		stored, err := redisconn.Client(s.Conn()).HGet(t.Context(), key, name).Result()
		check(t, err)
		if len(stored) != c.bytes {
			t.Errorf("%s: %d bytes, want %d", name, len(stored), c.bytes)
		}
		if encoding, err := redisconn.Client(s.Conn()).ObjectEncoding(t.Context(), key).Result(); name == "counted" && (err != nil || encoding != "listpack") {
			t.Errorf("%s: it is a %s, %v", name, encoding, err)
		}
		check(t, redisconn.Client(s.Conn()).Del(t.Context(), key).Err())
	}
}

// TestPartitionsDivideASlidingWindowEvenly, as a fixed one.
func TestPartitionsDivideASlidingWindowEvenly(t *testing.T) {
	t.Parallel()
	const partitions = 3
	for _, limit := range []admission.Limit{slidingWindow(t, 10*partitions+2, "1h"), slidingLog(t, 10*partitions+2, "1h")} {
		s := openParts(t, partitions, 0)
		var admitted [partitions]int
		for i := range 200 {
			key := keyOfTenant(i)
			if v := admitOne(t, s, key, limit); v.Decision == admission.Admitted {
				admitted[s.PartitionOf(key.Tenant)]++
			} else if v.Scope != admission.Global || v.Burst != 10 || v.RetryAfter < 59*time.Minute {
				t.Fatalf("%+v", v)
			}
		}
		if want := [partitions]int{10, 10, 10}; admitted != want {
			t.Errorf("%s: partitions admitted %v, want %v", limit.Words(), admitted, want)
		}
	}
}
