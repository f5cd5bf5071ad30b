package producer

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestADoubtStays: the answer of the first attempt is lost, and then nobody listens any more. The job is in, so its caller is not told
// that nothing was sent, whatever the attempts after that failed with.
func TestADoubtStays(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	options := proxy.Options()
	var lost atomic.Bool
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if lost.Load() {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(s, Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Enqueue(t.Context(), testJob("warm")); err != nil {
		t.Fatal(err)
	}
	proxy.Decide(func(redistest.Command) redistest.Action {
		return redistest.Action{Cut: redistest.CutAfter, OnCut: func() { lost.Store(true) }}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var caller sync.WaitGroup
	caller.Go(func() {
		_, err := p.Enqueue(ctx, testJob("a"))
		if !errors.Is(err, admission.ErrOutcomeUnknown) || errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
	await(t, "a pause follows attempts that were refused", func() bool {
		p.small.mu.Lock()
		defer p.small.mu.Unlock()
		return p.small.mu.failures >= 5
	})
	cancel()
	caller.Wait()
	f := &flight{doubted: true}
	if err := f.outcome(store.ErrStale); !errors.Is(err, admission.ErrOutcomeUnknown) {
		t.Errorf("a flight in doubt that Redis then refuses ends with %v", err)
	}
}

// TestARefusalInDoubtIsAskedForAgain: a call is cut off, its repetition is refused, and only then, within lateCall, does Redis read the
// call. Its caller is told that the job is in, whether its flight repeats the call or it does so itself.
func TestARefusalInDoubtIsAskedForAgain(t *testing.T) {
	t.Parallel()
	t.Run("by its flight", func(t *testing.T) {
		t.Parallel()
		askedAgain(t, redistest.Action{Cut: redistest.CutBefore}, func(ask func(context.Context) error) error { return ask(t.Context()) })
	})
	t.Run("by its caller", func(t *testing.T) {
		t.Parallel()
		ended := make(chan struct{})
		defer close(ended)
		askedAgain(t, redistest.Action{Hold: ended, Cut: redistest.CutBefore}, func(ask func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := ask(ctx); !errors.Is(err, admission.ErrOutcomeUnknown) {
				t.Errorf("the first time it is told %v, want an unknown outcome", err)
			}
			return ask(t.Context())
		})
	})
}

// TestADoubtEndsByAClockThatNobodySets: it is over when lateCall is, whatever the wall clock says meanwhile.
func TestADoubtEndsByAClockThatNobodySets(t *testing.T) {
	t.Parallel()
	var d doubts
	d.note()
	if now := time.Now(); !d.answered(now) || !d.answered(now.Add(lateCall-1)) || d.answered(now.Add(lateCall)) || d.end.Load() != 0 {
		t.Error("the first answer does not begin the time that ends a doubt")
	}
	d.note()
	if d.answered(time.Now()); d.end.Load() > int64(time.Since(clockStart)+lateCall) {
		t.Error("the end of a doubt is a time of the wall clock")
	}
}

// TestWhatTheFirstAnswerLetInIsIn: beside a doubt the refused of a call are asked for again. Where that question gets no answer, or one by another policy, whoever was
// let in by the first is not told that nothing was sent.
func TestWhatTheFirstAnswerLetInIsIn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second  func(t *testing.T, operator store.Deployment)
		late    time.Duration // that the first answer comes, of a second that the caller has
		in, out error
	}{
		"the policy changes": {second: func(t *testing.T, operator store.Deployment) {
			t.Helper()
			next := policy.Unlimited()
			next.Version = 1
			text, err := policy.Marshal(next)
			if err != nil {
				t.Error(err)
			}
			if err := operator.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: time.Minute}); err != nil {
				t.Error(err)
			}
		}, out: admission.ErrRefused},
		"the time is over": {late: time.Second - lateCall/2, in: admission.ErrOutcomeUnknown, out: admission.ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			proxy, config := redistest.NewProxy(t, server.Addr()), redisstore.Config{Prefix: redistest.Prefix(t)}
			s, err := redisstore.Open(t.Context(), proxy.Client(t), config)
			if err != nil {
				t.Fatal(err)
			}
			operator, err := redisstore.Open(t.Context(), server.Client(t), config)
			if err != nil {
				t.Fatal(err)
			}
			p, err := New(s, Config{Timeout: 20 * time.Second, Uncounted: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Enqueue(t.Context(), testJob("warm")); err != nil {
				t.Fatal(err)
			}
			if err := operator.Suspend(t.Context(), store.QueueGate("shut"), 0, store.Intervention{Reason: "test"}); err != nil {
				t.Fatal(err)
			}
			ctx, calls := t.Context(), 0
			if c.late > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			proxy.Decide(func(command redistest.Command) redistest.Action {
				if !command.IsScript() || !strings.HasSuffix(command.Args[0], "_admit") {
					return redistest.Action{}
				}
				if calls++; calls == 1 {
					return redistest.Action{Late: c.late}
				}
				if calls == 2 && c.second != nil {
					c.second(t, operator)
				}
				return redistest.Action{}
			})
			p.doubts.note()
			in, out := testJob("in"), testJob("out")
			out.Queue = "shut"
			results, _ := p.EnqueueBatch(ctx, []admission.Job{in, out})
			if !errors.Is(results[0].Err, c.in) || !errors.Is(results[1].Err, c.out) {
				t.Errorf("who was let in is told %v, want %v; who was not %v, want %v", results[0].Err, c.in, results[1].Err, c.out)
			}
			if errors.Is(results[0].Err, admission.ErrUnavailable) {
				t.Errorf("who was let in is told that nothing was sent: %v", results[0].Err)
			}
			if _, err := operator.Look(t.Context(), admission.Key{Tenant: in.Tenant, ID: in.ID}); err != nil {
				t.Errorf("who was let in is not there: %v", err)
			}
		})
	}
}

// askedAgain asks for a job whose first call has such an end, as the caller does.
func askedAgain(t *testing.T, first redistest.Action, caller func(ask func(context.Context) error) error) {
	t.Helper()
	server := redistest.Shared(t)
	proxy, direct := redistest.NewProxy(t, server.Addr()), server.Client(t)
	config := redisstore.Config{Prefix: redistest.Prefix(t)}
	s, err := redisstore.Open(t.Context(), proxy.Client(t), config)
	if err != nil {
		t.Fatal(err)
	}
	operator, err := redisstore.Open(t.Context(), direct, config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(s, Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Enqueue(t.Context(), testJob("warm")); err != nil {
		t.Fatal(err)
	}
	paused := store.QueueGate(testJob("a").Queue)
	if err := operator.Suspend(t.Context(), paused, 0, store.Intervention{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	var late []any
	var repeated time.Time
	calls, arrived := 0, false
	arrive := func() { // It finds the queue open.
		if _, err := operator.Resume(t.Context(), paused, store.Intervention{}); err != nil {
			t.Error(err)
		}
		if err := direct.Do(t.Context(), late...).Err(); err != nil {
			t.Error(err)
		}
		arrived = true
	}
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if !c.IsScript() || !strings.HasSuffix(c.Args[0], "_admit") {
			return redistest.Action{}
		}
		switch calls++; calls {
		case 1:
			late = append(late, c.Name)
			for _, arg := range c.Args {
				late = append(late, arg)
			}
			return first
		case 2:
			repeated = time.Now()
		case 3: // The second was refused. The first was held back for a little less than lateCall since.
			if time.Since(repeated) >= lateCall {
				arrive()
			}
		}
		return redistest.Action{}
	})
	err = caller(func(ctx context.Context) error {
		_, err := p.Enqueue(ctx, testJob("a"))
		return err
	})
	if !arrived {
		t.Errorf("asked again within %s of the repetition, when a call that was cut off may still be on its way", lateCall)
		arrive()
	}
	c, censusErr := s.Census(t.Context())
	if err != nil || censusErr != nil || calls != 3 || c.Accepted != 2 {
		t.Errorf("%v, after %d calls; %d jobs are in, want 2, %v", err, calls, c.Accepted, censusErr)
	}
}

// TestAnAttemptLastsAsLongAsTheLastCaller: the time of the first one aboard ends while Redis is asked, and the other has its answer
// from the same attempt.
func TestAnAttemptLastsAsLongAsTheLastCaller(t *testing.T) {
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
	enter("before")
	<-g.arrived
	gone := make(chan struct{})
	running.Go(func() {
		defer close(gone)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Enqueue(ctx, testJob("short")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the short one got %v", err)
		}
	})
	await(t, "the short one waits", func() bool { return queuedNow(p) == 1 })
	enter("long")
	await(t, "both wait", func() bool { return queuedNow(p) == 2 })
	pass()
	<-g.arrived
	<-gone
	select {
	case <-g.arrived:
		t.Error("the attempt ended with its first caller, and another came")
	case <-time.After(10 * lastPause): // Another would come after a pause of that at the most.
	}
	open()
	running.Wait()
}

// TestAMigrationRefusesCertainly: what a deployment that is being migrated answers leaves no doubt, so callers that wait for its end
// are told that nothing was sent.
func TestAMigrationRefusesCertainly(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(s, Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), redisstore.Keys(s).State(), "partitions", "1>4").Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var caller sync.WaitGroup
	caller.Go(func() {
		if _, err := p.Enqueue(ctx, testJob("a")); !errors.Is(err, admission.ErrMigrating) {
			t.Errorf("got %v", err)
		}
	})
	await(t, "it was refused", func() bool {
		p.small.mu.Lock()
		defer p.small.mu.Unlock()
		return p.small.mu.failures >= 3
	})
	f := &flight{tickets: []*ticket{newTicket(t.Context(), time.Now().Add(time.Minute), []entry{{job: testJob("b")}})}}
	if err := p.attempt(t.Context(), f); !errors.Is(err, admission.ErrUnavailable) || !p.mayRepeat(f, err) || f.doubted {
		t.Errorf("an attempt ends with %v; in doubt: %t", err, f.doubted)
	}
	cancel(admission.ErrUnavailable)
	caller.Wait()
}

// TestAClosedStoreIsAskedOnce: no other call will do better, and nothing was sent.
func TestAClosedStoreIsAskedOnce(t *testing.T) {
	t.Parallel()
	s, err := redisstore.Open(t.Context(), redis.NewClient(redistest.Shared(t).Options()), redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(s, Config{Policy: new(policy.Unlimited()), Timeout: time.Minute, Uncounted: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Enqueue(t.Context(), testJob("before")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = p.Enqueue(t.Context(), testJob("after"))
	if !errors.Is(err, admission.ErrUnavailable) || errors.Is(err, admission.ErrOutcomeUnknown) || time.Since(began) > 30*time.Second {
		t.Errorf("after %s it is told %v", time.Since(began), err)
	}
}
