package producer_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// openParts returns a store of three partitions, and a tenant of each.
func openParts(t *testing.T) (store.Deployment, [3]string) {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
	must(t, err)
	var tenants [3]string
	for i := 0; tenants[0] == "" || tenants[1] == "" || tenants[2] == ""; i++ {
		name := fmt.Sprintf("tenant-%d", i)
		tenants[s.PartitionOf(name)] = name
	}
	return s, tenants
}

func TestABatchOverPartitionsIsAnsweredInOrder(t *testing.T) {
	t.Parallel()
	store, tenants := openParts(t)
	p := newProducer(t, store, producer.Config{Policy: unlimited()})
	const n, bad = 500, 77
	jobs := make([]admission.Job, n)
	for i := range jobs {
		jobs[i] = job(tenants[i*i%3])
		jobs[i].ID = fmt.Sprintf("job-%d", i)
	}
	jobs[bad].Tenant = "no such:name"
	results, err := p.EnqueueBatch(t.Context(), jobs)
	if !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("a batch with a bad job: %v", err)
	}
	for i, r := range results {
		if (r.Err != nil) != (i == bad) || r.Verdict.ID != jobs[i].ID {
			t.Fatalf("job %d: %+v", i, r)
		}
	}
	for i, part := range store.Partitions() {
		want := int64(0)
		for k := range jobs {
			if k != bad && jobs[k].Tenant == tenants[i] {
				want++
			}
		}
		if c := census(t, alone(part)); c.Accepted != want {
			t.Errorf("partition %d has %d jobs, want %d", i, c.Accepted, want)
		}
	}
	again, err := p.EnqueueBatch(t.Context(), jobs[:bad])
	must(t, err)
	for i, r := range again {
		if r.Verdict.Decision != admission.Duplicate {
			t.Fatalf("job %d again: %+v", i, r)
		}
	}
}

func TestRedriveOverPartitions(t *testing.T) {
	t.Parallel()
	store, tenants := openParts(t)
	p := newProducer(t, store, producer.Config{Policy: unlimited()})
	var keys []admission.Key
	for i, part := range store.Partitions() {
		keys = append(keys, letters(t, alone(part), p, job(tenants[i]), job(tenants[i]))...)
	}
	keys = []admission.Key{keys[4], keys[0], keys[2], {Tenant: tenants[1], ID: "nobody"}, keys[1], keys[5], keys[3]}
	results, err := p.Redrive(t.Context(), keys...)
	if !errors.Is(err, admission.ErrNotDead) {
		t.Errorf("got %v", err)
	}
	for i, r := range results {
		if r.Key != keys[i] || (r.Err != nil) != (keys[i].ID == "nobody") {
			t.Errorf("letter %d: %+v", i, r)
		}
	}
	if c := census(t, store); c.Dead != 0 || c.Waiting != 6 {
		t.Errorf("%+v", c)
	}
}

// TestAPartitionThatIsBehindIsBroughtUp plays a process that died after it had stored a policy in the first partition.
func TestAPartitionThatIsBehindIsBroughtUp(t *testing.T) {
	t.Parallel()
	store, tenants := openParts(t)
	first := policy.Unlimited()
	first.Version = 1
	put(t, store, first)
	p := newProducer(t, store, producer.Config{})
	client := redistest.Shared(t).Client(t)
	must(t, client.HSet(t.Context(), redisstore.KeysOf(store.Partitions()[2]).State(), "pv", 0, "pe", "").Err())
	if verdict, err := p.Enqueue(t.Context(), job(tenants[2])); err != nil || verdict.Decision != admission.Admitted {
		t.Errorf("%+v, %v", verdict, err)
	}
	if version := client.HGet(t.Context(), redisstore.KeysOf(store.Partitions()[2]).State(), "pv").Val(); version != "1" {
		t.Errorf("the partition is at version %s", version)
	}
}
