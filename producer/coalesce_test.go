package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

// tollgate delays the admit calls of one producer and counts them.
type tollgate struct {
	proxy   *redistest.Proxy
	store   *lua.Store
	calls   atomic.Int64
	arrived chan struct{} // one for each call, as it arrives
}

func newTollgate(t *testing.T) *tollgate {
	t.Helper()
	server := redistest.Shared(t)
	g := &tollgate{proxy: redistest.NewProxy(t, server.Addr()), arrived: make(chan struct{}, 10000)}
	store, err := lua.Open(t.Context(), g.proxy.Client(t), lua.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	g.store = store
	return g
}

// close makes each call from now on take d longer.
func (g *tollgate) close(d time.Duration) {
	g.proxy.Decide(func(c redistest.Command) redistest.Action {
		if !strings.HasPrefix(c.Name, "EVAL") {
			return redistest.Action{}
		}
		g.calls.Add(1)
		g.arrived <- struct{}{}
		return redistest.Action{Delay: d}
	})
}

// hold keeps each call from now on back until pass lets one through, or open all of them.
func (g *tollgate) hold(t *testing.T) (pass, open func()) {
	t.Helper()
	passes, opened := make(chan struct{}), make(chan struct{})
	g.proxy.Decide(func(c redistest.Command) redistest.Action {
		if strings.HasPrefix(c.Name, "EVAL") {
			g.calls.Add(1)
			g.arrived <- struct{}{}
			select {
			case <-passes:
			case <-opened:
			}
		}
		return redistest.Action{}
	})
	open = sync.OnceFunc(func() { close(opened) })
	t.Cleanup(open)
	return func() { passes <- struct{}{} }, open
}

func (g *tollgate) producer(t *testing.T, config Config) *Producer {
	t.Helper()
	config.Policy, config.Timeout = new(policy.Unlimited()), 20*time.Second
	p, err := New(g.store, config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Enqueue(t.Context(), testJob("warm")); err != nil { // Redis knows the script, the pool has a connection.
		t.Fatal(err)
	}
	return p
}

func (g *tollgate) accepted(t *testing.T) int64 {
	t.Helper()
	c, err := g.store.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.Accepted - 1 // the warm one
}

func testJob(id string) headgate.Job {
	j := headgate.NewJob("acme", "mail", "send", nil)
	j.ID = id
	return j
}

// queuedNow returns how many tickets wait.
func queuedNow(p *Producer) int {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return len(p.line.mu.waiting)
}

// await polls for a condition.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		case <-tick.C:
		}
	}
}

func TestConcurrentCallsShareRoundTrips(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []int{1, 2} {
		t.Run(fmt.Sprintf("with %d calls in flight", inFlight), func(t *testing.T) {
			t.Parallel()
			g := newTollgate(t)
			p := g.producer(t, Config{InFlight: inFlight})
			g.close(2 * time.Millisecond)
			const callers, each = 64, 25
			var running sync.WaitGroup
			var entered atomic.Int64
			for caller := range callers {
				running.Go(func() {
					for i := range each {
						verdict, err := p.Enqueue(t.Context(), testJob(fmt.Sprintf("%d-%d", caller, i)))
						if err != nil || verdict.Decision != headgate.Admitted {
							t.Errorf("got %+v, %v", verdict, err)
							return
						}
						entered.Add(1)
					}
				})
			}
			running.Wait()
			if n := g.accepted(t); n != callers*each || entered.Load() != n {
				t.Errorf("%d jobs entered, callers heard of %d, want %d", n, entered.Load(), callers*each)
			}
			if calls := g.calls.Load(); calls > callers*each/4 {
				t.Errorf("%d calls for %d jobs", calls, callers*each)
			}
			if p.line.mu.taken != 0 || len(p.line.mu.waiting) != 0 {
				t.Errorf("%d places taken, %d waiting after the last call", p.line.mu.taken, len(p.line.mu.waiting))
			}
		})
	}
}

func TestACallTakesNoMoreThanItsBounds(t *testing.T) {
	t.Parallel()
	g := newTollgate(t)
	p := g.producer(t, Config{InFlight: 1})
	_, open := g.hold(t)
	var running sync.WaitGroup
	enqueue := func(j headgate.Job) {
		running.Go(func() {
			if _, err := p.Enqueue(t.Context(), j); err != nil {
				t.Error(err)
			}
		})
	}
	enqueue(testJob("first"))
	<-g.arrived
	for i := range 5 { // 100 KiB each: two calls of two and one of one
		j := testJob(fmt.Sprintf("large-%d", i))
		j.Payload = make([]byte, 100<<10)
		enqueue(j)
	}
	await(t, "all wait", func() bool { return queuedNow(p) == 5 })
	open()
	running.Wait()
	if calls := g.calls.Load(); calls != 4 {
		t.Errorf("%d calls, want 4", calls)
	}
}

