package worker_test

import (
	"context"
	"fmt"
	"math/bits"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// TestAJobThatKillsItsWorkersIsADeadLetterAndItsNeighboursComplete: one process dies with each delivery, and another
// takes its place, as under any supervisor. Nobody knows who killed the first; so where one proven loss is enough, the
// neighbours that died with it must not be convicted.
func TestAJobThatKillsItsWorkersIsADeadLetterAndItsNeighboursComplete(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, store.DefaultPoisonLimit} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			t.Parallel()
			testPoison(t, limit)
		})
	}
}

func testPoison(t *testing.T, limit int) {
	t.Helper()
	r := newRig(t)
	text, err := policy.Marshal(policy.Policy{Version: 1})
	if err == nil {
		err = r.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: text, Queues: []store.QueueSettings{{
			Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, PoisonLimit: limit,
		}}})
	}
	if err == nil {
		r.producer, err = producer.New(r.store, producer.Config{})
	}
	if err != nil {
		t.Fatal(err)
	}
	const neighbours = 2 * roleSlots
	r.enqueue(job("poison", "a"))
	for i := range neighbours {
		j := job("send", fmt.Sprint("neighbour-", i))
		j.MaxAttempts = 1
		r.enqueue(j)
	}
	deaths, last := 0, r.process()
	for ; r.dies(last); last = r.process() {
		deaths++
		r.expire(r.registrations())
	}
	c := r.census()
	if c.Left["completed"] != neighbours || c.Dead != 1 || c.Died["poison"] != 1 {
		t.Errorf("got %+v", c)
	}
	if got, want := r.why(), fmt.Sprintf("poison|%d workers were lost that ran it", limit); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if most := 1 + bits.Len(roleSlots-1) + limit; deaths < 1+limit || deaths > most {
		t.Errorf("%d workers died, want %d at least, and %d at most with %d jobs in hand", deaths, 1+limit, most, roleSlots)
	}
	if err := last.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if signal := last.end(t); signal != 0 {
		t.Errorf("the last worker ended by %v", signal)
	}
}

// dies reports whether a process is killed before no job is left.
func (r *rig) dies(p *process) (killed bool) {
	r.tb.Helper()
	r.await("a death, or the end of all jobs", func() bool {
		select {
		case <-p.ended:
			if signal := p.end(r.tb); signal != syscall.SIGKILL {
				r.tb.Fatalf("a worker ended by %v", signal)
			}
			killed = true
			return true
		default:
			c := r.census()
			return c.Waiting+c.Later+c.Ready == 0
		}
	})
	return killed
}

func TestADeployCostsNobodyAnAttemptOrADelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range roleSlots {
		r.enqueue(job("long", fmt.Sprint("long-", i)))
	}
	p := r.process()
	r.await("the jobs to be taken", func() bool {
		info, err := r.client.XPending(t.Context(), redisstore.Keys(r.store).Ready(pool.ID()), "g").Result()
		return err == nil && info.Count == roleSlots
	})
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if signal := p.end(t); signal != 0 {
		t.Errorf("the worker ended by %v", signal)
	}
	if c := r.census(); c.Waiting != roleSlots || c.Later != 0 || c.Ready != 0 {
		t.Errorf("got %+v", c)
	}
	for _, lease := range r.takeByHand(roleSlots) {
		if lease.Attempts != 0 || lease.Suspect {
			t.Errorf("job %s came back with %d attempts burnt, a suspect: %t", lease.Job.ID, lease.Attempts, lease.Suspect)
		}
	}
}

// pool is that of a worker which serves the queue "mail" alone.
var pool = store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}

// lose makes suspects of all jobs that wait: a worker by hand takes them and is not heard of again.
func (r *rig) lose(count int) {
	r.tb.Helper()
	r.loseWith("lost", count)
}

