package producer

import (
	"testing"
	"time"
)

// FuzzSpec: a spec that is taken has ticks, each after the one before and on a whole second, and the latest of them are
// found from the end as from the begin.
func FuzzSpec(f *testing.F) {
	for _, spec := range []string{
		"*/20 * * * *", "@hourly", "CRON_TZ=Europe/Berlin 30 8 * * *", "TZ=UTC @daily", "15 * * * * *", "@every 25m", "0 0 30 2 *", "0 0 29 2 *",
		"TZ=../../etc/passwd * * * * *", "TZ= * * * * *", "@every 1ns", "@every 9999h", "1-5/2,7 * * jan mon-fri", "CRON_TZ=UTC TZ=UTC * * * * *", "",
	} {
		f.Add(spec, true)
		f.Add(spec, false)
	}
	from := time.Date(2026, 3, 28, 12, 34, 56, 789, time.UTC)
	f.Fuzz(func(t *testing.T, spec string, seconds bool) {
		s, err := parseSpec(spec, seconds, time.UTC)
		if err != nil {
			return
		}
		at, found := from, []time.Time(nil)
		for range 3 {
			next := s.next(at)
			if next.IsZero() {
				return // None is left.
			}
			if !next.After(at) || next.Nanosecond() != 0 {
				t.Fatalf("%q: %s follows %s", spec, next, at)
			}
			at, found = next, append(found, next)
		}
		if found[2].Sub(from) > 48*time.Hour {
			return // Looking at years, tick by tick, takes its time.
		}
		latest := ticks(s, from, found[2], 2)
		if len(latest) != 2 || !latest[0].Equal(found[1]) || !latest[1].Equal(found[2]) {
			t.Errorf("%q: of %v the latest two are %v", spec, found, latest)
		}
	})
}
