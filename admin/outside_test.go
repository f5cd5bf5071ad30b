package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// book is a log that several goroutines write.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestEveryAnswerHasItsHeaders(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	for _, target := range []string{"/api/v1/health/live", "/api/v1/queues", "/nowhere", "/metrics"} {
		got := p.raw(http.MethodGet, target, "", "", http.Header{"X-Request-Id": {"abc-1"}})
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "X-Request-Id": "abc-1",
		} {
			if got.header.Get(name) != want {
				t.Errorf("%s: %s is %q", target, name, got.header.Get(name))
			}
		}
		if got.status >= 400 && (got.header.Get("Content-Type") != "application/problem+json" || got.object(t)["request_id"] != "abc-1") {
			t.Errorf("%s: %v %s", target, got.header, got.body)
		}
	}
	for _, id := range []string{"", "a b", "<script>", strings.Repeat("a", 129)} {
		if got := p.raw(http.MethodGet, "/nowhere", "", "", http.Header{"X-Request-Id": {id}}); got.header.Get("X-Request-Id") == id || len(got.header.Get("X-Request-Id")) != 36 {
			t.Errorf("%q became %q", id, got.header.Get("X-Request-Id"))
		}
	}
}

func TestPathsAndMethodsThatAreNotThere(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	for target, want := range map[string]int{
		"GET /": 404, "GET /api/v2/jobs": 404, "PATCH /api/v1/jobs": 405, "POST /api/v1/jobs/acme/one": 405, "GET /api/v1/rate-limit/check": 405,
	} {
		method, path, _ := strings.Cut(target, " ")
		got := p.raw(method, path, p.keys["admin"], "", nil)
		if got.status != want || got.object(t)["status"] != float64(want) || (want == 405) != (got.header.Get("Allow") != "") {
			t.Errorf("%s: %d %v %s", target, got.status, got.header, got.body)
		}
	}
	if allow := p.raw(http.MethodPut, "/api/v1/jobs", "", "", nil).header.Get("Allow"); allow != "POST, GET, HEAD" {
		t.Errorf("Allow: %s", allow)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.MaxBody = 2 << 10 })
	job := func(size int) string {
		return `{"tenant":"acme","queue":"mail","type":"t","payload":"` + strings.Repeat("x", size) + `"}`
	}
	for name, row := range map[string]struct {
		method, target, body, kind string
		want                       int
	}{
		"small enough":         {"POST", "/api/v1/jobs", job(1 << 10), "application/json; charset=utf-8", 201},
		"too large":            {"POST", "/api/v1/jobs", job(2 << 10), "application/json", 413},
		"not JSON by its type": {"POST", "/api/v1/jobs", job(1), "text/plain", 415},
		"a form":               {"POST", "/api/v1/jobs", "tenant=acme", "application/x-www-form-urlencoded", 415},
		"where none belongs":   {"DELETE", "/api/v1/queues/mail/pause", "{}", "application/json", 400},
		"none where one does":  {"POST", "/api/v1/jobs", "", "application/json", 400},
	} {
		got := p.raw(row.method, row.target, p.keys["admin"], row.body, http.Header{"Content-Type": {row.kind}})
		if got.status != row.want {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}

// TestNamesCannotReachFurther: a name in a path, a query or a body that would be more than a name is refused before any
// key is made of it.
func TestNamesCannotReachFurther(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.enqueue("acme", "one")
	for _, name := range []string{"a:b", "acme%3Amail", "a%00", "%7B0%7D", "a%20b", "a*", "%C3%A4", strings.Repeat("a", 129)} {
		for _, target := range []string{"/api/v1/queues/" + name, "/api/v1/jobs/" + name + "/one", "/api/v1/jobs?tenant=" + name, "/api/v1/jobs?queue=" + name} {
			if got := p.raw(http.MethodGet, target, p.keys["admin"], "", nil); got.status != http.StatusBadRequest {
				t.Errorf("%s: %d %s", target, got.status, got.body)
			}
		}
		for _, target := range []string{"/api/v1/queues/" + name + "/pause", "/api/v1/tenants/" + name + "/suspension", "/api/v1/tenants/acme/queues/" + name + "/pause"} {
			if got := p.raw(http.MethodPut, target, p.keys["admin"], "{}", nil); got.status != http.StatusBadRequest {
				t.Errorf("%s: %d %s", target, got.status, got.body)
			}
		}
	}
	for _, scope := range []string{"acme:mail:high:x", "global:mail", "acme:", ":mail", "acme:mail:nosuchclass", "a%20b"} {
		for _, who := range []string{"admin", "acme-admin"} {
			got := p.raw(http.MethodGet, "/api/v1/rate-limit/status/"+scope, p.keys[who], "", nil)
			if got.status != http.StatusBadRequest {
				t.Errorf("%s as %s: %d %s", scope, who, got.status, got.body)
			}
		}
	}
}

func TestAQueryThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	for _, query := range []string{"tenant=%zz", "tenant=acme;queue=mail", "%=1"} {
		if got := p.raw(http.MethodGet, "/api/v1/jobs?"+query, p.keys["admin"], "", nil); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

// odd is an Enqueuer that does what it is told.
type odd struct {
	admin.Enqueuer

	enqueue func(context.Context) (admission.Verdict, error)
}

func (o odd) Enqueue(ctx context.Context, _ admission.Job) (admission.Verdict, error) {
	return o.enqueue(ctx)
}

const someJob = `{"tenant":"acme","queue":"mail","type":"t"}`

func TestFailuresAreProblemsAndTheLogHasTheReason(t *testing.T) {
	t.Parallel()
	var log book
	var do func(context.Context) (admission.Verdict, error)
	p := newPlant(t, func(c *admin.Config) {
		c.Logger, c.Enqueuer = zerolog.New(&log), odd{enqueue: func(ctx context.Context) (admission.Verdict, error) { return do(ctx) }}
	})
	for name, row := range map[string]struct {
		do   func(context.Context) (admission.Verdict, error)
		want int
		log  string
	}{
		"a panic":  {func(context.Context) (admission.Verdict, error) { panic("boom") }, 500, "panic: boom"},
		"an error": {func(context.Context) (admission.Verdict, error) { return admission.Verdict{}, errors.New("strange") }, 500, "strange"},
		"in doubt": {func(context.Context) (admission.Verdict, error) {
			return admission.Verdict{}, admission.ErrOutcomeUnknown
		}, 504, "outcome unknown"},
		"away": {func(context.Context) (admission.Verdict, error) { return admission.Verdict{}, admission.ErrUnavailable }, 503, "unavailable"},
		"for good": {func(context.Context) (admission.Verdict, error) {
			v := admission.Verdict{Reason: admission.ReasonTooCostly, Scope: "acme", Burst: 5, ID: "x"}
			return v, v.Err()
		}, 422, `"status":422`},
	} {
		do = row.do
		got := p.call("operator", ask{op: "POST /api/v1/jobs", body: someJob, header: http.Header{"X-Request-Id": {"id-" + row.log[:3]}}})
		if got.status != row.want || strings.Contains(string(got.body), "strange") || strings.Contains(string(got.body), "boom") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if !strings.Contains(log.String(), row.log) {
			t.Errorf("%s is not in the log: %s", name, log.String())
		}
	}
}

func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	var log book
	tokens := map[string]string{}
	p := newPlant(t, func(c *admin.Config) {
		c.Logger = zerolog.New(&log)
		c.Credentials.Tokens = addTokens(t, tokens)
	})
	for _, credentials := range []map[string]string{p.keys, tokens, {"x": "Bearer hgk_secret", "y": "Basic c2VjcmV0", "z": "Bearer secret.secret.secret", "w": "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzZWNyZXQiOjF9.secret"}} {
		for _, credential := range credentials {
			p.raw(http.MethodGet, "/api/v1/queues", credential, "", nil)
			for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(credential, "Basic "), "Bearer "), ".") {
				if len(part) > 3 && strings.Contains(log.String(), part) {
					t.Errorf("%q is in the log", part)
				}
			}
		}
	}
	if !strings.Contains(log.String(), `"who":"acme-viewer (tenant acme)"`) || !strings.Contains(log.String(), `"credential":`) {
		t.Error(log.String())
	}
}

