package control_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
)

// receiver takes calls at a rate, by a token bucket, and refuses the others: a rate limit that nobody was told of.
type receiver struct {
	rate, burst, level float64
	// jitter is by which part of a gap calls come early or late, offered how many there are a second at most; 0 for any number.
	jitter, offered float64
	random          *rand.Rand
}

// tick is what is seen over a time under a limit in calls a second.
func (r *receiver) tick(limit float64, over time.Duration) control.Sample {
	if r.offered > 0 {
		limit = math.Min(limit, r.offered)
	}
	s := control.Sample{Over: over}
	gap := 1 / limit
	last := 0.0
	for at := gap * r.random.Float64(); at < over.Seconds(); at += gap {
		now := math.Max(last, at+gap*r.jitter*(2*r.random.Float64()-1))
		r.level = math.Min(r.burst, r.level+(now-last)*r.rate)
		last = now
		if r.level < 1 {
			s.Refused++
			continue
		}
		r.level--
		s.Calls++
	}
	r.level = math.Min(r.burst, r.level+math.Max(0, over.Seconds()-last)*r.rate)
	return s
}

const (
	unit = control.RateUnit
	// rateMost is what the policy allows, in calls a second; rateSettled within how many looks a rate is found, from wherever.
	rateMost, rateSettled, ratePhase = 1000, 60, 160
)

// rateCourse runs a controller over a receiver whose rate moves twice, 40, 20, 40 calls a second, and returns the errors of those phases
// in which too little got through or too much was refused.
func rateCourse(c ticker, r *receiver, limit, settled int) error {
	var bad []error
	for _, rate := range []float64{40, 20, 40} {
		r.rate = rate
		var through, refused, looked float64
		for look := range ratePhase {
			s := r.tick(float64(limit)/unit, time.Second)
			limit = c.Tick(limit, s).Limit
			if look >= settled {
				through, refused, looked = through+float64(s.Calls), refused+float64(s.Refused), looked+1
			}
		}
		if share := through / (looked * rate); share < 0.9 || refused > 0.02*(through+refused) {
			bad = append(bad, fmt.Errorf("of %g a second %.2f got through, %.3f of the calls were refused", rate, share, refused/(through+refused)))
		}
		settled = rateSettled
	}
	return errors.Join(bad...)
}

