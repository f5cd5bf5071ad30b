package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/worker"
)

// TestAJobThatKillsItsWorkersIsADeadLetterAndItsNeighboursComplete: one process dies with each delivery, and another
// takes its place, as under any supervisor. Nobody knows who killed the first; so where one proven loss is enough, the
// neighbours that died with it must not be convicted.
func TestAJobThatKillsItsWorkersIsADeadLetterAndItsNeighboursComplete(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, lua.DefaultPoisonLimit} {
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
		err = r.store.PutPolicy(t.Context(), lua.PolicyUpdate{Version: 1, Text: text, Queues: []lua.QueueSettings{{
			Queue: "mail", Classes: headgate.DefaultClasses(), Horizon: time.Hour, PoisonLimit: limit,
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
	for range 1 + limit {
		if signal := r.process().end(t); signal != syscall.SIGKILL {
			t.Fatalf("a worker ended by %v", signal)
		}
		r.expire(r.registrations())
	}
	last := r.process()
	c := r.idle()
	if c.Left["completed"] != neighbours || c.Dead != 1 || c.Died["poison"] != 1 {
		t.Errorf("got %+v", c)
	}
	if got, want := r.why(), fmt.Sprintf("poison|%d workers were lost that ran it", limit); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := last.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if signal := last.end(t); signal != 0 {
		t.Errorf("the last worker ended by %v", signal)
	}
}

func TestADeployCostsNobodyAnAttemptOrADelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range roleSlots {
		r.enqueue(job("long", fmt.Sprint("long-", i)))
	}
	p := r.process()
	r.await("the jobs to be taken", func() bool {
		info, err := r.client.XPending(t.Context(), r.store.Keys().Ready(pool.ID()), "g").Result()
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
var pool = lua.Pool{Queues: []lua.QueueWeight{{Queue: "mail", Weight: 1}}}

// lose makes suspects of all jobs that wait: a worker by hand takes them and is not heard of again.
func (r *rig) lose(count int) {
	r.tb.Helper()
	if _, err := r.store.Register(r.tb.Context(), "lost", pool, count, 50*time.Millisecond); err != nil {
		r.tb.Fatal(err)
	}
	taken := 0
	for taken < count {
		leases, err := r.store.Read(r.tb.Context(), "lost", pool.ID(), count, time.Second, false)
		if err != nil || len(leases) == 0 {
			r.tb.Fatalf("took %d of %d jobs: %v", taken, count, err)
		}
		taken += len(leases)
	}
}

func TestSuspectsRunOneAtATimeAndAreNotedBeforeTheyStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const suspects = 3
	for i := range suspects {
		r.enqueue(job("send", fmt.Sprint("suspect-", i)))
	}
	r.lose(suspects)
	var running, most, unnoted, innocent atomic.Int64
	met := make(chan struct{})
	a := r.runWithTimers(r.store, worker.Config{Concurrency: 8}, on("send", func(ctx context.Context, job worker.Job[[]byte]) error {
		if !job.Suspect {
			innocent.Add(1)
			return nil
		}
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		by, err := r.client.HGet(ctx, r.store.Keys().Started(), "acme:"+job.ID).Result()
		if err != nil || by == "" {
			unnoted.Add(1)
		}
		select { // The first waits until another has come for nothing.
		case <-met:
		case <-time.After(patience):
		}
		return nil
	}))
	r.await("a suspect to be sent back", func() bool { return strings.Contains(a.said(""), "released(suspect)") })
	r.enqueue(job("send", "innocent"))
	r.await("a job beside the suspects", func() bool { return innocent.Load() == 1 })
	close(met)
	if c := r.idle(); c.Left["completed"] != suspects+1 {
		t.Errorf("got %+v", c)
	}
	if most.Load() != 1 || unnoted.Load() != 0 {
		t.Errorf("%d suspects at a time, %d of them not noted", most.Load(), unnoted.Load())
	}
	if left := r.client.HLen(t.Context(), r.store.Keys().Started()).Val(); left != 0 {
		t.Errorf("%d notes are left", left)
	}
}
