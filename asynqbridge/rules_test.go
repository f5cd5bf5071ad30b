package asynqbridge

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/worker"
)

// TestALongerPauseIsNotCutShort, whichever breaker's it is; a shorter one is taken over, and an operator's is left.
func TestALongerPauseIsNotCutShort(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	p, queue := pauser{client}, redistest.Prefix(t)
	left := func() time.Duration { return client.PTTL(t.Context(), pausedKey(queue)).Val() }
	for _, c := range []struct {
		downstream string
		pause      time.Duration
		least      time.Duration
		holder     string
	}{
		{"long", time.Hour, 50 * time.Minute, "long"},
		{"short", time.Minute, 50 * time.Minute, "long"},
		{"longer", 10 * time.Hour, 9 * time.Hour, "longer"},
	} {
		if err := p.pause(t.Context(), queue, c.downstream, c.pause); err != nil {
			t.Fatal(err)
		}
		if got, by := left(), client.Get(t.Context(), pausedKey(queue)).Val(); got < c.least || by != owner(c.downstream) && by != owner(c.holder) || by != owner(c.holder) {
			t.Errorf("after a pause of %s by %s it lasts %s and is %s", c.pause, c.downstream, got, by)
		}
	}
	if err := client.Set(t.Context(), pausedKey(queue), "1700000000", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := p.pause(t.Context(), queue, "long", time.Hour); err != nil || left() > 0 {
		t.Errorf("an operator's pause now ends in %s, %v", left(), err)
	}
}

// TestAHalfOpenBreakerIsAskedAgainSoon: when its probes end, not when the cooldown would.
func TestAHalfOpenBreakerIsAskedAgainSoon(t *testing.T) {
	t.Parallel()
	const cooldown, most = 20 * time.Second, 30 * time.Second
	for state, want := range map[breaker.State]time.Duration{breaker.Open: cooldown, breaker.HalfOpen: probePause} {
		if got := restOf(worker.FleetState{State: state, Rest: cooldown}, 0, most); got != want {
			t.Errorf("%s: tasks are held back for %s, want %s", state, got, want)
		}
		if got := restOf(worker.FleetState{State: state, Rest: time.Hour}, 0, most); got > most {
			t.Errorf("%s: tasks are held back for %s, the longest pause is %s", state, got, most)
		}
	}
	if got := restOf(worker.FleetState{State: breaker.Closed, Rest: cooldown}, 0, most); got < aloneLeast || got > aloneMost {
		t.Errorf("tasks that fail here alone are held back for %s", got)
	}
}

// TestARefusalOfRedisDidNotRun, and neither did what found no connection; whatever else ended a script may have.
func TestARefusalOfRedisDidNotRun(t *testing.T) {
	t.Parallel()
	refusal := redistest.Shared(t).Client(t).Do(t.Context(), "nosuchcommand").Err()
	for _, c := range []struct {
		err error
		may bool
	}{
		{refusal, false},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, false},
		{redis.ErrPoolTimeout, false},
		{context.DeadlineExceeded, false},
		{io.EOF, true},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, true},
	} {
		if got := mayHaveRun(c.err); c.err == nil || got != c.may {
			t.Errorf("%v: may have run %t, want %t", c.err, got, c.may)
		}
	}
}
