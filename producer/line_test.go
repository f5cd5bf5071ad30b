package producer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// busyLine returns a line with one pilot under way, and the time at which its call went out.
func busyLine(t *testing.T, jobs, bytes int) (*line, time.Time) {
	t.Helper()
	l := &line{places: 1, jobs: jobs, bytes: bytes, patience: time.Minute}
	now := time.Now()
	if _, start, err := l.join(waitingTicket("first", 1, 0), now); !start || err != nil {
		t.Fatalf("the first does not fly: %v", err)
	}
	l.mu.tookOff = now
	return l, now
}

// join puts a ticket into a line that has a pilot.
func join(t *testing.T, l *line, now time.Time, x *ticket) *ticket {
	t.Helper()
	if _, start, err := l.join(x, now); start || err != nil {
		t.Fatalf("a pilot: %t; %v", start, err)
	}
	return x
}

// refused asserts that a ticket finds no room, and that nothing is known of it then.
func refused(t *testing.T, l *line, now time.Time, x *ticket) *admission.OverloadedError {
	t.Helper()
	before := l.mu.waiting.sums
	_, _, err := l.join(x, now)
	full, ok := errors.AsType[*admission.OverloadedError](err)
	if !ok || !errors.Is(err, admission.ErrOverloaded) || !errors.Is(err, admission.ErrUnavailable) || full.RetryAfter <= 0 {
		t.Fatalf("got %v", err)
	}
	if l.mu.waiting.sums != before || x.waits != nil {
		t.Errorf("who was turned away waits: %+v", l.mu.waiting.sums)
	}
	return full
}

func TestATenantMayHaveAsMuchWaitingAsIsLeftFree(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]struct{ jobs, payload int }{"jobs": {1, 0}, "bytes": {1, 1 << 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, now := busyLine(t, 100, 1<<30)
			if size.payload > 0 {
				l.jobs, l.bytes = 1<<30, 100<<10
			}
			fill := func(tenant string) (n int) {
				for n < 1000 {
					if _, _, err := l.join(waitingTicket(tenant, size.jobs, size.payload), now); err != nil {
						_ = refused(t, l, now, waitingTicket(tenant, size.jobs, size.payload))
						return n
					}
					n++
				}
				return n
			}
			// Half of all, then half of the rest, and so on: there is room for who comes last.
			for i, want := range []int{50, 25, 13, 6, 3} {
				if got := fill(strconv.Itoa(i)); got != want {
					t.Errorf("tenant %d has %d waiting, want %d", i, got, want)
				}
			}
			if got := refused(t, l, now, waitingTicket("0", 1, size.payload)).Waiting; got != 97 {
				t.Errorf("told that %d wait, want 97", got)
			}
		})
	}
}

func TestWhatIsLargerThanTheLineMayWaitAlone(t *testing.T) {
	t.Parallel()
	l, now := busyLine(t, 100, 1<<10)
	join(t, l, now, waitingTicket("acme", 1, 1<<20))
	_ = refused(t, l, now, waitingTicket("beta", 1, 1))
}

// TestWhoCannotBeServedInTimeIsToldSoAtOnce: ten calls of a second wait, one at a time, which is longer than others have.
func TestWhoCannotBeServedInTimeIsToldSoAtOnce(t *testing.T) {
	t.Parallel()
	l, now := busyLine(t, 1<<20, 1<<30)
	l.mu.takes = time.Second
	for range 10 {
		join(t, l, now, waitingTicket("flood", store.MaxBatchJobs, 0))
	}
	for _, c := range []struct {
		tenant string
		has    time.Duration
		served bool
	}{
		{"flood", 10 * time.Second, false},
		{"flood", 12 * time.Second, true},         // ten others, then its own
		{"light", 1500 * time.Millisecond, false}, // one of the flood's has its turn before
		{"light", 4 * time.Second, true},
	} {
		x := waitingTicket(c.tenant, 1, 0)
		x.deadline = now.Add(c.has)
		if !c.served {
			if after := refused(t, l, now, x).RetryAfter; after < time.Second || after > 11*time.Second {
				t.Errorf("%+v is to come again after %s", c, after)
			}
			continue
		}
		join(t, l, now, x)
		l.mu.waiting.remove(x)
	}
	l.mu.waiting = turns{}
	alone := waitingTicket("light", 1, 0)
	alone.deadline = now.Add(time.Millisecond)
	if _, _, err := l.join(alone, now); !errors.Is(err, admission.ErrUnavailable) || errors.Is(err, admission.ErrOverloaded) {
		t.Errorf("a caller with a millisecond left, where nobody waits: %v", err)
	}
}

