package crash_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	clusterMasters    = 3
	clusterPartitions = 6
	// The sides of a network that is cut: on the island is one master and the last of each role.
	mainland = 0
	island   = 1
	// mainlanders is how many producers and workers are on the mainland.
	mainlanders = 2
	// clusterDepth is how many jobs of a tenant may live in a queue.
	clusterDepth = 10
	// fewJobs of a side in each partition show that it is served.
	fewJobs = 10
	// A worker of the mainland is killed every clusterStrike, one that has ended as many jobs as strikeJobs.
	clusterStrike = time.Second
	strikeJobs    = 50
)

var islandHost = redistest.ClientHost(0)

// clusterTest is a cluster whose network can be cut, those that work on it, and what their books say.
type clusterTest struct {
	*cast
	cluster *redistest.Cluster
	client  *redis.ClusterClient
	store   store.Deployment
	began   time.Time
	struck  time.Time // when a worker was killed last
	strikes int
	ended   [mainlanders + 1]int // jobs that each worker has ended since it was started

	jobs     map[string]*clusterJob
	failures []clusterFailure
}

// clusterJob is a job that was let in, ran, or both.
type clusterJob struct {
	side        int
	began, told int64 // the call that let it in; 0 if none did
	unsure      bool  // no replica was heard
	runs        int   // starts of its handler
	completed   bool  // Redis took note
}

// clusterFailure is a call that let nothing in.
type clusterFailure struct {
	side        int
	began, told int64
	kind        string
}

func newClusterTest(t *testing.T) *clusterTest {
	t.Helper()
	c := &clusterTest{cast: newCast(t, nil), cluster: redistest.StartNodesApart(t, clusterMasters), jobs: map[string]*clusterJob{}, began: time.Now()}
	c.client = c.cluster.Client(t)
	var err error
	c.store, err = redisstore.Open(t.Context(), c.client, redisstore.Config{Partitions: clusterPartitions})
	c.check(err)
	putPolicy(t, c.store, policy.Policy{
		Version: 1, DedupWindow: time.Hour,
		Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: tenantBurst}}},
	}, clusterQueue(0), clusterQueue(1))
	c.calm()
	for _, role := range []string{schedulerRole, workerRole, partsRole} {
		c.ways[role] = c.cluster.URL()
		for n := range mainlanders {
			c.enter(role, n)
		}
		c.enterAt(islandHost, role, mainlanders)
	}
	c.struck = time.Now()
	return c
}

// clusterQueue bounds what waits in a queue, so that no job waits for long however much faster producers are than workers.
func clusterQueue(n int) store.QueueSettings {
	return store.QueueSettings{
		Queue: stormQueues[n].Queue, Classes: admission.DefaultClasses(), Horizon: time.Hour, PoisonLimit: policy.MaxPoisonLimit,
		Overflow: store.Overflow{Policy: store.Reject, MaxJobs: clusterDepth},
	}
}

func sideOf(number int) int { return number / mainlanders }

// calm waits until the cluster is whole, and then lets no node take another for gone because the machine halts.
func (c *clusterTest) calm() {
	c.Helper()
	c.cluster.AwaitWhole(c)
	c.cluster.GoneAfter(c, redistest.NeverGone)
}

// follow reads what was written since the last time.
func (c *clusterTest) follow() {
	c.Helper()
	for _, a := range c.actors {
		for line := range strings.Lines(c.rest(c.book(a.role, a.number))) {
			if words := strings.Fields(line); a.role == partsRole {
				c.noteCall(sideOf(a.number), words)
			} else if a.role == workerRole && words[0] == "B" {
				c.job(words[2]).runs++
			} else if words[0] == "F" && words[3] == "completed" {
				c.job(words[2]).completed = true
				c.ended[a.number]++
			}
		}
	}
}

