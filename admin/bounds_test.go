package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

// line is a connection to a server.
type line struct {
	tb testing.TB
	net.Conn
	reader *bufio.Reader
}

func dial(tb testing.TB, address string) *line {
	tb.Helper()
	connection, err := (&net.Dialer{Timeout: time.Minute}).DialContext(tb.Context(), "tcp", address)
	must(tb, err)
	must(tb, connection.SetDeadline(time.Now().Add(time.Minute)))
	tb.Cleanup(func() { _ = connection.Close() })
	return &line{tb, connection, bufio.NewReader(connection)}
}

// get asks for a path and returns the status; 0 if the connection is over.
func (l *line) get(path, credential string) (status int, closes bool) {
	l.tb.Helper()
	_, err := fmt.Fprintf(l, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", path, credential)
	if err != nil {
		return 0, true
	}
	response, err := http.ReadResponse(l.reader, nil)
	if err != nil {
		return 0, true
	}
	_, err = io.Copy(io.Discard, response.Body)
	must(l.tb, err)
	must(l.tb, response.Body.Close())
	return response.StatusCode, response.Close
}

const health = "/api/v1/health/live"

// strangersIdle is how many connections are idle that have never shown a credential.
func (p *plant) strangersIdle() int {
	var v struct {
		Connections struct {
			Stale int `json:"stale"`
		} `json:"connection_summary"`
	}
	must(p.tb, json.Unmarshal(p.call("viewer", ask{op: "GET /api/v1/stats"}).body, &v))
	return v.Connections.Stale
}

// TestWhoHasACredentialKeepsTheirConnection: with all places taken, those that were idle longest without one make room.
func TestWhoHasACredentialKeepsTheirConnection(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.MaxConnections = 4 })
	address, _ := p.listen(t.Context())
	known := dial(t, address)
	if status, _ := known.get("/api/v1/workers", p.keys["viewer"]); status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	var strangers []*line
	for range 20 {
		l := dial(t, address)
		if status, _ := l.get(health, ""); status != http.StatusOK {
			t.Fatalf("connection %d: %d", len(strangers), status)
		}
		strangers = append(strangers, l)
		// A connection is idle a moment after its answer is here.
		redistest.Await(t, "the stranger is idle", func() bool { return p.strangersIdle() == min(len(strangers), 3) })
	}
	var open []int
	for n, l := range strangers {
		if status, _ := l.get(health, ""); status == http.StatusOK {
			open = append(open, n)
		}
	}
	if !slices.Equal(open, []int{17, 18, 19}) {
		t.Errorf("of 20 in turn those are open: %v", open)
	}
	if status, _ := known.get(health, ""); status != http.StatusOK {
		t.Errorf("the one with a credential: %d", status)
	}
	if got := p.call("viewer", ask{op: "GET /metrics"}); !strings.Contains(string(got.body), `headgate_http_refused_total{cause="idle"} 17`) {
		t.Errorf("%s", got.body)
	}
}

// TestConnectionsOfAnAddressAreBounded: where all of them are in use, one more is closed unheard.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.MaxConnectionsPerAddress = 3 })
	address, _ := p.listen(t.Context())
	for range 3 {
		if status, _ := dial(t, address).get("/api/v1/workers", p.keys["viewer"]); status != http.StatusOK {
			t.Fatalf("%d", status)
		}
	}
	if status, _ := dial(t, address).get(health, ""); status != 0 {
		t.Errorf("a fourth is answered %d", status)
	}
}

// TestATenantHasAQuarterOfTheConnections: one more is told to close, and the deployment's own are not.
func TestATenantHasAQuarterOfTheConnections(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.MaxConnections = 8 })
	address, _ := p.listen(t.Context())
	for who, mostOpen := range map[string]int{"acme-admin": 2, "viewer": 3} {
		for n := range 3 {
			status, closes := dial(t, address).get("/api/v1/jobs", p.keys[who])
			if status != http.StatusOK || closes != (n >= mostOpen) {
				t.Errorf("connection %d of %s: %d, closes %v", n, who, status, closes)
			}
		}
	}
}

