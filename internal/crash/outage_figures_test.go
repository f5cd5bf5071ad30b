package crash_test

import (
	"testing"
	"time"
)

// TestOutageFiguresAreMediansOfPairs: rounds are compared with their own without, not the medians of both.
func TestOutageFiguresAreMediansOfPairs(t *testing.T) {
	t.Parallel()
	for want, values := range map[float64]spread{0: nil, 7: {7}, 2: {9, 1, 2}, 3: {9, 1, 4, 2}} {
		if got := values.median(); got != want {
			t.Errorf("the median of %v is %v, want %v", []float64(values), got, want)
		}
	}
	with, without := spread{2, 30, 9}, spread{1, 10, 10} // 100 % and 200 % more, 10 % less.
	if got := with.beyond(without); got != 1 {
		t.Errorf("it is %v beyond, want 1", got)
	}
	if with[0] != 2 || with.String() != "9 (2-30)" || spread(nil).String() != "-" {
		t.Errorf("got %s, of %v", with, []float64(with))
	}
	row := outageRow{Outage: "dies"}
	for i, wait := range []time.Duration{40 * time.Millisecond, 60 * time.Millisecond, 20 * time.Millisecond} {
		round := float64(i + 1)
		v := verdict{called: 1, late: 2, lateFor: wait, probes: 3, burnt: i, bound: 5, trips: 1, openly: wait, closedly: 2 * wait, lost: 1}
		row.add(v, &measurement{micros: 100 * round, commands: 10, steps: 4, took: time.Second},
			&measurement{micros: 110 * round, commands: 8, steps: 5, took: 2 * time.Second})
	}
	row.add(verdict{}, &measurement{micros: 1, commands: 1, steps: 1}, &measurement{micros: 3, commands: 1, steps: 1}) // A round without a trip.
	want := "| dies | 3 | 6, 60 ms | 9, 0 | 2 of 5 | 40 (20-60) | 80 (40-120) | 150 (1-300) | 165 (3-330) | +10.0 % | -20.0 % | +25.00 % | 1000 (0-1000) | 2000 (0-2000) | 3 |"
	if got := row.markdown(); got != want {
		t.Errorf("the row is\n%s, want\n%s", got, want)
	}
	if row.Trips != 3 {
		t.Errorf("%d trips", row.Trips)
	}
}

// TestRestsAreTakenOff: of 1000 µs in 10 s are 100 for time, and 100 for 50 jobs of ill downstreams, of which each took 2 in a rest
// beyond its time. The same of commands.
func TestRestsAreTakenOff(t *testing.T) {
	t.Parallel()
	idle := usage{micros: 10, commands: 1}
	rest := spell{usage{30, 3}, 1, 10}.plus(spell{usage{70, 31}, 3, 20}) // 100 µs and 34 commands in 4 s, 60 and 30 of them for 30 jobs.
	all := spell{usage{1000, 200}, 10, 50}
	if got, want := all.less(rest, idle), (usage{800, 140}); got != want {
		t.Errorf("%+v is left, want %+v", got, want)
	}
	rest.ill = 0
	if got, want := all.less(rest, idle), (usage{900, 190}); got != want {
		t.Errorf("without ill ones %+v is left, want %+v", got, want)
	}
}
