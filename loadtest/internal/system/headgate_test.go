package system

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/loadtest/internal/drive"
	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
	"github.com/headgate/headgate/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestABreakerThatTriesHoldsItsJobsBack: a run may end between the end of a cooldown and the first probe. The gate is then not
// shut, and no worker is left to take what it would let through.
func TestABreakerThatTriesHoldsItsJobsBack(t *testing.T) {
	t.Parallel()
	plan, err := load.New("dead-downstream", load.DefaultSpec())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := OpenHeadgate(t.Context(), drive.SystemConfig{Plan: plan, Redis: redistest.Shared(t).Addr(), Notes: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := opened.(*headgateSystem) // OpenHeadgate returns nothing else.
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if answer := s.Enqueue(t.Context(), 0); answer.Outcome != record.Admitted {
		t.Fatalf("enqueue: %+v", answer)
	}
	account := func() figures.Account {
		t.Helper()
		a, err := s.Account(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := account(); a.Held != 1 || a.Gated {
		t.Errorf("before anything has failed: %+v", a)
	}
	downstream := plan.Downstreams[plan.Arrivals[0].Downstream]
	if _, err := s.patient.ForceBreaker(t.Context(), downstream, breaker.Open, time.Millisecond, store.Intervention{Reason: "to try"}); err != nil {
		t.Fatal(err)
	}
	for b := (store.BreakerState{}); b.State != breaker.HalfOpen; {
		if _, err := s.patient.Partitions()[0].Promote(t.Context(), "test", time.Second); err != nil {
			t.Fatal(err)
		}
		if b, err = s.patient.Breaker(t.Context(), downstream); err != nil {
			t.Fatal(err)
		}
	}
	if a := account(); a.Held != 1 || !a.Gated {
		t.Errorf("while the breaker tries: %+v", a)
	}
}
