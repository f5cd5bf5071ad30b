package crash_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/worker"
)

const (
	clusterMasters    = 3
	clusterPartitions = 6
	clusterTenants    = 60
	clusterProducers  = 16
)

// TestCluster has producers and workers at work on a cluster of three masters and three replicas while a slot moves from one
// master to another, a master is killed, and another is cut off for longer than the cluster waits for it. What of the jobs
// was let in with a replica's word has run in the end, nothing is stuck, and every partition's books are right.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("lasts half a minute")
	}
	t.Parallel()
	c := newClusterTest(t)
	defer c.stop()
	c.await("jobs run in every partition", c.everywhere(0))

	moved := c.moveSlot(1)
	c.await("jobs run in the partition that has moved", c.runIn(1, c.mark()))
	t.Logf("the slot of a partition moved in %s", moved)

	at, killed := c.mark(), time.Now()
	c.masterOf(0).Kill(t)
	c.await("jobs are let in and run in every partition after a master was killed", c.everywhere(at))
	t.Logf("every partition let in and ran jobs again %s after a master was killed", time.Since(killed).Round(time.Millisecond))

	cut := c.masterOf(2)
	at, begun := c.mark(), time.Now()
	cut.Pause(t)
	c.await("jobs are let in and run in every partition after a master was cut off", c.everywhere(at))
	t.Logf("every partition let in and ran jobs again %s after a master was cut off", time.Since(begun).Round(time.Millisecond))
	cut.Resume(t)
	c.await("jobs are let in and run in every partition after it is back", c.everywhere(c.mark()))

	c.settle()
}

// clusterTest is the cluster, those that work on it, and the books that they keep.
type clusterTest struct {
	*testing.T
	cluster *redistest.Cluster
	store   *lua.Store
	jobs    *producer.Producer

	producing, working context.CancelFunc
	producers, others  sync.WaitGroup

	mu struct {
		sync.Mutex
		sent int
		// entered are the jobs that were let in, with their number in the order of entering; sure are those of which a
		// replica knew.
		entered map[headgate.Key]int
		sure    map[headgate.Key]bool
		ran     map[headgate.Key]int
	}
}

func newClusterTest(t *testing.T) *clusterTest {
	t.Helper()
	c := &clusterTest{T: t, cluster: redistest.StartNodes(t, clusterMasters, true)}
	c.mu.entered, c.mu.sure, c.mu.ran = map[headgate.Key]int{}, map[headgate.Key]bool{}, map[headgate.Key]int{}
	var err error
	c.store, err = lua.Connect(t.Context(), c.cluster.URL(), lua.Config{Partitions: clusterPartitions, Replicas: 1})
	c.check(err)
	t.Cleanup(func() { _ = c.store.Close() })
	c.jobs, err = producer.New(c.store, producer.Config{Policy: new(policy.Unlimited())})
	c.check(err)
	producing, stopProducing := context.WithCancel(t.Context())
	working, stopWorking := context.WithCancel(t.Context())
	c.producing, c.working = stopProducing, stopWorking
	for range 2 {
		w, err := worker.New(c.store, worker.Config{
			Queues: []lua.QueueWeight{{Queue: "mail"}}, Concurrency: 24, Lease: 3 * time.Second, DrainTimeout: 5 * time.Second,
		})
		c.check(err)
		worker.Register(w, "work", c.handle)
		c.others.Go(func() {
			if err := w.Run(working); err != nil {
				t.Error(err)
			}
		})
	}
	for range clusterProducers {
		c.producers.Go(func() { c.produce(producing) })
	}
	return c
}

func (c *clusterTest) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// stop ends everything, once more where the test has ended early.
func (c *clusterTest) stop() {
	c.producing()
	c.producers.Wait()
	c.working()
	c.others.Wait()
}

func (c *clusterTest) handle(_ context.Context, job worker.Job[[]byte]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ran[headgate.Key{Tenant: job.Tenant, ID: job.ID}]++
	return nil
}

