package headgate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// Config is what a Client needs beside the address of its Redis. The zero Config works.
type Config struct {
	// Logger hears of outages, breakers, and handlers that fail; nil is silent. go-redis itself writes a line to standard error for each failed
	// dial, of all its clients in the process: logging.Disable() of github.com/redis/go-redis/v9/logging ends that.
	Logger *slog.Logger
	// Prefix begins every key in Redis, 1-32 bytes of [A-Za-z0-9._@/-]; empty means "hg". In memory nothing has a prefix.
	Prefix string
	// Partitions is into how many parts a new deployment on a cluster is divided, 1 to 256, chosen at its first start; zero takes what
	// the deployment has, one for a new one.
	Partitions int
	// Second is the address of a second Redis, as Open takes one, to which spilled jobs go on where the policy's spill_to says so; empty is none.
	// Workers move them, so theirs is the process that needs it.
	Second string
	// SecondTLS is how TLS is spoken with a Second at rediss://, rediss-sentinel:// or rediss-cluster://; without a ServerName it is the host's.
	// Nil goes by the authorities of the machine.
	SecondTLS *tls.Config
	// Timeout bounds Enqueue as a whole, 1 ms to 1 min; zero means 2 s.
	Timeout time.Duration
	// MaxPayload is the largest payload of a job in bytes, up to 64 MiB; zero means 1 MiB.
	MaxPayload int
	// Breaker configures the circuit breakers of calls outside of jobs; workers have their own in WorkerConfig.
	Breaker breaker.Config
}

// Client is an open deployment. Several goroutines may use it.
type Client struct {
	log      zerolog.Logger
	store    store.Deployment
	producer *producer.Producer
	owns     bool
	closed   atomic.Bool
	guests   guests
	observed observed
}

// ErrClosed means that the client was closed: nothing was sent. It matches ErrUnavailable.
var ErrClosed = fmt.Errorf("%w: nothing was sent: the client is closed", ErrUnavailable)

// Enqueuer is what a service needs that only enqueues: take it instead of a *Client where tests are to have a fake of their own.
type Enqueuer interface {
	Enqueue(ctx context.Context, job Job) (Receipt, error)
	EnqueueBatch(ctx context.Context, jobs []Job) ([]Result, error)
}

var _ Enqueuer = (*Client)(nil)

// Open opens a deployment at a URL. redis://, rediss:// for TLS, unix://, redis-cluster:// and redis-sentinel:// connect to a Redis, as a bare
// host:port does, and check it: its version, that it evicts nothing, its clock, what it lets this user do, and the version of the data.
// memory: is a deployment of this process alone, which ends with Close: limits, order, timers and breakers are those of Redis, nothing is
// kept. The error says all that is wrong with the config, or with the server. Close ends it.
func Open(ctx context.Context, url string, config Config) (*Client, error) {
	s, err := connect(ctx, url, config)
	if err != nil {
		return nil, fmt.Errorf("open headgate: %w", err)
	}
	c, err := OpenStore(s, config)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	c.owns = true
	return c, nil
}

// memoryURL opens a deployment of this process alone.
const memoryURL = "memory:"

func connect(ctx context.Context, url string, config Config) (store.Deployment, error) {
	if strings.HasPrefix(url, memoryURL) && url != memoryURL {
		return nil, &FieldError{Field: "url", Value: strconv.Quote(url), Allowed: memoryURL + ", with nothing after it"}
	}
	if url != memoryURL {
		return redisstore.Connect(ctx, url, redisstore.Config{Prefix: config.Prefix, Partitions: config.Partitions, Second: config.Second, SecondTLS: config.SecondTLS})
	}
	if config.Partitions > 1 {
		return nil, &FieldError{Field: "Partitions", Value: strconv.Itoa(config.Partitions), Allowed: "0 or 1 in memory"}
	}
	if config.Second != "" || config.SecondTLS != nil {
		return nil, &FieldError{Field: "Second", Value: "(not shown, it may hold a password)", Allowed: "nothing in memory"}
	}
	return store.Single(memory.New(memory.Config{}), io.NopCloser(nil)), nil
}

// OpenRedis is Open on a client that the caller has, and closes.
func OpenRedis(ctx context.Context, client redis.UniversalClient, config Config) (*Client, error) {
	s, err := redisstore.Open(ctx, client, redisstore.Config{Prefix: config.Prefix, Partitions: config.Partitions, Second: config.Second, SecondTLS: config.SecondTLS})
	if err != nil {
		return nil, fmt.Errorf("open headgate: %w", err)
	}
	return OpenStore(s, config)
}

// OpenStore is Open on a deployment that the caller has, and closes: one that watches what is asked of another, for one. Prefix and
// Partitions are the deployment's own.
func OpenStore(s store.Deployment, config Config) (*Client, error) {
	c := &Client{log: logTo(config.Logger), store: s}
	var err error
	c.producer, err = producer.New(s, producer.Config{
		Logger: c.log, Timeout: config.Timeout, MaxPayload: config.MaxPayload, Observer: c.observed.producer(),
	})
	if err == nil {
		c.guests.guest, err = worker.NewGuest(s, worker.GuestConfig{Logger: c.log, Breaker: config.Breaker})
	}
	if err != nil {
		return nil, fmt.Errorf("open headgate: %w", err)
	}
	return c, nil
}

// Close ends what the client has begun, and the connections that Open made. What was counted in the last second is stored, in two seconds at most; of what
// is not the log tells. Workers are ended by the ctx of their Run, limiters by their Close, before. What is enqueued afterwards is ErrClosed.
func (c *Client) Close() error {
	before := c.closed.Swap(true)
	c.guests.close()
	if before {
		return nil
	}
	c.producer.FlushOrLog()
	if !c.owns {
		return nil
	}
	return c.store.Close()
}

// guests is what calls outside of jobs need: it follows the fleet's breakers from the first of them on.
type guests struct {
	guest *worker.Guest
	begin sync.Once
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// run begins to follow the breakers, once.
func (g *guests) run(ctx context.Context) *worker.Guest {
	g.begin.Do(func() {
		following, stop := context.WithCancel(context.WithoutCancel(ctx)) // Close ends it, not the first call's end.
		g.stop = stop
		g.ended.Go(func() { _ = g.guest.Run(following) })
	})
	return g.guest
}

func (g *guests) close() {
	g.begin.Do(func() {}) // No call begins it any more.
	if g.stop != nil {
		g.stop()
	}
	g.ended.Wait()
}
