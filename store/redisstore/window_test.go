package redisstore

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

func fixedWindow(tb testing.TB, tokens admission.Tokens, window, anchor, zone string) admission.Limit {
	tb.Helper()
	l, err := admission.FixedWindow(tokens, window, anchor, zone)
	check(tb, err)
	return l
}

// leftAt asserts what an answer says is left of each level, from the global one on.
func leftAt(tb testing.TB, at string, got *store.Answer, left []admission.Tokens) {
	tb.Helper()
	for level := range left {
		if tokens := got.Left[level].Tokens(); tokens != left[level] {
			tb.Errorf("at %s: %d left of %s, want %d", at, tokens, admission.Level(level), left[level])
		}
	}
}

func timeAt(tb testing.TB, text string) time.Time {
	tb.Helper()
	at, err := time.Parse(time.RFC3339, text)
	check(tb, err)
	return at
}

// TestAQuotaOfADayIsNewAtMidnight on a way that has token buckets too: a refusal names its scope, what is left and when the next day begins,
// which one that has 23 hours does earlier, and takes nothing anywhere.
func TestAQuotaOfADayIsNewAtMidnight(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	q := ofTenant("a", 600)
	q.Queue, q.Class = "mail", admission.High
	bucket := admission.PerHour(1).WithBurst(2000)
	q.Limits = [admission.Levels]admission.Limit{
		bucket, fixedWindow(t, 1000, "24h", "00:00", "Europe/Berlin"), bucket, fixedWindow(t, 900, "30m", "00:10", ""),
	}
	ask := func(at string, want admission.Verdict, left ...admission.Tokens) {
		t.Helper()
		s.SetTime(timeAt(t, at))
		_, answers, err := s.Check(t.Context(), 0, false, []store.Question{q})
		check(t, err)
		got := answers[0]
		if got.Verdict != want {
			t.Errorf("at %s: %+v, want %+v", at, got.Verdict, want)
		}
		leftAt(t, at, &got, left)
	}
	admitted := admission.Verdict{Decision: admission.Admitted}
	limited := func(scope admission.Scope, left, burst admission.Tokens, wait time.Duration) admission.Verdict {
		return admission.Verdict{Decision: admission.Refused, Reason: admission.ReasonLimited, Scope: scope, TokensLeft: left, Burst: burst, RetryAfter: wait}
	}
	ask("2027-03-27T23:00:00Z", admitted, 1400, 400, 1400, 300)
	ask("2027-03-27T23:00:00Z", limited("a", 400, 1000, 23*time.Hour), 1400, 400, 1400, 300)
	q.Cost = 350
	ask("2027-03-27T23:05:00Z", limited("a:mail:high", 300, 900, 5*time.Minute), 1400, 400, 1400, 300)
	ask("2027-03-27T23:10:00Z", admitted, 1050, 50, 1050, 550)
	ask("2027-03-28T21:59:59Z", limited("a", 50, 1000, time.Second))
	q.Cost = 900
	ask("2027-03-28T22:00:00Z", admitted, 173, 100, 173, 0)
}

// TestWindowsGoByTheTimeOfRedis where no test says another.
func TestWindowsGoByTheTimeOfRedis(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	q := ofTenant("a", 10)
	q.Limits[admission.LevelTenant] = fixedWindow(t, 10, "24h", "", "Europe/Berlin")
	_, answers, err := y.store.Check(t.Context(), 0, false, []store.Question{q}) // By the clock of Redis, which is the client's.
	check(t, err)
	if answers[0].Verdict.Decision != admission.Admitted {
		t.Fatalf("%+v", answers[0].Verdict)
	}
	_, answers, err = y.store.Check(t.Context(), 0, false, []store.Question{q})
	check(t, err)
	left := q.Limits[admission.LevelTenant].Window.UntilNext(time.Now())
	if wait := answers[0].Verdict.RetryAfter; wait < left-time.Second || wait > left+time.Second {
		t.Errorf("new in %s, want %s", wait, left)
	}
}

// TestOnlyTheWindowOfATakingIsRefunded, and the debt of a window is paid by the next.
func TestOnlyTheWindowOfATakingIsRefunded(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	s.SetTime(timeAt(t, "2027-03-27T22:59:30Z"))
	q := ofTenant("a", 600)
	q.Limits[admission.LevelTenant] = fixedWindow(t, 1000, "24h", "", "Europe/Berlin")
	left := func() admission.Tokens {
		t.Helper()
		peek := q
		peek.Cost = 1
		_, answers, err := s.Check(t.Context(), 0, true, []store.Question{peek})
		check(t, err)
		return answers[0].Left[admission.LevelTenant].Tokens()
	}
	take := func() store.Taken {
		t.Helper()
		verdict, taken, err := s.Take(t.Context(), 0, q)
		check(t, err)
		check(t, verdict.Err())
		return taken
	}
	told := func(id string, taken store.Taken, actual, want admission.Tokens) {
		t.Helper()
		done, err := s.Commit(t.Context(), id, taken, actual)
		check(t, err)
		if got := left(); done != store.Refunded || got != want {
			t.Errorf("%s: %s, and %d left, want %d", id, done, got, want)
		}
	}
	told("less", take(), 100, 900)
	old := take()
	told("never-begun", old, 0, 900)
	late := take()
	s.SetTime(timeAt(t, "2027-03-27T23:00:10Z"))
	today := take()
	told("of-yesterday", late, 0, 400)
	told("more", today, 1900, -900)
	s.SetTime(timeAt(t, "2027-03-28T22:00:00Z"))
	if got := left(); got != 100 {
		t.Errorf("behind a day in debt %d are left, want 100", got)
	}
}

// TestPartitionsDivideAWindowEvenly: all together admit its tokens and no more, whatever the shares of rates are, which balancers move on
// without it.
func TestPartitionsDivideAWindowEvenly(t *testing.T) {
	t.Parallel()
	const partitions = 3
	s := openParts(t, partitions, 0)
	limit := fixedWindow(t, 10*partitions+2, "month", "", "")
	balancer := s.NewBalancer()
	var admitted [partitions]int
	for i := range 200 {
		key := keyOfTenant(i)
		if v := admitOne(t, s, key, limit); v.Decision == admission.Admitted {
			admitted[s.PartitionOf(key.Tenant)]++
		} else if left := limit.Window.UntilNext(time.Now()); v.Scope != admission.Global || v.Burst != 10 || v.RetryAfter > left+time.Second || v.RetryAfter < left-time.Second {
			t.Fatalf("%+v", v)
		}
		if i%40 == 0 {
			check(t, balancer.Step(t.Context()))
		}
	}
	if want := [partitions]int{10, 10, 10}; admitted != want {
		t.Errorf("partitions admitted %v, want %v", admitted, want)
	}
}
