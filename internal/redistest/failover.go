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

// What the Sentinels of a Failover are told. Two of three decide.
const (
	masterName     = "jobs"
	sentinels      = 3
	quorum         = 2
	sentinelConfig = `sentinel monitor ` + masterName + ` %s %s %d
sentinel down-after-milliseconds ` + masterName + ` %d
sentinel failover-timeout ` + masterName + ` 3000
`
)

// After how many milliseconds of silence the Sentinels take a master for gone: never because the machine halts, and soon once
// a test has killed it. They promote no replica that had lost it ten times as long before: a test may cut one off for that long.
const (
	neverGone = 600_000
	soonGone  = 2_000
)

// failoverTimeout bounds the wait until a Failover is whole, and until it has another master. A Sentinel that halted for two
// seconds does nothing for thirty.
const failoverTimeout = 2 * time.Minute

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

// URL returns the address of the master by the Sentinels, as redisstore.Connect takes it.
func (f *Failover) URL() string {
	return "redis-sentinel://" + strings.Join(f.addrs, ",") + "/0?master=" + masterName
}

// KillMaster ends the server that is the master with SIGKILL, and lets the Sentinels find that.
func (f *Failover) KillMaster(tb testing.TB, master *Server) {
	tb.Helper()
	master.Kill(tb)
	f.goneAfter(tb, soonGone)
}

// goneAfter tells all Sentinels after how many milliseconds of silence a master is gone.
func (f *Failover) goneAfter(tb testing.TB, milliseconds int) {
	tb.Helper()
	for _, addr := range f.addrs {
		err := newClient(tb, clientOptions(addr)).Do(tb.Context(), "SENTINEL", "SET", masterName, "down-after-milliseconds", milliseconds).Err()
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// AwaitPromotion waits until all Sentinels name a server as the master. They are then in no hurry again.
func (f *Failover) AwaitPromotion(tb testing.TB, server *Server) {
	tb.Helper()
	for _, addr := range f.addrs {
		awaitInfo(tb, newClient(tb, clientOptions(addr)), "sentinel", "address="+server.Addr())
	}
	f.goneAfter(tb, neverGone)
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
	if err := os.WriteFile(file, fmt.Appendf(nil, sentinelConfig, host, port, quorum, neverGone), 0o600); err != nil {
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
	tb.Cleanup(func() {
		server.Close()
		if tb.Failed() {
			tb.Logf("Sentinel %s said:\n%s", server.Addr(), server.Log())
		}
	})
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

// await tries until there is no error. One of a try that the time ran out for is told only where no other was seen.
func await(tb testing.TB, try func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), failoverTimeout)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waited in vain: %v", last)
		case <-poll.C:
		}
	}
}

// Switch asks a Sentinel for a failover while the master is well, as soon as all Sentinels know that the other server follows: each
// asks it every ten seconds. One that takes it for a master that has come back makes it a replica, also while another promotes it.
func (f *Failover) Switch(tb testing.TB) {
	tb.Helper()
	for _, addr := range f.addrs {
		awaitFollower(tb, newClient(tb, clientOptions(addr)))
	}
	sentinel := newClient(tb, clientOptions(f.addrs[0]))
	await(tb, func(ctx context.Context) error {
		err := sentinel.Do(ctx, "SENTINEL", "FAILOVER", masterName).Err()
		if err != nil && !strings.HasPrefix(err.Error(), "NOGOODSLAVE") {
			tb.Fatal(err)
		}
		return err
	})
}

// awaitFollower waits until a Sentinel knows all replicas for such, which follow.
func awaitFollower(tb testing.TB, sentinel *redis.Client) {
	tb.Helper()
	await(tb, func(ctx context.Context) error {
		replicas, err := sentinel.Do(ctx, "SENTINEL", "REPLICAS", masterName).Slice()
		for _, replica := range replicas {
			said, _ := replica.([]any)
			fields := map[any]any{}
			for i := 0; i+1 < len(said); i += 2 {
				fields[said[i]] = said[i+1]
			}
			if fields["role-reported"] != "slave" || fields["master-link-status"] != "ok" {
				return fmt.Errorf("a Sentinel knows no follower yet: %v", fields)
			}
		}
		return err
	})
}
