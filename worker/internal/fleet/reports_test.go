package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

func newBreakersForTest(t *testing.T) (*Breakers, *Guard) {
	t.Helper()
	followed, err := NewClasses()
	if err != nil {
		t.Fatal(err)
	}
	config := Setup{ReportEvery: time.Hour, ReportAfter: 100, CallTimeout: time.Minute, Logger: zerolog.Nop()}
	b := NewBreakers(store.Single(nil, nil), 0, config, followed, NewNudge())
	return b, b.GuardOf("pay")
}

// TestASuccessEndsTheStreak, of the tally and of the tenant's part of it.
func TestASuccessEndsTheStreak(t *testing.T) {
	t.Parallel()
	_, g := newBreakersForTest(t)
	for _, c := range []breaker.Counts{{Failures: 1}, {Failures: 1}, {Successes: 1}, {Failures: 1}} {
		g.count(1, outcome{Counts: c, tenant: 7}, nil)
	}
	r := g.mu.tallies[0].report()
	if r.Streak != 1 || r.Failures != 3 || len(r.Tenants) != 1 || r.Tenants[0].Streak != 1 || r.Tenants[0].Failures != 3 {
		t.Errorf("got %+v", r)
	}
}

// TestALeaseOfANewerPeriodIsNotLetThrough: the worker has not heard of what that period allows.
func TestALeaseOfANewerPeriodIsNotLetThrough(t *testing.T) {
	t.Parallel()
	b, g := newBreakersForTest(t)
	for lease, want := range map[uint64]bool{0: true, 4: true, 5: true, 6: false} {
		g.mu.view = View{State: breaker.Closed, Period: 5}
		c := &GuardedCall{breakers: b, guard: g, began: b.Instant(), own: new(breaker.Call)}
		if got := c.begin(lease); got != want {
			t.Errorf("lease of period %d, known is 5: let through: %t", lease, got)
		}
	}
}

// TestACallEndsOnce, whatever is said of it after that.
func TestACallEndsOnce(t *testing.T) {
	t.Parallel()
	b, g := newBreakersForTest(t)
	c, ok := b.TryAcquire(t.Context(), "pay", "acme", 0)
	if !ok {
		t.Fatal("held back")
	}
	c.Succeeded()
	c.Failed(nil)
	c.Ignored()
	if got := g.mu.tallies; len(got) != 1 || got[0].events != 1 || got[0].Successes != 1 || got[0].Failures != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestWhatHasLeftTheWindowIsNotReported: there is no store here to report it to.
func TestWhatHasLeftTheWindowIsNotReported(t *testing.T) {
	t.Parallel()
	b, g := newBreakersForTest(t)
	told := make(chan struct{})
	b.count(g, 1, outcome{Counts: breaker.Counts{Failures: 1}}, told)
	g.mu.tallies[0].since = time.Now().Add(-time.Hour)
	b.send(t.Context(), b.next(), nil)
	select {
	case <-told:
	default:
		t.Error("whoever waits for it is not told")
	}
}

// TestAnUrgentReportDoesNotWait: that of a probe, for which somebody waits, and one of as many outcomes as ReportAfter.
func TestAnUrgentReportDoesNotWait(t *testing.T) {
	t.Parallel()
	b, g := newBreakersForTest(t)
	well := outcome{Counts: breaker.Counts{Successes: 1}}
	for range b.after - 1 {
		b.count(g, 1, well, nil)
	}
	if len(b.urgent) != 0 {
		t.Error("fewer than ReportAfter are urgent")
	}
	b.count(g, 1, well, nil)
	for _, urgent := range []func(){func() {}, func() { b.count(g, 2, well, make(chan struct{})) }} {
		urgent()
		if len(b.urgent) != 1 {
			t.Error("it is not urgent")
		}
		ended := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			b.collect(ctx)
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("it waits for ReportEvery, an hour")
		}
		cancel()
		<-ended
	}
}
