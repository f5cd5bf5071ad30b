package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// TestARequestIsRefusedByItsAddressOrRoute: the answer names the dimension, and nobody.
func TestARequestIsRefusedByItsAddressOrRoute(t *testing.T) {
	t.Parallel()
	p := policy.Unlimited()
	p.Dimensions = map[string]policy.DimensionRules{"ip": {Limit: slow, By: []string{"/24", "/64"}}, "route": {Limit: slow}}
	f := filter(t, limits(t, &p), httplimit.Config{Also: []httplimit.Also{
		{Dimension: "ip", Value: httplimit.FromAddress([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})},
		{Dimension: "route", Value: httplimit.FromRoute(nil)},
	}})
	ask := func(from, pattern string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		r.RemoteAddr, r.Pattern = "10.1.1.1:80", pattern
		r.Header.Set("X-Forwarded-For", from)
		f.Wrap(passed).ServeHTTP(w, r)
		return w
	}
	for _, step := range []struct {
		from, route string
		status      int
		limit       string
	}{
		{"203.0.113.7", "GET /a", 200, `"ip";r=1;t=60`},
		{"203.0.113.8", "GET /b", 200, `"ip";r=0;t=60`},
		{"203.0.113.9", "GET /c", 429, `"ip";r=0;t=60`}, // of the same /24
		{"2001:db8::1", "GET /a", 200, `"route";r=0;t=60`},
		{"2001:db8::2", "GET /a", 429, `"route";r=0;t=60`},
		{"2001:db8::2", "GET /b", 200, `"ip";r=0;t=60`},
	} {
		w := ask(step.from, step.route)
		if got := w.Header().Get("RateLimit"); w.Code != step.status || got != step.limit && !strings.HasPrefix(got, step.limit[:strings.LastIndexByte(step.limit, '=')]) {
			t.Errorf("%s %s: %d %s, want %d %s\n%s", step.from, step.route, w.Code, got, step.status, step.limit, w.Body)
		}
		if step.status == 429 && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"violated-policies":[`+step.limit[:strings.IndexByte(step.limit, ';')]+`]`)) {
			t.Errorf("%v %s", w.Header(), w.Body)
		}
	}
}

// TestWhereARequestComesFromIsADimension: by a table of networks and by a label, with a limit of one origin beside that of each; who comes from
// nowhere that is named is not limited by it.
func TestWhereARequestComesFromIsADimension(t *testing.T) {
	t.Parallel()
	wide := slow
	wide.Burst = 3
	p := policy.Unlimited()
	p.Dimensions = map[string]policy.DimensionRules{"region": {Limit: slow, Keys: map[string]admission.Limit{"eu": wide}}}
	table := map[netip.Prefix]string{netip.MustParsePrefix("203.0.113.0/24"): "eu", netip.MustParsePrefix("198.51.100.0/24"): "us"}
	for what, value := range map[string]httplimit.KeyFunc{
		"table": httplimit.FromNetworks(nil, table), "label": func(r *http.Request) string { return r.Header.Get("X-Region") },
	} {
		f := filter(t, limits(t, &p), httplimit.Config{Also: []httplimit.Also{{Dimension: "region", Value: value}}})
		for from, want := range map[[2]string]int{{"203.0.113.9:80", "eu"}: 3, {"198.51.100.9:80", "us"}: 2, {"192.0.2.1:80", ""}: 6} {
			passes := 0
			for range 6 {
				r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
				r.RemoteAddr = from[0]
				r.Header.Set("X-Region", from[1])
				f.Wrap(passed).ServeHTTP(w, r)
				if w.Code == http.StatusOK {
					passes++
				} else if limit := w.Header().Get("RateLimit"); !strings.HasPrefix(limit, `"region";r=0`) {
					t.Errorf("by %s %v is refused by %s", what, from, limit)
				}
			}
			if passes != want {
				t.Errorf("by %s %d of 6 pass from %v, want %d", what, passes, from, want)
			}
		}
	}
}

func TestDimensionsOfAConfigAreChecked(t *testing.T) {
	t.Parallel()
	for _, also := range [][]httplimit.Also{
		make([]httplimit.Also, limiter.MaxAlso+1), {{Dimension: "ip"}}, {{Value: httplimit.Fixed("x")}},
	} {
		if _, err := httplimit.New(limits(t, each(slow)), httplimit.Config{Also: also}); err == nil {
			t.Errorf("%+v is taken", also)
		}
	}
}
