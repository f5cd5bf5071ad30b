package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded/child"
)

// What the Sentinels of a Failover are told. They take a master for gone after half a second, and two of three decide.
const (
	masterName     = "jobs"
	sentinels      = 3
	quorum         = 2
	sentinelConfig = `sentinel monitor ` + masterName + ` %s %s %d
sentinel down-after-milliseconds ` + masterName + ` 500
sentinel failover-timeout ` + masterName + ` 3000
`
)

// failoverTimeout bounds the wait until a Failover is whole, and until it has another master.
const failoverTimeout = time.Minute

// Failover is a master, a replica that follows it, and three Sentinels that put the replica in a lost master's place.
type Failover struct {
	// Master and Replica are so named for what they are at the start.
	Master, Replica *Server

	addrs []string // of the Sentinels
}

// StartFailover runs all five for this test alone. It returns when the replica follows and the Sentinels know of each other,
// which takes them two seconds.
func StartFailover(tb testing.TB, options Options) *Failover {
	tb.Helper()
	options.Args = append([]string{"--repl-diskless-sync-delay", "0"}, options.Args...)
	f := &Failover{Master: Start(tb, options)}
	host, port, err := net.SplitHostPort(f.Master.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	options.Args = append(options.Args, "--replicaof", host+" "+port)
	f.Replica = Start(tb, options)
	for range sentinels {
		f.addrs = append(f.addrs, startSentinel(tb, host, port).Addr())
	}
	awaitInfo(tb, f.Replica.Client(tb), "replication", "master_link_status:up")
	for _, addr := range f.addrs {
		awaitInfo(tb, newClient(tb, clientOptions(addr)), "sentinel", fmt.Sprintf("status=ok,address=%s,slaves=1,sentinels=%d", f.Master.Addr(), sentinels))
	}
	return f
}

// URL returns the address of the master by the Sentinels, as lua.Connect takes it.
func (f *Failover) URL() string {
	return "redis-sentinel://" + strings.Join(f.addrs, ",") + "/0?master=" + masterName
}

// AwaitPromotion waits until all Sentinels name a server as the master.
func (f *Failover) AwaitPromotion(tb testing.TB, server *Server) {
	tb.Helper()
	for _, addr := range f.addrs {
		awaitInfo(tb, newClient(tb, clientOptions(addr)), "sentinel", "address="+server.Addr())
	}
}

// AwaitReplica waits until a server follows the present master.
func (f *Failover) AwaitReplica(tb testing.TB, server *Server) {
	tb.Helper()
	awaitInfo(tb, server.Client(tb), "replication", "role:slave", "master_link_status:up")
}

// startSentinel runs one Sentinel. It keeps what it learns in a file, without which it does not start.
func startSentinel(tb testing.TB, host, port string) *Server {
	tb.Helper()
	dir := tb.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, sentinelConfig, host, port, quorum), 0o600); err != nil {
		tb.Fatal(err)
	}
	binary, err := child.Find()
	if err != nil {
		tb.Fatal(err)
	}
	server, err := child.Start(tb.Context(), child.Config{Binary: binary, Dir: dir, File: file, Args: []string{"--sentinel"}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Close)
	return &Server{child: server}
}

// awaitInfo waits until a section of INFO holds all of the words.
func awaitInfo(tb testing.TB, client *redis.Client, section string, words ...string) {
	tb.Helper()
	await(tb, func(ctx context.Context) error {
		info, err := client.Info(ctx, section).Result()
		for _, word := range words {
			if err == nil && !strings.Contains(info, word) {
				return fmt.Errorf("%q is not in INFO %s:\n%s", word, section, info)
			}
		}
		return err
	})
}

// await tries until there is no error.
func await(tb testing.TB, try func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), failoverTimeout)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waited in vain: %v", err)
		case <-poll.C:
		}
	}
}

// Switch asks a Sentinel for a failover while the master is well, as soon as it knows that a replica could take over: it
// asks that one every ten seconds whether it follows.
func (f *Failover) Switch(tb testing.TB) {
	tb.Helper()
	sentinel := newClient(tb, clientOptions(f.addrs[0]))
	await(tb, func(ctx context.Context) error {
		err := sentinel.Do(ctx, "SENTINEL", "FAILOVER", masterName).Err()
		if err != nil && !strings.HasPrefix(err.Error(), "NOGOODSLAVE") {
			tb.Fatal(err)
		}
		return err
	})
}