// TestExcludedAddressesAreTurnedAwayAtTheDoor, and do not fill the log.
func TestExcludedAddressesAreTurnedAwayAtTheDoor(t *testing.T) {
	t.Parallel()
	var log book
	p := newPlant(t, func(c *admin.Config) { c.Logger = zerolog.New(&log) })
	address, _ := p.listen(t.Context())
	before := dial(t, address)
	if status, _ := before.get(health, ""); status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	must(t, p.server.SetAllow([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}))
	began := time.Now()
	for range 200 {
		if status, _ := dial(t, address).get(health, ""); status != 0 {
			t.Fatalf("a connection was let in, and answered %d", status)
		}
	}
	if status, _ := before.get(health, ""); status != http.StatusForbidden {
		t.Errorf("a connection from before: %d", status)
	}
	lines := strings.Count(log.String(), `"message":"connection turned away"`)
	if most := 5 * (2 + int(time.Since(began)/time.Second)); lines == 0 || lines > most {
		t.Errorf("%d lines", lines)
	}
}

// TestPathsInTheLogAreClipped: whoever has no credential chooses them.
func TestPathsInTheLogAreClipped(t *testing.T) {
	t.Parallel()
	var log book
	p := newPlant(t, func(c *admin.Config) { c.Logger = zerolog.New(&log) })
	got := p.raw(http.MethodGet, "/"+strings.Repeat("%01", 4000), "", "", nil)
	p.raw(strings.Repeat("M", 4000), "/x", "", "", nil)
	for line := range strings.Lines(log.String()) {
		if len(line) > 1000 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	if len(got.body) > 2500 {
		t.Errorf("an answer of %d bytes", len(got.body))
	}
	if n := strings.Count(log.String(), "\n"); n < 2 {
		t.Errorf("%d lines", n)
	}
}

// TestBodiesAreBoundedByRoute: each has room for what its operation takes, and no more.
func TestBodiesAreBoundedByRoute(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	padded := func(size int) string { return "{" + strings.Repeat(" ", size-2) + "}" }
	for target, most := range map[string]int{
		"POST /api/v1/rate-limit/check": 64 << 10, "POST /api/v1/dead-letters/purge": 64 << 10, "POST /api/v1/workers": 64 << 10,
		"PUT /api/v1/queues/mail/pause": 64 << 10, "POST /api/v1/workers/w/leases": 64 << 10, "POST /api/v1/workers/w/complete": 152 << 10,
		"POST /api/v1/jobs": admin.DefaultMaxBody, "POST /api/v1/jobs/batch": admin.DefaultMaxBody, "PUT /api/v1/policy": 4<<20 + 64<<10, "POST /api/v1/policy/dry-run": 4<<20 + 64<<10,
	} {
		method, path, _ := strings.Cut(target, " ")
		for size, large := range map[int]bool{most: false, most + 1: true} {
			if got := p.raw(method, path, p.keys["admin"], padded(size), nil); (got.status == http.StatusRequestEntityTooLarge) != large {
				t.Errorf("%s with %d bytes: %d %.200s", target, size, got.status, got.body)
			}
		}
	}
	job := `{"tenant":"acme","queue":"mail","type":"t","payload_base64":"` + strings.Repeat("AAAA", admission.DefaultMaxPayload/3) + `"}`
	p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: job})
}

// perTenant is an Enqueuer that hears of whose job it is.
type perTenant struct {
	admin.Enqueuer

	enqueue func(tenant string)
}

func (e perTenant) Enqueue(_ context.Context, job admission.Job) (admission.Verdict, error) {
	e.enqueue(job.Tenant)
	return admission.Verdict{ID: "x", Decision: admission.Admitted, EstimatedWait: -1}, nil
}

