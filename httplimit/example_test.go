package httplimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// two is a limiter of two requests an hour for each tenant.
func two(ctx context.Context) (*headgate.Limiter, func()) {
	hg, err := headgate.Open(ctx, "memory:", headgate.Config{}) // yours: "redis://localhost:6379"
	if err != nil {
		log.Fatal(err)
	}
	err = hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tier("standard").Limit = headgate.Limit{Tokens: 2, Per: time.Hour, Burst: 2}
	})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := hg.Limiter(headgate.LimiterConfig{Timeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	return limits, func() { _ = limits.Close(ctx); _ = hg.Close() }
}

// A filter stands before a http.ServeMux, or around single handlers of one.
func Example() {
	ctx := context.Background()
	limits, stop := two(ctx)
	defer stop()
	filter, err := httplimit.New(limits.Verdicts(), httplimit.Config{Tenant: httplimit.FromHeader("X-API-Key")})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "an order") })
	handler := filter.Wrap(mux) // as in http.ListenAndServe(":8080", handler)

	for range 3 {
		r, w := httptest.NewRequestWithContext(ctx, http.MethodGet, "/orders/7", http.NoBody), httptest.NewRecorder()
		r.Header.Set("X-API-Key", "secret")
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "tenant";r=1;t=1800
	// 200 "tenant";r=0;t=1800
	// 429 "tenant";r=0;t=1800
}

// router is as much of chi's as the example needs: its middleware is func(http.Handler) http.Handler, too, and r.Use(filter.Wrap) the same.
type router struct {
	http.ServeMux

	handler http.Handler
}

func (r *router) Use(middlewares ...func(http.Handler) http.Handler) {
	r.handler = &r.ServeMux
	for _, middleware := range slices.Backward(middlewares) {
		r.handler = middleware(r.handler)
	}
}

// Wrap is what routers such as chi take as middleware. Here the limit is by address, behind a proxy in 10.0.0.0/8.
func ExampleMiddleware_Wrap() {
	ctx := context.Background()
	limits, stop := two(ctx)
	defer stop()
	filter, err := httplimit.New(limits.Verdicts(), httplimit.Config{
		Tenant: httplimit.FromIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}),
		Skip:   func(r *http.Request) bool { return r.URL.Path == "/health" },
	})
	if err != nil {
		log.Fatal(err)
	}
	var r router
	r.Use(filter.Wrap)
	r.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})

	for _, forwarded := range []string{"198.51.100.7", "1.2.3.4, 198.51.100.7", "5.6.7.8, 198.51.100.7"} { // What is left of the last it made up.
		request, w := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		request.RemoteAddr = "10.0.0.1:40000"
		request.Header.Set("X-Forwarded-For", forwarded)
		r.handler.ServeHTTP(w, request)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
}
