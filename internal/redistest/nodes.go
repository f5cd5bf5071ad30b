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
	// Network is between the nodes of StartNodesApart; nil elsewhere.
	Network *Network
}

// After how many milliseconds of silence nodes take another for gone: as it is after the start, and never because the machine halts.
// See GoneAfter.
const (
	NodeTimeout = 1000
	NeverGone   = neverGone
)

// joinTimeout is the same while they come to know each other. A node whose disk halts for longer drops those that it has just met, for good.
const joinTimeout = 10_000

// StartNodes runs a cluster of so many masters for this test alone, each with a replica if asked for. It returns when all
// nodes find it well and the replicas follow, which takes some three seconds.
func StartNodes(tb testing.TB, masters int, replicas bool) *Cluster {
	tb.Helper()
	return startNodes(tb, nil, masters, replicas)
}

// StartNodesApart is StartNodes with replicas and with a Network between all nodes and clients that can be cut.
func StartNodesApart(tb testing.TB, masters int) *Cluster {
	tb.Helper()
	return startNodes(tb, newNetwork(tb), masters, true)
}

func startNodes(tb testing.TB, network *Network, masters int, replicas bool) *Cluster {
	tb.Helper()
	options := Options{Cluster: true, Args: []string{"--cluster-node-timeout", strconv.Itoa(joinTimeout), "--repl-diskless-sync-delay", "0"}}
	start := Start
	if network != nil {
		start = network.start
	}
	c := &Cluster{Network: network}
	for range masters {
		c.Masters = append(c.Masters, start(tb, options))
		if replicas {
			c.Replicas = append(c.Replicas, start(tb, options))
		}
	}
	c.join(tb)
	return c
}

// join makes a cluster of the nodes.
func (c *Cluster) join(tb testing.TB) {
	tb.Helper()
	first, masters := c.Masters[0], len(c.Masters)
	for i, node := range c.nodes() {
		client := node.Client(tb)
		// Without epochs of their own two masters would settle a conflict first.
		must(tb, client.Do(tb.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if node != first {
			host, port, err := net.SplitHostPort(c.addrOf(first))
			must(tb, err)
			_, busPort, err := net.SplitHostPort(c.busOf(tb, first))
			must(tb, err)
			must(tb, client.Do(tb.Context(), "CLUSTER", "MEET", host, port, busPort).Err())
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
	c.GoneAfter(tb, NodeTimeout)
}

// addrOf returns the address by which a node is known to others.
func (c *Cluster) addrOf(node *Server) string {
	if c.Network != nil {
		return c.Network.places[node].addr
	}
	return node.Addr()
}

// busOf returns that of a node's cluster bus.
func (c *Cluster) busOf(tb testing.TB, node *Server) string {
	tb.Helper()
	if c.Network != nil {
		return c.Network.places[node].bus
	}
	return busAddr(tb, node.Addr())
}

// busAddr returns the address of the cluster bus of a node; see Options.portArgs.
func busAddr(tb testing.TB, addr string) string {
	tb.Helper()
	host, text, err := net.SplitHostPort(addr)
	must(tb, err)
	port, err := strconv.Atoi(text)
	must(tb, err)
	return net.JoinHostPort(host, Options{Cluster: true}.portArgs(port)[1])
}

// GoneAfter tells all nodes that run after how many milliseconds of silence another is gone. It goes past the Network.
func (c *Cluster) GoneAfter(tb testing.TB, milliseconds int) {
	tb.Helper()
	for _, node := range c.nodes() {
		if node.child.Running() {
			must(tb, node.Client(tb).ConfigSet(tb.Context(), "cluster-node-timeout", strconv.Itoa(milliseconds)).Err())
		}
	}
}

func (c *Cluster) nodes() []*Server {
	all := make([]*Server, 0, len(c.Masters)+len(c.Replicas))
	return append(append(all, c.Masters...), c.Replicas...)
}

// URL returns the address of the cluster, as redisstore.Connect takes it.
func (c *Cluster) URL() string {
	addrs := make([]string, len(c.Masters))
	for i, node := range c.Masters {
		addrs[i] = c.addrOf(node)
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
			if known.Role == "master" && known.Health == "online" && c.addrOf(node) == addr {
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

// AwaitWhole waits until there are as many masters as at the start, all nodes find the cluster well and all replicas follow.
func (c *Cluster) AwaitWhole(tb testing.TB) {
	tb.Helper()
	c.await(tb, func(info string) bool { return strings.Contains(info, "cluster_state:ok") })
	c.try(tb, func() error {
		masters := 0
		for _, node := range c.nodes() {
			info, err := node.Client(tb).Info(tb.Context(), "replication").Result()
			switch {
			case err != nil:
				return err
			case strings.Contains(info, "role:master"):
				masters++
			case !strings.Contains(info, "master_link_status:up"):
				return errors.New(info)
			}
		}
		if masters != len(c.Masters) {
			return fmt.Errorf("%d nodes are masters", masters)
		}
		return nil
	})
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