func TestACallerThatGivesUpInTheLineSendsNothing(t *testing.T) {
	t.Parallel()
	g := newTollgate(t)
	p := g.producer(t, Config{InFlight: 1})
	_, open := g.hold(t)
	var running sync.WaitGroup
	running.Go(func() {
		if _, err := p.Enqueue(t.Context(), testJob("first")); err != nil {
			t.Error(err)
		}
	})
	<-g.arrived
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan struct{})
	running.Go(func() {
		defer close(gaveUp)
		verdict, err := p.Enqueue(ctx, testJob("second"))
		if !errors.Is(err, context.Canceled) || errors.Is(err, headgate.ErrOutcomeUnknown) || verdict.ID != "second" {
			t.Errorf("got %+v, %v", verdict, err)
		}
	})
	await(t, "the second waits", func() bool { return queuedNow(p) == 1 })
	running.Go(func() {
		if _, err := p.Enqueue(t.Context(), testJob("third")); err != nil {
			t.Error(err)
		}
	})
	await(t, "the third waits", func() bool { return queuedNow(p) == 2 })
	cancel()
	<-gaveUp
	open()
	running.Wait()
	if n := g.accepted(t); n != 2 {
		t.Errorf("%d jobs entered, want the first and the third", n)
	}
}

func TestACallerThatGivesUpInFlightIsToldThatTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	g := newTollgate(t)
	p := g.producer(t, Config{InFlight: 1})
	pass, open := g.hold(t)
	var running sync.WaitGroup
	start := func(ctx context.Context, id string, check func(headgate.Verdict, error)) {
		running.Go(func() { check(p.Enqueue(ctx, testJob(id))) })
	}
	entered := func(_ headgate.Verdict, err error) {
		if err != nil {
			t.Error(err)
		}
	}
	start(t.Context(), "first", entered)
	<-g.arrived
	start(t.Context(), "leader", entered)
	await(t, "the leader waits", func() bool { return queuedNow(p) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan struct{})
	start(ctx, "follower", func(verdict headgate.Verdict, err error) {
		defer close(gaveUp)
		if !errors.Is(err, headgate.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) || verdict.ID != "follower" {
			t.Errorf("got %+v, %v", verdict, err)
		}
	})
	await(t, "both wait", func() bool { return queuedNow(p) == 2 })
	pass()
	<-g.arrived // Both are on their way.
	cancel()
	<-gaveUp
	open()
	running.Wait()
	verdict, err := p.Enqueue(t.Context(), testJob("follower"))
	if err != nil || verdict.Decision != headgate.Duplicate {
		t.Errorf("the same id again: got %+v, %v; want duplicate, since it had arrived", verdict, err)
	}
}

func TestAFlightGoesOnWithoutItsLeader(t *testing.T) {
	t.Parallel()
	g := newTollgate(t)
	p := g.producer(t, Config{InFlight: 1})
	pass, open := g.hold(t)
	var running sync.WaitGroup
	running.Go(func() {
		if _, err := p.Enqueue(t.Context(), testJob("first")); err != nil {
			t.Error(err)
		}
	})
	<-g.arrived
	gaveUp := make(chan struct{})
	running.Go(func() {
		defer close(gaveUp)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // Until then its call has left.
		defer cancel()
		verdict, err := p.Enqueue(ctx, testJob("leader"))
		if !errors.Is(err, headgate.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("leader got %+v, %v", verdict, err)
		}
	})
	await(t, "the leader waits", func() bool { return queuedNow(p) == 1 })
	for _, id := range []string{"b", "c"} {
		running.Go(func() {
			if _, err := p.Enqueue(t.Context(), testJob(id)); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	await(t, "all wait", func() bool { return queuedNow(p) == 3 })
	pass()
	<-gaveUp
	open()
	running.Wait()
	if n := g.accepted(t); n != 4 {
		t.Errorf("%d jobs entered, want 4", n)
	}
}

func TestAPanicOfTheLeaderStrandsNobody(t *testing.T) {
	t.Parallel()
	p := &Producer{line: line{places: 1}}
	leader, follower := newTicket([]entry{{job: testJob("a")}}), newTicket([]entry{{job: testJob("b")}})
	p.line.join(newTicket(nil)) // takes the place
	p.line.join(leader)
	p.line.join(follower)
	p.line.mu.Lock()
	p.line.nextLocked()
	p.line.mu.Unlock()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a producer without a store did not panic")
			}
		}()
		_ = p.lead(t.Context(), leader)
	}()
	<-follower.turn
	if !p.line.isSettled(follower) || !errors.Is(follower.failure, headgate.ErrOutcomeUnknown) || p.line.mu.taken != 0 {
		t.Errorf("got %v with %d places taken", follower.failure, p.line.mu.taken)
	}
}
