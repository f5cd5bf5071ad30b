package figures

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
)

// TestGoodputCountsWhatIsInTime: two slots and jobs of 100 ms, which are worth starting for 100 ms; between 200 and 600 ms eight can be served.
func TestGoodputCountsWhatIsInTime(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	r := small(t)
	r.Plan = &load.Plan{
		Classes: r.Plan.Classes, Tenants: r.Plan.Tenants, Queues: r.Plan.Queues, Duration: time.Second, Slots: 2,
		Overload: &load.Overload{From: 200 * ms, To: 600 * ms, Times: 2, MaxWait: 100 * ms, Possible: 1, Slower: 1},
	}
	jobs := []struct {
		at      time.Duration
		class   int
		outcome record.Outcome
		started time.Duration
	}{
		{150 * ms, 0, record.Admitted, 160 * ms}, // in time, before
		{210 * ms, 0, record.Admitted, 300 * ms}, // in time
		{220 * ms, 0, record.Admitted, 321 * ms}, // late
		{230 * ms, 2, record.Refused, 0},
		{550 * ms, 2, record.Admitted, 610 * ms}, // in time, but begun after it
		{700 * ms, 1, record.Admitted, 750 * ms}, // in time
		{850 * ms, 2, record.Refused, 0},
		{900 * ms, 2, record.Unsent, 0},
	}
	r.Book = record.NewBook(len(jobs), time.Now().Add(-time.Hour))
	for number, job := range jobs {
		r.Plan.Arrivals = append(r.Plan.Arrivals, load.Arrival{At: job.at, Class: job.class, Work: 100 * ms, Cost: 1})
		r.Book.Entries()[number].Answer.Outcome = job.outcome
		if job.started > 0 {
			r.Book.BeginAt(number, job.started)
		}
	}
	g := goodputOf(r)
	want := Goodput{Times: 2, OfCapacity: 1.0 / 8, MostUrgent: 2.0 / 3, Last: 2.0 / 3, Late: 1.0 / 5, RecoveryS: 0.25, LastTurnedAwayS: 0.25}
	for name, row := range map[string]struct{ got, want float64 }{
		"times": {g.Times, want.Times}, "of capacity": {g.OfCapacity, want.OfCapacity}, "most urgent": {g.MostUrgent, want.MostUrgent},
		"last class": {g.Last, want.Last}, "late": {g.Late, want.Late}, "recovery": {g.RecoveryS, want.RecoveryS},
		"last": {g.LastTurnedAwayS, want.LastTurnedAwayS},
	} {
		if math.Abs(row.got-row.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, row.got, row.want)
		}
	}
	f := Of(r)
	if c := f.Classes; c[0].InTime != 2 || c[2].Refused != 2 || c[2].InTime != 1 || c[0].Before.Count != 1 || c[0].During.Count != 2 {
		t.Errorf("by class %+v", c)
	}
	for i, want := range []float64{8, 5, 4} {
		line, sum := f.Series.Overload[i], 0.0
		for _, n := range line.Values {
			sum += n
		}
		if sum != want {
			t.Errorf("over time %v jobs are told of which it is said that it %s, want %v", sum, line.Name, want)
		}
	}
	if waits := f.Series.ClassWaits; len(waits) != len(r.Plan.Classes) || slices.Max(waits[0].Values) < 100 || slices.Max(waits[1].Values) > 60 {
		t.Errorf("waits of classes over time: %v", waits)
	}
	r.Plan.Overload = nil
	if goodputOf(r) != nil {
		t.Error("a run without an overload has a goodput")
	}
}

// TestGoodputOfWhoAsksAgain: handlers take twice as long, half of it can be served of what arrives, and who asks again has as long from then on.
func TestGoodputOfWhoAsksAgain(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	r := small(t)
	r.Plan = &load.Plan{
		Classes: r.Plan.Classes, Tenants: r.Plan.Tenants, Queues: r.Plan.Queues, Duration: time.Second, Slots: 2,
		Overload: &load.Overload{From: 200 * ms, To: 600 * ms, Times: 2, MaxWait: 100 * ms, Possible: 0.5, Slower: 2, Retries: 3},
	}
	jobs := []struct {
		at, again time.Duration
		outcome   record.Outcome
		started   time.Duration
	}{
		{210 * ms, 350 * ms, record.Admitted, 450 * ms}, // in time from when it was asked for again
		{210 * ms, 0, record.Admitted, 450 * ms},        // late
		{590 * ms, 800 * ms, record.Refused, 0},         // for as long it is refused
	}
	r.Book = record.NewBook(len(jobs), time.Now().Add(-time.Hour))
	for number, job := range jobs {
		r.Plan.Arrivals = append(r.Plan.Arrivals, load.Arrival{At: job.at, Class: 2, Work: 50 * ms, Cost: 1})
		e := &r.Book.Entries()[number]
		e.Again, e.Answer.Outcome = job.again, job.outcome
		if job.started > 0 {
			r.Book.BeginAt(number, job.started)
		}
	}
	g := goodputOf(r)
	for name, row := range map[string]struct{ got, want float64 }{
		"of capacity": {g.OfCapacity, 0.1 / (2 * 0.4 * 0.5)}, "late": {g.Late, 0.5}, "recovery": {g.RecoveryS, 0.2},
	} {
		if math.Abs(row.got-row.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, row.got, row.want)
		}
	}
}

// TestRecoveryIsUntilAllIsWellForGood: a job in fifty that is late is none of it, a second spike is.
func TestRecoveryIsUntilAllIsWellForGood(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, row := range map[string]struct {
		turnedAway []time.Duration
		well, last time.Duration
	}{
		"nothing":        {nil, 0, 0},
		"before it":      {[]time.Duration{-10 * ms}, 0, 0},
		"at its end":     {[]time.Duration{0, 20 * ms, 40 * ms, 60 * ms}, 60 * ms, 60 * ms},
		"and one later":  {[]time.Duration{0, 20 * ms, 40 * ms, 60 * ms, 2410 * ms}, 60 * ms, 2410 * ms},
		"a second spike": {[]time.Duration{0, 20 * ms, 40 * ms, 60 * ms, 2410 * ms, 2420 * ms, 2430 * ms, 2900 * ms}, 2430 * ms, 2900 * ms},
	} {
		var a aftermath
		for at := -500 * ms; at < 3000*ms; at += 10 * ms {
			a.add(at, !slices.Contains(row.turnedAway, at))
		}
		if well, last := a.over(); well != row.well || last != row.last {
			t.Errorf("%s: %s and %s, want %s and %s", name, well, last, row.well, row.last)
		}
	}
}
