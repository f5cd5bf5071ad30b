package crash_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// stormPool is what all workers of these tests serve.
var stormPool = store.Pool{Queues: stormQueues}

// desk is a partition, and a client that looks at its keys. It may be used by several goroutines.
type desk struct {
	*testing.T
	client *redis.Client
	store  store.Deployment
	prefix string
	// pool is what register, read and finish are about.
	pool store.Pool
}

// newDesk opens a store under a prefix of its own.
func newDesk(t *testing.T, server *redistest.Server) *desk {
	t.Helper()
	return newDeskAt(t, server, redistest.Prefix(t))
}

func newDeskAt(t *testing.T, server *redistest.Server, prefix string) *desk {
	t.Helper()
	d := &desk{T: t, client: server.Client(t), prefix: prefix, pool: stormPool}
	s, err := redisstore.Open(t.Context(), d.client, redisstore.Config{Prefix: d.prefix})
	d.check(err)
	d.store = s
	return d
}

func (d *desk) check(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *desk) pause(t time.Duration) {
	d.Helper()
	if err := wait(d.Context(), t); err != nil {
		d.Fatal(context.Cause(d.Context()))
	}
}

// candidate returns a job without limits whose priority is one of the default classes.
func candidate(j admission.Job) store.Candidate {
	class := 1
	for i, c := range admission.DefaultClasses() {
		if c.Name == j.Priority {
			class = i
		}
	}
	return store.Candidate{Job: &j, Class: class, Limits: &[admission.Levels]admission.Limit{}}
}

// admit asks for jobs by as many calls as it takes.
func (d *desk) admit(version int64, jobs ...store.Candidate) (verdicts []admission.Verdict) {
	d.Helper()
	for len(jobs) > 0 {
		n := min(len(jobs), store.MaxBatchJobs)
		some, err := d.store.Partitions()[0].Admit(d.Context(), version, jobs[:n])
		d.check(err)
		verdicts, jobs = append(verdicts, some...), jobs[n:]
	}
	return verdicts
}

func (d *desk) register(worker string, slots int, lease time.Duration) {
	d.Helper()
	_, err := d.store.Partitions()[0].Register(d.Context(), worker, d.pool, slots, lease)
	d.check(err)
}

func (d *desk) read(worker string, count int) []store.Lease {
	d.Helper()
	leases, err := d.store.Partitions()[0].Read(d.Context(), worker, d.pool.ID(), count, -1, false)
	d.check(err)
	return leases
}

// finish ends jobs, each as end says, and returns what became of them.
func (d *desk) finish(leases []store.Lease, end func(store.Lease) store.Finish) (ends []store.Ended) {
	d.Helper()
	for len(leases) > 0 {
		n := min(len(leases), store.MaxBatchJobs)
		all := make([]store.Finish, n)
		for i, l := range leases[:n] {
			all[i] = end(l)
		}
		some, _, err := d.store.Partitions()[0].Finish(d.Context(), d.pool.ID(), "worker", all)
		d.check(err)
		ends, leases = append(ends, some...), leases[n:]
	}
	return ends
}

func endAs(l store.Lease, outcome store.Outcome) store.Finish {
	return l.Finish(outcome)
}

func complete(l store.Lease) store.Finish { return endAs(l, store.Complete) }

// promote runs what is due, and says how long to wait for more.
func (d *desk) promote() time.Duration {
	d.Helper()
	for {
		p, err := d.store.Partitions()[0].Promote(d.Context(), "desk", 20*time.Millisecond)
		d.check(err)
		if !p.More {
			return max(time.Millisecond, min(p.Next, 20*time.Millisecond))
		}
	}
}

// census asserts L4.
func (d *desk) census() store.Census {
	d.Helper()
	c, err := d.store.Census(d.Context())
	d.check(err)
	if !c.Conserved() {
		d.Errorf("law L4: %+v", c)
	}
	return c
}

// drain runs everything until only dead letters are left.
func (d *desk) drain(worker string, end func(store.Lease) store.Finish) {
	d.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		next := d.promote()
		leases := d.read(worker, store.MaxBatchJobs)
		d.finish(leases, end)
		if len(leases) > 0 {
			continue
		}
		if c := d.census(); c.Live == c.Dead {
			return
		} else if time.Now().After(deadline) {
			d.Fatalf("it does not drain: %+v", c)
		}
		d.pause(next)
	}
}

// level returns the micro-tokens of a tenant's bucket.
func (d *desk) level(tenant, rest string) (int64, error) {
	stored, err := d.client.HGet(d.Context(), redisstore.Keys(d.store).Buckets(tenant), rest).Result()
	if err != nil {
		return 0, fmt.Errorf("read bucket of %s: %w", tenant, err)
	}
	bucket, err := buckets.Parse(stored)
	return int64(bucket.Level), err
}
