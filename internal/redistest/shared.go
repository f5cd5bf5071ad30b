package redistest

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// lazy is a server of the whole test process, started when the first test asks for it.
type lazy struct {
	start  func(dir string) (*Server, error)
	once   sync.Once
	server *Server // nil until once has run, and after it failed
	ready  atomic.Bool
	dir    string
	err    error
}

var (
	sharedServer  = lazy{start: func(dir string) (*Server, error) { return start(dir, Options{}) }}
	sharedCluster = lazy{start: startCluster}
)

// Shared returns the one server of this test process. Tests use it under their own Prefix and may not end, flush
// or reconfigure it.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	return sharedServer.get(tb)
}

// SharedCluster returns the one cluster of this test process, on the terms of Shared. A cluster takes two seconds
// to start, so tests share it where they can.
func SharedCluster(tb testing.TB) *Server {
	tb.Helper()
	return sharedCluster.get(tb)
}

// Main runs the tests of a package and then ends the shared servers. It is the body of a TestMain. A property is walked with so many other schedules
// as walks says, unless -rapid.checks says it: `make walks` walks a thousand.
func Main(m interface{ Run() int }) {
	if checks := flag.Lookup("rapid.checks"); checks != nil {
		_ = checks.Value.Set(walks) // It is a number.
	}
	m.Run() // The testing package exits with its result when TestMain returns.
	StopShared()
}

// StopShared ends the shared servers, for a TestMain that has more to do than Main does.
func StopShared() {
	sharedServer.stop()
	sharedCluster.stop()
	if clockDir != "" {
		_ = os.RemoveAll(clockDir) // A directory left in /tmp fails no test.
	}
}

func (l *lazy) get(tb testing.TB) *Server {
	tb.Helper()
	needRedis(tb)
	l.once.Do(func() {
		//nolint:usetesting // The directory outlives the test that asks first.
		if l.dir, l.err = os.MkdirTemp("", "headgate-redistest-"); l.err != nil {
			return
		}
		if l.server, l.err = l.start(l.dir); l.err == nil {
			l.server.shared = true
			l.ready.Store(true)
		}
	})
	if l.err != nil {
		tb.Fatalf("start the shared redis: %v", l.err)
	}
	return l.server
}

func (l *lazy) stop() {
	l.once.Do(func() { l.err = os.ErrClosed }) // Nobody starts it any more.
	if l.server != nil {
		l.server.child.Close()
	}
	if l.dir != "" {
		_ = os.RemoveAll(l.dir) // as above
	}
}

// prefixes counts the prefixes of this process; processName keeps those of two processes apart.
var (
	prefixes    atomic.Uint64
	processName = strings.ToLower(rand.Text()[:8])
)

// Prefix returns a key prefix that nobody else has: 11 or more bytes of [a-z0-9], a letter first, no hash tag. At the end of the test Clear forgets it.
func Prefix(tb testing.TB) string {
	tb.Helper()
	prefix := fmt.Sprintf("t%sx%de", processName, prefixes.Add(1)) // A number after it makes no other's prefix of it.
	tb.Cleanup(func() { Clear(tb, prefix) })
	return prefix
}

// Clear deletes the shared server's keys of a prefix. A walk calls it after each of its runs: what looks at all keys, as an edit of the policy does,
// takes as long as there are any of all tests.
func Clear(tb testing.TB, prefix string) {
	tb.Helper()
	if !sharedServer.ready.Load() {
		return
	}
	ctx, client := context.Background(), redis.NewClient(sharedServer.server.Options()) // The test's own context has ended.
	defer client.Close()
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(ctx, cursor, prefix+"*", 1000).Result()
		if err == nil && len(keys) > 0 {
			err = client.Unlink(ctx, keys...).Err()
		}
		if err != nil {
			tb.Errorf("clear the keys of %s: %v", prefix, err)
			return
		}
		if cursor = next; next == 0 {
			return
		}
	}
}
