package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/httplimit"
)

func authz(tb testing.TB, refusal int) http.Handler {
	tb.Helper()
	routes := http.NewServeMux()
	routes.Handle("GET /orders/{id}", http.NotFoundHandler())
	f := filter(tb, limits(tb, each(slow)), httplimit.Config{
		Tenant: httplimit.First(httplimit.FromHeader("X-API-Key"), httplimit.FromIP([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})),
		Queue:  httplimit.FromRoute(routes),
	})
	return f.Authz("/authz", refusal)
}

// TestAGatewayAsksAboutAnotherRequest: by nginx's and Traefik's headers, and by the path as Envoy asks; whose it is comes from behind the proxy.
func TestAGatewayAsksAboutAnotherRequest(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]http.Header{
		"nginx":   {"X-Original-Uri": {"/orders/1?x=y"}, "X-Original-Method": {"GET"}},
		"traefik": {"X-Forwarded-Uri": {"/orders/1"}, "X-Forwarded-Method": {"GET"}},
		"envoy":   {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := authz(t, 0)
			ask := func(client string) *httptest.ResponseRecorder {
				w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/authz", http.NoBody)
				if len(header) == 0 {
					r = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/authz/orders/1", http.NoBody)
				}
				r.Header = header.Clone()
				r.Header.Set("X-Forwarded-For", client)
				gate.ServeHTTP(w, r)
				return w
			}
			for n, want := range []int{200, 200, 429} {
				got := ask("203.0.113.7")
				if got.Code != want || got.Header().Get("Ratelimit") == "" || (got.Header().Get("Retry-After") != "") != (want == 429) || want == 200 && got.Body.Len() > 0 {
					t.Errorf("call %d: %d %v %s", n, got.Code, got.Header(), got.Body)
				}
			}
			if other := ask("203.0.113.8"); other.Code != http.StatusOK {
				t.Errorf("another client: %d", other.Code)
			}
		})
	}
}

// TestAGatewayThatAsksAboutAHeadIsAnsweredWhole: it asks by a GET of its own, which has the body that its header announces. Traefik answers its client
// 500 for one that breaks off.
func TestAGatewayThatAsksAboutAHeadIsAnsweredWhole(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(authz(t, 0))
	t.Cleanup(server.Close)
	for n, want := range []int{200, 200, 429} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/authz", http.NoBody)
		check(t, err)
		r.Header = http.Header{"X-Forwarded-Uri": {"/orders/1"}, "X-Forwarded-Method": {"HEAD"}, "X-Api-Key": {"sesame"}}
		answer, err := server.Client().Do(r)
		check(t, err)
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != want || int64(len(body)) != answer.ContentLength {
			t.Errorf("call %d: status %d, %d of %d bytes, %v", n, answer.StatusCode, len(body), answer.ContentLength, err)
		}
	}
}

// TestAnAuthRequestIsRefusedBy403: nginx takes other statuses for a fault of the server.
func TestAnAuthRequestIsRefusedBy403(t *testing.T) {
	t.Parallel()
	gate := authz(t, http.StatusForbidden)
	header := http.Header{"X-Original-Uri": {"/orders/1"}, "X-Original-Method": {"GET"}, "X-Api-Key": {"sesame"}}
	for n, want := range []int{200, 200, 403} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/authz/nginx", http.NoBody)
		r.Header = header
		if gate.ServeHTTP(w, r); w.Code != want || want == 403 && (w.Header().Get(httplimit.StatusField) != "429" || w.Header().Get("Retry-After") == "") {
			t.Errorf("call %d: %d %v", n, w.Code, w.Header())
		}
	}
	for name, bad := range map[string]http.Header{
		"a URI": {"X-Original-Uri": {"no path"}}, "a method": {"X-Original-Uri": {"/"}, "X-Original-Method": {"G E T"}},
		"a URI of the client's beside that of its gateway": {"X-Original-Uri": {"/free"}, "X-Forwarded-Uri": {"/orders/1"}},
		"a second one of the same name":                    {"X-Forwarded-Uri": {"/orders/1", "/free"}},
		"a method of the client's":                         {"X-Original-Uri": {"/"}, "X-Original-Method": {"GET"}, "X-Forwarded-Method": {"POST"}},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/authz", http.NoBody)
		r.Header = bad
		if gate.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// TestNginxTakesItsConfiguration where nginx is installed.
func TestNginxTakesItsConfiguration(t *testing.T) {
	t.Parallel()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is not installed")
	}
	out, err := exec.CommandContext(t.Context(), nginx, "-t", "-p", t.TempDir(), "-c", absolute(t, "../deploy/nginx/nginx.conf")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "successful") {
		t.Errorf("%v: %s", err, out)
	}
}

func absolute(tb testing.TB, path string) string {
	tb.Helper()
	full, err := filepath.Abs(path)
	check(tb, err)
	return full
}
