package examples_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

//snippet:begin limit

// limited lets through what a customer's limits allow, and knows a customer by its API key.
func limited(limiter *headgate.Limiter, next http.Handler) (http.Handler, error) {
	limit, err := httplimit.New(limiter.Verdicts(), httplimit.Config{
		Tenant: httplimit.FromHeader("X-API-Key"),
		Queue:  httplimit.Fixed("search"),
		Skip:   func(r *http.Request) bool { return r.URL.Path == "/health" },
	})
	if err != nil {
		return nil, err
	}
	return limit.Wrap(next), nil
}

//snippet:end

// twoEach lets each tenant have two requests an hour.
func twoEach(t *testing.T, hg *headgate.Client) {
	t.Helper()
	check(t, hg.Policy().Change(t.Context(), headgate.Edit{}, func(p *headgate.Policy) {
		p.Tier("standard").Limit = headgate.PerHour(2).WithBurst(2)
	}))
}

func TestAnHTTPHandlerIsLimited(t *testing.T) {
	t.Parallel()
	hg := open(t)
	ctx := t.Context()
	twoEach(t, hg)
	//snippet:begin limiter
	limiter, err := hg.Limiter(headgate.LimiterConfig{WithoutRedis: "open"})
	//snippet:end
	check(t, err)
	check(t, limiter.Close(ctx))
	limiter, err = hg.Limiter(headgate.LimiterConfig{Timeout: 10 * time.Second})
	check(t, err)
	defer func() { check(t, limiter.Close(ctx)) }()
	handler, err := limited(limiter, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	check(t, err)
	ask := func(h http.Handler, path string) *httptest.ResponseRecorder {
		request, answer := httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody), httptest.NewRecorder()
		request.Header.Set("X-API-Key", "secret")
		h.ServeHTTP(answer, request)
		return answer
	}
	for _, want := range []int{200, 200, 429} {
		answer := ask(handler, "/search")
		if after, _ := strconv.Atoi(answer.Header().Get("Retry-After")); answer.Code != want || want == 429 && (after < 60 || after > 3600) {
			t.Errorf("%d, want %d: %v", answer.Code, want, answer.Header())
		}
	}
	if answer := ask(handler, "/health"); answer.Code != 200 {
		t.Errorf("health: %d", answer.Code)
	}
	away := open(t)
	closed, err := away.Limiter(headgate.LimiterConfig{WithoutRedis: "closed"})
	check(t, err)
	check(t, away.Close()) // As if Redis were away.
	handler, err = limited(closed, http.NotFoundHandler())
	check(t, err)
	if answer := ask(handler, "/search"); answer.Code != 503 || answer.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", answer.Code, answer.Header())
	}
}

func TestARequestTakesOfAllDimensionsOrOfNone(t *testing.T) {
	t.Parallel()
	hg := open(t)
	ctx := t.Context()
	text := []byte(`{"dimensions": {
		"ip":    {"by": ["/24", "/64"], "limit": {"tokens": 20, "per": "1h", "burst": 2}},
		"route": {"limit": {"tokens": 1000, "per": "1s"}, "keys": {"POST-/v1/pay": {"tokens": 50, "per": "1s"}}},
		"user":  {"limit": {"tokens": 60, "per": "1m", "burst": 20}, "tiers": {"premium": {"tokens": 600, "per": "1m", "burst": 100}}}}}`)
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		merged, err := p.Document.Merge(text)
		check(t, err)
		*p.Document = merged
	}))
	limiter, err := hg.Limiter(headgate.LimiterConfig{Timeout: 10 * time.Second})
	check(t, err)
	defer func() { check(t, limiter.Close(ctx)) }()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	//snippet:begin dimensions
	limit, err := httplimit.New(limiter.Verdicts(), httplimit.Config{
		Tenant: httplimit.FromHeader("X-API-Key"),
		Also: []httplimit.Also{
			{Dimension: "ip", Value: httplimit.FromAddress(proxies)},
			{Dimension: "route", Value: httplimit.FromRoute(nil)},
			{Dimension: "user", Value: func(r *http.Request) string { return r.Header.Get("X-User") }}, // as whatever authenticates has set it
		},
	})
	//snippet:end
	check(t, err)
	handler := limit.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i, want := range []int{200, 200, 429} {
		request, answer := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/pay", http.NoBody), httptest.NewRecorder()
		request.RemoteAddr, request.Pattern = "203.0.113."+strconv.Itoa(i)+":80", "POST /v1/pay"
		request.Header.Set("X-User", strconv.Itoa(i))
		if handler.ServeHTTP(answer, request); answer.Code != want {
			t.Errorf("%d, want %d: %v %s", answer.Code, want, answer.Header(), answer.Body)
		}
	}
	//snippet:begin also
	allowed, err := limiter.Check(ctx, headgate.Request{Tenant: "acme", Also: []headgate.Dimension{{Name: "user", Value: "123"}, {Name: "ip", Value: "2001:db8::7"}}})
	//snippet:end
	check(t, err)
	if allowed.Scope != "+ip:2001-db8--/64" || allowed.Remaining != 1 {
		t.Errorf("%+v", allowed)
	}
}

func TestTwoLimitsNest(t *testing.T) {
	t.Parallel()
	hg := open(t)
	twoEach(t, hg)
	limiter, err := hg.Limiter(headgate.LimiterConfig{Timeout: 10 * time.Second})
	check(t, err)
	defer func() { check(t, limiter.Close(t.Context())) }()
	mux := http.NewServeMux()
	search := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	//snippet:begin nested
	byAddress, err := httplimit.New(limiter.Verdicts(), httplimit.Config{
		Tenant: httplimit.FromIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}), // where the load balancers are
	})
	check(t, err)
	byRoute, err := httplimit.New(limiter.Verdicts(), httplimit.Config{
		Tenant: httplimit.Fixed("api"), Queue: httplimit.FromRoute(nil), Shadow: true, // counts, and refuses nothing yet
	})
	check(t, err)
	mux.Handle("GET /search/{index}", byRoute.Wrap(search)) // queue GET-/search/_index_
	handler := byAddress.Wrap(mux)
	//snippet:end
	for i, want := range []int{200, 200, 429} {
		request, answer := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/search/"+strconv.Itoa(i), http.NoBody), httptest.NewRecorder()
		request.RemoteAddr = "10.0.0.1:4711"
		request.Header.Set("X-Forwarded-For", strconv.Itoa(i)+".2.3.4, 198.51.100.7")
		handler.ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("%d, want %d: %v", answer.Code, want, answer.Header())
		}
	}
	if got := byRoute.Stats(); got.Admitted != 2 {
		t.Errorf("%+v", got)
	}
}