// TestATenantsCallsLeaveRoomForOthers: however many of its calls wait, another's is answered, and so is health. Those that have no
// turn in time are told to come again, and were not begun.
func TestATenantsCallsLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	const calls, share = 12, 2
	begun, goOn := make(chan struct{}, calls), make(chan struct{})
	p := newPlant(t, func(c *admin.Config) {
		c.MaxCalls, c.Timeout = 16*share, 2*time.Second
		c.Enqueuer = perTenant{enqueue: func(tenant string) {
			if tenant == "acme" {
				begun <- struct{}{}
				<-goOn
			}
		}}
	})
	job := func(tenant string) ask {
		return ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":%q,"queue":"mail","type":"t"}`, tenant)}
	}
	answers := make(chan reply, calls)
	for range calls {
		go func() { answers <- p.call("acme-admin", job("acme")) }()
	}
	for range share {
		<-begun
	}
	for range 3 {
		p.want(http.StatusCreated, "zeta-admin", job("zeta"))
		p.want(http.StatusOK, "", ask{op: "GET /api/v1/health/live"})
		p.want(http.StatusOK, "viewer", ask{op: "GET /metrics"})
	}
	for range calls - share {
		if got := <-answers; got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" || !strings.Contains(string(got.body), "problem:busy") {
			t.Errorf("%d %v %s", got.status, got.header, got.body)
		}
	}
	close(goOn)
	for range share {
		if got := <-answers; got.status != http.StatusCreated {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if len(begun) != 0 {
		t.Errorf("%d calls that were refused were begun", len(begun))
	}
}

// TestATenantsTrafficIsBounded: its calls and its bytes, whatever became of them and by whichever of its keys; nobody else's.
func TestATenantsTrafficIsBounded(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) {
		c.TenantLimit = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 6}
	})
	p.server.SetCredentials(access.Credentials{Keys: p.issue(
		access.Principal{Name: "a", Role: access.Operator, Tenant: "acme"}, access.Principal{Name: "b", Role: access.Operator, Tenant: "acme"},
		access.Principal{Name: "z", Role: access.Operator, Tenant: "zeta"}, access.Principal{Name: "all", Role: access.Operator},
	)})
	peek := func(tenant string) ask {
		return ask{op: checkOp, body: fmt.Sprintf(`{"scope":%q,"peek":true}`, tenant)}
	}
	for range 3 {
		p.want(http.StatusOK, "a", peek("acme"))
		p.want(http.StatusBadRequest, "b", ask{op: checkOp, body: `{"scope":7}`})
	}
	for _, who := range []string{"a", "b"} {
		if got := p.want(http.StatusTooManyRequests, who, peek("acme")); got.header.Get("Retry-After") != "3600" {
			t.Errorf("%v", got.header)
		}
	}
	p.want(http.StatusOK, "a", ask{op: "GET /api/v1/jobs"})
	p.want(http.StatusOK, "z", peek("zeta"))
	for range 10 {
		p.want(http.StatusOK, "all", peek("acme"))
	}
}

// TestEachQuestionIsACall: sixty-four at once cost Redis what they cost one by one.
func TestEachQuestionIsACall(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.TenantLimit = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 5} })
	ask := ask{op: checkOp, body: `{"checks":[{"scope":"acme:a"},{"scope":"acme:b"},{"scope":"acme:c"}],"peek":true}`}
	p.want(http.StatusOK, "acme-admin", ask)
	p.want(http.StatusTooManyRequests, "acme-admin", ask)
	for range 3 {
		p.want(http.StatusOK, "operator", ask)
	}
}

func TestATenantsBytesAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.MaxBody, c.TenantBytes = 64<<10, 1<<10 })
	job := ask{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"t","id":"same","payload":"` + strings.Repeat("x", 60<<10) + `"}`}
	p.want(http.StatusCreated, "acme-admin", job)
	p.want(http.StatusOK, "acme-admin", job) // A duplicate costs no token, and its bytes all the same.
	p.want(http.StatusTooManyRequests, "acme-admin", job)
	p.want(http.StatusOK, "acme-admin", ask{op: checkOp, body: `{"scope":"acme"}`})
	for range 3 {
		p.want(http.StatusOK, "operator", job)
	}
}

// TestATenantsAnswersAreBounded: bytes that it reads count as those that it sends, also beyond what it has.
func TestATenantsAnswersAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.MaxBody, c.TenantBytes = 64<<10, 1<<10 })
	p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"t","id":"large","payload":"` + strings.Repeat("x", 60<<10) + `"}`})
	read := ask{op: "GET /api/v1/jobs/{tenant}/{id}/payload", path: map[string]string{"tenant": "acme", "id": "large"}}
	for range 2 { // The burst is 128 KiB, and what the second one reads is owed in part.
		p.want(http.StatusOK, "acme-admin", read)
	}
	p.want(http.StatusTooManyRequests, "acme-admin", read)
	for range 3 {
		p.want(http.StatusOK, "operator", read)
	}
}

