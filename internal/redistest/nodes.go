package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/internal/redisclient"
)

// Cluster is a Redis Cluster of several nodes. Its methods may be called from several goroutines at once.
type Cluster struct {
	// Masters are so named for what they are at the start, each with an even part of the slots. Replicas follow the master of
	// the same index.
	Masters, Replicas []*Server
}

// StartNodes runs a cluster of so many masters for this test alone, each with a replica if asked for. It returns when all
// nodes find it well and the replicas follow, which takes some three seconds.
func StartNodes(tb testing.TB, masters int, replicas bool) *Cluster {
	tb.Helper()
	options := Options{Cluster: true, Args: []string{"--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"}}
	c := &Cluster{}
	for range masters {
		c.Masters = append(c.Masters, Start(tb, options))
		if replicas {
			c.Replicas = append(c.Replicas, Start(tb, options))
		}
	}
	first := c.Masters[0]
	for i, node := range c.nodes() {
		client := node.Client(tb)
		// Without epochs of their own two masters would settle a conflict first.
		must(tb, client.Do(tb.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if node != first {
			host, port, err := net.SplitHostPort(first.Addr())
			must(tb, err)
			must(tb, client.Do(tb.Context(), "CLUSTER", "MEET", host, port, busOf(tb, port)).Err())
		}
	}
	for i, node := range c.Masters {
		low, high := i*(lastSlot+1)/masters, (i+1)*(lastSlot+1)/masters-1
		must(tb, node.Client(tb).ClusterAddSlotsRange(tb.Context(), low, high).Err())
	}
	c.await(tb, func(info string) bool {
		return strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.nodes())))
	})
	for i, node := range c.Replicas {
		id := c.Masters[i].Client(tb).ClusterMyID(tb.Context()).Val()
		c.try(tb, func() error { return node.Client(tb).ClusterReplicate(tb.Context(), id).Err() })
	}
	c.await(tb, func(info string) bool { return strings.Contains(info, "cluster_state:ok") })
	for _, node := range c.Replicas {
		awaitInfo(tb, node.Client(tb), "replication", "role:slave", "master_link_status:up")
	}
	return c
}

// busOf returns the port of the cluster bus beside a port; see Options.portArgs.
func busOf(tb testing.TB, port string) string {
	tb.Helper()
	number := 0
	if _, err := fmt.Sscan(port, &number); err != nil {
		tb.Fatal(err)
	}
	return Options{Cluster: true}.portArgs(number)[1]
}

func (c *Cluster) nodes() []*Server {
	all := make([]*Server, 0, len(c.Masters)+len(c.Replicas))
	return append(append(all, c.Masters...), c.Replicas...)
}

// URL returns the address of the cluster, as lua.Connect takes it.
func (c *Cluster) URL() string {
	addrs := make([]string, len(c.Masters))
	for i, node := range c.Masters {
		addrs[i] = node.Addr()
	}
	return "redis-cluster://" + strings.Join(addrs, ",")
}

// Client returns a client of the test's own with the settings of the house, closed at its end.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	logging.Disable()
	options, addrs, err := redisclient.ParseCluster(c.URL())
	must(tb, err)
	options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = patience, patience, patience
	client := redisclient.NewCluster(options, addrs)
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Errorf("close cluster client: %v", err)
		}
	})
	return client
}

// MasterOf returns the node that serves a slot, by the word of one that is well.
func (c *Cluster) MasterOf(tb testing.TB, slot int) *Server {
	tb.Helper()
	var master *Server
	c.try(tb, func() error {
		for _, node := range c.nodes() {
			shards, err := node.Client(tb).ClusterShards(tb.Context()).Result()
			if err != nil {
				continue
			}
			for _, shard := range shards {
				if has(shard, int64(slot)) {
					master = c.master(shard)
				}
			}
			if master != nil {
				return nil
			}
		}
		return errors.New("no node knows who serves the slot")
	})
	return master
}

func has(shard redis.ClusterShard, slot int64) bool {
	return slices.ContainsFunc(shard.Slots, func(r redis.SlotRange) bool { return r.Start <= slot && slot <= r.End })
}

// master returns the node of a shard that is its master and well; nil if there is none at the moment.
func (c *Cluster) master(shard redis.ClusterShard) *Server {
	for _, known := range shard.Nodes {
		addr := net.JoinHostPort(known.IP, strconv.FormatInt(known.Port, 10))
		for _, node := range c.nodes() {
			if known.Role == "master" && known.Health == "online" && node.Addr() == addr {
				return node
			}
		}
	}
	return nil
}

// BeginMove lets a slot begin to move from one master to another: CLUSTER SETSLOT on both.
func (c *Cluster) BeginMove(tb testing.TB, slot int, from, to *Server) {
	tb.Helper()
	source, target := from.Client(tb), to.Client(tb)
	must(tb, target.Do(tb.Context(), "CLUSTER", "SETSLOT", slot, "IMPORTING", source.ClusterMyID(tb.Context()).Val()).Err())
	must(tb, source.Do(tb.Context(), "CLUSTER", "SETSLOT", slot, "MIGRATING", target.ClusterMyID(tb.Context()).Val()).Err())
}

// MoveKeys migrates up to so many keys of a slot that is moving, and reports whether there may be more.
func (c *Cluster) MoveKeys(tb testing.TB, slot, most int, from, to *Server) bool {
	tb.Helper()
	source := from.Client(tb)
	keys, err := source.ClusterGetKeysInSlot(tb.Context(), slot, most).Result()
	must(tb, err)
	host, port, err := net.SplitHostPort(to.Addr())
	must(tb, err)
	for _, key := range keys {
		must(tb, source.Migrate(tb.Context(), host, port, key, 0, time.Minute).Err())
	}
	return len(keys) == most
}

// EndMove makes another master the owner of a slot whose keys it has.
func (c *Cluster) EndMove(tb testing.TB, slot int, to *Server) {
	tb.Helper()
	id := to.Client(tb).ClusterMyID(tb.Context()).Val()
	must(tb, to.Client(tb).Do(tb.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err())
	for _, node := range c.Masters {
		if node != to {
			must(tb, node.Client(tb).Do(tb.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err())
		}
	}
}

// await waits until every node's CLUSTER INFO is as it should be.
func (c *Cluster) await(tb testing.TB, well func(info string) bool) {
	tb.Helper()
	for _, node := range c.nodes() {
		c.awaitNode(tb, node, well)
	}
}

func (c *Cluster) awaitNode(tb testing.TB, node *Server, well func(info string) bool) {
	tb.Helper()
	client := node.Client(tb)
	c.try(tb, func() error {
		info, err := client.ClusterInfo(tb.Context()).Result()
		if err == nil && !well(info) {
			err = errors.New(info)
		}
		return err
	})
}

// try repeats what does not succeed yet.
func (c *Cluster) try(tb testing.TB, do func() error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), failoverTimeout)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := do()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waited in vain for the cluster: %v", err)
		case <-poll.C:
		}
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
