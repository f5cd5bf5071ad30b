package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Slots of a Redis cluster run from 0 to lastSlot.
const lastSlot = 16383

// clusterTimeout bounds the wait for a cluster to be well. Redis itself takes two seconds.
const clusterTimeout = time.Minute

// StartCluster runs a cluster of one node, which owns all slots, for this test alone. It takes two seconds; see
// SharedCluster. A plain Client reaches all of it.
func StartCluster(tb testing.TB) *Server {
	tb.Helper()
	needRedis(tb)
	server, err := startCluster(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.child.Close)
	return server
}

func startCluster(dir string) (*Server, error) {
	server, err := start(dir, Options{Cluster: true, Args: []string{"--cluster-node-timeout", "500"}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := takeSlots(ctx, server.Addr()); err != nil {
		server.child.Close()
		return nil, fmt.Errorf("make a cluster of one node: %w", err)
	}
	return server, nil
}

// takeSlots gives the node all slots and waits until the cluster is well.
func takeSlots(ctx context.Context, addr string) error {
	client := redis.NewClient(clientOptions(addr))
	defer client.Close()
	if err := client.ClusterAddSlotsRange(ctx, 0, lastSlot).Err(); err != nil {
		return err
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		info, err := client.ClusterInfo(ctx).Result()
		if err == nil && strings.Contains(info, "cluster_state:ok") {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err, errors.New(info))
		case <-poll.C:
		}
	}
}
