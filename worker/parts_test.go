package worker_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/fairness"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// newRigOfParts is a rig of several partitions on one Redis.
func newRigOfParts(tb testing.TB, partitions int) *rig {
	tb.Helper()
	server := redistest.Start(tb, redistest.Options{})
	r := &rig{tb: tb, server: server, client: server.Client(tb), prefix: "hg"}
	var err error
	if r.store, err = redisstore.Open(tb.Context(), r.client, redisstore.Config{Partitions: partitions}); err != nil {
		tb.Fatal(err)
	}
	if r.producer, err = producer.New(r.store, producer.Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second}); err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestAThousandTenantsBesideAFlood has 1,000 tenants with a few jobs each in three of four partitions, over three masters, and one
// that floods alone in the fourth, and asks that as long as all have work each has the same.
func TestAThousandTenantsBesideAFlood(t *testing.T) {
	t.Parallel()
	const tenants, each, flood, rounds, slots = 1000, 11, 1500, 8, 64
	r := newRigOfMasters(t, 3, 4)
	r.enqueue(besideAFlood(r, tenants, each, flood)...)
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
			timer := time.NewTimer(30 * time.Millisecond)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			return nil
		})
	})
	r.await("eight jobs of each", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) >= (tenants+1)*rounds
	})
	a.stop()
	if err := a.wait(); err != nil {
		t.Error(err)
	}

	ran := map[string]float64{}
	for _, tenant := range order[:(tenants+1)*rounds] {
		ran[tenant]++
	}
	shares := make([]float64, 0, tenants+1)
	for _, n := range ran {
		shares = append(shares, n)
	}
	for len(shares) < tenants+1 {
		shares = append(shares, 0)
	}
	t.Logf("the flood had %.0f where an even part is %d; Jain's index %.4f; up to %d at a time", ran["flood"], rounds, fairness.Jain(shares), most.Load())
	if jain := fairness.Jain(shares); jain < 0.99 {
		t.Errorf("Jain's index is %.4f over %d tenants", jain, len(shares))
	}
	if ran["flood"] > 2*rounds {
		t.Errorf("the flood had %.0f jobs, twice its part is %d", ran["flood"], 2*rounds)
	}
	if most.Load() > slots {
		t.Errorf("%d jobs ran at a time in %d slots", most.Load(), slots)
	}
}

// newRigOfMasters is a rig of several partitions on a cluster.
func newRigOfMasters(tb testing.TB, masters, partitions int) *rig {
	tb.Helper()
	r := &rig{tb: tb, prefix: "hg"}
	var err error
	if r.store, err = redisstore.Open(tb.Context(), redistest.StartNodes(tb, masters, false).Client(tb), redisstore.Config{Partitions: partitions}); err != nil {
		tb.Fatal(err)
	}
	if r.producer, err = producer.New(r.store, producer.Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second}); err != nil {
		tb.Fatal(err)
	}
	return r
}

// besideAFlood returns jobs of so many tenants, none of which is in the partition of the one that floods.
func besideAFlood(r *rig, tenants, each, flood int) (jobs []admission.Job) {
	var names []string
	for n := 0; len(names) < tenants; n++ {
		if name := fmt.Sprintf("tenant-%d", n); r.store.PartitionOf(name) != r.store.PartitionOf("flood") {
			names = append(names, name)
		}
	}
	add := func(tenant string, i int) {
		j := admission.NewJob(tenant, "mail", "work", nil)
		j.ID = fmt.Sprintf("job-%d", i)
		jobs = append(jobs, j)
	}
	for i := range each {
		for _, name := range names {
			add(name, i)
		}
	}
	for i := range flood {
		add("flood", i)
	}
	return jobs
}