func TestOnlyAllowedAddressesAreAnswered(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	limited := newPlant(t, func(c *admin.Config) {
		c.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("192.0.2.7/32")}
	})
	for remote, want := range map[string]bool{
		"10.1.2.3:1": true, "[::ffff:10.1.2.3]:1": true, "[2001:db8::1]:1": true, "192.0.2.7:1": true,
		"192.0.2.8:1": false, "[2001:db9::1]:1": false, "[::1]:1": false, "": false, "@": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/health/live", http.NoBody)
		r.RemoteAddr = remote
		r.Header.Set("X-Forwarded-For", "10.1.2.3")
		for server, allowed := range map[*admin.Server]bool{limited.server: want, p.server: true} {
			w := httptest.NewRecorder()
			server.Handler().ServeHTTP(w, r)
			if (w.Code == http.StatusOK) != allowed || !allowed && w.Code != http.StatusForbidden {
				t.Errorf("%q: %d", remote, w.Code)
			}
		}
	}
}

func TestAdminCallsOfACredentialAreLimited(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.AdminLimit = admission.Limit{Tokens: 3, Per: time.Hour, Burst: 3} })
	for range 3 {
		p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/workers"})
	}
	if got := p.want(http.StatusTooManyRequests, "viewer", ask{op: "GET /api/v1/holds"}); got.header.Get("Retry-After") != "1200" {
		t.Errorf("Retry-After: %s", got.header.Get("Retry-After"))
	}
	p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/holds"})
	for range 5 { // What is traffic has limits of its own.
		p.want(http.StatusOK, "operator", ask{op: "POST /api/v1/rate-limit/check", body: `{"scope":"acme","peek":true}`})
	}
	p.want(http.StatusForbidden, "acme-viewer", ask{op: "GET /api/v1/holds"})
	p.want(http.StatusForbidden, "acme-viewer", ask{op: "GET /api/v1/holds"})
	p.want(http.StatusForbidden, "acme-viewer", ask{op: "GET /api/v1/holds"})
	p.want(http.StatusTooManyRequests, "acme-viewer", ask{op: "GET /api/v1/holds"})
}

