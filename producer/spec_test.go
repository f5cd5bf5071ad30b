package producer

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTicksAreThoseOfTheSpecInItsZone(t *testing.T) {
	t.Parallel()
	tokyo := time.FixedZone("Tokyo", 9*60*60)
	from := time.Date(2026, 3, 28, 12, 34, 56, 789, time.UTC) // the day before Berlin's clocks go forward
	for _, c := range []struct {
		spec    string
		seconds bool
		want    string // the first three ticks
	}{
		{"*/20 * * * *", false, "03-28T12:40:00 03-28T13:00:00 03-28T13:20:00"},
		{"@hourly", false, "03-28T13:00:00 03-28T14:00:00 03-28T15:00:00"},
		{"0 9 * * *", false, "03-29T00:00:00 03-30T00:00:00 03-31T00:00:00"},
		{"CRON_TZ=Europe/Berlin 30 8 * * *", false, "03-29T06:30:00 03-30T06:30:00 03-31T06:30:00"},
		{"TZ=UTC @daily", false, "03-29T00:00:00 03-30T00:00:00 03-31T00:00:00"},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", false, "03-30T00:30:00 03-31T00:30:00 04-01T00:30:00"}, // There is no 02:30 on the 29th.
		{"15 * * * * *", true, "03-28T12:35:15 03-28T12:36:15 03-28T12:37:15"},
		{"*/20 * * * *", true, "03-28T12:40:00 03-28T13:00:00 03-28T13:20:00"},
		{"@every 25m", false, "03-28T12:55:00 03-28T13:20:00 03-28T13:45:00"},
	} {
		s, err := parseSpec(c.spec, c.seconds, tokyo)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		var got []string
		for at := from; len(got) < 3; {
			at = s.next(at)
			got = append(got, at.UTC().Format("01-02T15:04:05"))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %s", c.spec, got)
		}
	}
}

func TestEveryCountsFromTheEpochWhereverItBegins(t *testing.T) {
	t.Parallel()
	s, err := parseSpec("@every 90s", false, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []time.Duration{0, time.Nanosecond, 44 * time.Second, 90*time.Second - 1} {
		if got := s.next(time.Unix(900_000, 0).Add(offset)); got.Unix() != 900_090 {
			t.Errorf("after %s: got %d", offset, got.Unix())
		}
	}
}

func TestNonsenseIsNoSpec(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"":                          "empty spec string",
		"cron nonsense":             "expected exactly 5 fields, found 2: [cron nonsense]",
		"* * * * * *":               "expected exactly 5 fields, found 6: [* * * * * *]",
		"61 * * * *":                "end of range (61) above maximum (59): 61",
		"0 0 30 2 *":                "it has no tick within five years",
		"@fortnightly":              "unrecognized descriptor: @fortnightly",
		"@every soon":               `time: invalid duration "soon"`,
		"@every -5m":                "-5m0s is not 1s to 8784h0m0s in whole seconds",
		"@every 1500ms":             "1.5s is not 1s to 8784h0m0s in whole seconds",
		"CRON_TZ=UTC":               "a time zone and nothing after it",
		"CRON_TZ=Moon/Base * * * *": "load time zone: unknown time zone Moon/Base",
		"TZ=UTC TZ=UTC @daily":      "a second time zone",
	} {
		if _, err := parseSpec(spec, false, time.UTC); err == nil || err.Error() != want {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

func TestMissedTicksAreDueAsTheJobSays(t *testing.T) {
	t.Parallel()
	s, err := parseSpec("@every 10s", false, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	at := func(seconds ...int64) []int64 { return seconds }
	for _, c := range []struct {
		name      string
		missed    Missed
		done, now int64
		want      []int64
	}{
		{"on time", MissedSkip, 100, 110, at(110)},
		{"late, not missed", MissedSkip, 100, 119, at(110)},
		{"nothing yet", MissedAll, 100, 109, at()},
		{"skip", MissedSkip, 100, 165, at(160)},
		{"once, with one on time", MissedOnce, 100, 165, at(160)},
		{"all", MissedAll, 100, 145, at(110, 120, 130, 140)},
		{"all, up to three", MissedAll, 0, 1005, at(970, 980, 990, 1000)},
	} {
		e := &periodic{PeriodicJob: PeriodicJob{Missed: c.missed, MaxMissed: 3}, schedule: s}
		var got []int64
		for _, tick := range e.due(time.Unix(c.done, 0), time.Unix(c.now, 0)) {
			got = append(got, tick.Unix())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	minutely, err := parseSpec("* * * * *", false, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	year := time.Unix(400*24*3600, 0)
	for missed, want := range map[Missed]int{MissedSkip: 0, MissedOnce: 1, MissedAll: 7} {
		e := &periodic{PeriodicJob: PeriodicJob{Missed: missed, MaxMissed: 7}, schedule: minutely}
		got := e.due(time.Unix(0, 0), year.Add(30*time.Second))
		if len(got) != want || want > 0 && !got[want-1].Equal(year) {
			t.Errorf("%s, after a year: got %s", missed, got)
		}
	}
}
