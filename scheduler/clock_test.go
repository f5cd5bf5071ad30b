package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

const steppedText = "clock of redis has stepped"

// leaseLeft returns how long the lease of a worker lasts yet, by the clock of Redis.
func leaseLeft(t *testing.T, client *redis.Client, store store.Deployment, worker string) time.Duration {
	t.Helper()
	end, err := client.ZScore(t.Context(), redisstore.Keys(store).Due(), "w"+worker).Result()
	if err != nil {
		t.Fatal(err)
	}
	now, err := store.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMicro(int64(end)).Sub(now)
}

// TestAStepOfTheClockArmsEveryLeaseAndIsSaidOnce: whoever of the schedulers sees it, and in whichever direction. The worker is not heard
// of again, so nothing else moves its lease.
func TestAStepOfTheClockArmsEveryLeaseAndIsSaidOnce(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t, 0)
	client := redistest.Start(t, redistest.Options{Clock: clock}).Client(t)
	store := open(t, client)
	var said logs
	b := newBench(t, store.Partitions()[0])
	b.admit("a")
	if _, ok := b.read(); !ok {
		t.Fatal("nothing to read")
	}
	for range 3 {
		s, _ := begin(t, store, scheduler.Config{Logger: said.logger()})
		await(t, "the scheduler to have looked", s.Looked)
	}
	for i, by := range []time.Duration{10 * time.Minute, -10 * time.Minute, -24 * time.Hour, 25 * time.Hour} {
		clock.Step(t, by)
		await(t, fmt.Sprint("the step by ", by, " to be said"), func() bool { return strings.Count(said.String(), steppedText) > i })
		if left := leaseLeft(t, client, store, b.worker); left < 59*time.Minute || left > time.Hour {
			t.Errorf("after a step by %s a lease of an hour lasts %s", by, left)
		}
		b.admit(fmt.Sprint("b-", i)) // Another look of some script.
		if n := strings.Count(said.String(), steppedText); n != i+1 {
			t.Errorf("%d steps are said %d times:\n%s", i+1, n, said.String())
		}
	}
	if n := client.XPending(t.Context(), redisstore.Keys(store).Ready(b.pool.ID()), "g").Val().Count; n != 1 {
		t.Errorf("the worker holds %d jobs, want 1", n)
	}
}

// TestSilenceIsNoStepOfTheClock: nobody called for an hour, meanwhile a lease ended. It is over then, and nothing is said, whether a
// scheduler was there before or comes now.
func TestSilenceIsNoStepOfTheClock(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{false, true} {
		t.Run(fmt.Sprint("there before: ", there), func(t *testing.T) {
			t.Parallel()
			client := redistest.Shared(t).Client(t)
			store := open(t, client)
			var said logs
			if there {
				s, _ := begin(t, store, scheduler.Config{Logger: said.logger()})
				await(t, "the scheduler to have looked", s.Looked)
			}
			b := newBench(t, store.Partitions()[0])
			dead := &bench{tb: t, store: store.Partitions()[0], pool: b.pool, worker: "dead"}
			if _, err := store.Partitions()[0].Register(t.Context(), dead.worker, dead.pool, 100, time.Hour); err != nil {
				t.Fatal(err)
			}
			b.admit("a")
			if _, ok := dead.read(); !ok {
				t.Fatal("nothing to read")
			}
			now, err := store.Time(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pipe := client.TxPipeline()
			redistest.SetState(t, pipe, redisstore.Keys(store).State(), "t", now.Add(-time.Hour).UnixMicro())
			pipe.ZAddXX(t.Context(), redisstore.Keys(store).Due(), redis.Z{Score: float64(now.UnixMicro()), Member: "wdead"})
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !there {
				run(t, store, scheduler.Config{Logger: said.logger()})
			}
			if back, ok := b.read(); !ok || back.Job.ID != "a" {
				t.Fatalf("got %+v, %v", back, ok)
			}
			if strings.Contains(said.String(), steppedText) {
				t.Errorf("silence is called a step:\n%s", said.String())
			}
		})
	}
}
