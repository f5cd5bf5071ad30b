package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
)

// punctual is how late a timer may run. What is late by design is late every time, so tests of it go on until one is
// punctual, for a minute: the machine may be late too.
const punctual = 100 * time.Millisecond

// best calls once, which returns how late a timer ran, until that is punctual, and returns the least.
func best(once func() time.Duration) time.Duration {
	least := once()
	for end := time.Now().Add(time.Minute); least > punctual && time.Now().Before(end); {
		least = min(least, once())
	}
	return least
}

func TestADelayedJobRunsWhenItIsDue(t *testing.T) {
	s := open(t, redistest.Shared(t).Client(t))
	run(t, s, scheduler.Config{})
	b := newBench(t, s.Partitions()[0])
	b.admit("a")
	lease, _ := b.read()
	for _, delay := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 333 * time.Millisecond, 1200 * time.Millisecond} {
		late := best(func() time.Duration {
			began := time.Now()
			b.finish(lease, store.Release, delay)
			next, ok := b.read()
			if !ok {
				t.Fatalf("a job delayed by %s did not come back", delay)
			}
			late := time.Since(began) - delay
			if late < 0 {
				t.Errorf("a job delayed by %s came %s early", delay, -late)
			}
			lease = next
			return late
		})
		t.Logf("a job delayed by %s came %s late", delay, late)
		if late > punctual {
			t.Errorf("a job delayed by %s came %s late at best", delay, late)
		}
	}
}

func TestAnEarlierTimerIsHeardWhileALaterOneIsAwaited(t *testing.T) {
	s := open(t, redistest.Shared(t).Client(t))
	run(t, s, scheduler.Config{TimerLease: 10 * time.Second}) // nothing but a wake comes in time
	b := newBench(t, s.Partitions()[0])
	b.admit("a")
	b.admit("b")
	first, _ := b.read()
	second, _ := b.read()
	b.finish(first, store.Release, time.Hour)
	late := best(func() time.Duration {
		began := time.Now()
		b.finish(second, store.Release, 200*time.Millisecond)
		back, ok := b.read()
		if !ok || back.Job.ID != "b" {
			t.Fatalf("got %+v, %v", back, ok)
		}
		second = back
		return time.Since(began) - 200*time.Millisecond
	})
	if late > punctual {
		t.Errorf("the earlier timer ran %s late at best", late)
	}
}

func TestAnEndedLeaseIsTakenBack(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	run(t, store, scheduler.Config{})
	b := newBench(t, store.Partitions()[0])
	dead := &bench{tb: t, store: store.Partitions()[0], pool: b.pool, worker: "dead"}
	if _, err := store.Partitions()[0].Register(t.Context(), dead.worker, dead.pool, 100, time.Hour); err != nil {
		t.Fatal(err)
	}
	b.admit("a")
	lease, ok := dead.read()
	if !ok {
		t.Fatal("nothing to read")
	}
	// Its last. By the one before the job would be its for an hour.
	if _, err := store.Partitions()[0].Heartbeat(t.Context(), dead.worker, 300*time.Millisecond, ""); err != nil {
		t.Fatal(err)
	}
	back, ok := b.read()
	if !ok || back.Job.ID != "a" || back.Token == lease.Token || !back.Suspect || back.Lost != 0 || back.Attempts != 0 {
		t.Fatalf("got %+v, %v", back, ok)
	}
}

func TestAnIdleSchedulerSendsLessThanFiveCommandsASecond(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	store := open(t, proxy.Client(t))
	newBench(t, store.Partitions()[0])
	run(t, store, scheduler.Config{})
	settled := time.NewTimer(time.Second)
	defer settled.Stop()
	<-settled.C
	before, began := proxy.Commands(), time.Now()
	idle := time.NewTimer(4 * time.Second)
	defer idle.Stop()
	<-idle.C
	sent, seconds := proxy.Commands()-before, time.Since(began).Seconds()
	t.Logf("%d commands in %.1f s", sent, seconds)
	if float64(sent) >= 5*seconds {
		t.Errorf("an idle scheduler sent %d commands in %.1f s", sent, seconds)
	}
}

