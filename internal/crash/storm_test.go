package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// timeVariable is how long the storm lasts; `make crash` says ten minutes.
const (
	timeVariable = "HEADGATE_CRASH_TIME"
	stormTime    = 30 * time.Second
	// drainTime bounds the time in which all that is left is run once nobody is killed any more.
	drainTime = 90 * time.Second
)

// TestStorm asserts L3, L4 and L5 while processes die: producers, schedulers, workers and a Redis that keeps its writes
// are killed at random, one every 1-2 s, workers are stopped for longer than their lease, scripts are flushed, and commands
// and replies of producers are lost.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("lasts half a minute")
	}
	t.Parallel()
	s := newStorm(t, "always")
	s.gather(2, 2, 3)
	lasts := stormTime
	if text := os.Getenv(timeVariable); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		s.check(err)
	}
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		s.pause(time.Duration(1000+s.dice.IntN(1000)) * time.Millisecond)
		s.strike()
	}
	for _, a := range s.actors {
		if a.role == producerRole { // The successor is told to leave before it has begun, and decides what was left all the same.
			s.kill(a)
			s.start(a)
		}
	}
	s.calm()
	found := s.audit()
	found.print(s)
	found.assert(s)
}

// storm is a cast under attack.
type storm struct {
	*cast
	store  store.Deployment
	client *redis.Client
	dice   *rand.Rand
	began  time.Time
	// strikes counts by kind.
	strikes map[string]int
	stopped sync.WaitGroup
	// proxy stands before the producers, and loses one command and one reply of cutsOneIn.
	proxy *redistest.Proxy
}

// cutsOneIn is how seldom it does: enough for many an id in doubt.
const cutsOneIn = 40

func newStorm(t *testing.T, appendFsync string) *storm {
	t.Helper()
	return newStormOn(t, appendFsync, redisstore.DataVersion)
}

// newStormOn has data of a version, which an older release may have begun.
func newStormOn(t *testing.T, appendFsync string, data int) *storm {
	t.Helper()
	server := redistest.Start(t, redistest.Options{AppendFsync: appendFsync})
	s := &storm{cast: newCast(t, server), dice: newDice(t), strikes: map[string]int{}, began: time.Now()}
	s.client = server.Client(t)
	s.check(s.client.HSet(t.Context(), "hg{0}:state", redisconn.DataField, data).Err())
	st, err := redisstore.Open(t.Context(), s.client, redisstore.Config{})
	s.check(err)
	s.store = st
	s.proxy = redistest.NewProxy(t, server.Addr())
	s.ways[producerRole] = s.proxy.Addr()
	cuts := rand.New(rand.NewPCG(s.dice.Uint64(), 0))
	s.proxy.Decide(func(redistest.Command) redistest.Action {
		switch cuts.IntN(cutsOneIn) {
		case 0:
			return redistest.Action{Cut: redistest.CutBefore}
		case 1:
			return redistest.Action{Cut: redistest.CutAfter}
		}
		return redistest.Action{}
	})
	putPolicy(t, st, stormPolicy())
	return s
}

// newDice returns a source whose seed is printed; HEADGATE_SEED repeats it, not the moments of the machine.
func newDice(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("HEADGATE_SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = given
	}
	t.Logf("HEADGATE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func (s *storm) gather(producers, schedulers, workers int) {
	s.Helper()
	for role, n := range map[string]int{producerRole: producers, schedulerRole: schedulers, workerRole: workers} {
		for i := range n {
			s.enter(role, i)
		}
	}
}

func (c *cast) pause(d time.Duration) {
	c.Helper()
	if err := wait(c.Context(), d); err != nil {
		c.Fatal(context.Cause(c.Context()))
	}
}

// strike does one bad thing. What was ended runs again when it returns.
func (s *storm) strike() {
	s.Helper()
	a := s.actors[s.dice.IntN(len(s.actors))]
	switch n := s.dice.IntN(10); {
	case n < 2:
		s.strikes["redis"]++
		s.server.Kill(s.TB)
		s.pause(time.Duration(s.dice.IntN(300)) * time.Millisecond)
		s.server.Restart(s.TB)
	case n == 2:
		s.strikes["script flush"]++
		s.check(s.client.ScriptFlush(s.Context()).Err())
	case n < 5:
		for a.role != workerRole {
			a = s.actors[s.dice.IntN(len(s.actors))]
		}
		s.stop(a)
	default:
		s.strikes[a.role]++
		s.kill(a)
		s.pause(time.Duration(s.dice.IntN(200)) * time.Millisecond)
		s.start(a)
	}
}

// stop stops a worker for longer than its lease, and lets it go on while other things happen. It may be killed first.
func (s *storm) stop(a *actor) {
	s.Helper()
	s.strikes["worker stopped"]++
	s.signal(a, syscall.SIGSTOP)
	process := a.command.Process
	outlasts := stormLease + time.Duration(200+s.dice.IntN(1500))*time.Millisecond
	s.stopped.Go(func() {
		_ = wait(s.Context(), outlasts)
		_ = process.Signal(syscall.SIGCONT) // It may have been killed.
	})
}

// calm lets everything end: producers decide what they have begun, and workers run what is there.
func (s *storm) calm() {
	s.Helper()
	s.stopped.Wait()
	s.leaveAll(producerRole)
	for deadline := time.Now().Add(drainTime); ; s.pause(50 * time.Millisecond) {
		c, err := s.store.Census(s.Context())
		if err == nil && c.Live == c.Dead {
			break
		}
		if time.Now().After(deadline) {
			s.Fatalf("it does not drain: %+v, %v", c, err)
		}
	}
	s.leaveAll(workerRole)
	s.leaveAll(schedulerRole)
}

// strikesText lists what was done.
func (s *storm) strikesText() string {
	var parts []string
	for _, kind := range []string{"redis", producerRole, schedulerRole, workerRole, "worker stopped", "script flush"} {
		parts = append(parts, fmt.Sprintf("%s %d", kind, s.strikes[kind]))
	}
	return strings.Join(parts, ", ") + fmt.Sprintf(", producers' connections cut %d", s.proxy.Cuts())
}
