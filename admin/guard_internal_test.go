package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/openapi"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
)

func silent(*route.Request) (*route.Answer, error) { return route.OK("secret"), nil }

// TestRoutesThatDoNotSayWhoMayCallDoNotStart: deny by default.
func TestRoutesThatDoNotSayWhoMayCallDoNotStart(t *testing.T) {
	t.Parallel()
	document, err := openapi.Load()
	if err != nil {
		t.Fatal(err)
	}
	good := route.Route{Method: "GET", Path: "/api/v1/workers", Role: access.Viewer, Reach: route.Deployment, Handle: silent}
	for name, change := range map[string]func(*route.Route){
		"no role":                 func(r *route.Route) { r.Role = 0 },
		"no reach":                func(r *route.Route) { r.Reach = 0 },
		"anyone's deployment":     func(r *route.Route) { r.Role = access.Anyone },
		"public for viewers":      func(r *route.Route) { r.Reach = route.Public },
		"no handler":              func(r *route.Route) { r.Handle = nil },
		"another role":            func(r *route.Route) { r.Role = access.Operator },
		"another reach":           func(r *route.Route) { r.Reach = route.Tenant },
		"not counted as a call":   func(r *route.Route) { r.Load = route.Data },
		"a path that is not said": func(r *route.Route) { r.Path = "/api/v1/backdoor" },
	} {
		bad := good
		change(&bad)
		if _, err := (&Server{}).mux(document, []route.Route{bad}); err == nil || !strings.Contains(err.Error(), "route GET "+bad.Path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&Server{}).mux(document, []route.Route{good}); err == nil || strings.Contains(err.Error(), "route GET") {
		t.Errorf("a good one: %v", err)
	}
}

// TestAHandlerThatForgetsTheTenantFails: what a route of a tenant shows without asking whose it is does not go out.
func TestAHandlerThatForgetsTheTenantFails(t *testing.T) {
	t.Parallel()
	document, err := openapi.Load()
	if err != nil {
		t.Fatal(err)
	}
	rt := route.Route{Method: "GET", Path: "/api/v1/jobs", Role: access.Viewer, Reach: route.Tenant, Handle: silent}
	operation, _ := document.Operation(rt.Pattern())
	s := &Server{config: Config{Open: true}.withDefaults()}
	s.bound()
	w := httptest.NewRecorder()
	s.guard(rt, operation).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/jobs", http.NoBody))
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestThrottlesAreBounded: however many callers there are, memory is not more than for maxCallers, and those that are
// full make room.
func TestThrottlesAreBounded(t *testing.T) {
	t.Parallel()
	slow := newThrottle(admission.Limit{Tokens: 1, Per: admission.MaxLimitPer, Burst: 2})
	name := func(n int) string {
		return "caller-" + strings.Repeat("x", n%7) + string(rune('a'+n%26)) + http.StatusText(200+n%5) + string(rune(0x4e00+n))
	}
	for n := range maxCallers {
		if _, ok := slow.take(name(n), 1); !ok {
			t.Fatalf("caller %d waits", n)
		}
	}
	if _, ok := slow.take("one more", 1); ok || slow.mu.set.Len() != maxCallers {
		t.Errorf("%d callers", slow.mu.set.Len())
	}
	if _, ok := slow.take(name(1), 1); !ok {
		t.Error("one that is known waits for those that are new")
	}
	slow.mu.Lock()
	looked := slow.mu.next
	if slow.sweepLocked(looked-1) || slow.mu.next != looked {
		t.Error("all buckets are looked at again at once: a flood of new callers costs a sweep each")
	}
	if slow.sweepLocked(looked) || slow.mu.next == looked {
		t.Error("buckets are not looked at again")
	}
	slow.mu.Unlock()
	fast := newThrottle(admission.PerSecond(admission.MaxLimitTokens).WithBurst(2))
	for n := range 3 * maxCallers {
		if _, ok := fast.take(name(n), 1); !ok {
			t.Fatalf("caller %d waits", n)
		}
	}
	if fast.mu.set.Len() > maxCallers {
		t.Errorf("%d callers", fast.mu.set.Len())
	}
}
