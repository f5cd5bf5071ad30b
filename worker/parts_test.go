package worker_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/fairness"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/worker"
)

// newRigOfParts is a rig of several partitions on one Redis.
func newRigOfParts(tb testing.TB, partitions int) *rig {
	tb.Helper()
	server := redistest.Start(tb, redistest.Options{})
	r := &rig{tb: tb, server: server, client: server.Client(tb), prefix: "hg"}
	var err error
	if r.store, err = lua.Open(tb.Context(), r.client, lua.Config{Partitions: partitions}); err != nil {
		tb.Fatal(err)
	}
	if r.producer, err = producer.New(r.store, producer.Config{Policy: new(policy.Unlimited())}); err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestAFloodInOnePartitionTakesNothingFromTheOthers has 300 tenants with 40 jobs each in three partitions, and one that floods
// alone in a fourth, and asks that as long as all have work each has the same.
func TestAFloodInOnePartitionTakesNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	r := newRigOfParts(t, 4)
	const tenants, each, flood, slots = 300, 40, 1500, 64
	var names []string
	for n := 0; len(names) < tenants; n++ {
		if name := fmt.Sprintf("tenant-%d", n); r.store.PartitionOf(name) != r.store.PartitionOf("flood") {
			names = append(names, name)
		}
	}
	var jobs []headgate.Job
	for i := range each {
		for _, name := range names {
			j := headgate.NewJob(name, "mail", "work", nil)
			j.ID = fmt.Sprintf("job-%d", i)
			jobs = append(jobs, j)
		}
	}
	for i := range flood {
		j := headgate.NewJob("flood", "mail", "work", nil)
		j.ID = fmt.Sprintf("job-%d", i)
		jobs = append(jobs, j)
	}
	r.enqueue(jobs...)

	var mu sync.Mutex
	var order []string
	var running, most atomic.Int64
	a := r.run(r.store, worker.Config{Concurrency: slots}, func(w *worker.Worker) {
		worker.Register(w, "work", func(ctx context.Context, job worker.Job[[]byte]) error {
			n := running.Add(1)
			defer running.Add(-1)
			for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
			}
			mu.Lock()
			order = append(order, job.Tenant)
			mu.Unlock()
			timer := time.NewTimer(20 * time.Millisecond)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			return nil
		})
	})
	r.await("all jobs", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) == len(jobs)
	})
	if c := r.idle(); c.Left["completed"] != int64(len(jobs)) {
		t.Errorf("%+v", c)
	}
	a.stop()
	if err := a.wait(); err != nil {
		t.Error(err)
	}

	ran := map[string]float64{}
	for _, tenant := range order[:(tenants+1)*each/2] {
		ran[tenant]++
	}
	shares := make([]float64, 0, tenants+1)
	for _, n := range ran {
		shares = append(shares, n)
	}
	for len(shares) < tenants+1 {
		shares = append(shares, 0)
	}
	t.Logf("the flood had %.0f of the first half, an even part is %d; Jain's index %.4f; up to %d at a time", ran["flood"], each/2, fairness.Jain(shares), most.Load())
	if jain := fairness.Jain(shares); jain < 0.99 {
		t.Errorf("Jain's index is %.4f over %d tenants", jain, len(shares))
	}
	if ran["flood"] > each {
		t.Errorf("the flood had %.0f jobs, twice its part is %d", ran["flood"], each)
	}
	if most.Load() > slots {
		t.Errorf("%d jobs ran at a time in %d slots", most.Load(), slots)
	}
}