// produce sends one job after the other, a millisecond apart.
func (c *clusterTest) produce(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		c.mu.sent++
		job := headgate.NewJob(fmt.Sprintf("tenant-%d", c.mu.sent%clusterTenants), "mail", "work", nil)
		job.ID = fmt.Sprintf("job-%d", c.mu.sent)
		c.mu.Unlock()
		verdict, err := c.jobs.Enqueue(context.WithoutCancel(ctx), job)
		if err != nil {
			continue
		}
		key := headgate.Key{Tenant: job.Tenant, ID: job.ID}
		c.mu.Lock()
		c.mu.entered[key] = len(c.mu.entered)
		// A duplicate of a lost answer is waited for too.
		c.mu.sure[key] = !verdict.Unreplicated
		c.mu.Unlock()
	}
}

// mark is the present moment, as a number of jobs that were let in.
func (c *clusterTest) mark() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.entered)
}

// runIn reports whether ten jobs that a partition let in after a mark have run.
func (c *clusterTest) runIn(partition, mark int) func() bool {
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for key, at := range c.mu.entered {
			if at >= mark && c.mu.ran[key] > 0 && c.store.PartitionOf(key.Tenant) == partition {
				n++
			}
		}
		return n >= 10
	}
}

// everywhere is runIn for all partitions.
func (c *clusterTest) everywhere(mark int) func() bool {
	return func() bool {
		for partition := range clusterPartitions {
			if !c.runIn(partition, mark)() {
				return false
			}
		}
		return true
	}
}

func (c *clusterTest) await(what string, done func() bool) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), failoverPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			c.Fatalf("waited in vain: %s; %d jobs were sent, %d let in, %d ran", what, c.mu.sent, len(c.mu.entered), len(c.mu.ran))
		}
	}
}

func (c *clusterTest) slotOf(partition int) int {
	base := c.store.Partitions()[partition].Keys().Base()
	return keyspace.SlotOf(base[len("hg{") : len(base)-len("}:")])
}

// masterOf returns the node that has had a partition from the start, or since its slot was moved.
func (c *clusterTest) masterOf(partition int) *redistest.Server {
	return c.cluster.MasterOf(c.T, c.slotOf(partition))
}

// moveSlot moves a partition to the next master, key by key.
func (c *clusterTest) moveSlot(partition int) time.Duration {
	c.Helper()
	begun := time.Now()
	slot := c.slotOf(partition)
	from, to := c.masterOf(partition), c.cluster.Masters[0]
	for _, to = range c.cluster.Masters {
		if to != from {
			break
		}
	}
	c.cluster.BeginMove(c.T, slot, from, to)
	for c.cluster.MoveKeys(c.T, slot, 5, from, to) {
	}
	c.cluster.EndMove(c.T, slot, to)
	return time.Since(begun).Round(time.Millisecond)
}

// settle lets no further job in, waits until what is left has run, and looks at the books.
func (c *clusterTest) settle() {
	c.Helper()
	c.producing()
	c.producers.Wait()
	var census lua.Census
	c.await("what is left has run", func() bool {
		var err error
		census, err = c.store.Census(c.Context())
		return err == nil && census.Live == 0
	})
	c.stop()
	if !census.Conserved() {
		c.Errorf("not conserved: %+v", census)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lost, unsure, twice := 0, 0, 0
	for key := range c.mu.entered {
		switch n := c.mu.ran[key]; {
		case n > 1:
			twice++
		case n == 1:
		case c.mu.sure[key]:
			lost++
			c.Errorf("%s was let in with a replica's word and never ran", key)
		default:
			unsure++
		}
	}
	c.Logf("%d jobs sent, %d let in, %d of them ran twice or more; %d were lost, and %d without a replica's word", c.mu.sent, len(c.mu.entered), twice, lost, unsure)
}
