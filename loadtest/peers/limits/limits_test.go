package limits

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/gofiber/fiber/v2"
	fiberlimit "github.com/gofiber/fiber/v2/middleware/limiter"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// poolSize is enough for all callers.
const poolSize = 100

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func newClient(tb testing.TB, addr string) *redis.Client {
	tb.Helper()
	options := &redis.Options{Addr: addr, PoolSize: poolSize, ReadTimeout: 10 * time.Second, PoolTimeout: 10 * time.Second}
	redisclient.Settings(options) // The same for all.
	client := redis.NewClient(options)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// subjects are in turns: each of ours, then those beside it.
var subjects = []Subject{
	{Name: "token-bucket/headgate-exact", Open: headgate(tokenBucket, limiter.Config{Exact: true}, (*limiter.Limiter).Check)},
	{Name: "token-bucket/headgate-leased", Open: headgate(tokenBucket, limiter.Config{}, (*limiter.Limiter).Check)},
	{Name: "token-bucket/redis_rate", Open: openRedisRate},
	{Name: "token-bucket/throttled", Open: openThrottled},
	{Name: "fixed-window/headgate", Open: headgate(fixedWindow, limiter.Config{}, (*limiter.Limiter).Check)},
	{Name: "fixed-window/ulule", Open: openUlule},
	{Name: "sliding-window/headgate", Open: headgate(slidingWindow, limiter.Config{}, (*limiter.Limiter).Check)},
	{Name: "sliding-window/fiber", Open: openFiber},
	{Name: "sliding-log/headgate", Open: headgate(slidingLog, limiter.Config{}, (*limiter.Limiter).Check), Most: int(admission.MaxLogTokens)},
	{Name: "leaky-wait/headgate", Open: headgate(leakyBucket, limiter.Config{Exact: true}, (*limiter.Limiter).Wait), Waits: true},
	{Name: "leaky-wait/redis_rate-loop", Open: openRedisRateLoop, Waits: true},
}

// BenchmarkLimits: each algorithm beside who has it.
func BenchmarkLimits(b *testing.B) { Run(b, startRedis, subjects) }

func startRedis(tb testing.TB) string {
	tb.Helper()
	return redistest.Start(tb, redistest.Options{}).Addr()
}

func tokenBucket(l Limit) (admission.Limit, error) {
	return admission.Limit{Tokens: admission.Tokens(l.Tokens), Per: l.Window, Burst: admission.Tokens(l.Tokens)}, nil
}

func leakyBucket(l Limit) (admission.Limit, error) {
	return admission.Limit{Tokens: admission.Tokens(l.Tokens), Per: l.Window, Burst: 1}, nil
}

func fixedWindow(l Limit) (admission.Limit, error) {
	return admission.FixedWindow(admission.Tokens(l.Tokens), l.Window.String(), "", "")
}

func slidingWindow(l Limit) (admission.Limit, error) {
	return admission.SlidingWindow(admission.Tokens(l.Tokens), l.Window.String())
}

func slidingLog(l Limit) (admission.Limit, error) {
	return admission.SlidingLog(admission.Tokens(l.Tokens), l.Window.String())
}

// headgate opens a limiter with one limit, the tenant's: the others have one, too.
func headgate(
	algorithm func(Limit) (admission.Limit, error), config limiter.Config,
	ask func(*limiter.Limiter, context.Context, limiter.Request) (limiter.Verdict, error),
) func(testing.TB, string, Limit) Ask {
	return func(tb testing.TB, addr string, limit Limit) Ask {
		tb.Helper()
		s, err := redisstore.Open(tb.Context(), newClient(tb, addr), redisstore.Config{})
		check(tb, err)
		limits := policy.Unlimited()
		one, err := algorithm(limit)
		check(tb, err)
		limits.Tiers[policy.StandardTier] = policy.Tier{Limit: one}
		config.Policy, config.Timeout = &limits, 5*time.Second
		l, err := limiter.New(s, config)
		check(tb, err)
		tb.Cleanup(func() { check(tb, l.Close(context.WithoutCancel(tb.Context()))) })
		return func(ctx context.Context, tenant string) (bool, error) {
			v, err := ask(l, ctx, limiter.Request{Tenant: tenant, Cost: 1})
			if errors.Is(err, admission.ErrRefused) { // of Wait
				return false, nil
			}
			return v.Admitted, err
		}
	}
}

func openRedisRate(tb testing.TB, addr string, limit Limit) Ask {
	tb.Helper()
	rates := redis_rate.NewLimiter(newClient(tb, addr))
	rate := redis_rate.Limit{Rate: limit.Tokens, Period: limit.Window, Burst: limit.Tokens}
	return func(ctx context.Context, tenant string) (bool, error) {
		result, err := rates.Allow(ctx, tenant, rate)
		return err == nil && result.Allowed > 0, err
	}
}

// openRedisRateLoop waits as its users do: by RetryAfter, and again where another was quicker.
func openRedisRateLoop(tb testing.TB, addr string, limit Limit) Ask {
	tb.Helper()
	rates := redis_rate.NewLimiter(newClient(tb, addr))
	rate := redis_rate.Limit{Rate: limit.Tokens, Period: limit.Window, Burst: 1}
	return func(ctx context.Context, tenant string) (bool, error) {
		for {
			result, err := rates.Allow(ctx, tenant, rate)
			switch {
			case ctx.Err() != nil:
				return false, nil //nolint:nilerr // Its time was over, which is a refusal.
			case err != nil || result.Allowed > 0:
				return err == nil, err
			}
			select {
			case <-time.After(result.RetryAfter):
			case <-ctx.Done():
				return false, nil
			}
		}
	}
}

func openThrottled(tb testing.TB, addr string, limit Limit) Ask {
	tb.Helper()
	kept, err := goredisstore.NewCtx(newClient(tb, addr), "")
	check(tb, err)
	rate, err := throttled.NewGCRARateLimiterCtx(kept, throttled.RateQuota{
		MaxRate: throttled.PerDuration(limit.Tokens, limit.Window), MaxBurst: limit.Tokens - 1,
	})
	check(tb, err)
	return func(ctx context.Context, tenant string) (bool, error) {
		limited, _, err := rate.RateLimitCtx(ctx, tenant, 1)
		return !limited, err
	}
}

func openUlule(tb testing.TB, addr string, limit Limit) Ask {
	tb.Helper()
	kept, err := ululeredis.NewStore(newClient(tb, addr))
	check(tb, err)
	l := ulule.New(kept, ulule.Rate{Period: limit.Window, Limit: int64(limit.Tokens)})
	return func(ctx context.Context, tenant string) (bool, error) {
		answer, err := l.Get(ctx, tenant)
		return !answer.Reached, err
	}
}

// openFiber calls the handler of the middleware, without a connection.
func openFiber(tb testing.TB, addr string, limit Limit) Ask {
	tb.Helper()
	const field = "X-Api-Key"
	kept := fiberredis.New(fiberredis.Config{URL: "redis://" + addr, PoolSize: poolSize})
	tb.Cleanup(func() { _ = kept.Close() })
	app := fiber.New()
	app.Use(fiberlimit.New(fiberlimit.Config{
		Max: limit.Tokens, Expiration: limit.Window, LimiterMiddleware: fiberlimit.SlidingWindow{}, Storage: kept,
		KeyGenerator: func(c *fiber.Ctx) string { return c.Get(field) },
	}))
	app.Get("/", func(*fiber.Ctx) error { return nil })
	handler := app.Handler()
	return func(_ context.Context, tenant string) (bool, error) {
		var c fasthttp.RequestCtx
		c.Request.Header.SetMethod(http.MethodGet)
		c.Request.SetRequestURI("/")
		c.Request.Header.Set(field, tenant)
		handler(&c)
		switch code := c.Response.StatusCode(); code {
		case http.StatusOK:
			return true, nil
		case http.StatusTooManyRequests:
			return false, nil
		default:
			return false, errors.New("status " + strconv.Itoa(code))
		}
	}
}

func TestTheMostOfAnyWindow(t *testing.T) {
	t.Parallel()
	at := func(asked, answered int) Call {
		return Call{time.Duration(asked) * time.Millisecond, time.Duration(answered) * time.Millisecond}
	}
	passed := []Call{at(0, 1), at(900, 901), at(950, 1001), at(999, 1000), at(1899, 1900), at(1901, 1902)}
	if most := Most(passed, time.Second); most != 4 { // 900 to 1900; 950 was answered within it, and 1901 was not asked in it.
		t.Errorf("got %d", most)
	}
	if most := Most([]Call{at(0, 1), at(500, 1100)}, time.Second); most != 1 {
		t.Errorf("an answer behind the window: got %d", most)
	}
}

func TestWhatIsPossible(t *testing.T) {
	t.Parallel()
	second := func(s ...float64) (all []time.Duration) {
		for _, at := range s {
			all = append(all, time.Duration(at*float64(time.Second)))
		}
		return all
	}
	// 0 and 0.5 pass, 0.9 finds two, 1.0 takes the place of 0, 1.4 finds two, 1.5 takes the place of 0.5.
	if n := Possible(second(0, 0.5, 0.9, 1, 1.4, 1.5), Limit{2, time.Second}); n != 4 {
		t.Errorf("got %d", n)
	}
	arrivals := Arrivals()
	if n := Possible(arrivals, exactly); n < 3*exactly.Tokens || n >= len(arrivals) {
		t.Errorf("%d of %d arrivals are possible, which tells nothing apart", n, len(arrivals))
	}
}
