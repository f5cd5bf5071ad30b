package producer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// clockwork is one test's corner of a Redis for periodic jobs.
type clockwork struct {
	*testing.T
	client *redis.Client
	store  store.Deployment
}

func newClockwork(t *testing.T) *clockwork {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	return &clockwork{T: t, client: client, store: open(t, client)}
}

// run starts as many instances, each with a producer of its own, and returns what stops them.
func (c *clockwork) run(instances int, config producer.PeriodicConfig) (stop func()) {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	for range instances {
		p, err := producer.NewPeriodic(newProducer(c, c.store, producer.Config{Policy: new(policy.Unlimited())}), config)
		if err != nil {
			c.Fatal(err)
		}
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				c.Error(err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	c.Cleanup(stop)
	return stop
}

// ticks returns the ticks of the jobs that live, in seconds since 1970.
func (c *clockwork) ticks() []int64 {
	c.Helper()
	ids, err := c.client.HKeys(c.Context(), redisstore.Keys(c.store).Jobs()).Result()
	if err != nil {
		c.Fatal(err)
	}
	ticks := make([]int64, len(ids))
	for i, id := range ids {
		name, second, _ := strings.Cut(id, "@")
		if ticks[i], err = strconv.ParseInt(second, 10, 64); err != nil || name != "acme:report" {
			c.Fatalf("job %s: %v", id, err)
		}
	}
	slices.Sort(ticks)
	return ticks
}

func (c *clockwork) await(what string, done func() bool) {
	c.Helper()
	await(c, what, done)
}

// setLast makes it look as if the last tick had been long ago.
func (c *clockwork) setLast(at time.Time) {
	c.Helper()
	if err := c.client.HSet(c.Context(), redisstore.Keys(c.store).Periodic(), "report", at.UnixMicro()).Err(); err != nil {
		c.Fatal(err)
	}
}

// report is the job of these tests.
func report(spec string) producer.PeriodicJob {
	return producer.PeriodicJob{Name: "report", Spec: spec, Job: job("acme")}
}

func TestFourInstancesEnqueueEachTickOnce(t *testing.T) {
	t.Parallel()
	c := newClockwork(t)
	stop := c.run(4, producer.PeriodicConfig{Seconds: true, Jobs: []producer.PeriodicJob{report("* * * * * *")}})
	c.await("three ticks", func() bool { return len(c.ticks()) >= 3 })
	stop()
	ticks := c.ticks()
	for i, tick := range ticks {
		if tick != ticks[0]+int64(i) {
			t.Errorf("ticks %v: some are missing", ticks)
		}
	}
	if now := time.Now(); now.Sub(time.Unix(ticks[len(ticks)-1], 0)) > 10*time.Second {
		t.Errorf("the last tick is %d, now is %d", ticks[len(ticks)-1], now.Unix())
	}
	counts := census(t, c.store)
	if counts.Accepted != int64(len(ticks)) {
		t.Errorf("%d jobs of %d ticks", counts.Accepted, len(ticks))
	}
	// Whoever was stopped while it waited for the answer of the last one has not noted it.
	noted, err := c.client.HGet(t.Context(), redisstore.Keys(c.store).Periodic(), "report").Int64()
	if last := ticks[len(ticks)-1]; err != nil || noted != last*1_000_000 && noted != (last-1)*1_000_000 {
		t.Errorf("noted is %d, %v, the last tick %d", noted, err, last)
	}
}

func TestATickThatIsForgottenByTheWindowOfIdsRunsOnceAllTheSame(t *testing.T) {
	t.Parallel()
	c := newClockwork(t)
	daily := report("@every 24h")
	daily.Missed = producer.MissedOnce
	config := producer.PeriodicConfig{Jobs: []producer.PeriodicJob{daily}}
	long := time.Now().Add(-100 * 24 * time.Hour)
	c.setLast(long)
	stop := c.run(1, config)
	c.await("the tick", func() bool { return len(c.ticks()) == 1 })
	noted := func() bool {
		last, err := c.store.Partitions()[0].LastTick(t.Context(), "report", long)
		return err == nil && last.After(long.Add(time.Hour))
	}
	c.await("its note", noted)
	stop()
	tick := admission.Key{Tenant: "acme", ID: fmt.Sprint("report@", c.ticks()[0])}
	if _, _, err := c.store.Cancel(t.Context(), tick, store.Intervention{Reason: "it has run"}); err != nil {
		t.Fatal(err)
	}
	for generation := range 3 {
		c.client.Del(t.Context(), redisstore.Keys(c.store).Base()+fmt.Sprint("ended:", generation))
	}
	if _, _, err := c.store.Cancel(t.Context(), tick, store.Intervention{}); !errors.Is(err, admission.ErrUnknownJob) {
		t.Fatalf("the id is not forgotten: %v", err)
	}
	c.setLast(long) // The process died before it noted the tick.
	c.run(2, config)
	c.await("the note again", noted)
	if counts := census(t, c.store); counts.Accepted != 1 {
		t.Errorf("the tick ran %d times", counts.Accepted)
	}
}

func TestMissedTicksByEachPolicy(t *testing.T) {
	t.Parallel()
	const period = 10 * 24 * time.Hour
	for _, row := range []struct {
		missed    producer.Missed
		maxMissed int
		want      int
	}{{"", 0, 0}, {producer.MissedOnce, 0, 1}, {producer.MissedAll, 4, 4}, {producer.MissedAll, 0, 10}} {
		t.Run(fmt.Sprint(row.missed, row.maxMissed), func(t *testing.T) {
			t.Parallel()
			c := newClockwork(t)
			entry := report("@every 240h")
			entry.Missed, entry.MaxMissed = row.missed, row.maxMissed
			now := time.Now()
			c.setLast(now.Add(-10 * period))
			c.run(2, producer.PeriodicConfig{Jobs: []producer.PeriodicJob{entry}})
			c.await("the note", func() bool {
				last, err := c.store.Partitions()[0].LastTick(t.Context(), "report", now)
				return err == nil && last.After(now.Add(-period))
			})
			ticks := c.ticks()
			latest := now.Unix() / int64(period.Seconds()) * int64(period.Seconds())
			if len(ticks) != row.want || row.want > 0 && (ticks[row.want-1] != latest || ticks[0] != latest-int64(row.want-1)*int64(period.Seconds())) {
				t.Errorf("got %v, the latest tick is %d", ticks, latest)
			}
		})
	}
}

func TestATickIsAskedForAgainUntilItEnters(t *testing.T) {
	t.Parallel()
	c := newClockwork(t)
	if err := c.store.Suspend(t.Context(), store.TenantGate("acme"), 1500*time.Millisecond, store.Intervention{Reason: "moving house"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	entry := report("* * * * * *")
	entry.Make = func(tick time.Time) admission.Job {
		j := job("acme")
		j.ID, j.Delay, j.Deadline = "not this one", time.Hour, tick.Add(time.Minute)
		return j
	}
	c.run(1, producer.PeriodicConfig{Seconds: true, Jobs: []producer.PeriodicJob{entry}})
	c.await("a tick from before the end of the suspension", func() bool {
		ticks := c.ticks()
		return len(ticks) > 0 && ticks[0] <= began.Unix()+1
	})
}

func TestBadPeriodicJobsAreErrorsAtOnce(t *testing.T) {
	t.Parallel()
	p := newProducer(t, open(t, redistest.Shared(t).Client(t)), producer.Config{})
	with := func(change func(*producer.PeriodicJob)) producer.PeriodicConfig {
		entry := report("@hourly")
		change(&entry)
		return producer.PeriodicConfig{Jobs: []producer.PeriodicJob{entry}}
	}
	const allowed = `: allowed is five fields of cron (minute hour day month weekday), "@hourly" and its like, or "@every" and whole seconds, after "CRON_TZ=ZONE " if need be`
	for _, c := range []struct {
		config producer.PeriodicConfig
		want   string
	}{
		{producer.PeriodicConfig{}, "invalid Jobs 0 jobs: allowed is 1 to 1000 jobs"},
		{with(func(e *producer.PeriodicJob) { e.Spec = "cron nonsense" }), `invalid Jobs[0].Spec "cron nonsense"` + allowed + ` (expected exactly 5 fields, found 2: [cron nonsense])`},
		{with(func(e *producer.PeriodicJob) { e.Name = "" }), `invalid Jobs[0].Name "": allowed is 1-128 bytes of [A-Za-z0-9._:@/-]`},
		{with(func(e *producer.PeriodicJob) { e.Name = strings.Repeat("n", 101) }), `invalid Jobs[0].Name of 101 bytes: allowed is 1-100 bytes`},
		{with(func(e *producer.PeriodicJob) { e.Missed = "some" }), `invalid Jobs[0].Missed "some": allowed is "skip", "once" or "all"`},
		{with(func(e *producer.PeriodicJob) { e.MaxMissed = 1001 }), `invalid Jobs[0].MaxMissed 1001: allowed is 1 to 1000 ticks`},
		{with(func(e *producer.PeriodicJob) { e.Job.ID = "x" }), `invalid Jobs[0].Job with an ID, a RunAt, a Delay or a Unique: allowed is a job without: they are the tick's`},
		{with(func(e *producer.PeriodicJob) { e.Job.Deadline = time.Now() }), `invalid Jobs[0].Job with a Deadline: allowed is one that Make returns: it is another for each tick`},
		{with(func(e *producer.PeriodicJob) { e.Job.Cost = 0 }), `Jobs[0].Job: invalid cost 0: allowed is 1 to 1000000 tokens`},
		{producer.PeriodicConfig{Jobs: []producer.PeriodicJob{report("@daily"), report("@hourly")}}, `invalid Jobs[1].Name "report": allowed is a name no other job has`},
	} {
		if _, err := producer.NewPeriodic(p, c.config); !errors.Is(err, admission.ErrInvalid) || err.Error() != "configure periodic jobs: "+c.want {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
}

// TestAMakeThatPanicsCostsItsTickOnly: the next ones come.
func TestAMakeThatPanicsCostsItsTickOnly(t *testing.T) {
	t.Parallel()
	c := newClockwork(t)
	var first atomic.Int64
	entry := report("* * * * * *")
	entry.Make = func(tick time.Time) admission.Job {
		if first.CompareAndSwap(0, tick.Unix()) {
			panic("no template")
		}
		return job("acme")
	}
	var said strings.Builder
	stop := c.run(1, producer.PeriodicConfig{Seconds: true, Jobs: []producer.PeriodicJob{entry}, Logger: zerolog.New(&said)})
	c.await("a tick after it", func() bool { return len(c.ticks()) > 0 })
	stop()
	if ticks := c.ticks(); ticks[0] <= first.Load() || !strings.Contains(said.String(), "panic: no template") {
		t.Errorf("the first tick was %d, now there are %v; the log says\n%s", first.Load(), ticks, said.String())
	}
}
