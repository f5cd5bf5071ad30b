package search

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// queueing is a system whose p99 grows as the rate nears its capacity, as that of an M/M/1 queue does.
func queueing(capacity float64, bound time.Duration) func(context.Context, float64) (Step, error) {
	const idle = time.Millisecond
	return func(_ context.Context, rate float64) (Step, error) {
		p99 := time.Hour
		if rate < capacity {
			p99 = time.Duration(float64(idle) / (1 - rate/capacity))
		}
		return Step{Rate: rate, P99: p99, Holds: p99 <= bound}, nil
	}
}

func TestTheKneeIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Float64Range(50, 200_000).Draw(t, "capacity")
		config := Config{Start: rapid.Float64Range(10, 400_000).Draw(t, "start"), Min: 1, Max: 1e6, Precision: 0.05}
		const bound = 10 * time.Millisecond
		knee := capacity * 0.9 // where idle / (1 - rate/capacity) = bound
		limit, err := Find(t.Context(), config, queueing(capacity, bound))
		if err != nil {
			t.Fatal(err)
		}
		if limit.Rate > knee*1.0001 || limit.Rate < knee/1.0501 || limit.AtMax {
			t.Fatalf("found %.1f, the knee is at %.1f: %+v", limit.Rate, knee, limit.Steps)
		}
		if len(limit.Steps) > 30 {
			t.Fatalf("took %d steps", len(limit.Steps))
		}
	})
}

func TestAHiccupIsNotTheKnee(t *testing.T) {
	t.Parallel()
	const knee, bound = 900.0, 10 * time.Millisecond
	quiet := queueing(1000, bound)
	calls := 0
	measure := func(ctx context.Context, rate float64) (Step, error) {
		if calls++; calls%3 == 1 { // Never twice in a row.
			return Step{Rate: rate, P99: time.Hour}, nil
		}
		return quiet(ctx, rate)
	}
	limit, err := Find(t.Context(), Config{Start: 100, Min: 1, Max: 1e6, Precision: 0.05, Breaks: 2}, measure)
	if err != nil || limit.Rate > knee || limit.Rate < knee/1.0501 {
		t.Errorf("found %.1f, the knee is at %.1f: %+v, %v", limit.Rate, knee, limit.Steps, err)
	}
}

func TestASearchEndsAtItsBounds(t *testing.T) {
	t.Parallel()
	config := Config{Start: 100, Min: 10, Max: 1000, Precision: 0.05}
	limit, err := Find(t.Context(), config, queueing(1e9, time.Second))
	if err != nil || limit.Rate != 1000 || !limit.AtMax {
		t.Errorf("nothing broke: %+v, %v", limit, err)
	}
	limit, err = Find(t.Context(), config, queueing(1, time.Second))
	if err != nil || limit.Rate != 0 || limit.AtMax {
		t.Errorf("nothing held: %+v, %v", limit, err)
	}
	bad := errors.New("no store")
	_, err = Find(t.Context(), config, func(context.Context, float64) (Step, error) { return Step{}, bad })
	if !errors.Is(err, bad) {
		t.Errorf("the error is %v", err)
	}
}
