package redisrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/embedded/child"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/loadtest/internal/load"
)

// PoolSize is the number of connections of a system's client, above what 64 producers and a worker use.
const PoolSize = 100

// Store is the Redis of a run. Its methods may be called from several goroutines, Close last.
type Store struct {
	options *redis.Options
	opened  *embedded.Store // nil where server is not
	server  *child.Server   // of a plan that restarts it
	dir     string
}

// Open opens the store at an address, or a private one. One that is to be restarted journals every write before it
// answers, so that nothing it said is lost.
func Open(ctx context.Context, addr string, restarts bool, notes io.Writer) (*Store, error) {
	if !restarts {
		opened, err := embedded.Open(ctx, embedded.Config{Addr: addr, PoolSize: PoolSize, Log: notes})
		if err != nil {
			return nil, err
		}
		return &Store{options: opened.Options(), opened: opened}, nil
	}
	binary, err := child.Find()
	if err != nil {
		return nil, load.ErrNoServer
	}
	dir, err := os.MkdirTemp("", "headgate-loadtest-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the private redis: %w", err)
	}
	server, err := child.Start(ctx, child.Config{Binary: binary, Dir: dir, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	options := &redis.Options{Addr: server.Addr(), PoolSize: PoolSize}
	redisclient.Settings(options)
	return &Store{options: options, server: server, dir: dir}, nil
}

// String names the store without credentials.
func (s *Store) String() string {
	if s.opened != nil {
		return s.opened.String()
	}
	return "redis-server at " + s.server.Addr() + ", appendfsync always"
}

// patience is how long a client that prepares a run, or counts what is left of it, waits for an answer.
const patience = 15 * time.Second

// Addr is host:port.
func (s *Store) Addr() string { return s.options.Addr }

// NewClient returns a client with the settings of the house.
func (s *Store) NewClient() *redis.Client {
	options := *s.options
	return redis.NewClient(&options)
}

// NewPatientClient returns a client for what is not measured and may take its time.
func (s *Store) NewPatientClient() *redis.Client {
	options := *s.options
	options.ReadTimeout, options.WriteTimeout = patience, patience
	return redis.NewClient(&options)
}

// Kill kills a server that may be restarted.
func (s *Store) Kill() {
	if s.server != nil {
		s.server.Kill()
	}
}

// Restart starts it again, unless it runs.
func (s *Store) Restart(ctx context.Context) error {
	if s.server == nil || s.server.Running() {
		return nil
	}
	return s.server.Restart(ctx)
}

// Close removes the keys of a pattern from a Redis of somebody else's, and ends a private one.
func (s *Store) Close(ctx context.Context, pattern string) error {
	if s.opened == nil {
		s.server.Close()
		return os.RemoveAll(s.dir)
	}
	var bad error
	if s.opened.Kind() == embedded.KindAddress {
		bad = s.opened.Remove(ctx, pattern)
	}
	return errors.Join(bad, s.opened.Close())
}
