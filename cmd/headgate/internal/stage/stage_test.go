package stage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/worker"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func open(t *testing.T, addr string, notes io.Writer, keep bool) *Stage {
	t.Helper()
	s, err := Open(t.Context(), Config{
		Redis: addr, Name: "test", Queue: "q", Policy: policy.Unlimited(), Concurrency: 4, DrainTimeout: time.Second,
		Backoff: worker.ExponentialBackoff(time.Millisecond, time.Millisecond), Breaker: breaker.Config{SlowCallDuration: time.Hour},
		Notes: notes, Keep: keep,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// work runs jobs until the test's own part is done.
func work(t *testing.T, s *Stage, over Settled, handle func(context.Context, Task) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Work(ctx, []string{"t"}, handle) }()
	if err := s.Settle(t.Context(), over); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func jobs(n int, downstream string) []admission.Job {
	all := make([]admission.Job, n)
	for i := range all {
		all[i] = admission.NewJob("tenant", "", "t", nil)
		all[i].Downstream, all[i].MaxAttempts = downstream, 1
	}
	return all
}

func TestLostAnswersLeaveNoJobInDoubt(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s := open(t, proxy.Addr(), io.Discard, false)
	proxy.CutEvery(3, redistest.CutAfter)
	for range 20 {
		if err := s.Enqueue(t.Context(), jobs(10, "")); err != nil {
			t.Fatal(err)
		}
	}
	cuts := proxy.Cuts()
	proxy.Decide(nil)
	work(t, s, NothingWaits, func(context.Context, Task) error { return nil })
	census, err := s.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := s.Ledger().Progress()
	if cuts == 0 || p.Asked != 200 || p.Admitted != 200 || census.Accepted != 200 || p.Done != 200 || !census.Conserved() {
		t.Errorf("after %d cuts: %+v, census %+v", cuts, p, census)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestARunDoesWithoutARedis takes all servers from PATH.
func TestARunDoesWithoutARedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var notes bytes.Buffer
	s := open(t, "", &notes, true)
	if !strings.Contains(notes.String(), "NOTHING SURVIVES IT") || strings.Count(notes.String(), "\n") != 1 {
		t.Errorf("it says %q", notes.String())
	}
	if err := s.Enqueue(t.Context(), jobs(40, "")); err != nil {
		t.Fatal(err)
	}
	work(t, s, NothingWaits, func(context.Context, Task) error { return nil })
	if p := s.Ledger().Progress(); p.Done != 40 {
		t.Errorf("%+v", p)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestABreakersPeriodIsWrittenDown(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).URL(), io.Discard, false)
	if err := s.Enqueue(t.Context(), jobs(40, "ill")); err != nil {
		t.Fatal(err)
	}
	work(t, s, NothingRunnable, func(context.Context, Task) error { return errors.New("ill") })
	f := s.Figures()
	if len(f.Breakers) != 1 || f.Breakers[0].Opened != 1 || f.Breakers[0].HeldBack < 20 || s.BreakerStates()["ill"] != "open" {
		t.Errorf("got %+v, states %v", f.Breakers, s.BreakerStates())
	}
	census, err := s.Census(t.Context())
	if err != nil || census.Waiting+census.Later < 20 || !census.Conserved() {
		t.Errorf("census %+v, %v", census, err)
	}
	if open := s.Ledger().NotClosed(); len(open) != 1 {
		t.Errorf("not closed: %v", open)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestKeysStayIfTheyAreWanted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	var notes strings.Builder
	if err := open(t, server.URL(), &notes, true).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, err := client.Keys(t.Context(), "hg-test-*").Result()
	if err != nil || len(keys) == 0 || !strings.Contains(notes.String(), "the keys of this run stay under hg-test-") {
		t.Errorf("keys %v, %v, notes %q", keys, err, notes.String())
	}
	if err := open(t, server.URL(), &notes, false).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := client.Keys(t.Context(), "hg-test-*").Result(); err != nil || len(left) != len(keys) {
		t.Errorf("keys left: %v, %v", left, err)
	}
}