// TestLongListsCostATenantCalls: one that is read in pages of a thousand costs as many calls as it is work.
func TestLongListsCostATenantCalls(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.AdminLimit = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 2} })
	for n := range 45 {
		p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"acme","queue":"mail","type":"t","id":"%0128d"}`, n)})
	}
	p.want(http.StatusOK, "acme-admin", ask{op: "GET /api/v1/jobs", query: "limit=1000"})
	p.want(http.StatusTooManyRequests, "acme-admin", ask{op: "GET /api/v1/jobs", query: "limit=1"})
}

// TestKeysOfOneNameAreCountedByTenant: keys of two tenants are two callers, whatever they are called.
func TestKeysOfOneNameAreCountedByTenant(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.AdminLimit = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 2} })
	keys := map[string]string{}
	var lines strings.Builder
	for _, tenant := range []string{"acme", "globex", ""} {
		key, text, err := access.NewKey(access.Principal{Name: "ci", Role: access.Viewer, Tenant: tenant})
		must(t, err)
		keys[tenant] = "Bearer " + key
		fmt.Fprintln(&lines, text)
	}
	parsed, err := access.ParseKeys(lines.String())
	must(t, err)
	p.server.SetCredentials(access.Credentials{Keys: parsed})
	for tenant, key := range keys {
		for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
			if got := p.call(key, ask{op: "GET /api/v1/jobs"}); got.status != want {
				t.Errorf("ci of %q: %d, want %d", tenant, got.status, want)
			}
		}
	}
}

// TestTheDescriptionIsCachedAndBounded: it is large, and for everybody.
func TestTheDescriptionIsCachedAndBounded(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	get := func(header http.Header) reply {
		return p.rawFrom("192.0.2.1:4000", http.MethodGet, "/api/v1/openapi.json", "", "", header)
	}
	first := get(nil)
	tag := first.header.Get("Etag")
	if first.status != http.StatusOK || tag == "" || first.header.Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("%d %v", first.status, first.header)
	}
	if got := get(http.Header{"If-None-Match": {tag}}); got.status != http.StatusNotModified || len(got.body) != 0 {
		t.Errorf("%d with %d bytes", got.status, len(got.body))
	}
	answered, began := 0, time.Now()
	for range 45 {
		if get(nil).status == http.StatusOK {
			answered++
		}
	}
	if most := 20 + 2*int(1+time.Since(began)/time.Second); answered < 10 || answered > most {
		t.Errorf("%d of 45 were answered", answered)
	}
}

func TestHealthTellsVersionAndUptime(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) { c.Version = "v9.8.7" })
	for _, op := range []string{"GET /api/v1/health/live", "GET /api/v1/health/ready"} {
		got := p.want(http.StatusOK, "", ask{op: op}).object(t)
		if uptime, ok := got["uptime_s"].(float64); got["version"] != "v9.8.7" || !ok || uptime < 0 || uptime > 600 {
			t.Errorf("%s: %v", op, got)
		}
	}
}

// TestAFullDoorWaits: where all places are taken, the next connection is looked at after a while, and not before; then one that came meanwhile has the
// place that has become free.
func TestAFullDoorWaits(t *testing.T) {
	t.Parallel()
	const delay = 300 * time.Millisecond
	p := newPlant(t, func(c *admin.Config) {
		c.MaxConnections, c.Guard.Delays.Connections = 2, delay
	})
	address, _ := p.listen(t.Context())
	var known []*line
	for range 2 {
		known = append(known, dial(t, address))
		if status, _ := known[len(known)-1].get("/api/v1/workers", p.keys["viewer"]); status != http.StatusOK {
			t.Fatalf("%d", status)
		}
	}
	began := time.Now()
	if status, _ := dial(t, address).get(health, ""); status != 0 {
		t.Fatalf("a third is answered %d", status)
	}
	must(t, known[0].Close())
	if status, _ := dial(t, address).get(health, ""); status != http.StatusOK {
		t.Errorf("with a place free: %d", status)
	}
	if took := time.Since(began); took < delay*9/10 {
		t.Errorf("the next connection was looked at after %s", took)
	}
}
