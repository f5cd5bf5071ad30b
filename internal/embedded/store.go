package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded/child"
	"github.com/headgate/headgate/internal/redisclient"
)

// Kind is the kind of store that was opened.
type Kind string

// The kinds.
const (
	// KindAddress is a Redis somebody else runs.
	KindAddress Kind = "address"
	// KindRedis is a private redis-server.
	KindRedis Kind = "redis-server"
	// KindValkey is a private valkey-server.
	KindValkey Kind = "valkey-server"
)

// ErrNoServer is what an open without an address says where no server is in PATH.
var ErrNoServer = fmt.Errorf("%w: install Redis (on Debian: apt-get install redis-server) or give the address of one (redis://host:6379)", child.ErrNotFound)

// errChild is what an open without an address says when a server was found and did not start.
var errChild = errors.New("the private redis did not start; give the address of a running one instead")

// openTimeout bounds the first answer of a Redis; a longer ReadTimeout does instead.
const openTimeout = 2 * time.Second

// Store is an open store. Its methods may be called from several goroutines at once.
type Store struct {
	kind    Kind
	options *redis.Options // never changed after Open
	// sentinel is nil for one Redis.
	sentinel *redisclient.Sentinel
	client   redis.UniversalClient
	close    func() error // ends what Open started besides the client
	closing  sync.Once
	closed   error // what Close returned, guarded by closing
}

// Open opens the store that the package comment promises and checks that it answers, within 2 s or the read_timeout of its address if that is longer. The ctx bounds
// the opening alone.
func Open(ctx context.Context, config Config) (*Store, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	if config.Addr != "" {
		return openAddress(ctx, config)
	}
	binary, err := child.Find()
	if errors.Is(err, child.ErrNotFound) {
		return nil, ErrNoServer
	}
	if err != nil {
		return nil, err
	}
	return openChild(ctx, config, binary)
}

func openAddress(ctx context.Context, config Config) (*Store, error) {
	at, err := config.address()
	if err != nil {
		return nil, err
	}
	return connect(ctx, KindAddress, at, func() error { return nil })
}

func openChild(ctx context.Context, config Config, binary string) (*Store, error) {
	dir, err := os.MkdirTemp("", "headgate-redis-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the private redis: %w", err)
	}
	server, err := child.Start(ctx, child.Config{Binary: binary, Dir: dir})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errChild, err), os.RemoveAll(dir))
	}
	kind := KindRedis
	if filepath.Base(binary) == string(KindValkey) {
		kind = KindValkey
	}
	closeServer := func() error {
		server.Close()
		return os.RemoveAll(dir)
	}
	fmt.Fprintf(config.Log, "headgate: private %s at %s; nothing in it survives this process\n", kind, server.Addr())
	return connect(ctx, kind, address{options: privateOptions(config, server.Addr())}, closeServer)
}

// privateOptions returns the client options for a store this process runs itself.
func privateOptions(config Config, addr string) *redis.Options {
	options := &redis.Options{Addr: addr, PoolSize: config.PoolSize}
	redisclient.Settings(options)
	return options
}

// connect makes the Store and asks for a first answer. Without one, all that was started is ended.
func connect(ctx context.Context, kind Kind, at address, closeServer func() error) (*Store, error) {
	store := &Store{kind: kind, options: at.options, sentinel: at.sentinel, client: at.client(), close: closeServer}
	ctx, cancel := context.WithTimeout(ctx, max(openTimeout, at.options.ReadTimeout))
	defer cancel()
	if err := store.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(unreachable(at.options, err), store.Close())
	}
	return store, nil
}

// Kind says what was opened.
func (s *Store) Kind() Kind { return s.kind }

// Client returns the client that the Store owns. Close closes it.
func (s *Store) Client() redis.UniversalClient { return s.client }

// Options returns a copy of the client's options, for those who need a client of their own. It holds the password. Where
// Sentinels are asked it has a Dialer that asks them, by the Store's client.
func (s *Store) Options() *redis.Options {
	options := *s.options
	if client, ok := s.client.(*redis.Client); ok && s.sentinel != nil {
		options.Dialer = client.Options().Dialer
	}
	return &options
}

// removeBatch is how many keys Remove looks at in a step.
const removeBatch = 1000

// Remove unlinks every key that matches a pattern of SCAN, a step at a time, so that it holds nobody up. The error says
// how the rest may be removed.
func (s *Store) Remove(ctx context.Context, pattern string) error {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return remove(ctx, s.client, pattern)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return remove(ctx, node, pattern) })
}

// remove is Remove for one node, which unlinks keys of several slots one at a time only.
func remove(ctx context.Context, client redis.Cmdable, pattern string) error {
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(ctx, cursor, pattern, removeBatch).Result()
		if err == nil && len(keys) > 0 {
			_, err = client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, key := range keys {
					pipe.Unlink(ctx, key)
				}
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("the keys of this run are left in Redis, remove them with "+
				"redis-cli --scan --pattern '%s' | xargs redis-cli unlink: %w", pattern, err)
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// String names the store without its credentials.
func (s *Store) String() string { return fmt.Sprintf("%s at %s", s.kind, s.options.Addr) }

// Close closes the client and ends a private store, with all that is in it. Further calls do nothing.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closed = errors.Join(s.client.Close(), s.close()) })
	return s.closed
}
