package asynqbridge_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// site is a Redis with asynq and Headgate in it.
type site struct {
	tb    testing.TB
	asynq asynq.RedisClientOpt
	redis *redis.Client
	store store.Deployment
}

// newSite has so many partitions and the tenants' limit given; every other scope has none.
func newSite(tb testing.TB, partitions int, limit admission.Limit) *site {
	tb.Helper()
	s := newAsynq(tb)
	s.connect(s.redis, redisstore.Config{Partitions: partitions}, limit)
	return s
}

// newAsynq is a Redis without Headgate.
func newAsynq(tb testing.TB) *site {
	tb.Helper()
	server := redistest.Start(tb, redistest.Options{})
	return &site{tb: tb, asynq: asynq.RedisClientOpt{Addr: server.Addr()}, redis: server.Client(tb)}
}

// connect makes a store of Headgate that of the site.
func (s *site) connect(client redis.UniversalClient, config redisstore.Config, limit admission.Limit) {
	s.tb.Helper()
	var err error
	s.store, err = redisstore.Open(s.tb.Context(), client, config)
	must(s.tb, err)
	s.limit(1, limit)
}

// siteOf makes a site for a test.
type siteOf func(t *testing.T, limit admission.Limit) *site

// onePartition is a siteOf. Tests that wait for time to pass have it alone, and TestBesideACluster has them with three.
func onePartition(t *testing.T, limit admission.Limit) *site {
	t.Helper()
	return newSite(t, 1, limit)
}

// everywhere tests with Headgate of one partition and of three.
func everywhere(t *testing.T, test func(t *testing.T, newSite siteOf)) {
	t.Helper()
	for _, partitions := range []int{1, 3} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			t.Parallel()
			test(t, func(t *testing.T, limit admission.Limit) *site {
				t.Helper()
				return newSite(t, partitions, limit)
			})
		})
	}
}

// limit stores a version of the policy.
func (s *site) limit(version int64, limit admission.Limit) {
	s.tb.Helper()
	own := policy.Policy{Version: version, Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: limit}}}
	text, err := policy.Marshal(own)
	must(s.tb, err)
	must(s.tb, s.store.PutPolicy(s.tb.Context(), store.PolicyUpdate{Expected: version - 1, Version: version, Text: text, Window: policy.DefaultDedupWindow}))
}

func (s *site) client() *asynqbridge.Client {
	s.tb.Helper()
	c, err := asynqbridge.NewClient(s.asynq, s.store, asynqbridge.ClientConfig{})
	must(s.tb, err)
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *site) fair() *asynqbridge.Fair {
	s.tb.Helper()
	p, err := producer.New(s.store, producer.Config{Timeout: 20 * time.Second})
	must(s.tb, err)
	return asynqbridge.NewFair(p)
}

// release runs a Releaser until the returned function is called.
func (s *site) release(config asynqbridge.ReleaserConfig) (stop func()) {
	s.tb.Helper()
	r, err := asynqbridge.NewReleaser(s.asynq, s.store, config)
	must(s.tb, err)
	ctx, cancel := context.WithCancel(s.tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			s.tb.Error(err)
		}
	})
	return sync.OnceFunc(func() { cancel(); wg.Wait(); _ = r.Close() })
}

// guard runs a Breaker until the test ends: made first, it ends after the servers.
func (s *site) guard(config asynqbridge.BreakerConfig) *asynqbridge.Breaker {
	s.tb.Helper()
	b, err := asynqbridge.NewBreaker(s.asynq, s.store, config)
	must(s.tb, err)
	s.tb.Cleanup(func() { _ = b.Close() })
	s.run(b.Run)
	return b
}

// run runs a service until the test ends.
func (s *site) run(service func(context.Context) error) {
	s.tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.tb.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := service(ctx); err != nil {
			s.tb.Error(err)
		}
	})
	s.tb.Cleanup(func() { cancel(); wg.Wait() })
}

// serve runs an asynq server until the test ends.
func (s *site) serve(config asynq.Config, handler asynq.Handler) {
	s.tb.Helper()
	config.LogLevel = asynq.FatalLevel
	server := asynq.NewServer(s.asynq, config)
	must(s.tb, server.Start(handler))
	s.tb.Cleanup(server.Shutdown)
}

func (s *site) inspector() *asynq.Inspector {
	i := asynq.NewInspector(s.asynq)
	s.tb.Cleanup(func() { _ = i.Close() })
	return i
}

// home returns the breaker of a downstream for all servers: that of the partition that its name picks.
func (s *site) home(ctx context.Context, downstream string) (store.BreakerState, error) {
	state, err := s.store.Partitions()[s.store.PartitionOf(downstream)].Breaker(ctx, downstream)
	if errors.Is(err, store.ErrNoBreaker) {
		err = nil // It is closed.
	}
	return state, err
}

// fleet returns the state of that.
func (s *site) fleet(downstream string) breaker.State {
	state, err := s.home(s.tb.Context(), downstream)
	must(s.tb, err)
	return state.State
}

// open reports whether the breaker of a downstream is open in every partition.
func (s *site) open(downstream string) bool {
	for _, part := range s.store.Partitions() {
		if state, err := part.Breaker(s.tb.Context(), downstream); err != nil || state.State != breaker.Open {
			return false
		}
	}
	return true
}

// left returns the tokens of a tenant's bucket.
func (s *site) left(tenant string, limit admission.Limit) admission.Tokens {
	s.tb.Helper()
	q := store.Question{Tenant: tenant, Cost: 1}
	for level := range q.Limits {
		q.Limits[level].Disabled = true
	}
	q.Limits[admission.LevelTenant] = limit
	_, answers, err := s.store.Check(s.tb.Context(), 1, true, []store.Question{q})
	must(s.tb, err)
	return answers[0].Left[admission.LevelTenant].Tokens()
}

// daily is a limit of which a test sees no refill.
func daily(burst admission.Tokens) admission.Limit {
	return admission.Limit{Tokens: 1, Per: 24 * time.Hour / time.Duration(burst), Burst: burst}
}

// soon waits for a condition, and fails the test where it does not come.
func soon(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	end := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(end) {
			tb.Fatalf("not in a minute: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
