package stage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/ledger"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// Config says what to put on the stage.
type Config struct {
	// Redis is the address of a Redis; empty means a private one.
	Redis string
	// Name begins the key prefix, "hg-NAME-RANDOM".
	Name string
	// Queue is the one queue of the run.
	Queue string
	// Policy is stored as version 1 before anything is enqueued.
	Policy policy.Policy
	// Jobs is roughly how many there will be.
	Jobs int
	// Concurrency is the number of the worker's slots.
	Concurrency int
	// DrainTimeout is how long running handlers may go on when the run ends.
	DrainTimeout time.Duration
	// Backoff is the wait after a failed run.
	Backoff func(attempt int) time.Duration
	// Breaker is that of every downstream.
	Breaker breaker.Config
	// Logger is the producer's and the worker's.
	Logger zerolog.Logger
	// Notes takes what the user must know: which store is used, what is left behind.
	Notes io.Writer
	// Keep leaves the keys of the run in Redis.
	Keep bool
}

// Stage is a run's store, producer and ledger. Its methods may be called from several goroutines, Close last.
type Stage struct {
	config   Config
	prefix   string
	redis    *embedded.Store // nil where the store is in memory
	store    store.Deployment
	producer *producer.Producer
	compiled *policy.Compiled
	ledger   *ledger.Ledger
	states   atomic.Pointer[map[string]string]
}

// Open opens the store, one in memory where there is no Redis, and puts the policy in force. Errors say what to do; an address at which nobody answers is one
// within two seconds.
func Open(ctx context.Context, config Config) (*Stage, error) {
	opened, err := embedded.Open(ctx, embedded.Config{Addr: config.Redis, Log: config.Notes})
	if errors.Is(err, embedded.ErrNoServer) {
		fmt.Fprintln(config.Notes, inMemory)
	} else if err != nil {
		return nil, err
	}
	s := &Stage{
		config: config, redis: opened, ledger: ledger.New(config.Jobs),
		prefix: "hg-" + config.Name + "-" + strings.ToLower(rand.Text()[:8]),
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// inMemory says what a run without a Redis cannot do.
const inMemory = "headgate: WARNING: no redis-server or valkey-server in PATH. Using the memory of this process: " +
	"no other process can share it, and NOTHING SURVIVES IT. " +
	"Install Redis (on Debian: apt-get install redis-server) or give the address of one (redis://host:6379)."

// openStore opens what holds the jobs.
func (s *Stage) openStore(ctx context.Context) (store.Deployment, error) {
	if s.redis == nil {
		return store.Single(memory.New(memory.Config{}), io.NopCloser(nil)), nil
	}
	return redisstore.Open(ctx, s.redis.Client(), redisstore.Config{Prefix: s.prefix})
}

func (s *Stage) prepare(ctx context.Context) (err error) {
	if s.store, err = s.openStore(ctx); err != nil {
		return err
	}
	document := s.config.Policy
	document.Version = 0 // A document for another deployment's version is as good as any here.
	stored, err := rollout.Put(ctx, s.store, document, rollout.Edit{Author: s.config.Name, Expected: rollout.AnyVersion})
	if err != nil {
		return err
	}
	document.Version = stored.To
	if s.compiled, err = document.Prepare(); err != nil {
		return err
	}
	s.producer, err = producer.New(s.store, producer.Config{Logger: s.config.Logger, Policy: &document})
	return err
}

// Ledger returns the record of the run.
func (s *Stage) Ledger() *ledger.Ledger { return s.ledger }

// Classes returns the classes of the run's queue.
func (s *Stage) Classes() []admission.Class { return s.compiled.ClassesOf(s.config.Queue) }

// Figures works out the figures so far.
func (s *Stage) Figures() ledger.Figures { return s.ledger.Figures(s.Classes(), s.compiled.WeightOf) }

// Limit returns the limit of a tenant as a whole.
func (s *Stage) Limit(tenant string) admission.Limit {
	return s.compiled.LimitsFor(tenant, s.config.Queue, "")[admission.LevelTenant]
}

// censusTimeout bounds the count at the end, which reads the length of every lane.
const censusTimeout = 30 * time.Second

// Census counts what Redis holds. It does so even when ctx has ended, because it comes last.
func (s *Stage) Census(ctx context.Context) (store.Census, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), censusTimeout)
	defer cancel()
	return s.store.Census(ctx)
}

// cleanTimeout bounds the removal of the keys: a Redis with many other keys takes its time.
const cleanTimeout = 30 * time.Second

// Close removes the keys of the run and closes the store. It does so even when ctx has ended.
func (s *Stage) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	if s.redis == nil {
		return nil
	}
	var bad error
	if s.redis.Kind() == embedded.KindAddress {
		bad = s.clean(ctx)
	}
	return errors.Join(bad, s.redis.Close())
}

func (s *Stage) clean(ctx context.Context) error {
	pattern := s.prefix + "{*"
	if s.config.Keep {
		fmt.Fprintf(s.config.Notes, "headgate: the keys of this run stay under %s in %s\n", pattern, s.redis)
		return nil
	}
	return s.redis.Remove(ctx, pattern)
}
