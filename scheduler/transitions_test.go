package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// listener is a hook that remembers what it was told.
type listener struct {
	mu   sync.Mutex
	told []scheduler.Transition
	// asked are the times at which it was told of each downstream.
	asked map[string][]time.Time
	// refuse, if not nil, is asked first.
	refuse func(scheduler.Transition) error
}

func (l *listener) hook(_ context.Context, t scheduler.Transition) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		l.asked = map[string][]time.Time{}
	}
	l.asked[t.Downstream] = append(l.asked[t.Downstream], time.Now())
	if l.refuse != nil {
		if err := l.refuse(t); err != nil {
			return err
		}
	}
	l.told = append(l.told, t)
	return nil
}

// downstreams returns those of which it took note, by spaces, in the order of being told.
func (l *listener) downstreams() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, len(l.told))
	for i, t := range l.told {
		names[i] = t.Downstream
	}
	return strings.Join(names, " ")
}

func (l *listener) tries(downstream string) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked[downstream])
}

// trip makes a transition of a downstream's breaker.
func trip(tb testing.TB, s store.Deployment, downstream string) {
	tb.Helper()
	if _, err := s.ForceBreaker(tb.Context(), downstream, breaker.Open, time.Hour, store.Intervention{Reason: "to try"}); err != nil {
		tb.Fatal(err)
	}
}

// heard returns the place up to which all transitions were told.
func heard(tb testing.TB, store store.Deployment) string {
	tb.Helper()
	place, err := store.Partitions()[0].EventsFollowed(tb.Context(), "on_breaker")
	if err != nil {
		tb.Fatal(err)
	}
	return place
}

// last returns the place behind all transitions.
func last(tb testing.TB, store store.Deployment) string {
	tb.Helper()
	_, place, err := store.Partitions()[0].BreakerEvents(tb.Context(), "", 0)
	if err != nil {
		tb.Fatal(err)
	}
	return place
}

func TestEveryTransitionIsToldByOneOfMany(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	trip(t, s, "before")
	var l listener
	stop := run(t, s, scheduler.Config{OnBreaker: l.hook, TimerLease: handOver})
	await(t, "the place where it begins", func() bool { return heard(t, s) == last(t, s) })
	run(t, s, scheduler.Config{OnBreaker: l.hook, TimerLease: handOver}) // The first holds the timer lease.
	began := redistest.Now()
	trip(t, s, "a")
	trip(t, s, "b")
	await(t, "both", func() bool { return l.downstreams() == "a b" })
	await(t, "its note", func() bool { return heard(t, s) == last(t, s) })
	stop()
	trip(t, s, "c") // The other does not hold the lease yet.
	await(t, "the other one", func() bool { return l.downstreams() == "a b c" })
	if _, err := s.ResetBreaker(t.Context(), "a", store.Intervention{Reason: "over"}); err != nil {
		t.Fatal(err)
	}
	await(t, "another cause", func() bool { return l.downstreams() == "a b c a" })
	l.mu.Lock()
	defer l.mu.Unlock()
	first, reset := l.told[0], l.told[3]
	if first.From != breaker.Closed || first.To != breaker.Open || first.Cause != "forced" || first.Reason != "to try" || first.At.Before(began.Add(-time.Second)) ||
		first.Until.Sub(first.At).Round(time.Second) != time.Hour || first.Period == 0 {
		t.Errorf("got %+v", first)
	}
	if reset.To != breaker.Closed || reset.Cause != "reset" || reset.Reason != "over" || !reset.Until.IsZero() || reset.Period != first.Period+1 {
		t.Errorf("got %+v", reset)
	}
}