// TestALightTenantGoesWithTheNextCall behind a thousand jobs of another.
func TestALightTenantGoesWithTheNextCall(t *testing.T) {
	t.Parallel()
	l, now := busyLine(t, 1<<20, 1<<30)
	for range 1000 {
		join(t, l, now, waitingTicket("flood", 1, 0))
	}
	light := join(t, l, now, waitingTicket("light", 1, 0))
	f := l.board(nil, now)
	if light.state != aboard || len(f.tickets) != store.MaxBatchJobs {
		t.Errorf("a light tenant's job is %d, of a call of %d", light.state, len(f.tickets))
	}
}

// TestPlacesTakeTurnsWhereRedisIsFar: with fewer jobs than are under way another call goes out once a place's part of the time is over that a call
// takes, a millisecond at least, but no call of less is waited for longer than it takes.
func TestPlacesTakeTurnsWhereRedisIsFar(t *testing.T) {
	t.Parallel()
	for takes, after := range map[time.Duration]time.Duration{
		80 * time.Millisecond: 10 * time.Millisecond, 4 * time.Millisecond: time.Millisecond, 300 * time.Microsecond: 300 * time.Microsecond,
	} {
		l, now := busyLine(t, 100, 1<<20)
		l.places, l.mu.takes, l.mu.aloft = 8, takes, 50
		for range 10 {
			join(t, l, now, waitingTicket("flood", 1, 0))
		}
		if _, start, err := l.join(waitingTicket("light", 1, 0), now.Add(after)); start || err != nil {
			t.Errorf("calls of %s: another goes out %s after the last: %t, %v", takes, after, start, err)
		}
		if _, start, err := l.join(waitingTicket("light", 1, 0), now.Add(after+1)); !start || err != nil {
			t.Errorf("calls of %s: none goes out later than %s after the last: %v", takes, after, err)
		}
	}
}

// TestWhatHasLandedIsNotUnderWay: jobs of calls that have their answer, or could not be sent, do not keep others from going out.
func TestWhatHasLandedIsNotUnderWay(t *testing.T) {
	t.Parallel()
	l, now := busyLine(t, 100, 1<<20)
	l.places, l.mu.pilots, l.mu.takes = 2, 2, time.Minute
	f := l.board(waitingTicket("big", 30, 0), now)
	join(t, l, now, waitingTicket("next", 2, 0))
	l.land(f, nil)
	l.mu.aloft++ // of the other pilot's call
	for range 2 {
		next := l.board(nil, now)
		if next == nil || next.jobs != 2 {
			t.Fatalf("beside a job that is under way two do not go: %+v", next)
		}
		if _, ok := l.takeOff(next, now.Add(2*time.Hour)); ok {
			t.Fatal("who has no time left takes off")
		}
		join(t, l, now, waitingTicket("again", 2, 0))
		l.land(next, errTooLate)
	}
}

// TestWhoHasNoTimeLeftIsNotSent, but for the last that waits: how long calls take is known from calls alone.
func TestWhoHasNoTimeLeftIsNotSent(t *testing.T) {
	t.Parallel()
	l, now := busyLine(t, 100, 1<<20)
	late, good, alone := waitingTicket("a", 1, 0), waitingTicket("a", 1, 0), waitingTicket("a", 1, 0)
	join(t, l, now, late)
	join(t, l, now, good)
	l.mu.takes = 10 * time.Second
	late.deadline, alone.deadline = now.Add(9*time.Second), now.Add(9*time.Second)
	f := l.board(nil, now)
	if late.state != settled || !errors.Is(late.failure, admission.ErrUnavailable) || len(f.tickets) != 1 || f.tickets[0] != good {
		t.Errorf("who was late is %d, %v; %d are aboard", late.state, late.failure, len(f.tickets))
	}
	l.land(f, nil)
	l.mu.takes = 0
	join(t, l, now, alone)
	l.mu.takes = 10 * time.Second
	if f := l.board(nil, now); len(f.tickets) != 1 || f.tickets[0] != alone {
		t.Error("nobody is sent any more")
	}
}

