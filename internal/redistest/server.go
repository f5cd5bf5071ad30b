package redistest

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/internal/embedded/child"
	"github.com/headgate/headgate/internal/redisclient"
)

// restartTimeout bounds a Restart, the loading of its data included.
const restartTimeout = time.Minute

// Options configures a server. The zero value keeps nothing on disk and evicts nothing.
type Options struct {
	// MaxMemory is the maxmemory setting, such as "64mb"; empty means no bound.
	MaxMemory string
	// MaxMemoryPolicy is the maxmemory-policy setting; empty means noeviction.
	MaxMemoryPolicy string
	// AppendFsync turns the append-only file on, with this appendfsync setting: always, everysec or no. What a
	// killed server has written is there again after Restart.
	AppendFsync string
	// Cluster turns cluster mode on. StartCluster also hands out the slots.
	Cluster bool
	// Clock is the time of day that the server reads; nil means this machine's, or what ClockVariable says.
	Clock *Clock
	// Args follow all others, as on the command line: {"--requirepass", "secret"}.
	Args []string
}

// args returns the command line for the options.
func (o Options) args() []string {
	args := []string{"--enable-debug-command", "yes"}
	if o.MaxMemory != "" {
		args = append(args, "--maxmemory", o.MaxMemory)
	}
	if o.MaxMemoryPolicy != "" {
		args = append(args, "--maxmemory-policy", o.MaxMemoryPolicy)
	}
	if o.AppendFsync != "" {
		args = append(args, "--appendonly", "yes", "--appendfsync", o.AppendFsync)
	}
	if o.Cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	}
	return append(args, o.Args...)
}

// portArgs gives the cluster bus a port below those that child picks. By default it is the port + 10000, which
// may be the local port of somebody's connection.
func (o Options) portArgs(port int) []string {
	if !o.Cluster {
		return nil
	}
	return []string{"--cluster-port", strconv.Itoa(port - 10000)}
}

// Server is a running Redis. Its methods may be called from several goroutines at once; those that fail report it
// by tb.Errorf, so they may be called from any goroutine.
type Server struct {
	child  *child.Server
	shared bool
}

// Start runs a server for this test alone. It ends with the test.
func Start(tb testing.TB, options Options) *Server {
	tb.Helper()
	needRedis(tb)
	server, err := start(tb.TempDir(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		server.child.Close()
		if tb.Failed() && testing.Verbose() {
			tb.Logf("redis %s said:\n%s", server.Addr(), server.child.Log())
		}
	})
	return server
}

func start(dir string, options Options) (*Server, error) {
	binary, err := child.Find()
	if err != nil {
		return nil, err
	}
	if options.Clock == nil {
		if options.Clock, err = everyClock(); err != nil {
			return nil, err
		}
	}
	// No test's ctx: a shared server outlives the test that needs it first.
	server, err := child.Start(context.Background(), child.Config{
		Binary: binary, Dir: dir, Args: options.args(), PortArgs: options.portArgs, Env: options.Clock.env(),
	})
	if err != nil {
		return nil, err
	}
	return &Server{child: server}, nil
}

// needRedis skips under -short and fails where there is no Redis.
func needRedis(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs redis-server, which -short leaves out")
	}
	if _, err := child.Find(); err != nil {
		tb.Fatalf("%v. These tests run against a real Redis: install it, on Debian with `apt-get install redis-server`, "+
			"on a Mac with `brew install redis`, or leave them out with `go test -short`.", err)
	}
}

// Addr returns the address, "127.0.0.1:port". It is the same after a Restart.
func (s *Server) Addr() string { return s.child.Addr() }

// Log returns the last lines that the server wrote.
func (s *Server) Log() string { return s.child.Log() }

// Options returns the client options of the house for this server, to be changed and given to redis.NewClient.
// Its read time-out is longer than a production client's, for machines that also do something else.
func (s *Server) Options() *redis.Options { return clientOptions(s.Addr()) }

// Client returns a client of the test's own, closed at its end.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return newClient(tb, s.Options())
}

// ClusterClient returns a cluster client of the test's own, closed at its end. The server must be a cluster.
func (s *Server) ClusterClient(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	logging.Disable()
	options := s.Options()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{options.Addr}, MaxRedirects: -1, MaxRetries: options.MaxRetries, Protocol: options.Protocol,
		ContextTimeoutEnabled: true, DialTimeout: options.DialTimeout, ReadTimeout: options.ReadTimeout,
		WriteTimeout: options.WriteTimeout, PoolTimeout: options.PoolTimeout, PoolSize: options.PoolSize,
		DisableIdentity: true, MaintNotificationsConfig: options.MaintNotificationsConfig,
	})
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Errorf("close cluster client: %v", err)
		}
	})
	return client
}

// URL returns the address as a URL for redisstore.Connect and for commands, with the time-outs of Options.
func (s *Server) URL() string { return patientURL(s.Addr()) }

// patience is what a client of a test waits for a connection and for an answer: longer than a machine halts, or a slow disk
// keeps Redis from answering. A test of what takes time gives its ctx a deadline.
const patience = 20 * time.Second

func clientOptions(addr string) *redis.Options {
	options := &redis.Options{Addr: addr, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience}
	redisclient.Settings(options)
	return options
}

func patientURL(addr string) string {
	return fmt.Sprintf("redis://%s?dial_timeout=%[2]s&read_timeout=%[2]s&write_timeout=%[2]s&pool_timeout=%[2]s", addr, patience)
}

func newClient(tb testing.TB, options *redis.Options) *redis.Client {
	tb.Helper()
	logging.Disable() // go-redis writes a line to stderr for each failed dial, and outages are what is tested.
	client := redis.NewClient(options)
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Errorf("close client: %v", err)
		}
	})
	return client
}

// Stop ends the server as an operator would: it writes what it has to write first.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	if s.mayEnd(tb) {
		s.child.Stop()
	}
}

// Kill ends the server with SIGKILL and returns when it is gone.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	if s.mayEnd(tb) {
		s.child.Kill()
	}
}

// Restart starts the server again, with its port, its options and its directory, stopping it first if it runs.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if !s.mayEnd(tb) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), restartTimeout)
	defer cancel()
	if err := s.child.Restart(ctx); err != nil {
		tb.Errorf("restart redis: %v", err)
	}
}

// mayEnd fails a test that would take the shared server from the others.
func (s *Server) mayEnd(tb testing.TB) bool {
	tb.Helper()
	if s.shared {
		tb.Errorf("redis %s is shared with other tests: use redistest.Start for a server of your own", s.Addr())
	}
	return !s.shared
}