func TestAnotherTakesOverWithinTheTimerLease(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	stop := run(t, s, scheduler.Config{})
	b := newBench(t, s.Partitions()[0])
	b.admit("a")
	lease, _ := b.read()
	for range 3 {
		run(t, s, scheduler.Config{})
	}
	b.finish(lease, store.Release, 100*time.Millisecond)
	stop()
	if _, ok := b.read(); !ok {
		t.Fatal("nobody took over")
	}
}

// TestAStandbyLooksWhenTheHoldersLeaseEnds, however long its own would be: a holder by hand is not heard of again.
func TestAStandbyLooksWhenTheHoldersLeaseEnds(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s := open(t, proxy.Client(t))
	b := newBench(t, s.Partitions()[0])
	b.admit("a")
	lease, _ := b.read()
	if _, err := s.Partitions()[0].Promote(t.Context(), "by hand", 2*time.Second); err != nil {
		t.Fatal(err)
	}
	b.finish(lease, store.Release, time.Millisecond)
	run(t, s, scheduler.Config{TimerLease: time.Minute})
	half, stop := context.WithTimeout(t.Context(), 30*time.Second) // of its own lease
	defer stop()
	for half.Err() == nil {
		sight, err := s.Look(t.Context(), admission.Key{Tenant: "acme", ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if sight.Place == admission.PlaceReady {
			return
		}
	}
	t.Error("it waits for the end of a lease of its own")
}

func TestManyJobsDueAtOnceAllRun(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	for range 2 {
		run(t, s, scheduler.Config{})
	}
	b := newBench(t, s.Partitions()[0])
	const jobs = 500
	held := make([]store.Lease, 0, jobs)
	for i := range jobs {
		b.admit(fmt.Sprint("job-", i))
		lease, ok := b.read()
		if !ok {
			t.Fatal("nothing to read")
		}
		held = append(held, lease)
		if len(held)%64 == 0 || i == jobs-1 {
			for _, lease := range held {
				b.finish(lease, store.Release, 500*time.Millisecond)
			}
			held = held[:0]
		}
	}
	seen := map[string]bool{}
	for len(seen) < jobs {
		lease, ok := b.read()
		if !ok {
			t.Fatalf("only %d of %d jobs came back", len(seen), jobs)
		}
		seen[lease.Job.ID] = true
		b.finish(lease, store.Complete, 0)
	}
}

func TestAnOutageIsLoggedOnceAndSurvived(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{AppendFsync: "always"})
	s := open(t, server.Client(t))
	var said logs
	run(t, s, scheduler.Config{Logger: said.logger(), TimerLease: 200 * time.Millisecond})
	b := newBench(t, s.Partitions()[0])
	b.admit("a")
	lease, _ := b.read()
	b.finish(lease, store.Release, 500*time.Millisecond)
	server.Kill(t)
	await(t, "the outage is logged", func() bool { return strings.Contains(said.String(), "redis does not answer") })
	server.Restart(t)
	await(t, "the recovery is logged", func() bool { return strings.Contains(said.String(), "redis answers again") })
	if back, ok := b.read(); !ok || back.Job.ID != "a" {
		t.Errorf("got %+v, %v", back, ok)
	}
	if n := strings.Count(said.String(), `"level":"error"`); n != 1 { // of all goroutines
		t.Errorf("the outage was logged %d times:\n%s", n, said.String())
	}
}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	_, err := scheduler.New(open(t, redistest.Shared(t).Client(t)), scheduler.Config{TimerLease: time.Millisecond})
	if !errors.Is(err, admission.ErrInvalid) || err.Error() != "configure scheduler: invalid TimerLease 1ms: allowed is 100ms to 1m" {
		t.Errorf("got %v", err)
	}
}