func TestGuessesOfAnAddressAreLimited(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	try := func(remote, credential string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/workers", http.NoBody)
		r.RemoteAddr = remote
		r.Header.Set("Authorization", credential)
		w := httptest.NewRecorder()
		p.server.Handler().ServeHTTP(w, r)
		return w.Code
	}
	wrong, began := 0, time.Now()
	for i := range 100 { // Two addresses of one network are one guesser.
		if try(fmt.Sprintf("[2001:db8::%d]:1", 1+i%2), "Bearer hgk_wrong") == http.StatusUnauthorized {
			wrong++
		}
	}
	if passed := time.Since(began); wrong < 20 || wrong > 21+int(passed.Seconds()) { // The burst, and one a second.
		t.Errorf("%d guesses were answered 401 in %s", wrong, passed)
	}
	for remote, want := range map[string]int{
		"[2001:db8:1::1]:1": http.StatusUnauthorized, "192.0.2.1:1": http.StatusUnauthorized,
	} {
		if got := try(remote, "Bearer hgk_wrong"); got != want {
			t.Errorf("a guess from %s: %d, want %d", remote, got, want)
		}
	}
	if got := try("[2001:db8::1]:1", p.keys["viewer"]); got != http.StatusOK {
		t.Errorf("a valid credential from there: %d", got)
	}
}

func TestWithoutRedisCallsEndInTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	s, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{})
	must(t, err)
	p := newPlantOn(t, s, func(c *admin.Config) { c.Timeout = 3 * time.Second })
	server.Kill(t)
	for _, a := range []ask{
		{op: "GET /api/v1/queues"},
		{op: "GET /api/v1/doctor"},
		{op: "POST /api/v1/rate-limit/check", body: `{"scope":"acme"}`},
		{op: "POST /api/v1/jobs", body: someJob},
		{op: "GET /api/v1/jobs/{tenant}/{id}", path: map[string]string{"tenant": "a", "id": "b"}},
		{op: "PUT /api/v1/queues/{queue}/pause", path: map[string]string{"queue": "mail"}, body: "{}"},
		{op: "GET /api/v1/health/ready"},
	} {
		began := time.Now()
		got := p.want(http.StatusServiceUnavailable, "admin", a)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s took %s", a.op, took)
		}
		if a.op != "GET /api/v1/health/ready" && got.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", a.op)
		}
	}
	p.want(http.StatusOK, "", ask{op: "GET /api/v1/health/live"})
	if got := p.want(http.StatusOK, "viewer", ask{op: "GET /metrics"}); !strings.Contains(string(got.body), "headgate_redis_up 0") {
		t.Errorf("%s", got.body)
	}
}

func TestCredentialsAreReplacedWhileItRuns(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	old := p.keys["viewer"]
	p.want(http.StatusOK, old, ask{op: "GET /api/v1/workers"})
	p.server.SetCredentials(access.Credentials{Keys: p.issue(access.Principal{Name: "viewer", Role: access.Viewer})})
	p.want(http.StatusUnauthorized, old, ask{op: "GET /api/v1/workers"})
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/workers"})
}

func TestConfigsAreRefusedWithAllTheirFaults(t *testing.T) {
	t.Parallel()
	_, err := admin.New(admin.Config{
		MaxBody: 1, Timeout: -1, AdminLimit: admission.Limit{Tokens: -1},
		Breaker: breaker.Config{MaxProbes: -1}, Breakers: map[string]breaker.Config{"smtp": {Window: 1}},
	})
	for _, want := range []string{
		"store", "enqueuer", "headgate key new", "max body", "timeout", "admin limit.tokens", "breaker: invalid MaxProbes", "breaker of downstream smtp: invalid Window",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not told: %v", want, err)
		}
	}
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	closed, open := newPlant(t, nil), newPlant(t, func(c *admin.Config) { c.Open, c.Credentials = true, access.Credentials{} })
	call := func(p *plant, method, host, origin, site string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/queues/mail/pause", http.NoBody)
		r.Host = host
		r.Header.Set("Authorization", p.keys["admin"])
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		p.server.Handler().ServeHTTP(w, r)
		return w.Code
	}
	for _, row := range []struct {
		p                  *plant
		host, origin, site string
		want               int
	}{
		{closed, "admin.example.com", "", "", 404},
		{closed, "admin.example.com", "https://evil.example.com", "", 403},
		{closed, "admin.example.com", "", "cross-site", 403},
		{open, "localhost:9080", "", "", 404},
		{open, "127.0.0.1:9080", "", "", 404},
		{open, "[::1]:9080", "", "", 404},
		{open, "localhost:9080", "https://evil.example.com", "", 403},
		{open, "evil.example.com:9080", "", "", 403},
		{open, "", "", "", 403},
	} {
		if got := call(row.p, http.MethodDelete, row.host, row.origin, row.site); got != row.want {
			t.Errorf("%+v: %d", row, got)
		}
	}
}

// TestProbesCostOneLookASecond: anyone may ask whether the server is ready, so it asks Redis once for all of them.
func TestProbesCostOneLookASecond(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{})
	must(t, err)
	p := newPlantOn(t, s, nil)
	began := time.Now()
	for range 200 {
		p.want(http.StatusOK, "", ask{op: "GET /api/v1/health/ready"})
	}
	if looks := redistest.CommandStats(t, client)["time"].Calls; looks < 1 || looks > 1+int64(time.Since(began)/time.Second) {
		t.Errorf("%d looks in %s", looks, time.Since(began))
	}
}
