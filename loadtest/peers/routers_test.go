package peers

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// TestMiddlewareOfRouters: httplimit is middleware of chi as it is, and of echo by echo.WrapMiddleware; chi says what its pattern is, echo
// has to be asked.
func TestMiddlewareOfRouters(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(middleware) http.Handler{
		"chi": func(limited middleware) http.Handler {
			r := chi.NewRouter()
			r.With(limited).Get("/orders/{id}", func(http.ResponseWriter, *http.Request) {})
			r.Get("/free", func(http.ResponseWriter, *http.Request) {})
			return r
		},
		"echo": func(limited middleware) http.Handler {
			e := echo.New()
			pattern := func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					c.Request().Pattern = c.Path() // which echo leaves empty
					return next(c)
				}
			}
			e.GET("/orders/:id", func(c echo.Context) error { return c.NoContent(http.StatusOK) }, pattern, echo.WrapMiddleware(limited))
			e.GET("/free", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := policy.Unlimited()
			limits.Tiers[policy.StandardTier] = policy.Tier{Limit: admission.Limit{Tokens: 60, Per: time.Hour, Burst: 2}}
			s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
			check(t, err)
			l, err := limiter.New(s, limiter.Config{Policy: &limits, Timeout: 10 * time.Second})
			check(t, err)
			var routes []string
			route := httplimit.FromRoute(nil)
			m, err := httplimit.New(l, httplimit.Config{Tenant: httplimit.FromHeader(clientField), Queue: func(r *http.Request) string {
				routes = append(routes, route(r))
				return routes[len(routes)-1]
			}})
			check(t, err)
			h := open(m.Wrap)
			var codes []int
			for _, path := range []string{"/orders/1", "/orders/2", "/orders/3", "/free"} {
				r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody), httptest.NewRecorder()
				r.Header.Set(clientField, "secret")
				h.ServeHTTP(w, r)
				codes = append(codes, w.Code)
			}
			if !slices.Equal(codes, []int{200, 200, 429, 200}) {
				t.Errorf("%v", codes)
			}
			want := map[string]string{"chi": "/orders/_id_", "echo": "/orders/-id"}[name]
			if len(routes) != 3 || slices.ContainsFunc(routes, func(at string) bool { return at != want }) {
				t.Errorf("routes are %q, want %q", routes, want)
			}
		})
	}
}
