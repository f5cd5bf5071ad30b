package scheduler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/scheduler"
)

// punctual is how late a timer may run. Those tests measure time, so they are not parallel; on a machine that does
// something else beside, they take the best of a few.
const punctual = 100 * time.Millisecond

func TestADelayedJobRunsWhenItIsDue(t *testing.T) {
	store := open(t, redistest.Shared(t).Client(t))
	run(t, store, scheduler.Config{})
	b := newBench(t, store)
	b.admit("a")
	lease, _ := b.read(time.Second)
	for _, delay := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 333 * time.Millisecond, 1200 * time.Millisecond} {
		best := time.Hour
		for try := 0; try < 3 && best > punctual; try++ {
			began := time.Now()
			b.finish(lease, lua.Release, delay)
			next, ok := b.read(5 * time.Second)
			if !ok {
				t.Fatalf("a job delayed by %s did not come back", delay)
			}
			late := time.Since(began) - delay
			if late < 0 {
				t.Errorf("a job delayed by %s came %s early", delay, -late)
			}
			best = min(best, late)
			lease = next
		}
		t.Logf("a job delayed by %s came %s late", delay, best)
		if best > punctual {
			t.Errorf("a job delayed by %s came %s late at best", delay, best)
		}
	}
}

func TestAnEarlierTimerIsHeardWhileALaterOneIsAwaited(t *testing.T) {
	store := open(t, redistest.Shared(t).Client(t))
	run(t, store, scheduler.Config{TimerLease: 10 * time.Second}) // nothing but a wake comes in time
	b := newBench(t, store)
	b.admit("a")
	b.admit("b")
	first, _ := b.read(time.Second)
	second, _ := b.read(time.Second)
	b.finish(first, lua.Release, time.Hour)
	best := time.Hour
	for try := 0; try < 3 && best > punctual; try++ {
		began := time.Now()
		b.finish(second, lua.Retry, 200*time.Millisecond)
		back, ok := b.read(5 * time.Second)
		if !ok || back.Job.ID != "b" || back.Attempts != try+1 {
			t.Fatalf("got %+v, %v", back, ok)
		}
		best = min(best, time.Since(began)-200*time.Millisecond)
		second = back
	}
	if best > punctual {
		t.Errorf("the earlier timer ran %s late at best", best)
	}
}

func TestAnEndedLeaseIsTakenBack(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	run(t, store, scheduler.Config{})
	b := newBench(t, store)
	dead := &bench{tb: t, store: store, pool: b.pool, worker: "dead"}
	if _, err := store.Register(t.Context(), dead.worker, dead.pool, 100, 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	b.admit("a")
	lease, ok := dead.read(time.Second)
	if !ok {
		t.Fatal("nothing to read")
	}
	began := time.Now()
	back, ok := b.read(5 * time.Second)
	if !ok || back.Job.ID != "a" || back.Token == lease.Token || !back.Suspect || back.Lost != 0 || back.Attempts != 0 {
		t.Fatalf("got %+v, %v", back, ok)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("a lease of 300 ms was taken back after %s", took)
	}
}

func TestAnIdleSchedulerSendsLessThanFiveCommandsASecond(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	store := open(t, proxy.Client(t))
	newBench(t, store)
	run(t, store, scheduler.Config{})
	settled := time.NewTimer(time.Second)
	defer settled.Stop()
	<-settled.C
	before := proxy.Commands()
	const seconds = 4
	idle := time.NewTimer(seconds * time.Second)
	defer idle.Stop()
	<-idle.C
	sent := proxy.Commands() - before
	t.Logf("%d commands in %d s", sent, seconds)
	if sent >= 5*seconds {
		t.Errorf("an idle scheduler sent %d commands in %d s", sent, seconds)
	}
}

func TestAnotherTakesOverWithinTheTimerLease(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	stop := run(t, store, scheduler.Config{})
	b := newBench(t, store)
	b.admit("a")
	lease, _ := b.read(time.Second)
	for range 3 {
		run(t, store, scheduler.Config{})
	}
	began := time.Now()
	b.finish(lease, lua.Release, 100*time.Millisecond)
	stop()
	if _, ok := b.read(5 * time.Second); !ok {
		t.Fatal("nobody took over")
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("a timer of 100 ms ran after %s", took)
	}
}

func TestManyJobsDueAtOnceAllRun(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	for range 2 {
		run(t, store, scheduler.Config{})
	}
	b := newBench(t, store)
	const jobs = 500
	held := make([]lua.Lease, 0, jobs)
	for i := range jobs {
		b.admit(fmt.Sprint("job-", i))
		lease, ok := b.read(time.Second)
		if !ok {
			t.Fatal("nothing to read")
		}
		held = append(held, lease)
		if len(held)%64 == 0 || i == jobs-1 {
			for _, lease := range held {
				b.finish(lease, lua.Release, 500*time.Millisecond)
			}
			held = held[:0]
		}
	}
	seen := map[string]bool{}
	for len(seen) < jobs {
		lease, ok := b.read(5 * time.Second)
		if !ok {
			t.Fatalf("only %d of %d jobs came back", len(seen), jobs)
		}
		seen[lease.Job.ID] = true
		b.finish(lease, lua.Complete, 0)
	}
}

func TestAStepOfTheClockIsSaidLoudly(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	store := open(t, client)
	var said logs
	run(t, store, scheduler.Config{Logger: said.logger()})
	b := newBench(t, store)
	if err := client.HSet(t.Context(), store.Keys().State(), "t", time.Now().Add(-time.Hour).UnixMicro()).Err(); err != nil {
		t.Fatal(err)
	}
	b.admit("a") // Some script sees it first.
	await(t, "the step is logged", func() bool { return strings.Contains(said.String(), "clock of redis has stepped") })
}

func TestAnOutageIsLoggedOnceAndSurvived(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{AppendFsync: "always"})
	store := open(t, server.Client(t))
	var said logs
	run(t, store, scheduler.Config{Logger: said.logger(), TimerLease: 200 * time.Millisecond})
	b := newBench(t, store)
	b.admit("a")
	lease, _ := b.read(time.Second)
	b.finish(lease, lua.Release, 500*time.Millisecond)
	server.Kill(t)
	await(t, "the outage is logged", func() bool { return strings.Count(said.String(), "redis does not answer") == 2 })
	server.Restart(t)
	await(t, "the recovery is logged", func() bool { return strings.Count(said.String(), "redis answers again") == 2 })
	if back, ok := b.read(5 * time.Second); !ok || back.Job.ID != "a" {
		t.Errorf("got %+v, %v", back, ok)
	}
	if n := strings.Count(said.String(), "redis does not answer"); n != 2 { // one of each goroutine
		t.Errorf("the outage was logged %d times:\n%s", n, said.String())
	}
}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	_, err := scheduler.New(open(t, redistest.Shared(t).Client(t)), scheduler.Config{TimerLease: time.Millisecond})
	if !errors.Is(err, headgate.ErrInvalid) || err.Error() != "configure scheduler: invalid TimerLease 1ms: allowed is 100ms to 1m" {
		t.Errorf("got %v", err)
	}
}
