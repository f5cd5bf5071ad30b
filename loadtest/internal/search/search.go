package search

import (
	"context"
	"math"
	"time"
)

// Step is one measurement.
type Step struct {
	// Rate is in jobs a second.
	Rate float64
	// P99 is what was measured there; Holds says that it is within the bound and nothing else was wrong.
	P99   time.Duration
	Holds bool
	// Why says what else was wrong.
	Why string
}

// Config says where to look.
type Config struct {
	// Start is the first rate, Min and Max the least and the highest that are tried.
	Start, Min, Max float64
	// Precision is how much higher than the limit found the limit may be, as a part of it.
	Precision float64
	// Breaks is how often in a row a rate must break to count as one that does, at least 1: a machine that does other work
	// too has hiccups, and one of them would end the search far below the limit.
	Breaks int
}

// Limit is what a search found.
type Limit struct {
	// Rate is the highest that held, zero if none did; AtMax says that the search ended there for want of higher ones.
	Rate  float64
	AtMax bool
	Steps []Step
}

// Find returns the highest rate at which measure holds, as if there were one rate up to which it does. It ends with the
// first error of measure.
func Find(ctx context.Context, config Config, measure func(ctx context.Context, rate float64) (Step, error)) (Limit, error) {
	var found Limit
	holds := func(rate float64) (bool, error) {
		for range max(1, config.Breaks) {
			step, err := measure(ctx, rate)
			if err != nil {
				return false, err
			}
			found.Steps = append(found.Steps, step)
			if step.Holds {
				found.Rate = max(found.Rate, rate)
				return true, nil
			}
		}
		return false, nil
	}
	low, high, err := bracket(config, holds)
	if err != nil || low == 0 {
		return found, err
	}
	found.AtMax = high == 0
	for high > 0 && high/low > 1+config.Precision {
		middle := math.Sqrt(low * high)
		ok, err := holds(middle)
		if err != nil {
			return found, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	return found, nil
}

// bracket returns a rate that holds and a higher one that does not. low is zero where not even Min holds, high where Max
// holds.
func bracket(config Config, holds func(float64) (bool, error)) (low, high float64, err error) {
	for rate := config.Start; ; {
		ok, err := holds(rate)
		switch {
		case err != nil:
			return 0, 0, err
		case ok && high > 0, ok && rate >= config.Max:
			return rate, high, nil
		case ok:
			low, rate = rate, min(2*rate, config.Max)
		case low > 0, rate <= config.Min:
			return low, rate, nil
		default:
			high, rate = rate, max(rate/2, config.Min)
		}
	}
}
