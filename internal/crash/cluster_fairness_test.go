package crash_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/fairness"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	fairTenants = 1000
	// fairRounds is half of the jobs of each of the thousand. The slot moves, and the master is killed, when the average one has had
	// so many.
	fairRounds     = 12
	fairMoveAfter  = 2
	fairKillAfter  = 5
	fairFlood      = 12_000
	fairWorkers    = 4
	fairJobMillis  = 60
	fairEnqueueing = 4096 // jobs of a call
	// fairLeast is the least of Jain's index, 1 for perfectly even.
	fairLeast = 0.99
)

// TestClusterFairness has 1,000 tenants of one weight with as many jobs each in the partitions of three masters, and one beside them with
// a flood, and asks what each had got by the time that half of the thousand's jobs had begun, while a slot was moved and a master killed:
// the same in each partition, and while all partitions served the same in all of them. A job that began twice counts once.
func TestClusterFairness(t *testing.T) {
	if testing.Short() {
		t.Skip("lasts half a minute")
	}
	t.Parallel()
	f := newFairCluster(t)
	for n := range fairWorkers {
		f.enter(steadyRole, n)
	}
	f.await("the thousand have had some jobs", f.begun(fairMoveAfter*fairTenants))
	f.follow()
	f.away = true
	at := nanos()
	f.moveSlot(1, 500)
	f.follow()
	f.away = false
	f.Logf("the slot of a partition moved in %s", since(at))
	f.await("the thousand have had more jobs", f.begun(fairKillAfter*fairTenants))

	f.follow()
	f.away = true
	f.masterOf(0).Kill(t)
	killed := nanos()
	f.cluster.GoneAfter(t, redistest.NodeTimeout)
	f.await("jobs are dispatched in every partition after a master was killed", f.dispatched(killed))
	f.away = false
	f.Logf("every partition dispatched jobs again %s after a master was killed", since(killed))
	f.await("half of the jobs of the thousand have begun", f.begun(fairRounds*fairTenants))
	f.audit()
}

// fairCluster is a cluster with a backlog, and what the workers' books say.
type fairCluster struct {
	*clusterTest
	names  []string // of the tenants, the flood's last
	seen   map[string]bool
	starts []string // the tenants of the jobs that have begun, in order
	// away says that a partition does not serve: others go on meanwhile, for as long as that takes. served counts, by partition, the jobs that have begun
	// while all served.
	away   bool
	served [clusterPartitions]float64
	// entries are the times in milliseconds of dispatches, by partition.
	entries [clusterPartitions][]int64
}

func newFairCluster(t *testing.T) *fairCluster {
	t.Helper()
	f := &fairCluster{
		clusterTest: &clusterTest{cast: newCast(t, nil), cluster: redistest.StartNodes(t, clusterMasters, true)},
		seen:        map[string]bool{},
	}
	for _, node := range slices.Concat(f.cluster.Masters, f.cluster.Replicas) { // One that has less of a processor than others serves its partitions less, which is no matter of who shares them.
		node.Favour(t)
	}
	var err error
	f.store, err = redisstore.Open(t.Context(), f.cluster.Client(t), redisstore.Config{Partitions: clusterPartitions})
	f.check(err)
	f.ways[steadyRole], f.ways[schedulerRole] = f.cluster.URL(), f.cluster.URL()
	f.calm()
	f.enter(schedulerRole, 0)
	for n := range fairTenants {
		f.names = append(f.names, fmt.Sprintf("tenant-%d", n))
	}
	f.names = append(f.names, "flood")
	f.enqueue()
	return f
}

// enqueue gives all their jobs, before there is a worker.
func (f *fairCluster) enqueue() {
	f.Helper()
	sdk, err := producer.New(f.store, producer.Config{Policy: new(policy.Unlimited()), Timeout: time.Minute})
	f.check(err)
	var jobs []admission.Job
	add := func(tenant string, n int) {
		j := admission.NewJob(tenant, stormQueues[0].Queue, "work", fmt.Appendf(nil, "0 %d done", fairJobMillis))
		j.ID = fmt.Sprintf("j%d", n)
		jobs = append(jobs, j)
	}
	for n := range 2 * fairRounds {
		for _, tenant := range f.names[:fairTenants] {
			add(tenant, n)
		}
	}
	for n := range fairFlood {
		add(f.names[fairTenants], n)
	}
	for some := range slices.Chunk(jobs, fairEnqueueing) {
		_, err := sdk.EnqueueBatch(f.Context(), some)
		f.check(err)
	}
}