// TestHowLongACallTakesIsKnownFromTheSlow: the estimate rises at once and falls by quarters, and is never more than half of the
// time-out, so that who has just come is always sent.
func TestHowLongACallTakesIsKnownFromTheSlow(t *testing.T) {
	t.Parallel()
	l := &line{patience: time.Second}
	for _, c := range []struct{ took, takes time.Duration }{
		{100 * time.Millisecond, 100 * time.Millisecond},
		{20 * time.Millisecond, 80 * time.Millisecond},
		{20 * time.Millisecond, 65 * time.Millisecond},
		{90 * time.Millisecond, 90 * time.Millisecond},
		{time.Minute, time.Second},
	} {
		l.answered(c.took)
		if l.mu.takes != c.takes {
			t.Errorf("after a call of %s one takes %s, want %s", c.took, l.mu.takes, c.takes)
		}
	}
	l.mu.takes = 0
	l.missed(&flight{}, 300*time.Millisecond, errTooLate)
	if l.mu.takes != 0 {
		t.Error("a call that was never made counts")
	}
	l.missed(&flight{doubted: true}, 300*time.Millisecond, errTooLate)
	if l.mu.takes != 300*time.Millisecond {
		t.Errorf("after a call of 300ms without an answer one takes %s", l.mu.takes)
	}
}

