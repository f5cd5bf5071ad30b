package crash_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// TestCluster asserts what is said of a Redis Cluster, three masters with a replica each: with producers, schedulers and workers at
// work, each a process of its own, one of the workers killed every second, a slot moves from one master to another, a master is killed,
// another halts for longer than the cluster waits for it, and the network is cut in two, with the third master and some of the
// clients alone on the smaller side. All recover by themselves. What was let in with a replica's word has run in the end,
// nothing is stuck, and every partition's books are right.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("lasts half a minute")
	}
	t.Parallel()
	c := newClusterTest(t)
	everyone := []int{mainland, island}
	c.await("jobs are let in and run in every partition", c.everywhere(0, everyone...))

	at := nanos()
	c.moveSlot(1, 5)
	t.Logf("the slot of a partition moved in %s", since(at))
	c.await("jobs run in the partition that has moved", c.everywhere(nanos(), everyone...))

	killed, at := c.masterOf(0), nanos()
	killed.Kill(t)
	c.cluster.GoneAfter(t, redistest.NodeTimeout)
	c.await("jobs are let in and run in every partition after a master was killed", c.everywhere(at, everyone...))
	t.Logf("every partition let in and ran jobs again %s after a master was killed", since(at))
	killed.Restart(t)
	c.calm()

	halted, at := c.masterOf(2), nanos()
	c.cluster.GoneAfter(t, redistest.NodeTimeout)
	halted.Pause(t)
	c.await("jobs are let in and run in every partition after a master has halted", c.everywhere(at, everyone...))
	t.Logf("every partition let in and ran jobs again %s after a master has halted", since(at))
	halted.Resume(t)
	c.calm()

	c.cutInTwo(c.masterOf(3))
	c.settle()
}

// cutInTwo leaves a master alone with the clients of the island, first in silence, then with a cut that refuses.
func (c *clusterTest) cutInTwo(alone *redistest.Server) {
	c.Helper()
	network, direct := c.cluster.Network, alone.Client(c)
	cut := nanos()
	network.Part(network.Host(alone), islandHost)
	c.await("the master that is alone lets jobs in by its own word", func() bool { return c.unsure(cut) >= 10 })
	c.cluster.GoneAfter(c, redistest.NodeTimeout)
	c.await("the master that is alone has stopped", func() bool {
		info, err := direct.ClusterInfo(c.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:fail")
	})
	stopped := nanos()
	c.await("jobs are let in and run in every partition on the greater side", c.everywhere(cut, mainland))
	c.Logf("every partition let in and ran jobs again %s after the cut on the greater side", since(cut))
	network.Refuse()
	refused := nanos()
	c.await("clients on the smaller side are refused", func() bool { return c.failed(refused) >= 10 })
	c.await("jobs are let in and run on the greater side", c.everywhere(refused, mainland))
	healing := nanos()
	network.Heal()
	c.await("jobs of all clients are let in and run in every partition", c.everywhere(healing, mainland, island))
	c.Logf("clients of both sides had jobs in every partition %s after the cut was healed", since(healing))
	c.calm()

	last := int64(0)
	for key, j := range c.jobs {
		if j.side != island || j.told < cut || j.told > healing {
			continue
		}
		last = max(last, j.told)
		if j.began > stopped {
			c.Errorf("%s was let in on the smaller side %s after its master had stopped", key, round(j.began-stopped))
		}
	}
	c.Logf("the master that was alone let a job in up to %s after the cut, and had stopped after %s", round(last-cut), round(stopped-cut))
}
