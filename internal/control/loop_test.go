package control_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
)

// seen is a sample of an interval under a binding limit.
func seen(calls, failures int64, runTime time.Duration) control.Sample {
	return control.Sample{Over: interval, Calls: calls, Failures: failures, Ran: time.Duration(calls) * runTime, Bound: true}
}

// TestTheLimitGrowsWithItsRoot and not by one: a limit of 1 has reached 40 in 15 ticks.
func TestTheLimitGrowsWithItsRoot(t *testing.T) {
	t.Parallel()
	for _, kind := range []control.Controller{control.AIMD, control.Gradient} {
		l, limit := newLoop(t, control.Config{Controller: kind, Min: 1, Max: most}, 1), 1
		p := newPlant(0, 1)
		p.capacity, p.base = 10*most, 100*time.Millisecond
		for range 15 {
			limit = l.Tick(limit, p.tick(limit)).Limit
		}
		if limit < 40 {
			t.Errorf("%s: %d after 15 ticks", kind, limit)
		}
	}
}

// TestStepsOfLessThanAUnitAddUp: with a step that is cut to whole numbers a limit of a few never moves (concurrency-limits #35).
func TestStepsOfLessThanAUnitAddUp(t *testing.T) {
	t.Parallel()
	for _, start := range []int{2, 3, 5, 9} {
		l, limit := newLoop(t, control.Config{Min: 1, Max: most}, start), start
		for range 30 { // Goodput is the same whatever the limit: there is too much of it.
			limit = l.Tick(limit, seen(1000, 0, time.Duration(limit)*100*time.Millisecond)).Limit
		}
		if limit >= start {
			t.Errorf("from %d it is still at %d", start, limit)
		}
	}
}

// TestNoLimitGrowsThatDoesNotBind: nobody waits for it, so nothing shows what more would do.
func TestNoLimitGrowsThatDoesNotBind(t *testing.T) {
	t.Parallel()
	for _, kind := range []control.Controller{control.AIMD, control.Gradient} {
		l, limit := newLoop(t, control.Config{Controller: kind, Min: 1, Max: most}, 50), 50
		p := newPlant(0.05, 1)
		p.capacity, p.base, p.offered = most, 100*time.Millisecond, 100
		for range 100 {
			step := l.Tick(limit, p.tick(limit))
			if limit = step.Limit; step.Cause != control.CauseNotBound {
				t.Fatalf("%s: %+v", kind, step)
			}
		}
		if limit != 50 {
			t.Errorf("%s: %d", kind, limit)
		}
	}
}

// TestALongIncidentTeachesNothing: a baseline that follows what is seen takes the incident for normal after a while and lets the
// limit grow (failsafe-go #127, Cinnamon's figure 6). Here it is an hour at a tenth of the capacity, and the limit stays down.
func TestALongIncidentTeachesNothing(t *testing.T) {
	t.Parallel()
	p := newPlant(0.05, 7)
	p.capacity, p.base = most, 100*time.Millisecond
	l, limit := newLoop(t, control.Config{Min: 1, Max: most}, 40), 40
	for range phase {
		limit = l.Tick(limit, p.tick(limit)).Limit
	}
	p.capacity /= 10
	for tick := range 720 {
		limit = l.Tick(limit, p.tick(limit)).Limit
		if tick >= settledLate && limit > 10 {
			t.Fatalf("tick %d: the limit is %d, the best one %.0f", tick, limit, p.best())
		}
	}
	p.capacity *= 10
	for range settledLate {
		limit = l.Tick(limit, p.tick(limit)).Limit
	}
	if p.goodput(limit) < 0.85*p.capacity {
		t.Errorf("%d ticks after the incident the limit is %d", settledLate, limit)
	}
}

