package limiter

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// full checks that an error says that there is no room.
func full(tb testing.TB, err error, answer store.SemaphoreAnswer, limit, held int) {
	tb.Helper()
	no, ok := errors.AsType[*NoPermitsError](err)
	if !ok || no.Answer != answer || no.Limit != limit || no.Held != held || !errors.Is(err, admission.ErrRefused) {
		tb.Errorf("%v (%+v), want %s with %d of %d", err, no, answer, held, limit)
	}
}

// TestALowerLimitCutsNobodyOff: who holds permits keeps them, and nobody is let in until fewer are held than the new limit allows.
func TestALowerLimitCutsNobodyOff(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	p := semaphorePolicy(3)
	p.Version = 1
	put(t, s, p)
	gpu := start(t, s, Config{Timeout: patient}).Semaphore("gpu")
	one, err := gpu.TryAcquire(t.Context(), 2)
	check(t, err)
	two, err := gpu.TryAcquire(t.Context(), 1)
	check(t, err)
	_, err = gpu.TryAcquire(t.Context(), 1)
	full(t, err, store.SemaphoreRefused, 3, 3)
	p = semaphorePolicy(1)
	p.Version = 2
	put(t, s, p)
	_, err = gpu.TryAcquire(t.Context(), 2)
	full(t, err, store.SemaphoreLarge, 1, 3)
	check(t, two.Release(t.Context()))
	_, err = gpu.TryAcquire(t.Context(), 1)
	full(t, err, store.SemaphoreRefused, 1, 2)
	check(t, one.Context().Err())
	check(t, one.Release(t.Context()))
	check(t, one.Release(t.Context())) // Again.
	if one.Context().Err() == nil {
		t.Error("the context of permits that were released goes on")
	}
	three, err := gpu.TryAcquire(t.Context(), 1)
	check(t, err)
	check(t, three.Release(t.Context()))
	if names, err := s.SemaphoreNames(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("%v are kept, and nobody holds anything (%v)", names, err)
	}
}

// TestAHolderThatIsCutOffStopsBeforeItsLeaseEnds, and finds that it held until then.
func TestAHolderThatIsCutOffStopsBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Clock: redistest.NewClock(t, 0)}) // It does not step, which may end a lease of less than 15 s (WithLease).
	proxy := redistest.NewProxy(t, server.Addr())
	var cut atomic.Bool
	healed := make(chan struct{})
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if cut.Load() && c.IsScript() {
			return redistest.Action{Hold: healed}
		}
		return redistest.Action{}
	})
	at := func(client *redis.Client) *Semaphore {
		s, err := redisstore.Open(t.Context(), client, redisstore.Config{})
		check(t, err)
		return start(t, s, Config{Policy: semaphorePolicy(1), Timeout: patient}).Semaphore("gpu")
	}
	const lease = 3 * time.Second
	gpu, other := at(proxy.Client(t)).WithLease(lease), at(server.Client(t))
	began := time.Now()
	p, err := gpu.TryAcquire(t.Context(), 1)
	check(t, err)
	extended := time.NewTimer(lease / 2) // Once, at a third.
	<-extended.C
	check(t, p.Context().Err())
	cut.Store(true)
	<-p.Context().Done()
	if cause := context.Cause(p.Context()); !errors.Is(cause, ErrPermitsLost) {
		t.Errorf("it ends for %v", cause)
	}
	if took := time.Since(began); took < lease*2/3 {
		t.Errorf("it was told to stop after %s, and had extended the lease", took)
	}
	// The store still has it as the holder: the work was told before anybody else could begin.
	_, err = other.TryAcquire(t.Context(), 1)
	full(t, err, store.SemaphoreRefused, 1, 1)
	cut.Store(false)
	close(healed)
	if err := p.Release(t.Context()); err != nil && !errors.Is(err, store.ErrLeaseEnded) {
		t.Error(err)
	}
}