// TestATransitionThatCannotBeReadKeepsNoneBehindIt: such as one of a later release.
func TestATransitionThatCannotBeReadKeepsNoneBehindIt(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	store := open(t, client)
	trip(t, store, "before")
	var l listener
	stop := run(t, store, scheduler.Config{OnBreaker: l.hook})
	await(t, "the place where it begins", func() bool { return heard(t, store) == last(t, store) })
	stop()
	trip(t, store, "a")
	for range 2 {
		if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: redisstore.Keys(store).Events(), Values: []string{"downstream", "b", "from", "closed", "to", "ajar"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	trip(t, store, "c")
	run(t, store, scheduler.Config{OnBreaker: l.hook})
	await(t, "those that can be read", func() bool { return l.downstreams() == "a c" })
	await(t, "its note", func() bool { return heard(t, store) == last(t, store) })
}

func TestATransitionThatIsRefusedIsToldAgainAlsoByTheNextAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	var said logs
	refuse := true
	l := listener{refuse: func(t scheduler.Transition) error {
		if t.Downstream == "bad" && refuse {
			return errors.New("nobody answers")
		}
		return nil
	}}
	stop := run(t, store, scheduler.Config{OnBreaker: l.hook, Logger: said.logger(), TimerLease: handOver})
	await(t, "the place where it begins", func() bool { return heard(t, store) != "" })
	trip(t, store, "a")
	before := last(t, store)
	for _, name := range []string{"bad", "b", "c"} {
		trip(t, store, name)
	}
	await(t, "the others", func() bool { return l.downstreams() == "a b c" })
	await(t, "three tries", func() bool { return len(l.tries("bad")) >= 3 })
	tries := l.tries("bad")
	for i, least := range []time.Duration{time.Second, 2 * time.Second} {
		if pause := tries[i+1].Sub(tries[i]); pause < least {
			t.Errorf("pause %d lasts %s", i, pause)
		}
	}
	if place := heard(t, store); place != before {
		t.Errorf("the place is %s, want %s, before what is to be told", place, before)
	}
	if !strings.Contains(said.String(), "nobody answers") || !strings.Contains(said.String(), "telling it again") {
		t.Errorf("the log says\n%s", said.String())
	}
	stop()
	l.mu.Lock()
	refuse = false
	l.mu.Unlock()
	run(t, store, scheduler.Config{OnBreaker: l.hook, TimerLease: handOver})
	await(t, "the next follower", func() bool { return l.downstreams() == "a b c bad b c" })
	await(t, "the place behind all", func() bool { return heard(t, store) == last(t, store) })
}

func TestATransitionThatNobodyTakesIsGivenUp(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	var said logs
	l := listener{refuse: func(t scheduler.Transition) error {
		switch t.Downstream {
		case "bad":
			return errors.New("nobody answers")
		case "later":
			return &scheduler.RetryError{After: 3 * time.Second, Err: errors.New("too many")}
		}
		return nil
	}}
	s, err := scheduler.New(store, scheduler.Config{OnBreaker: l.hook, OnBreakerRetry: 4 * time.Second, Logger: said.logger(), TimerLease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	await(t, "the place where it begins", func() bool { return heard(t, store) != "" })
	for _, name := range []string{"bad", "later", "a"} {
		trip(t, store, name)
	}
	await(t, "two given up", func() bool { return s.Stats().TransitionsGivenUp == 2 })
	await(t, "the place behind all", func() bool { return heard(t, store) == last(t, store) })
	bad, later := l.tries("bad"), l.tries("later") // Three and two, fewer if the machine is late.
	if got := s.Stats(); got.TransitionsTold != 1 || int(got.TransitionsRefused) != len(bad)+len(later) || l.downstreams() != "a" {
		t.Errorf("got %+v, told %s, refused at %v and %v", got, l.downstreams(), bad, later)
	}
	if len(bad) > 3 || len(later) > 2 || len(later) == 2 && later[1].Sub(later[0]) < 3*time.Second {
		t.Errorf("refused at %v and %v", bad, later)
	}
	if n := strings.Count(said.String(), "given up"); n != 2 {
		t.Errorf("the log says it %d times\n%s", n, said.String())
	}
}

// TestADeadHookIsBounded: what waits to be told again gives way, the oldest first.
func TestADeadHookIsBounded(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	l := listener{refuse: func(scheduler.Transition) error { return errors.New("nobody answers") }}
	s, err := scheduler.New(store, scheduler.Config{OnBreaker: l.hook, TimerLease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	await(t, "the place where it begins", func() bool { return heard(t, store) != "" })
	const kept, more = 1000, 50
	for i := range kept + more {
		trip(t, store, fmt.Sprint("d", i%7))
	}
	await(t, "all of them", func() bool { return s.Stats().TransitionsGivenUp >= more })
	if got := s.Stats(); got.TransitionsGivenUp != more || got.TransitionsTold != 0 {
		t.Errorf("got %+v", got)
	}
}
