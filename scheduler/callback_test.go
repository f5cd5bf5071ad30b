package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
)

// TestAHookThatPanicsIsToldAgain: a panic, of a *RetryError that says nothing as well, is an answer like any other.
func TestAHookThatPanicsIsToldAgain(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	var said logs
	var deaths, changes int
	m := mourner{refuse: func(scheduler.DeadLetter) error {
		if deaths++; deaths == 1 {
			panic("no mail server")
		}
		return nil
	}}
	l := listener{refuse: func(scheduler.Transition) error {
		switch changes++; changes {
		case 1:
			panic("no pager")
		case 2:
			return &scheduler.RetryError{After: time.Millisecond}
		}
		return nil
	}}
	run(t, store, scheduler.Config{OnDead: m.hook, OnBreaker: l.hook, Logger: said.logger(), TimerLease: time.Minute})
	await(t, "the place where it begins", func() bool { return heard(t, store) != "" })
	newBench(t, store.Partitions()[0]).kill("a", "")
	trip(t, store, "ship")
	await(t, "both to be told again", func() bool { return m.ids() == "a*1" && l.downstreams() == "ship" })
	for _, part := range []string{"panic: no mail server", "panic: no pager", "tell it again after 1ms"} {
		if !strings.Contains(said.String(), part) {
			t.Errorf("the log says\n%s", said.String())
		}
	}
}