// TestAReleaseWaitsForNoExtension: while one is under way, and for Redis no longer than its ctx; the work is told to stop at once.
func TestAReleaseWaitsForNoExtension(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	const lease = 3 * time.Second
	extending, healed := make(chan struct{}, 100), make(chan struct{})
	defer close(healed)
	var stuck atomic.Bool
	proxy.Decide(func(c redistest.Command) redistest.Action {
		switch {
		case slices.Contains(c.Args, "extend"):
			extending <- struct{}{}
			return redistest.Action{Hold: healed}
		case slices.Contains(c.Args, "release") && stuck.Load():
			return redistest.Action{Hold: healed}
		}
		return redistest.Action{}
	})
	s := open(t, proxy.Client(t))
	gpu := start(t, s, Config{Policy: semaphorePolicy(1), Timeout: patient}).Semaphore("gpu").WithLease(lease)
	p, err := gpu.TryAcquire(t.Context(), 1)
	check(t, err)
	<-extending
	stuck.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := p.Release(ctx); err == nil || time.Since(began) > patient/2 {
		t.Errorf("while Redis is stuck it takes %s: %v", time.Since(began), err)
	}
	if cause := context.Cause(p.Context()); !errors.Is(cause, context.Canceled) {
		t.Errorf("the work is told %v", cause)
	}
	stuck.Store(false)
	began = time.Now()
	if err := p.Release(t.Context()); err != nil && !errors.Is(err, store.ErrLeaseEnded) || time.Since(began) > patient/2 { // The latter on a slow machine.
		t.Errorf("while its lease is being extended it takes %s: %v", time.Since(began), err)
	}
	other, err := gpu.TryAcquire(t.Context(), 1)
	check(t, err)
	check(t, other.Release(t.Context()))
}

// TestALostAnswerCostsNoSecondPermit: what was leased and not heard of is given back at once.
func TestALostAnswerCostsNoSecondPermit(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	var cut atomic.Bool
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if c.IsScript() && cut.CompareAndSwap(true, false) {
			return redistest.Action{Cut: redistest.CutAfter}
		}
		return redistest.Action{}
	})
	s := open(t, proxy.Client(t))
	gpu := start(t, s, Config{Policy: semaphorePolicy(1), Timeout: patient}).Semaphore("gpu")
	first, err := gpu.TryAcquire(t.Context(), 1) // The scripts are loaded.
	check(t, err)
	check(t, first.Release(t.Context()))
	cut.Store(true)
	if _, err := gpu.TryAcquire(t.Context(), 1); err == nil || cut.Load() {
		t.Fatalf("nothing was cut: %v", err)
	}
	p, err := gpu.TryAcquire(t.Context(), 1)
	check(t, err)
	check(t, p.Release(t.Context()))
}

// TestWhoGivesUpLeavesTheLine, and bad input is told of before Redis is asked.
func TestWhoGivesUpLeavesTheLine(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	l := start(t, s, Config{Policy: semaphorePolicy(1), Timeout: patient})
	gpu := l.Semaphore("gpu")
	p, err := gpu.Acquire(t.Context(), 1)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := gpu.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waited: %v", err)
	}
	if state, err := s.Semaphore(t.Context(), "gpu"); err != nil || state.Waiting != 0 || state.Held != 1 || state.Max != 1 {
		t.Errorf("%+v, %v", state, err)
	}
	check(t, p.Release(t.Context()))
	for name, bad := range map[string]func() (*Permits, error){
		"permits":   func() (*Permits, error) { return gpu.TryAcquire(t.Context(), 0) },
		"lease":     func() (*Permits, error) { return gpu.WithLease(time.Millisecond).TryAcquire(t.Context(), 1) },
		"semaphore": func() (*Permits, error) { return l.Semaphore("a b").Acquire(t.Context(), 1) },
	} {
		_, err := bad()
		if f, ok := errors.AsType[*admission.FieldError](err); !ok || f.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, l.Close(t.Context()))
	if _, err := gpu.TryAcquire(t.Context(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