// TestWhoLeavesIsToldWhetherItWasSent, in each of the states.
func TestWhoLeavesIsToldWhetherItWasSent(t *testing.T) {
	t.Parallel()
	l, now := busyLine(t, 100, 1<<20)
	cause := fmt.Errorf("%w: %w", errTimeout, context.DeadlineExceeded)
	refusedDial := fmt.Errorf("%w: dial", admission.ErrUnavailable)
	certain := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, admission.ErrUnavailable) || errors.Is(err, admission.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
	doubtful := func(what string, err error) {
		t.Helper()
		if errors.Is(err, admission.ErrUnavailable) || !errors.Is(err, admission.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
	tickets := make([]*ticket, 5)
	for i := range tickets {
		tickets[i] = join(t, l, now, waitingTicket("a", 1, 0))
	}
	certain("queued", l.leave(tickets[0], cause))
	f := l.board(nil, now)
	certain("aboard", l.leave(tickets[1], cause))
	if _, ok := l.takeOff(f, now); !ok || len(f.tickets) != 3 {
		t.Fatalf("%d are sent, want those 3 that have not left", len(f.tickets))
	}
	doubtful("under way", l.leave(tickets[2], cause))
	l.missed(f, 0, refusedDial)
	certain("not sent after all", l.leave(tickets[3], cause))
	if latest, ok := l.takeOff(f, now); !ok || len(f.tickets) != 1 || !latest.Equal(tickets[4].deadline) {
		t.Fatalf("%d are sent again, want 1", len(f.tickets))
	}
	f.doubted = true
	l.missed(f, 0, refusedDial)
	doubtful("without an answer", l.leave(tickets[4], cause))
	if _, ok := l.takeOff(f, now); ok {
		t.Error("a flight that everybody has left is sent again")
	}
}

// TestOnePilotFindsOutWhetherRedisIsBack: no other begins meanwhile, and its answer wakes those that pause.
func TestOnePilotFindsOutWhetherRedisIsBack(t *testing.T) {
	t.Parallel()
	l, now := busyLine(t, 1<<20, 1<<30)
	l.places = 4
	back, failures, pilots := l.missed(&flight{}, 0, errTooLate)
	if failures != 1 || pilots != 1 {
		t.Errorf("%d failures, %d pilots", failures, pilots)
	}
	for range 3 * store.MaxBatchJobs {
		join(t, l, now.Add(time.Minute), waitingTicket("a", 1, 0))
	}
	if !l.answered(0) || l.answered(0) {
		t.Error("it is not said once that Redis is back")
	}
	<-back
	if _, start, _ := l.join(waitingTicket("a", 1, 0), now); !start {
		t.Error("full calls wait for one pilot although Redis is back")
	}
}

// TestTurningAwayCostsLittle: under overload most calls are that, so one makes no ticket, no channel and no timer.
func TestTurningAwayCostsLittle(t *testing.T) {
	l, now := busyLine(t, store.MaxBatchJobs, 1<<20)
	for range store.MaxBatchJobs / 2 {
		join(t, l, now, waitingTicket("acme", 1, 0))
	}
	_ = refused(t, l, now, waitingTicket("acme", 1, 0))
	if l.crowd.Load() == nil {
		t.Fatal("nobody knows that the line is crowded")
	}
	job := admission.NewJob("acme", "mail", "send", nil)
	if allocations := testing.AllocsPerRun(100, func() {
		if l.refuse(&job, time.Minute) == nil {
			t.Fatal("let in")
		}
	}); allocations > 0 {
		t.Errorf("%v allocations, want none", allocations)
	}
	job.Tenant = "light"
	if err := l.refuse(&job, time.Minute); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	c, away := l.crowd.Load(), &admission.OverloadedError{}
	for n := 0; ; n++ {
		if job.Tenant = strconv.Itoa(n); c.place(job.Tenant) == c.place("acme") {
			break
		}
	}
	if err := l.refuse(&job, time.Minute); err != nil {
		t.Errorf("another tenant, %s, with the same place: %v", job.Tenant, err)
	}
	c.note(&turnedAway{tenant: "large", bytes: 10, left: time.Second, answer: away})
	for _, row := range []struct {
		bytes int
		left  time.Duration
		away  bool
	}{{10, time.Second, true}, {11, time.Millisecond, true}, {9, time.Second, false}, {10, 2 * time.Second, false}} {
		job := admission.NewJob("large", "mail", "send", make([]byte, row.bytes))
		if got := c.answer(&job, row.left) != nil; got != row.away {
			t.Errorf("%d bytes with %s left: %t", row.bytes, row.left, got)
		}
	}
	l.board(nil, now)
	if l.crowd.Load() != nil {
		t.Error("a line that has moved is still said to be crowded")
	}
}

// TestWhoHasLeftLeavesTheTicket: one that a flight may have is not used again, for another job's answer would come by it.
func TestWhoHasLeftLeavesTheTicket(t *testing.T) {
	t.Parallel()
	l := &line{places: 1, jobs: 100, bytes: 1 << 20}
	j := testJob("a")
	left := l.ticket(t.Context(), time.Now().Add(time.Minute), &j)
	if _, start, err := l.join(left, time.Now()); err != nil || !start {
		t.Fatal(start, err)
	}
	if err := l.leave(left, context.Canceled); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	l.recycle(left)
	for range 100 {
		if l.ticket(t.Context(), time.Now().Add(time.Minute), &j) == left {
			t.Fatal("a ticket that a pilot still has is used again")
		}
	}
}

// TestNobodyWaitsBehindACallThatHangs: one job comes right after a call went out that hangs, and nobody comes after it. It goes by a call of its own.
func TestNobodyWaitsBehindACallThatHangs(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(s, Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second, Uncounted: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Enqueue(t.Context(), testJob("warm")); err != nil {
		t.Fatal(err)
	}
	release, hangs := make(chan struct{}), make(chan struct{})
	hung := false
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if hung || !c.IsScript() || !strings.HasSuffix(c.Args[0], "_admit") {
			return redistest.Action{}
		}
		hung = true
		close(hangs)
		return redistest.Action{Hold: release}
	})
	p.small.mu.Lock()
	p.small.mu.takes = time.Second // so that the one who comes is not late yet
	p.small.mu.Unlock()
	var batch sync.WaitGroup
	batch.Go(func() {
		if _, err := p.EnqueueBatch(t.Context(), []admission.Job{testJob("a"), testJob("b")}); err != nil {
			t.Error(err)
		}
	})
	<-hangs
	if _, err := p.Enqueue(t.Context(), testJob("alone")); err != nil {
		t.Errorf("Redis answers, and places are free: %v", err)
	}
	close(release)
	batch.Wait()
}