// TestALimitThatFellComesBack: one that only compares with the best run time falls and never grows (concurrency-limits, gradient without
// a queue term).
func TestALimitThatFellComesBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []control.Controller{control.AIMD, control.Gradient} {
		p := newPlant(0.05, 5)
		p.capacity, p.base, p.failing = most, 100*time.Millisecond, 0.5
		l, limit := newLoop(t, control.Config{Controller: kind, Min: 2, Max: 100, MaxRunTime: 150 * time.Millisecond}, 40), 40
		for range phase {
			limit = l.Tick(limit, p.tick(limit)).Limit
		}
		if limit != 2 {
			t.Errorf("%s: with half of the calls failing the limit is %d", kind, limit)
		}
		p.failing = 0
		for range settledLate {
			limit = l.Tick(limit, p.tick(limit)).Limit
		}
		if p.goodput(limit) < 0.8*p.capacity {
			t.Errorf("%s: %d ticks after the last failure the limit is %d", kind, settledLate, limit)
		}
	}
}

// TestTimeoutsThatAllLookAlike: without a difference in run times a gradient of them is 1 and the limit goes to its greatest
// (concurrency-limits #137). Calls that time out fail, and that many failures brake; where they do not reach that share, they are no goodput.
func TestTimeoutsThatAllLookAlike(t *testing.T) {
	t.Parallel()
	l, limit := newLoop(t, control.Config{Min: 1, Max: most}, 100), 100
	for range 20 { // Each call fails after a second: the more run, the more end.
		limit = l.Tick(limit, seen(int64(limit)*5, int64(limit)*5, time.Second)).Limit
	}
	if limit > 5 {
		t.Errorf("all time out, and the limit is %d", limit)
	}
	l, limit = newLoop(t, control.Config{Min: 1, Max: most, MaxFailures: 1}, 100), 100
	for range 50 { // 50 a second succeed, all above time out, and nothing brakes.
		calls := int64(limit) * 5
		limit = l.Tick(limit, seen(calls, max(0, calls-250), time.Second)).Limit
	}
	if limit > 65 {
		t.Errorf("50 are served, and the limit is %d", limit)
	}
}

// TestNoProbePinsTheFloor: where the floor is what a probe goes to, a downstream is throttled by each look at it, and headroom drives the
// limit up in an incident (envoy #46532). Probes here are steps like others, and the floor is the policy's.
func TestNoProbePinsTheFloor(t *testing.T) {
	t.Parallel()
	p := newPlant(0.05, 11)
	p.capacity, p.base = most, 100*time.Millisecond
	l, limit := newLoop(t, control.Config{Min: 3, Max: most}, 40), 40
	for tick := range 10 * phase {
		before := limit
		limit = l.Tick(limit, p.tick(limit)).Limit
		if tick >= settled && limit < 28 {
			t.Fatalf("tick %d: the limit went from %d to %d", tick, before, limit)
		}
	}
}

// TestAPauseBeginsNoSearch: a queue that runs empty now and then finds its limit where it was, and no stride of a search goes up from there.
func TestAPauseBeginsNoSearch(t *testing.T) {
	t.Parallel()
	p := newPlant(0.02, 3)
	p.capacity, p.base = most, 100*time.Millisecond
	l, limit := newLoop(t, control.Config{Min: 1, Max: most}, 20), 20
	for tick := range 5 * phase {
		p.offered = 0
		if tick%7 == 6 {
			p.offered = 100
		}
		if limit = l.Tick(limit, p.tick(limit)).Limit; tick >= settled && limit > 55 {
			t.Fatalf("tick %d: the limit is %d, the best one %.0f", tick, limit, p.best())
		}
	}
}

// TestNoiseBeginsNoSearch: run times that are off by up to a quarter are no other downstream: in a hundred looks the limit leaps by a stride of a
// search once at most.
func TestNoiseBeginsNoSearch(t *testing.T) {
	t.Parallel()
	leaps := 0
	for seed := range uint64(20) {
		p := newPlant(0.25, seed)
		p.capacity, p.base = most, 100*time.Millisecond
		l, limit := newLoop(t, control.Config{Min: 1, Max: most}, 40), 40
		for tick := range 2 * phase {
			step := l.Tick(limit, p.tick(limit))
			if limit = step.Limit; tick >= phase && step.Before >= 10 && (float64(step.Limit) > 1.6*float64(step.Before) || float64(step.Limit) < float64(step.Before)/1.6) {
				leaps++
			}
		}
	}
	if t.Logf("%d leaps", leaps); leaps > 20 {
		t.Errorf("%d leaps in %d looks", leaps, 20*phase)
	}
}

