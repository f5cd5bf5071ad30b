package httplimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
)

// named returns the name that a key gives a request.
func named(tb testing.TB, key httplimit.KeyFunc, change func(*http.Request)) string {
	tb.Helper()
	var name string
	get(tb, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { name = key(r) }), change)
	return name
}

// TestASecretIsNoName: the name is its hash, as a shell has it, and always the same.
func TestASecretIsNoName(t *testing.T) {
	t.Parallel()
	const abc = "key-ba7816bf8f01cfea414140de5dae2223" // printf abc | sha256sum | cut -c1-32
	key := httplimit.FromHeader("x-api-key")
	for range 2 {
		if got := named(t, key, func(r *http.Request) { r.Header["X-Api-Key"] = []string{"abc", "another"} }); got != abc || got != httplimit.KeyName("abc") {
			t.Errorf("%q", got)
		}
	}
	long := strings.Repeat("x", 1000)
	if got := named(t, key, func(r *http.Request) { r.Header.Set("X-API-Key", long) }); got != httplimit.KeyName(long) || admission.ValidateTenant(got) != nil {
		t.Errorf("%q", got)
	}
	for _, values := range [][]string{nil, {""}, {}} {
		if got := named(t, key, func(r *http.Request) { r.Header["X-Api-Key"] = values }); got != "" {
			t.Errorf("%v: %q", values, got)
		}
	}
}

// TestAUserCannotBeSomebodyElse: names that are made here, or are none, are hashed.
func TestAUserCannotBeSomebodyElse(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]string{
		"": "", "acme": "acme", "ada@example.com": "ada@example.com", "a:b": httplimit.KeyName("a:b"), "global": httplimit.KeyName("global"),
		"ip-203.0.113.7": httplimit.KeyName("ip-203.0.113.7"), httplimit.KeyName("abc"): httplimit.KeyName(httplimit.KeyName("abc")),
		"anonymous": httplimit.KeyName("anonymous"), strings.Repeat("x", 129): httplimit.KeyName(strings.Repeat("x", 129)),
	} {
		if got := named(t, httplimit.FromUser(func(*http.Request) string { return user }), nil); got != want {
			t.Errorf("%q is %q, want %q", user, got, want)
		}
	}
	first := httplimit.First(httplimit.FromUser(func(r *http.Request) string { return r.Header.Get("User") }), httplimit.FromHeader("X-API-Key"))
	if got := named(t, first, func(r *http.Request) { r.Header.Set("X-API-Key", "abc") }); got != httplimit.KeyName("abc") {
		t.Errorf("%q", got)
	}
	if got := named(t, first, nil); got != "" {
		t.Errorf("%q", got)
	}
}

// TestWithoutAKeyThereIsOneBucketForAll: to leave the key out is no way around the limit.
func TestWithoutAKeyThereIsOneBucketForAll(t *testing.T) {
	t.Parallel()
	h := filter(t, limits(t, each(slow)), httplimit.Config{Tenant: httplimit.FromHeader("X-API-Key")}).Wrap(passed)
	for i, want := range []int{200, 200, 429} {
		if got := get(t, h, nil); got.Code != want {
			t.Errorf("request %d: %d, want %d", i, got.Code, want)
		}
	}
	if got := get(t, h, func(r *http.Request) { r.Header.Set("X-API-Key", "abc") }); got.Code != 200 {
		t.Errorf("with a key: %d", got.Code)
	}
}

// TestARouteIsItsPattern, whatever is in its path, behind the mux and before it.
func TestARouteIsItsPattern(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	inside, before := httplimit.FromRoute(nil), httplimit.FromRoute(mux)
	var seen []string
	note := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, inside(r)) })
	for _, pattern := range []string{"GET /orders/{id}", "/static/{rest...}", "example.org/{$}"} {
		mux.Handle(pattern, note)
	}
	for _, row := range []struct{ host, path, want string }{
		{"x", "/orders/1", "GET-/orders/_id_"},
		{"x", "/orders/2", "GET-/orders/_id_"},
		{"x", "/orders/%3Aa", "GET-/orders/_id_"},
		{"x", "/static/a/b/c", "/static/_rest..._"},
		{"example.org", "/", "example.org/_-_"},
		{"x", "/nothing/here", httplimit.Unrouted},
	} {
		seen = nil
		var outer string
		get(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outer = before(r)
			mux.ServeHTTP(w, r)
		}), func(r *http.Request) {
			r.Host = row.host
			u, err := r.URL.Parse(row.path)
			check(t, err)
			r.URL = u
		})
		if outer != row.want || row.want != httplimit.Unrouted && (len(seen) != 1 || seen[0] != row.want) {
			t.Errorf("%s%s: before the mux %q, behind it %q, want %q", row.host, row.path, outer, seen, row.want)
		}
		if err := admission.ValidateName("queue", outer, true); err != nil {
			t.Error(err)
		}
	}
	if got := named(t, inside, nil); got != httplimit.Unrouted {
		t.Errorf("without a mux: %q", got)
	}
}

func TestLongPatternsStayApart(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("very/", 40)
	one, other := httplimit.RouteName(long+"one"), httplimit.RouteName(long+"other")
	if one == other || admission.ValidateName("queue", one, true) != nil || len(one) != admission.MaxNameLength {
		t.Errorf("%q, %q", one, other)
	}
	if got := httplimit.RouteName(""); got != httplimit.Unrouted {
		t.Errorf("%q", got)
	}
}