func (r *rig) loseWith(name string, count int) {
	r.tb.Helper()
	if _, err := r.store.Partitions()[0].Register(r.tb.Context(), name, pool, count, 50*time.Millisecond); err != nil {
		r.tb.Fatal(err)
	}
	taken := 0
	for taken < count {
		leases, err := r.store.Partitions()[0].Read(r.tb.Context(), name, pool.ID(), count, time.Second, false)
		if err != nil || len(leases) == 0 {
			r.tb.Fatalf("took %d of %d jobs: %v", taken, count, err)
		}
		taken += len(leases)
	}
}

// TestSuspectsOfOneDeathRunTogether: sixty neighbours of one death take the time of one job where there are as many slots, each
// begins once, and none is handed back. Each handler waits until all run.
func TestSuspectsOfOneDeathRunTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const suspects, workers = 60, 3
	for i := range suspects {
		r.enqueue(job("send", fmt.Sprint("suspect-", i)))
	}
	r.lose(suspects)
	var begun, unnoted atomic.Int64
	all := make(chan struct{})
	handler := func(ctx context.Context, job worker.Job[[]byte]) error {
		if by, err := r.client.HGet(ctx, redisstore.Keys(r.store).Started(), "acme:"+job.ID).Result(); !job.Suspect || err != nil || by == "" {
			unnoted.Add(1)
		}
		if begun.Add(1) == suspects {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	running := make([]*running, workers)
	for i := range running {
		running[i] = r.runWithTimers(r.store, worker.Config{Concurrency: suspects / workers}, on("send", handler))
	}
	if c := r.idle(); c.Left["completed"] != suspects {
		t.Errorf("got %+v", c)
	}
	if begun.Load() != suspects || unnoted.Load() != 0 {
		t.Errorf("%d of %d suspects began, %d of them not noted", begun.Load(), suspects, unnoted.Load())
	}
	for _, a := range running {
		if said := a.said(""); strings.Contains(said, "released") {
			t.Errorf("suspects of one group are handed back:\n%s", said)
		}
	}
	r.nothingNoted()
}

// nothingNoted asserts that nothing is kept of suspects that have ended.
func (r *rig) nothingNoted() {
	r.tb.Helper()
	keys := redisstore.Keys(r.store)
	n, err := r.client.Exists(r.tb.Context(), keys.Started(), keys.Suspects(), keys.Base()+"begun").Result()
	if err != nil || n != 0 {
		r.tb.Errorf("%d hashes of suspects are left: %v", n, err)
	}
}

// TestSuspectsOfTwoDeathsNeverRunTogether: nor do those that a worker took along alone. Other jobs run beside them.
func TestSuspectsOfTwoDeathsNeverRunTogether(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]int{"alone": 1, "groups": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testTwoDeaths(t, group)
		})
	}
}

func testTwoDeaths(t *testing.T, group int) {
	t.Helper()
	r := newRig(t)
	const deaths = 3
	for death := range deaths {
		for i := range group {
			r.enqueue(job("send", fmt.Sprint(death, "-", i)))
		}
		r.loseWith(fmt.Sprint("lost-", death), group)
	}
	var run [deaths]atomic.Int64
	var mixed, innocent atomic.Int64
	met := make(chan struct{})
	a := r.runWithTimers(r.store, worker.Config{Concurrency: 8 * group}, on("send", func(ctx context.Context, job worker.Job[[]byte]) error {
		if !job.Suspect {
			innocent.Add(1)
			return nil
		}
		own := job.ID[0] - '0'
		run[own].Add(1)
		defer run[own].Add(-1)
		select { // The first wait until others have come for nothing.
		case <-met:
		case <-ctx.Done():
		}
		for death := range run {
			if death != int(own) && run[death].Load() > 0 {
				mixed.Add(1)
			}
		}
		return nil
	}))
	r.await("a suspect to be sent back", func() bool { return strings.Contains(a.said(""), "released(suspect)") })
	r.enqueue(job("send", "innocent"))
	r.await("a job beside the suspects", func() bool { return innocent.Load() == 1 })
	close(met)
	if c := r.idle(); c.Left["completed"] != int64(deaths*group+1) {
		t.Errorf("got %+v", c)
	}
	if mixed.Load() != 0 {
		t.Errorf("%d times suspects of two deaths ran together", mixed.Load())
	}
	r.nothingNoted()
}
