package limiter

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(childVariable); at != "" {
		os.Exit(spend(at))
	}
	if at := os.Getenv(reserveVariable); at != "" {
		os.Exit(reserveAndCommit(at))
	}
	if at := os.Getenv(semaphoreVariable); at != "" {
		os.Exit(hold(at))
	}
	redistest.Main(m)
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// limited is a policy of one global limit and of one for tenant acme; others have none.
func limited(global, tenant admission.Limit) *policy.Policy {
	p := policy.Unlimited()
	p.Global = global
	p.Tenants = map[string]policy.Tenant{"acme": {Tier: policy.StandardTier, Limit: &tenant}}
	return &p
}

var none = admission.Limit{Disabled: true}

// open returns a store of the test's own.
func open(tb testing.TB, client *redis.Client) store.Deployment {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), client, redisstore.Config{Prefix: redistest.Prefix(tb)})
	check(tb, err)
	return s
}

func start(tb testing.TB, store store.Deployment, config Config) *Limiter {
	tb.Helper()
	l, err := New(store, config)
	check(tb, err)
	return l
}

// units returns the limiters of single partitions that a limiter consists of.
func units(l *Limiter) []*Limiter {
	if l.parts == nil {
		return []*Limiter{l}
	}
	return l.parts
}

// tenantsOf returns a tenant of each partition; acme where there is but one.
func tenantsOf(store store.Deployment) []string {
	tenants := make([]string, len(store.Partitions()))
	if len(tenants) == 1 {
		return []string{"acme"}
	}
	for i := 0; slices.Contains(tenants, ""); i++ {
		name := "tenant-" + strconv.Itoa(i)
		tenants[store.PartitionOf(name)] = name
	}
	return tenants
}

// put stores a policy as the version after that of the last one.
func put(tb testing.TB, s store.Deployment, p *policy.Policy) {
	tb.Helper()
	compiled, err := p.Prepare()
	check(tb, err)
	text, err := json.Marshal(p)
	check(tb, err)
	var pressured []string
	for _, p := range compiled.Pressured() {
		pressured = append(pressured, p.Queue)
	}
	check(tb, s.PutPolicy(tb.Context(), store.PolicyUpdate{
		Pressured: pressured,
		Expected:  compiled.Version() - 1, Version: compiled.Version(), Text: text, Window: time.Second, LongestFill: p.LongestFill(),
	}))
}

// patient is for tests in which Redis is never away, on machines that also do something else.
const patient = 10 * time.Second

// virtual is the time of Redis and of limiters, as a test wants it.
type virtual struct {
	redis, process atomic.Int64
	// scopes are those whose leases stay for the script to end them, beside the global one's: Redis itself ends keys by a clock of its own.
	scopes []admission.Scope
	// asked hears of each script before it is sent, by the key of the state; nil for nobody.
	asked func(state string)
}

func newVirtual() *virtual {
	v := &virtual{}
	v.redis.Store(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	v.process.Store(int64(time.Hour))
	return v
}

func (v *virtual) pass(d time.Duration) {
	v.redis.Add(d.Microseconds())
	v.process.Add(int64(d))
}

// client returns one whose scripts take the time of Redis from v.
func (v *virtual) client(tb testing.TB) *redis.Client {
	tb.Helper()
	client := redistest.Shared(tb).Client(tb)
	client.AddHook(hook{v, client})
	return client
}

type hook struct {
	*virtual

	client *redis.Client
}

func (hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook sets the first argument of a script where it is empty, which stands for the time of Redis.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		name := cmd.Name()
		if !redistest.IsScript(name) || cmd.Args()[4] != "" {
			return next(ctx, cmd)
		}
		cmd.Args()[4] = strconv.FormatInt(h.redis.Load(), 10)
		state := cmd.Args()[3].(string)
		if h.asked != nil {
			h.asked(state)
		}
		if err := next(ctx, cmd); err != nil {
			return err
		}
		_, err := h.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, scope := range append([]admission.Scope{admission.Global}, h.scopes...) {
				pipe.Persist(ctx, strings.TrimSuffix(state, "state")+"lease:"+string(scope))
			}
			return nil
		})
		return err
	}
}
