package producer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// tollgate delays the admit calls of one producer and counts them.
type tollgate struct {
	proxy   *redistest.Proxy
	store   store.Deployment
	calls   atomic.Int64
	arrived chan struct{} // one for each call, as it arrives
}

func newTollgate(t *testing.T) *tollgate {
	t.Helper()
	server := redistest.Shared(t)
	g := &tollgate{proxy: redistest.NewProxy(t, server.Addr()), arrived: make(chan struct{}, 10000)}
	s, err := redisstore.Open(t.Context(), g.proxy.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	g.store = s
	return g
}

// close makes each call from now on take d longer.
func (g *tollgate) close(d time.Duration) {
	g.proxy.Decide(func(c redistest.Command) redistest.Action {
		if !c.IsScript() {
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
	gate := make(chan struct{})
	g.proxy.Decide(func(c redistest.Command) redistest.Action {
		if !c.IsScript() {
			return redistest.Action{}
		}
		g.calls.Add(1)
		g.arrived <- struct{}{}
		return redistest.Action{Hold: gate}
	})
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	return func() { gate <- struct{}{} }, open
}

func (g *tollgate) producer(t *testing.T, config Config) *Producer {
	t.Helper()
	// Counts of decisions would be calls, too.
	config.Policy, config.Timeout, config.Uncounted = new(policy.Unlimited()), 20*time.Second, true
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

func testJob(id string) admission.Job {
	j := admission.NewJob("acme", "mail", "send", nil)
	j.ID = id
	return j
}

// queuedNow returns how many tickets wait.
func queuedNow(p *Producer) int {
	p.small.mu.Lock()
	defer p.small.mu.Unlock()
	return p.small.mu.waiting.tickets
}

// assertIdle waits for the last pilot to end, and asserts that nobody waits then.
func assertIdle(t *testing.T, p *Producer) {
	t.Helper()
	for _, l := range []*line{&p.small, &p.large} {
		await(t, "no pilot is left", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.mu.pilots == 0
		})
		if len(l.mu.waiting.of) > 0 || l.mu.waiting.next != nil || l.mu.waiting.sums != (sums{}) {
			t.Errorf("%+v waits after the last call", l.mu.waiting.sums)
		}
	}
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
						if err != nil || verdict.Decision != admission.Admitted {
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
			assertIdle(t, p)
		})
	}
}

func TestACallTakesNoMoreThanItsBounds(t *testing.T) {
	t.Parallel()
	g := newTollgate(t)
	p := g.producer(t, Config{InFlight: 1})
	_, open := g.hold(t)
	var running sync.WaitGroup
	enqueue := func(j admission.Job) {
		running.Go(func() {
			if _, err := p.Enqueue(t.Context(), j); err != nil {
				t.Error(err)
			}
		})
	}
	enqueue(testJob("first"))
	<-g.arrived
	for i := range 5 { // 60 KiB each: a call of four and one of one
		j := testJob(fmt.Sprintf("large-%d", i))
		j.Payload = make([]byte, 60<<10)
		enqueue(j)
	}
	await(t, "all wait", func() bool { return queuedNow(p) == 5 })
	open()
	running.Wait()
	if calls := g.calls.Load(); calls != 3 {
		t.Errorf("%d calls, want 3", calls)
	}
}

// TestLargeJobsDoNotStopSmallOnes: a call of a large job that gets no answer keeps only other large ones waiting.
func TestLargeJobsDoNotStopSmallOnes(t *testing.T) {
	t.Parallel()
	g := newTollgate(t)
	p := g.producer(t, Config{InFlight: 1})
	pass, open := g.hold(t)
	var running sync.WaitGroup
	for i := range 3 {
		running.Go(func() {
			j := testJob(fmt.Sprintf("large-%d", i))
			j.Payload = make([]byte, 300<<10)
			if _, err := p.Enqueue(t.Context(), j); err != nil {
				t.Error(err)
			}
		})
	}
	<-g.arrived
	await(t, "two wait", func() bool {
		p.large.mu.Lock()
		defer p.large.mu.Unlock()
		return p.large.mu.waiting.tickets == 2
	})
	small := make(chan struct{})
	running.Go(func() {
		defer close(small)
		if _, err := p.Enqueue(t.Context(), testJob("small")); err != nil {
			t.Error(err)
		}
	})
	<-g.arrived // It is on its way beside the first of the large.
	if calls := g.calls.Load(); calls != 2 {
		t.Errorf("%d calls are under way, want 2", calls)
	}
	pass()
	pass()
	<-small
	open()
	running.Wait()
	assertIdle(t, p)
}

// TestAnotherCallGoesOutWithAsManyJobs: beside calls that are under way, and in time, another goes out only with as many jobs as these have
// together, or full.
func TestAnotherCallGoesOutWithAsManyJobs(t *testing.T) {
	t.Parallel()
	g := newTollgate(t)
	p := g.producer(t, Config{InFlight: 4})
	p.small.mu.takes = p.small.patience // No call is late.
	_, open := g.hold(t)
	var running sync.WaitGroup
	n := 0
	enqueue := func() {
		n++
		job := testJob(strconv.Itoa(n))
		running.Go(func() {
			if _, err := p.Enqueue(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
	for call, jobs := range []int{1, 1, 2, 4} {
		for wait := range jobs {
			await(t, "the others to wait", func() bool { return queuedNow(p) == wait })
			if calls := g.calls.Load(); calls != int64(call) {
				t.Fatalf("%d calls, the last with fewer than %d jobs, which were under way", calls, jobs)
			}
			enqueue()
		}
		<-g.arrived
		await(t, "all to be on their way", func() bool { return queuedNow(p) == 0 })
	}
	for range store.MaxBatchJobs + 1 { // There is no place for another.
		enqueue()
	}
	await(t, "all to wait", func() bool { return queuedNow(p) == store.MaxBatchJobs+1 })
	open()
	running.Wait()
	if calls := g.calls.Load(); calls < 6 {
		t.Errorf("%d calls: one had more than %d jobs", calls, store.MaxBatchJobs)
	}
}

// TestACallThatIsLateDoesNotStopOthers: where a call takes longer than calls took, the next does not wait for it.
func TestACallThatIsLateDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	g := newTollgate(t)
	p := g.producer(t, Config{InFlight: 2})
	_, open := g.hold(t)
	var running sync.WaitGroup
	for _, id := range []string{"late", "next"} {
		running.Go(func() {
			if _, err := p.Enqueue(t.Context(), testJob(id)); err != nil {
				t.Error(err)
			}
		})
		<-g.arrived
		p.small.mu.Lock()
		p.small.mu.tookOff = p.small.mu.tookOff.Add(-p.small.patience) // It went out long ago,
		p.small.mu.aloft += 5                                          // with more than wait.
		p.small.mu.Unlock()
	}
	if calls := g.calls.Load(); calls != 2 {
		t.Errorf("%d calls are under way, want 2", calls)
	}
	open()
	running.Wait()
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
		if !errors.Is(err, context.Canceled) || errors.Is(err, admission.ErrOutcomeUnknown) || verdict.ID != "second" {
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
	start := func(ctx context.Context, id string, check func(admission.Verdict, error)) {
		running.Go(func() { check(p.Enqueue(ctx, testJob(id))) })
	}
	entered := func(_ admission.Verdict, err error) {
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
	start(ctx, "follower", func(verdict admission.Verdict, err error) {
		defer close(gaveUp)
		if !errors.Is(err, admission.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) || verdict.ID != "follower" {
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
	if err != nil || verdict.Decision != admission.Duplicate {
		t.Errorf("the same id again: got %+v, %v; want duplicate, since it had arrived", verdict, err)
	}
}

// TestAFlightGoesOnWithoutACaller: the first of those aboard goes, and takes nobody's answer along.
func TestAFlightGoesOnWithoutACaller(t *testing.T) {
	t.Parallel()
	g := newTollgate(t)
	p := g.producer(t, Config{InFlight: 1})
	pass, open := g.hold(t)
	var running sync.WaitGroup
	enter := func(id string) {
		running.Go(func() {
			if _, err := p.Enqueue(t.Context(), testJob(id)); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	enter("first")
	<-g.arrived
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan struct{})
	running.Go(func() {
		defer close(gaveUp)
		verdict, err := p.Enqueue(ctx, testJob("leaver"))
		if !errors.Is(err, admission.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) || errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("the one that left got %+v, %v", verdict, err)
		}
	})
	await(t, "it waits", func() bool { return queuedNow(p) == 1 })
	enter("b")
	enter("c")
	await(t, "all wait", func() bool { return queuedNow(p) == 3 })
	pass()
	<-g.arrived
	cancel()
	<-gaveUp // Not held up by the call that it is aboard of.
	open()
	running.Wait()
	if n := g.accepted(t); n != 4 {
		t.Errorf("%d jobs entered, want 4", n)
	}
}
