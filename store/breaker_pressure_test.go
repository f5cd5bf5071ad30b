package store_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// TestADownstreamIsPressedByItsBreaker: by what is counted while that is closed, and as much as can be while it is not.
func TestADownstreamIsPressedByItsBreaker(t *testing.T) {
	t.Parallel()
	config, err := breaker.Config{}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		state  breaker.State
		failed uint64
		want   admission.Pressure
	}{
		{breaker.Closed, 0, admission.Pressure{Level: admission.PressureNone}},
		{breaker.Closed, 4, admission.Pressure{Level: admission.PressureMedium, Score: 0.8}}, // Of 10 calls, where half of them open it.
		{breaker.HalfOpen, 0, admission.Pressure{Level: admission.PressureCritical, Score: 1}},
		{breaker.Open, 4, admission.Pressure{Level: admission.PressureCritical, Score: 1}},
	} {
		b := store.BreakerState{State: c.state, Window: breaker.Counts{Successes: 10 - c.failed, Failures: c.failed}, Rules: store.BreakerRules{Config: config}}
		if got, _ := b.Pressure(); got != c.want {
			t.Errorf("%s with %d of 10 calls failed: %+v, want %+v", c.state, c.failed, got, c.want)
		}
	}
}

// TestABreakerThatNobodyKnowsHasNoPressure, which is not the same as none at all.
func TestABreakerThatNobodyKnowsHasNoPressure(t *testing.T) {
	t.Parallel()
	if score, err := store.BreakerPressure(store.BreakerState{}, fmt.Errorf("in all partitions: %w", store.ErrNoBreaker)); !math.IsNaN(score) || err != nil {
		t.Errorf("got %g, %v", score, err)
	}
	if score, err := store.BreakerPressure(store.BreakerState{}, admission.ErrUnavailable); !math.IsNaN(score) || !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("where Redis is away: %g, %v", score, err)
	}
	if score, err := store.BreakerPressure(store.BreakerState{State: breaker.Open}, nil); score != 1 || err != nil {
		t.Errorf("of one that is open: %g, %v", score, err)
	}
}