// TestMuchNoiseIsBorne: with run times off by up to a fifth a limit goes far from the best one now and then. What is done and how long calls take, over
// 200 looks, has a bound.
func TestMuchNoiseIsBorne(t *testing.T) {
	t.Parallel()
	least, longest := 1.0, 0.0
	for _, start := range []int{1, 20, most} {
		for seed := range courses(t) {
			p := newPlant(0.2, seed)
			p.capacity, p.base = most, 100*time.Millisecond
			l, limit := newLoop(t, control.Config{Min: 1, Max: most}, start), start
			done, ran := 0.0, 0.0
			for tick := range 3 * phase {
				if limit = l.Tick(limit, p.tick(limit)).Limit; tick >= phase {
					done, ran = done+p.goodput(limit)/p.capacity/(2*phase), ran+float64(p.runTime(limit))/float64(p.base)/(2*phase)
				}
			}
			least, longest = min(least, done), max(longest, ran)
		}
	}
	if t.Logf("at least %.2f of the capacity, calls take %.2f of the least at most", least, longest); least < 0.7 || longest > 1.4 {
		t.Errorf("%.2f of the capacity, calls take %.2f of the least", least, longest)
	}
}

// TestSlew: no step is longer than the package's doc says, but for a brake's.
func TestSlew(t *testing.T) {
	t.Parallel()
	p := newPlant(0.3, 2) // More noise than signal.
	p.capacity, p.base = most, 100*time.Millisecond
	for _, kind := range []control.Controller{control.AIMD, control.Gradient} {
		l, limit := newLoop(t, control.Config{Controller: kind, Min: 1, Max: most}, 100), 100
		for range 500 {
			step := l.Tick(limit, p.tick(limit))
			up, down := max(0.05*float64(limit), math.Sqrt(float64(limit))), max(0.1*float64(limit), 1)
			if kind == control.Gradient {
				up, down = 0.65*float64(limit), 0.4*float64(limit)
			}
			if d := float64(step.Limit - step.Before); d > up+1 || -d > down+1 { // 1 for two roundings.
				t.Fatalf("%s: %+v", kind, step)
			}
			limit = step.Limit
		}
	}
	for want, s := range map[control.Step]control.Sample{
		{Limit: 80, Before: 100, Cause: control.CauseRunTime}:  seen(100, 0, 1250*time.Millisecond),
		{Limit: 67, Before: 100, Cause: control.CauseRunTime}:  seen(100, 0, 1500*time.Millisecond),
		{Limit: 90, Before: 100, Cause: control.CauseRunTime}:  seen(100, 0, 1001*time.Millisecond),
		{Limit: 80, Before: 100, Cause: control.CauseFailures}: seen(100, 26, time.Millisecond),
	} {
		l := newLoop(t, control.Config{Min: 1, Max: most, MaxRunTime: time.Second}, 100)
		if got := l.Tick(100, s); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestWhatSaysNothingHolds: no calls, no time, counts that went back or are no counts.
func TestWhatSaysNothingHolds(t *testing.T) {
	t.Parallel()
	maxRunTime := map[string]time.Duration{"too few calls": time.Millisecond, "a gap": time.Millisecond}
	for name, s := range map[string]control.Sample{
		"nothing":                  {},
		"no calls":                 {Over: interval, Bound: true},
		"too few calls":            {Over: interval, Calls: 9, Failures: 9, Ran: time.Hour, Bound: true},
		"no time":                  {Calls: 1000, Bound: true},
		"counts that went back":    {Over: interval, Calls: -5, Ran: time.Second, Bound: true},
		"less than four run times": {Over: interval, Calls: 100, Ran: 100 * 2 * time.Second, Bound: true},
		"more failures":            {Over: interval, Calls: 50, Failures: 51, Bound: true},
		"run time below zero":      {Over: interval, Calls: 50, Ran: -1, Bound: true},
		"a gap":                    {Over: 5 * interval, Calls: 5000, Failures: 5000, Ran: time.Hour, Bound: true},
	} {
		for _, kind := range []control.Controller{control.AIMD, control.Gradient} {
			l := newLoop(t, control.Config{Controller: kind, Min: 1, Max: most, MaxRunTime: maxRunTime[name]}, 100)
			for range 10 {
				if step := l.Tick(100, s); step.Limit != 100 && name != "too few calls" && name != "less than four run times" {
					t.Errorf("%s, %s: %+v", kind, name, step)
				}
			}
		}
	}
}

// TestFewCallsAddUp: nine in an interval say nothing, eighteen in two do.
func TestFewCallsAddUp(t *testing.T) {
	t.Parallel()
	l := newLoop(t, control.Config{Min: 1, Max: most}, 100)
	few := control.Sample{Over: interval, Calls: 9, Failures: 9, Bound: true}
	if step := l.Tick(100, few); step.Cause != control.CauseNoSample || step.Changed() {
		t.Errorf("the first: %+v", step)
	}
	if step := l.Tick(100, few); step.Cause != control.CauseFailures || step.Limit != 80 {
		t.Errorf("the second: %+v", step)
	}
}

// TestTheLimitStaysBetweenItsBounds, whoever has put it elsewhere.
func TestTheLimitStaysBetweenItsBounds(t *testing.T) {
	t.Parallel()
	for start, want := range map[int]int{1: 10, 500: 100, 10: 10, 100: 100} {
		l := newLoop(t, control.Config{Controller: control.AIMD, Min: 10, Max: 100}, start)
		if step := l.Tick(start, control.Sample{}); step.Limit != want {
			t.Errorf("from %d: %+v", start, step)
		}
	}
	l, limit := newLoop(t, control.Config{Controller: control.AIMD, Min: 10, Max: 100}, 50), 50
	for tick := range 60 {
		failures := int64(0)
		if tick >= 30 {
			failures = 100
		}
		limit = l.Tick(limit, seen(100, failures, time.Millisecond)).Limit
		if limit < 10 || limit > 100 || tick == 29 && limit != 100 || tick == 59 && limit != 10 {
			t.Fatalf("tick %d: %d", tick, limit)
		}
	}
}

// TestALimitThatSomebodyElseHasSetIsTheNewStart: two loops do not pull at one limit, whichever of them writes.
func TestALimitThatSomebodyElseHasSetIsTheNewStart(t *testing.T) {
	t.Parallel()
	l := newLoop(t, control.Config{Controller: control.AIMD, Min: 1, Max: most}, 100)
	l.Tick(100, seen(100, 0, time.Millisecond))
	if step := l.Tick(16, seen(100, 0, time.Millisecond)); step.Before != 16 || step.Limit != 20 {
		t.Errorf("got %+v", step)
	}
}

// TestTheDeadBand keeps in mind what is too little to be made, so that it comes about in the end.
func TestTheDeadBand(t *testing.T) {
	t.Parallel()
	l, limit, written := newLoop(t, control.Config{Min: 1, Max: 10000}, 1000), 1000, 0
	for range 100 {
		step := l.Tick(limit, seen(5000, 0, time.Duration(limit)*time.Millisecond))
		if d := math.Abs(float64(step.Limit - limit)); d > 0 && d < 0.02*float64(limit) {
			t.Fatalf("a change of %g", d)
		}
		if step.Changed() {
			written++
		}
		limit = step.Limit
	}
	if written == 0 {
		t.Error("nothing was ever changed")
	}
}

func TestABadConfigNamesEveryField(t *testing.T) {
	t.Parallel()
	_, err := control.New(control.Config{Controller: "magic", Max: -1, Interval: -1, MaxRunTime: -1, MaxFailures: math.NaN()}, 1)
	told := admission.FieldErrors(errors.Unwrap(err))
	if !errors.Is(told, admission.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	want := []string{"controller", "min", "max", "interval", "max_run_time", "max_failures"}
	for _, field := range want {
		found := false
		for _, e := range told.(interface{ Unwrap() []error }).Unwrap() {
			var bad *admission.FieldError
			found = found || errors.As(e, &bad) && bad.Field == field
		}
		if !found {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}