func (c *clusterTest) noteCall(side int, words []string) {
	c.Helper()
	began, told := c.number(words[1]), c.number(words[2])
	if words[0] == "A" {
		j := c.job(words[3])
		j.side, j.began, j.told, j.unsure = side, began, told, words[4] == "true"
		return
	}
	c.failures = append(c.failures, clusterFailure{side: side, began: began, told: told, kind: words[3]})
}

func (c *clusterTest) number(text string) int64 {
	c.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	c.check(err)
	return n
}

func (c *clusterTest) job(key string) *clusterJob {
	if c.jobs[key] == nil {
		c.jobs[key] = &clusterJob{}
	}
	return c.jobs[key]
}

// everywhere reports whether a few jobs that were asked for since a time, by clients of each of some sides, have run in each partition.
func (c *clusterTest) everywhere(since int64, sides ...int) func() bool {
	return func() bool {
		ran := map[[2]int]int{}
		for key, j := range c.jobs {
			if j.began > since && j.completed {
				ran[[2]int{j.side, c.partitionOf(key)}]++
			}
		}
		for _, side := range sides {
			for partition := range clusterPartitions {
				if ran[[2]int{side, partition}] < fewJobs {
					return false
				}
			}
		}
		return true
	}
}

// unsure counts the jobs that were let in on the island since a time without a replica's word, failed the calls there that let
// in none.
func (c *clusterTest) unsure(since int64) (n int) {
	for _, j := range c.jobs {
		if j.side == island && j.began > since && j.unsure {
			n++
		}
	}
	return n
}

func (c *clusterTest) failed(since int64) (n int) {
	for _, f := range c.failures {
		if f.side == island && f.began > since {
			n++
		}
	}
	return n
}

// await follows the books until something is done, and kills a worker now and then.
func (c *clusterTest) await(what string, done func() bool) {
	c.Helper()
	for deadline := time.Now().Add(failoverPatience); ; c.pause(20 * time.Millisecond) {
		c.follow()
		if done() {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("waited in vain: %s; %d jobs, %d calls that failed", what, len(c.jobs), len(c.failures))
		}
		if time.Since(c.struck) > clusterStrike {
			c.strike()
		}
	}
}

// strike kills the worker of the mainland that has worked most.
func (c *clusterTest) strike() {
	c.Helper()
	var most *actor
	for _, a := range c.actors {
		if a.role == workerRole && sideOf(a.number) == mainland && a.command != nil && (most == nil || c.ended[a.number] > c.ended[most.number]) {
			most = a
		}
	}
	if most == nil || c.ended[most.number] < strikeJobs {
		return
	}
	c.kill(most)
	c.start(most)
	c.ended[most.number] = 0
	c.struck = time.Now()
	c.strikes++
}

func tenantOf(key string) string {
	tenant, _, _ := strings.Cut(key, ":")
	return tenant
}

func (c *clusterTest) partitionOf(key string) int { return c.store.PartitionOf(tenantOf(key)) }

func (c *clusterTest) slotOf(partition int) int {
	base := redisstore.KeysOf(c.store.Partitions()[partition]).Base()
	return keyspace.SlotOf(base[len("hg{") : len(base)-len("}:")])
}

// masterOf returns the node that serves a partition.
func (c *clusterTest) masterOf(partition int) *redistest.Server {
	return c.cluster.MasterOf(c, c.slotOf(partition))
}

// moveSlot moves a partition to another master, so many keys at a time.
func (c *clusterTest) moveSlot(partition, keys int) {
	c.Helper()
	slot := c.slotOf(partition)
	from, to := c.masterOf(partition), c.cluster.Masters[0]
	for _, to = range c.cluster.Masters {
		if to != from {
			break
		}
	}
	c.cluster.BeginMove(c, slot, from, to)
	for c.cluster.MoveKeys(c, slot, keys, from, to) {
	}
	c.cluster.EndMove(c, slot, to)
}

func since(nanoseconds int64) time.Duration { return round(nanos() - nanoseconds) }

func round(nanoseconds int64) time.Duration {
	return time.Duration(nanoseconds).Round(time.Millisecond)
}
