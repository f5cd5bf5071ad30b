package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/limiter"
)

// deaf is a ResponseWriter that keeps its header, as a connection that is used again would if it could.
type deaf struct{ header http.Header }

func (d deaf) Header() http.Header               { return d.header }
func (deaf) Write(text []byte) (int, error)      { return len(text), nil }
func (deaf) WriteHeader(int)                     {}
func nothing(http.ResponseWriter, *http.Request) {}

// leasedRow is a filter whose checks are answered by tokens on lease.
type leasedRow struct {
	name    string
	limits  *limiter.Limiter
	config  httplimit.Config
	handler http.Handler
	request *http.Request
}

func leasedRows(tb testing.TB) []leasedRow {
	tb.Helper()
	p := each(admission.PerSecond(1e8))
	p.Global = admission.PerSecond(1e9)
	l := limits(tb, p)
	rows := []leasedRow{
		{name: "key=fixed", config: httplimit.Config{Tenant: acme}},
		{name: "key=header", config: httplimit.Config{Tenant: httplimit.FromHeader("X-API-Key")}},
		{name: "key=user", config: httplimit.Config{Tenant: httplimit.FromUser(func(r *http.Request) string { return r.Host })}},
		{name: "key=ip", config: httplimit.Config{Tenant: httplimit.FromIP(proxies)}},
		{name: "key=header,route/headers=old", config: httplimit.Config{Tenant: httplimit.FromHeader("X-API-Key"), Queue: httplimit.FromRoute(nil), XRateLimit: httplimit.ResetDelta}},
		{name: "key=fixed/headers=none", config: httplimit.Config{Tenant: acme, NoRateLimit: true}},
		{name: "key=fixed/in=ctx", config: httplimit.Config{Tenant: acme, InContext: true}},
	}
	for i := range rows {
		row := &rows[i]
		row.handler = filter(tb, l, row.config).Wrap(http.HandlerFunc(nothing))
		row.request = httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/orders/1", http.NoBody)
		row.request.Pattern, row.request.RemoteAddr = "GET /orders/{id}", "10.0.0.1:1234"
		row.request.Header.Set("X-API-Key", "0123456789abcdef0123456789abcdef0123456789abcdef")
		row.request.Header.Set("X-Forwarded-For", "1.2.3.4, 2001:db8::1, 10.2.3.4")
		row.limits = l
	}
	return rows
}

// warm asks until so many checks in a row are answered by lease: a chunk grows with what the process uses.
func (row *leasedRow) warm(tb testing.TB, inRow int) {
	tb.Helper()
	leased, watched := 0, row.config
	watched.InContext = true
	h := filter(tb, row.limits, watched).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if verdict, _ := httplimit.VerdictOf(r.Context()); verdict.Source == limiter.Leased {
			leased++
		} else {
			leased = 0
		}
	}))
	w := deaf{http.Header{}}
	for deadline := time.Now().Add(time.Minute); leased < inRow; {
		if h.ServeHTTP(w, row.request); time.Now().After(deadline) {
			tb.Fatal("never leased")
		}
	}
}

// TestALeasedRequestCostsNoAllocation: neither the names that are made, nor the headers; only the verdict in the ctx does.
func TestALeasedRequestCostsNoAllocation(t *testing.T) {
	for _, row := range leasedRows(t) {
		row.warm(t, 20_000)
		w := deaf{http.Header{}}
		got := testing.AllocsPerRun(5000, func() { row.handler.ServeHTTP(w, row.request) })
		want := 0.0
		if row.config.InContext {
			want = 3 // The verdict, the ctx, and the request that carries it.
		}
		if got != want {
			t.Errorf("%s: %g allocations, want %g", row.name, got, want)
		}
		if told := w.header["Ratelimit"]; (len(told) == 1) == row.config.NoRateLimit {
			t.Errorf("%s: %v", row.name, w.header)
		}
	}
}

// BenchmarkMiddleware is what a filter adds to a request that is answered by tokens on lease, the check included.
func BenchmarkMiddleware(b *testing.B) {
	for _, row := range leasedRows(b) {
		b.Run(row.name, func(b *testing.B) {
			row.warm(b, 20_000)
			w := deaf{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				row.handler.ServeHTTP(w, row.request)
			}
		})
	}
}
