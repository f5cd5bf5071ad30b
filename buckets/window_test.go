package buckets

import (
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

func windowed(tb testing.TB, tokens admission.Tokens, anchor, zone string) admission.Limit {
	tb.Helper()
	l, err := admission.FixedWindow(tokens, "24h", anchor, zone)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func instant(tb testing.TB, text string) Instant {
	tb.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		tb.Fatal(err)
	}
	return InstantOf(at)
}

// TestAWindowBeginsAnewAtItsAnchor, also on the days on which clocks change; a refusal tells to the microsecond when.
func TestAWindowBeginsAnewAtItsAnchor(t *testing.T) {
	t.Parallel()
	limit := windowed(t, 1000, "00:00", "Europe/Berlin")
	for _, c := range []struct{ at, next string }{
		{"2026-11-25T22:59:59Z", "2026-11-25T23:00:00Z"},
		{"2027-03-27T23:00:00Z", "2027-03-28T22:00:00Z"}, // 23 hours
		{"2027-10-30T22:00:00Z", "2027-10-31T23:00:00Z"}, // 25 hours
	} {
		at, next := instant(t, c.at), instant(t, c.next)
		step := func(now Instant) []LevelLimit { return []LevelLimit{{"acme", LimitAt(limit, now)}} }
		var set Set
		if v := set.Take(at, 0, step(at), 999); v.Err() != nil {
			t.Fatal(v)
		}
		want := admission.Verdict{
			Decision: admission.Refused, Reason: admission.ReasonLimited, Scope: "acme", TokensLeft: 1, Burst: 1000, RetryAfter: Span(next - at).Duration(),
		}
		if v := set.Take(at, 0, step(at), 2); v != want {
			t.Errorf("at %s: %+v, want %+v", c.at, v, want)
		}
		if v := set.Take(next-1, 0, step(next-1), 2); v.RetryAfter != time.Microsecond {
			t.Errorf("a microsecond before %s: %+v", c.next, v)
		}
		if v := set.Take(next, 0, step(next), 1000); v.Err() != nil {
			t.Errorf("at %s: %+v", c.next, v)
		}
	}
}

// TestWhatIsStoredCountsInTheWindowOfNow walks through what settleWindow distinguishes.
func TestWhatIsStoredCountsInTheWindowOfNow(t *testing.T) {
	t.Parallel()
	now := instant(t, "2026-11-25T12:00:00Z")
	at := func(text string) Instant { return instant(t, "2026-11-"+text) }
	hours := func(n int) Span { return Span(n) * 3600 * Span(second) }
	day := LimitAt(windowed(t, 100, "", ""), now)
	window := func(left Micro, ends string, length Span, quota admission.Tokens) Bucket {
		return Bucket{Level: left * MicroPerToken, Stamp: at(ends), Fill: length, Quota: MicroOf(quota)}
	}
	bucket := NewBucket(MicroOf(20), at("25T11:00:00Z"), limitOf(0.01, 50)) // 30 are missing at 11:00, none at 11:50
	for _, c := range []struct {
		name    string
		stored  Bucket
		changed string
		left    Micro
		ends    string
	}{
		{"nothing", Bucket{}, "25T11:00:00Z", 100, "26T00:00:00Z"},
		{"this window", window(40, "26T00:00:00Z", hours(24), 100), "01T00:00:00Z", 40, "26T00:00:00Z"},
		{"a debt", window(-40, "26T00:00:00Z", hours(24), 100), "01T00:00:00Z", -40, "26T00:00:00Z"},
		{"the window before", window(40, "25T00:00:00Z", hours(24), 100), "01T00:00:00Z", 100, "26T00:00:00Z"},
		{"the debt of the window before", window(-40, "25T00:00:00Z", hours(24), 100), "01T00:00:00Z", 60, "26T00:00:00Z"},
		{"the debt of the one before that", window(-40, "24T00:00:00Z", hours(24), 100), "01T00:00:00Z", 100, "26T00:00:00Z"},
		{"the next window, as the clock was set back", window(40, "27T00:00:00Z", hours(24), 100), "01T00:00:00Z", 40, "27T00:00:00Z"},
		{"one of next week, as the clock was far ahead", window(40, "30T00:00:00Z", hours(24), 100), "01T00:00:00Z", 100, "26T00:00:00Z"},
		{"more tokens now", window(10, "26T00:00:00Z", hours(24), 60), "25T11:00:00Z", 50, "26T00:00:00Z"},
		{"fewer tokens now", window(10, "26T00:00:00Z", hours(24), 160), "25T11:00:00Z", 0, "26T00:00:00Z"},
		{"fewer than a debt", window(-10, "26T00:00:00Z", hours(24), 160), "25T11:00:00Z", -10, "26T00:00:00Z"},
		{"an hour that ended today", window(10, "25T10:00:00Z", hours(1), 30), "25T10:30:00Z", 80, "26T00:00:00Z"},
		{"an hour that ended yesterday", window(10, "24T10:00:00Z", hours(1), 30), "25T10:30:00Z", 100, "26T00:00:00Z"},
		{"an hour that ended today, from before a change of yesterday", window(10, "25T10:00:00Z", hours(1), 30), "24T10:30:00Z", 100, "26T00:00:00Z"},
		{"a month from before a change of yesterday", window(0, "30T00:00:00Z", hours(744), 1000), "24T11:00:00Z", 100, "26T00:00:00Z"},
		{"a month under way", window(900, "30T00:00:00Z", hours(744), 1000), "25T11:00:00Z", 0, "26T00:00:00Z"},
		{"a token bucket", bucket, "25T11:10:00Z", 76, "26T00:00:00Z"},
		{"a token bucket that was full at the change", bucket, "25T11:50:00Z", 100, "26T00:00:00Z"},
		{"a token bucket of yesterday", bucket, "24T11:10:00Z", 100, "26T00:00:00Z"},
	} {
		level, end := Settle(now, at(c.changed), c.stored, day)
		if level != c.left*MicroPerToken || end != at(c.ends) {
			t.Errorf("%s: %d until %s, want %d until %s", c.name, level/MicroPerToken, end.Time(), c.left, c.ends)
		}
	}
	// A token bucket has what a window left, and what came in since the change.
	level, _ := Settle(now, at("25T11:58:20Z"), window(30, "26T00:00:00Z", hours(24), 100), limitOf(0.1, 50))
	if level != MicroOf(40) {
		t.Errorf("a token bucket behind a window holds %d", level)
	}
}

// TestADebtOfAWindowIsPaidByTheNext, and waiting as told is enough, also where that takes both.
func TestADebtOfAWindowIsPaidByTheNext(t *testing.T) {
	t.Parallel()
	limit := windowed(t, 100, "00:00", "Europe/Berlin")
	now := instant(t, "2027-03-27T12:00:00Z") // The day after has 23 hours.
	path := func(at Instant) []LevelLimit { return []LevelLimit{{"acme", LimitAt(limit, at)}} }
	for cost, next := range map[admission.Tokens]string{40: "2027-03-27T23:00:00Z", 41: "2027-03-28T22:00:00Z"} {
		var set Set
		set.Debit(now, 0, path(now)[0], 160)
		v := set.Take(now, 0, path(now), cost)
		if v.RetryAfter != Span(instant(t, next)-now).Duration() || v.TokensLeft != -60 {
			t.Errorf("%d tokens: %+v, want them at %s", cost, v, next)
		}
		at := now + Instant(v.RetryAfter.Microseconds())
		if early := set.Peek(at-1, 0, path(at-1), cost); early.Err() == nil {
			t.Errorf("%d tokens are there a microsecond before", cost)
		}
		if v := set.Take(at, 0, path(at), cost); v.Err() != nil {
			t.Errorf("%d tokens: %+v", cost, v)
		}
	}
}

// TestOnlyTheWindowOfAReservationGetsItBack.
func TestOnlyTheWindowOfAReservationGetsItBack(t *testing.T) {
	t.Parallel()
	now := instant(t, "2026-11-25T00:10:00Z")
	limit := LimitAt(windowed(t, 100, "", ""), now)
	minutes := func(n int) Span { return Span(n) * 60 * Span(second) }
	for _, c := range []struct {
		reserved, actual admission.Tokens
		ago              Span
		want             Micro
	}{
		{30, 10, minutes(10), 70}, {30, 10, minutes(10) + 1, 50}, {60, 0, minutes(1), 100}, {30, 40, minutes(10) + 1, 40}, {30, 300, 0, -100},
	} {
		if got := TrueUp(50*MicroPerToken, limit, c.reserved, c.actual, c.ago, 0); got != c.want*MicroPerToken {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestAdmittedInWindowsStaysWithinTheBound: under one limit of fixed windows each window admits its tokens at most, any time as long as a
// window twice as many, and a refusal's wait is enough and not a microsecond too long. Each step of the clock may add a window's tokens.
func TestAdmittedInWindowsStaysWithinTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const quota = 10
		limit, err := admission.FixedWindow(quota, rapid.SampledFrom([]string{"1m", "7m", "24h", "month"}).Draw(t, "window"), "00:30", "")
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "zoned") && limit.Per >= 24*time.Hour {
			limit, _ = admission.FixedWindow(quota, limit.Window.Length(), "02:30", "Europe/Berlin")
		}
		type taken struct {
			at   Instant
			cost Micro
		}
		var set Set
		var all []taken
		now, steps := InstantOf(time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)), Micro(0)
		perWindow := map[Instant]Micro{}
		stepping := rapid.IntRange(0, 2).Draw(t, "stepping") == 0
		for range rapid.IntRange(10, 60).Draw(t, "operations") {
			part := Instant(rapid.SampledFrom([]int64{0, 1, 7, 50, 130, 1000}).Draw(t, "percent of a window"))
			now += Instant(limit.Per.Microseconds()) * part / 100
			if stepping && rapid.IntRange(0, 9).Draw(t, "step") == 0 {
				now += Instant(limit.Per.Microseconds()) * Instant(rapid.Int64Range(-250, 250).Draw(t, "step by")) / 100
				steps++
			}
			cost := admission.Tokens(rapid.IntRange(1, quota).Draw(t, "cost"))
			path := []LevelLimit{{"acme", LimitAt(limit, now)}}
			v := set.Take(now, 0, path, cost)
			if v.Err() == nil {
				all = append(all, taken{now, MicroOf(cost)})
				perWindow[path[0].Limit.Window.Start] += MicroOf(cost)
				continue
			}
			at := now + Instant(v.RetryAfter.Microseconds())
			if later := set.Peek(at, 0, []LevelLimit{{"acme", LimitAt(limit, at)}}, cost); later.Err() != nil {
				t.Fatalf("told to wait %s, and refused again: %+v", v.RetryAfter, later)
			}
			if early := set.Peek(at-1, 0, []LevelLimit{{"acme", LimitAt(limit, at-1)}}, cost); early.Err() == nil {
				t.Fatalf("told to wait %s, and a microsecond less was enough", v.RetryAfter)
			}
		}
		for start, sum := range perWindow {
			if sum > MicroOf(quota)*(1+steps) {
				t.Fatalf("the window from %s admitted %d", start.Time(), sum/MicroPerToken)
			}
		}
		shortest := Instant(limit.Per.Microseconds()) - 73*3600*second // February, and a day of 23 hours
		if limit.Per < 24*time.Hour {
			shortest = Instant(limit.Per.Microseconds())
		} else if limit.Window.Length() != admission.WindowMonth {
			shortest = Instant(limit.Per.Microseconds()) - 3600*second
		}
		for i := range all {
			sum := Micro(0)
			for _, one := range all[i:] {
				if one.at-all[i].at >= 0 && one.at-all[i].at <= shortest {
					sum += one.cost
				}
			}
			if sum > MicroOf(quota)*(2+steps) {
				t.Fatalf("a time as long as a window admitted %d", sum/MicroPerToken)
			}
		}
	})
}

// TestWindowsAreReadAsTheyWereWritten.
func TestWindowsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		quota := rapid.Int64Range(int64(MicroPerToken), int64(maxMicro)).Draw(t, "quota")
		want := Bucket{
			Level: Micro(rapid.Int64Range(-quota, quota).Draw(t, "level")), Stamp: Instant(rapid.Int64Range(0, maxExact).Draw(t, "end")),
			Fill: Span(rapid.Int64Range(1, maxExact).Draw(t, "length")), Quota: Micro(quota),
		}
		text, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(string(text)); err != nil || got != want || len(text) > 80 {
			t.Fatalf("%+v, %v, want %+v of %d bytes", got, err, want, len(text))
		}
	})
}
