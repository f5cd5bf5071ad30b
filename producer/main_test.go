package producer_test

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// open returns a store of the test's own behind a client.
func open(tb testing.TB, client redis.UniversalClient) store.Deployment {
	tb.Helper()
	return openAs(tb, client, redistest.Prefix(tb))
}

func openAs(tb testing.TB, client redis.UniversalClient, prefix string) store.Deployment {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), client, redisstore.Config{Prefix: prefix})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func newProducer(tb testing.TB, store store.Deployment, config producer.Config) *producer.Producer {
	tb.Helper()
	config.Timeout = cmp.Or(config.Timeout, 20*time.Second) // For machines that also do something else.
	p, err := producer.New(store, config)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// unlimited is a policy without buckets.
func unlimited() *policy.Policy { return new(policy.Unlimited()) }

// limited is a policy in which every tenant has the given limit and nothing else has any.
func limited(limit admission.Limit) *policy.Policy {
	return &policy.Policy{Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: limit}}}
}

func job(tenant string) admission.Job {
	return admission.NewJob(tenant, "mail", "send", []byte(`{"to":"ada"}`))
}

// put stores a policy as an operator would.
func put(tb testing.TB, s store.Deployment, p policy.Policy) {
	tb.Helper()
	text, err := policy.Marshal(p)
	if err != nil {
		tb.Fatal(err)
	}
	update := store.PolicyUpdate{Expected: p.Version - 1, Version: p.Version, Text: text, Window: 30 * time.Second}
	for name, q := range p.Queues {
		update.Queues = append(update.Queues, store.QueueSettings{Queue: name, Classes: q.Classes, Horizon: time.Hour})
	}
	if err := s.PutPolicy(tb.Context(), update); err != nil {
		tb.Fatal(err)
	}
}

// census waits for nothing: the store counts in one transaction.
// alone returns the deployment of one partition.
func alone(part store.Partition) store.Deployment { return store.Single(part, nil) }

func census(tb testing.TB, store store.Deployment) store.Census {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	c, err := store.Census(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// await polls for a condition.
func await(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	redistest.Await(tb, what, done)
}

// endsWithin asserts of each command of a client that its ctx ends within a time, which go-redis keeps to; how long the
// machine then takes is not asked.
type endsWithin struct {
	tb   testing.TB
	time time.Duration
}

func (e endsWithin) assert(ctx context.Context) {
	deadline, ok := ctx.Deadline()
	if left := time.Until(deadline); !ok || left > e.time {
		e.tb.Errorf("a command may take %s (bounded %t), want %s at most", left, ok, e.time)
	}
}

func (endsWithin) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e endsWithin) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		e.assert(ctx)
		return next(ctx, command)
	}
}

func (e endsWithin) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		e.assert(ctx)
		return next(ctx, commands)
	}
}

// gateway holds admit calls back until it is opened, and counts them.
type gateway struct {
	proxy   *redistest.Proxy
	mu      sync.Mutex
	calls   int
	arrived chan int // the number of each admit call as it arrives, never blocking
}

func isScript(c redistest.Command) bool { return c.IsScript() }

func newGateway(tb testing.TB, server *redistest.Server) *gateway {
	tb.Helper()
	g := &gateway{proxy: redistest.NewProxy(tb, server.Addr()), arrived: make(chan int, 10000)}
	g.delay(0)
	return g
}

// delay makes every script call take so much longer from now on.
func (g *gateway) delay(d time.Duration) {
	g.proxy.Decide(func(c redistest.Command) redistest.Action {
		if !isScript(c) {
			return redistest.Action{}
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.calls++
		g.arrived <- g.calls
		return redistest.Action{Delay: d}
	})
}

func (g *gateway) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

func id(prefix string, n int) string { return fmt.Sprintf("%s-%06d", prefix, n) }