func (f *fairCluster) await(what string, done func() bool) {
	f.Helper()
	for deadline := time.Now().Add(failoverPatience); ; f.pause(20 * time.Millisecond) {
		f.follow()
		if done() {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("waited in vain: %s; %d jobs have begun", what, len(f.starts))
		}
	}
}

// follow reads the workers' books on.
func (f *fairCluster) follow() {
	f.Helper()
	for n := range fairWorkers {
		for line := range strings.Lines(f.rest(f.book(steadyRole, n))) {
			words := strings.Fields(line)
			switch words[0] {
			case "T":
				millis, _ := tokenTime(words[3])
				partition := f.partitionOf(words[2])
				f.entries[partition] = append(f.entries[partition], millis)
			case "B":
				if key := words[2]; !f.seen[key] {
					f.seen[key] = true
					f.starts = append(f.starts, tenantOf(key))
					if !f.away {
						f.served[f.partitionOf(key)]++
					}
				}
			}
		}
	}
}

// begun reports whether so many jobs, those of the flood apart, have begun.
func (f *fairCluster) begun(most int) func() bool {
	return func() bool {
		n := 0
		for _, tenant := range f.starts {
			if tenant != f.names[fairTenants] {
				n++
			}
		}
		return n >= most
	}
}

// dispatched reports whether a few jobs were dispatched in every partition since a time.
func (f *fairCluster) dispatched(since int64) func() bool {
	return func() bool {
		for _, entries := range f.entries {
			n := 0
			for _, millis := range entries {
				if millis > since/int64(time.Millisecond) {
					n++
				}
			}
			if n < fewJobs {
				return false
			}
		}
		return true
	}
}

// audit compares what the tenants got.
func (f *fairCluster) audit() {
	f.Helper()
	had := map[string]float64{}
	for _, tenant := range f.starts {
		had[tenant]++
	}
	flood := had[f.names[fairTenants]]
	f.Logf("of %d jobs the flood had %.0f where an even part is %d; Jain's index %.4f over %d tenants", len(f.starts), flood, fairRounds, jainOf(had, f.names), len(f.names))
	if flood > 2*fairRounds {
		f.Errorf("the flood had %.0f jobs, twice its part is %d", flood, 2*fairRounds)
	}
	of := make([][]string, clusterPartitions)
	for _, tenant := range f.names {
		partition := f.store.PartitionOf(tenant)
		of[partition] = append(of[partition], tenant)
	}
	each := make([]float64, clusterPartitions)
	for partition, tenants := range of {
		each[partition] = f.served[partition] / float64(len(tenants))
	}
	f.Logf("while all served a tenant of each partition had %.1f jobs", each)
	if jain := fairness.Jain(each); jain < fairLeast {
		f.Errorf("Jain's index is %.4f over the partitions: while all served a tenant of each had %.1f jobs", jain, each)
	}
	for partition, tenants := range of {
		jain, sum := jainOf(had, tenants), 0.0
		for _, tenant := range tenants {
			sum += had[tenant]
		}
		f.Logf("partition %d: %d tenants had %.1f jobs each, Jain's index %.4f", partition, len(tenants), sum/float64(len(tenants)), jain)
		if jain < fairLeast {
			f.Errorf("Jain's index is %.4f over the %d tenants of partition %d", jain, len(tenants), partition)
		}
	}
}

// jainOf is Jain's index of what some tenants had.
func jainOf(had map[string]float64, tenants []string) float64 {
	shares := make([]float64, len(tenants))
	for i, tenant := range tenants {
		shares[i] = had[tenant]
	}
	return fairness.Jain(shares)
}