func newRate(t *testing.T, least, limit int) *control.Rate {
	t.Helper()
	r, err := control.NewRate(control.RateConfig{Min: least, Max: rateMost * unit, Interval: time.Second}, limit)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestARateFindsWhatItsReceiverTakes from whatever start, and again each time that moves: at least 0.9 of it, and at most 0.02 of the calls
// refused. From the policy's own rate, which is 25 times too much, it has it within ten looks.
func TestARateFindsWhatItsReceiverTakes(t *testing.T) {
	t.Parallel()
	for _, jitter := range []float64{0, 0.3, 0.6} {
		for _, burst := range []float64{3, 10, 40} {
			for start, settled := range map[int]int{1: rateSettled, 5: rateSettled, 38: rateSettled, 60: 10, 400: 10, rateMost: 10} {
				for seed := range uint64(10) {
					r := &receiver{burst: burst, level: burst, jitter: jitter, random: rand.New(rand.NewPCG(seed, seed))}
					if err := rateCourse(newRate(t, unit, start*unit), r, start*unit, settled); err != nil {
						t.Errorf("from %d with jitter %g, burst %g, seed %d: %v", start, jitter, burst, seed, err)
					}
				}
			}
		}
	}
}

// TestWhatDoesNotLookFailsTheCourseOfRates: the course would not pass anything.
func TestWhatDoesNotLookFailsTheCourseOfRates(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mutant{
		"always least": func(int) int { return unit },
		"always most":  func(int) int { return rateMost * unit },
		"frozen":       func(in int) int { return in },
	} {
		for _, start := range []int{1, 5, 20, 38, 40, 60, 400, rateMost} {
			r := &receiver{burst: 10, level: 10, jitter: 0.3, random: rand.New(rand.NewPCG(1, 1))}
			if rateCourse(m, r, start*unit, rateSettled) == nil {
				t.Errorf("%s from %d passes", name, start)
			}
		}
	}
}

// TestARateThatIsNotUsedStays: a higher one would change nothing, and a lower one neither.
func TestARateThatIsNotUsedStays(t *testing.T) {
	t.Parallel()
	r := &receiver{rate: 400, burst: 40, offered: 20, random: rand.New(rand.NewPCG(1, 1))}
	c, limit := newRate(t, unit, 100*unit), 100*unit
	for range 100 {
		step := c.Tick(limit, r.tick(float64(limit)/unit, time.Second))
		if limit = step.Limit; step.Cause != control.CauseNotBound || limit != 100*unit {
			t.Fatalf("%+v", step)
		}
	}
}

// TestAReceiverThatRefusesAll halves the rate with each second look, down to the least; and it comes back.
func TestAReceiverThatRefusesAll(t *testing.T) {
	t.Parallel()
	c, limit := newRate(t, 2*unit, 64*unit), 64*unit
	for range 20 {
		limit = c.Tick(limit, control.Sample{Over: time.Second, Refused: int64(limit / unit)}).Limit
	}
	if limit != 2*unit {
		t.Fatalf("it is %d", limit)
	}
	for range rateSettled {
		limit = c.Tick(limit, control.Sample{Over: 5 * time.Second / 2, Calls: int64(limit * 5 / 2 / unit)}).Limit
	}
	if limit < 20*unit {
		t.Errorf("%d looks later it is %d", rateSettled, limit)
	}
}

// TestWhatSaysNothingLeavesARate: no calls, too few, counts that went back, a gap, and what is still of the rate before a cut.
func TestWhatSaysNothingLeavesARate(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]control.Sample{
		"nothing":               {},
		"too few calls":         {Over: time.Second, Calls: 1, Refused: 2},
		"no time":               {Calls: 100, Refused: 100},
		"counts that went back": {Over: time.Second, Calls: 100, Refused: -1},
		"a gap":                 {Over: 5 * time.Second, Calls: 100, Refused: 100},
	} {
		c := newRate(t, unit, 100*unit)
		if step := c.Tick(100*unit, s); step.Changed() {
			t.Errorf("%s: %+v", name, step)
		}
	}
	c := newRate(t, unit, 100*unit)
	half := control.Sample{Over: time.Second, Calls: 50, Refused: 50}
	cut := c.Tick(100*unit, half)
	if got := cut.Limit / unit; cut.Cause != control.CauseRefused || got < 45 || got > 50 {
		t.Fatalf("%+v", cut)
	}
	if step := c.Tick(cut.Limit, half); step.Changed() || step.Cause != control.CauseSettling {
		t.Errorf("the look after that: %+v", step)
	}
	if step := c.Tick(30*unit, half); step.Before != 30*unit || step.Limit > 30*unit {
		t.Errorf("after somebody has set 30: %+v", step)
	}
}

// TestARateStaysBetweenItsBounds, whoever has put it elsewhere.
func TestARateStaysBetweenItsBounds(t *testing.T) {
	t.Parallel()
	for start, want := range map[int]int{5: 10, 5000: 1000, 10: 10, 1000: 1000} {
		c := newRate(t, 10*unit, start*unit)
		if step := c.Tick(start*unit, control.Sample{}); step.Limit != want*unit {
			t.Errorf("from %d: %+v", start, step)
		}
	}
}

func TestABadRateConfigNamesEveryField(t *testing.T) {
	t.Parallel()
	_, err := control.NewRate(control.RateConfig{Min: 0, Max: -1, Interval: -1}, 1)
	told := admission.FieldErrors(errors.Unwrap(err))
	all, _ := told.(interface{ Unwrap() []error })
	if !errors.Is(told, admission.ErrInvalid) || all == nil || len(all.Unwrap()) != 3 {
		t.Errorf("got %v", err)
	}
}
