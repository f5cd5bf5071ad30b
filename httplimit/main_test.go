package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// each is a policy that gives every tenant a limit.
func each(limit admission.Limit) *policy.Policy {
	p := policy.Unlimited()
	p.Tiers[policy.StandardTier] = policy.Tier{Limit: limit}
	return &p
}

// slow is a limit of a token a minute, two at once.
var slow = admission.Limit{Tokens: 60, Per: time.Hour, Burst: 2}

// limits returns a limiter in memory.
func limits(tb testing.TB, p *policy.Policy) *limiter.Limiter {
	tb.Helper()
	l, err := limiter.New(store.Single(memory.New(memory.Config{}), nil), limiter.Config{Policy: p, Timeout: 10 * time.Second})
	check(tb, err)
	return l
}

func filter(tb testing.TB, c httplimit.Checker, config httplimit.Config) *httplimit.Middleware {
	tb.Helper()
	f, err := httplimit.New(c, config)
	check(tb, err)
	return f
}

var acme = httplimit.Fixed("acme")

// passed is a handler that says so.
var passed = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("passed")) })

// get asks a handler once.
func get(tb testing.TB, h http.Handler, change func(*http.Request)) *httptest.ResponseRecorder {
	tb.Helper()
	r, w := httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
	if change != nil {
		change(r)
	}
	h.ServeHTTP(w, r)
	return w
}
