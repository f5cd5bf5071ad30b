package limiter

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

// TestWhoWaitsPassesInTurn: of a leaky bucket one token in its time and no sooner, in the order in which they came, whatever one costs.
func TestWhoWaitsPassesInTurn(t *testing.T) {
	t.Parallel()
	const each, waits = 10 * time.Millisecond, 30
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{
		Policy: limited(none, admission.Limit{Tokens: 1, Per: each, Burst: 1}), Timeout: patient,
	})
	r := Request{Tenant: "acme"}
	var passed []int // by who is at the head of the line
	var all sync.WaitGroup
	begun := make(chan struct{})
	began := time.Now()
	for i := range waits {
		ask := func() (Verdict, error) {
			<-begun
			v, err := l.Check(t.Context(), r)
			if v.Admitted {
				passed = append(passed, i)
			}
			return v, err
		}
		all.Go(func() {
			if err := l.inTurn(t.Context(), &r, ask); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
		for l.turns.waiting(r.route()) <= i {
			runtime.Gosched()
		}
	}
	close(begun)
	all.Wait()
	if !slices.IsSorted(passed) || len(passed) != waits {
		t.Errorf("they passed as %v", passed)
	}
	if took := time.Since(began); took < (waits-1)*each-each {
		t.Errorf("%d passed in %s, want one in %s", waits, took, each)
	}
	if len(l.turns.of) != 0 {
		t.Errorf("there are lines left: %v", l.turns.of)
	}
}

// TestAWaitEndsAtOnceWhereItIsOfNoUse: where it cannot end before the deadline, and where no wait helps; nothing is taken.
func TestAWaitEndsAtOnceWhereItIsOfNoUse(t *testing.T) {
	t.Parallel()
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: limited(none, admission.PerHour(1).WithBurst(2)), Timeout: patient})
	v, err := l.Wait(t.Context(), Request{Tenant: "acme"})
	if err != nil || !v.Admitted {
		t.Fatal(v, err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	v, err = l.Wait(soon, Request{Tenant: "acme", Cost: 2})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, admission.ErrLimited) || v.Admitted || v.TokensLeft != 1 || soon.Err() != nil {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err = l.ReserveWait(soon, Request{Tenant: "acme", Cost: 2}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, admission.ErrLimited) {
		t.Errorf("a reservation: %v", err)
	}
	if _, err = l.Wait(t.Context(), Request{Tenant: "acme", Cost: 3}); !errors.Is(err, admission.ErrTooCostly) {
		t.Errorf("above the burst: %v", err)
	}
	if _, err = l.Wait(t.Context(), Request{Queue: "mail"}); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("no tenant: %v", err)
	}
	r, err := l.ReserveWait(t.Context(), Request{Tenant: "acme", Cost: 1})
	check(t, err)
	check(t, r.Cancel(t.Context()))
	if v, err = l.Wait(t.Context(), Request{Tenant: "acme"}); err != nil || !v.Admitted {
		t.Errorf("what was reserved and cancelled is not there: %+v, %v", v, err)
	}
}

// TestWhoGivesUpWaitingLeavesTheLine, at its head and within it, and the next one comes to the head.
func TestWhoGivesUpWaitingLeavesTheLine(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	l := start(t, open(t, v.client(t)), Config{Policy: limited(none, admission.PerHour(1)), Timeout: patient})
	l.clock.set = &v.process
	r := Request{Tenant: "acme"}
	if first, err := l.Wait(t.Context(), r); err != nil || !first.Admitted {
		t.Fatal(first, err)
	}
	errWhy := errors.New("the user went away")
	type one struct {
		giveUp context.CancelCauseFunc
		ended  chan error
	}
	var line []one
	refused := make(chan struct{}, 1)
	for i := range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- l.inTurn(ctx, &r, func() (Verdict, error) {
				v, err := l.Check(ctx, r)
				if i == 0 {
					refused <- struct{}{}
				}
				return v, err
			})
		}()
		line = append(line, one{cancel, ended})
		for l.turns.waiting(r.route()) <= i {
			runtime.Gosched()
		}
	}
	line[1].giveUp(errWhy)
	if err := <-line[1].ended; !errors.Is(err, errWhy) || errors.Is(err, admission.ErrLimited) {
		t.Errorf("within the line: %v", err)
	}
	<-refused
	v.pass(2 * time.Hour) // For whoever asks next.
	line[0].giveUp(errWhy)
	if err := <-line[0].ended; !errors.Is(err, errWhy) || !errors.Is(err, admission.ErrLimited) {
		t.Errorf("at the head: %v", err)
	}
	check(t, <-line[2].ended)
	line[2].giveUp(nil)
}

// TestALineIsBounded.
func TestALineIsBounded(t *testing.T) {
	t.Parallel()
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: limited(none, admission.PerHour(1)), Timeout: patient})
	r := Request{Tenant: "acme"}
	var all []*waiter
	for range maxInLine {
		all = append(all, l.turns.stand(r.route()))
	}
	full := &admission.OverloadedError{}
	if _, err := l.Wait(t.Context(), r); !errors.As(err, &full) || full.Waiting != maxInLine {
		t.Errorf("one more: %v", err)
	}
	if v, err := l.Wait(t.Context(), Request{}); err != nil || !v.Admitted {
		t.Errorf("another way: %+v, %v", v, err)
	}
	for _, w := range all {
		l.turns.leave(r.route(), w)
	}
	if v, err := l.Wait(t.Context(), r); err != nil || !v.Admitted {
		t.Errorf("behind them: %+v, %v", v, err)
	}
}
