package rlstest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/unary"
)

// around is a handler with something around each call.
type around struct {
	unary.Handler

	do func(ask func() ([]byte, error)) ([]byte, error)
}

func (a around) Answer(ctx context.Context, method string, message []byte) ([]byte, error) {
	return a.do(func() ([]byte, error) { return a.Handler.Answer(ctx, method, message) })
}

// TestAThousandCallsAtATimeShareAConnection, four times as many as a connection has streams, with answers beyond its window; each is counted once.
func TestAThousandCallsAtATimeShareAConnection(t *testing.T) {
	t.Parallel()
	s := newServer(t, limits(t, 500), nil)
	client := s.client(t)
	var passed, refused atomic.Int64
	var calls sync.WaitGroup
	for range 1000 {
		calls.Go(func() {
			d := append(many(60), descriptor("tenant", "acme"))
			answer, err := client.ShouldRateLimit(within(t), asked(1, d...))
			switch {
			case err != nil:
				t.Error(err)
			case len(answer.GetStatuses()) != 61:
				t.Errorf("%d statuses", len(answer.GetStatuses()))
			case answer.GetOverallCode() == ratelimit.RateLimitResponse_OK:
				passed.Add(1)
			default:
				refused.Add(1)
			}
		})
	}
	calls.Wait()
	if passed.Load() != 500 || refused.Load() != 500 || s.service.Stats().Calls != 1000 {
		t.Errorf("%d passed of 500, %d refused, %+v", passed.Load(), refused.Load(), s.service.Stats())
	}
}

// TestAClientThatGivesUpEndsItsCallAlone: by its deadline and by cancelling, while Redis hangs. The server's calls end, and the connection serves on.
func TestAClientThatGivesUpEndsItsCallAlone(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	hg, err := headgate.Open(t.Context(), redis.URL(), headgate.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, hg.Close()) })
	l, err := hg.Limiter(headgate.LimiterConfig{Timeout: time.Second})
	check(t, err)
	var begun, ended atomic.Int64
	s := newServer(t, l.Verdicts(), func(next unary.Handler) unary.Handler {
		return around{next, func(ask func() ([]byte, error)) ([]byte, error) {
			begun.Add(1)
			defer ended.Add(1)
			return ask()
		}}
	})
	client := s.client(t)
	ask := func(ctx context.Context, tenant string) error { // Each of its own, as the next check of one may be answered by lease.
		_, err := client.ShouldRateLimit(ctx, asked(1, descriptor("tenant", tenant)))
		return err
	}
	check(t, ask(within(t), "first"))
	redis.Pause(t)
	late, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	if err := ask(late, "late"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("late: %v", err)
	}
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if err := ask(ctx, fmt.Sprint("tenant-", i)); status.Code(err) != codes.Canceled {
				t.Errorf("cancelled: %v", err)
			}
		})
	}
	calls.Wait()
	// A call of Redis that is under way ends by the limiter's time-out; those that wait for a connection end at once.
	for until := time.Now().Add(20 * time.Second); ended.Load() < begun.Load(); time.Sleep(time.Millisecond) { //nolint:forbidigo // It is soon.
		if time.Now().After(until) {
			t.Fatalf("%d of %d calls have ended", ended.Load(), begun.Load())
		}
	}
	if begun.Load() < 3 || s.service.Stats().Failed == 0 {
		t.Errorf("%d calls came, %+v", begun.Load(), s.service.Stats())
	}
	redis.Resume(t)
	check(t, ask(within(t), "last"))
}

// TestShutdownLosesNoCall: a service that ends answers the calls that it has begun, and sends the others away unasked, so that a client that knows another
// one has no error at all.
func TestShutdownLosesNoCall(t *testing.T) {
	t.Parallel()
	var inside, answered atomic.Int64
	arrived, release := make(chan struct{}, 1000), make(chan struct{})
	first := newServer(t, limits(t, 1000), func(next unary.Handler) unary.Handler {
		return around{next, func(ask func() ([]byte, error)) ([]byte, error) {
			inside.Add(1)
			arrived <- struct{}{}
			<-release
			return ask()
		}}
	})
	second := newServer(t, limits(t, 1000), nil)
	known := manual.NewBuilderWithScheme("two")
	known.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: first.address}, {Addr: second.address}}})
	client := ratelimit.NewRateLimitServiceClient(dial(t, "two:///", grpc.WithResolvers(known)))
	var calls sync.WaitGroup
	ask := func() {
		calls.Go(func() {
			if _, err := client.ShouldRateLimit(within(t), asked(1, descriptor("tenant", "acme"))); err != nil {
				t.Error(err)
				return
			}
			answered.Add(1)
		})
	}
	const each = 100
	for range each {
		ask()
	}
	for range each {
		<-arrived
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Shutdown(within(t)) }()
	for range each { // Before, while and after GOAWAY comes.
		ask()
		time.Sleep(100 * time.Microsecond) //nolint:forbidigo // the pace of calls
	}
	close(release)
	calls.Wait()
	check(t, <-ended)
	one, two := first.service.Stats().Calls, second.service.Stats().Calls
	if answered.Load() != 2*each || one != uint64(inside.Load()) || one+two != 2*each || two == 0 {
		t.Errorf("%d answered; the first had %d and answered %d, the second %d", answered.Load(), inside.Load(), one, two)
	}
}
