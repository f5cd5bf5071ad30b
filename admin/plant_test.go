package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// plant is a server on a store of the test's own. What it answers is checked against the description, each time.
type plant struct {
	tb     testing.TB
	store  store.Deployment
	server *admin.Server
	limits *limiter.Limiter // of the server
	spec   *openapi3.T
	keys   map[string]string // by the name of the credential
	seen   struct {
		sync.Mutex

		good map[string]bool // operations that have answered 2xx
	}
}

// callers counts addresses, so that failures of one test slow nobody down.
var callers atomic.Uint32

func newPlant(tb testing.TB, change func(*admin.Config)) *plant {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), redistest.Shared(tb).Client(tb), redisstore.Config{Prefix: redistest.Prefix(tb)})
	must(tb, err)
	return newPlantOn(tb, s, change)
}

// newPlantOf is newPlant with so many partitions.
func newPlantOf(tb testing.TB, partitions int) *plant {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), redistest.Shared(tb).Client(tb), redisstore.Config{Prefix: redistest.Prefix(tb), Partitions: partitions})
	must(tb, err)
	return newPlantOn(tb, s, nil)
}

// everywhere tests a plant of one partition, and one of three.
func everywhere(t *testing.T, test func(t *testing.T, p *plant)) {
	t.Helper()
	for _, partitions := range []int{1, 3} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			t.Parallel()
			test(t, newPlantOf(t, partitions))
		})
	}
}

// tenant returns the ith of some tenants, which are of the partitions in turn.
func (p *plant) tenant(of string, i int) string {
	parts := len(p.store.Partitions())
	for n := 0; ; n++ {
		if name := fmt.Sprint(of, "-", n); p.store.PartitionOf(name) == i%parts {
			return name
		}
	}
}

func newPlantOn(tb testing.TB, store store.Deployment, change func(*admin.Config)) *plant {
	tb.Helper()
	p := &plant{tb: tb, store: store, keys: map[string]string{}}
	p.seen.good = map[string]bool{}
	enqueuer, err := producer.New(store, producer.Config{Uncounted: true}) // The walk counts what it plants.
	must(tb, err)
	config := admin.Config{Store: store, Enqueuer: enqueuer, AdminLimit: admission.PerSecond(1_000_000)}
	config.Credentials.Keys = p.issue(
		access.Principal{Name: "viewer", Role: access.Viewer}, access.Principal{Name: "operator", Role: access.Operator},
		access.Principal{Name: "producer", Role: access.Producer}, access.Principal{Name: "worker", Role: access.Worker},
		access.Principal{Name: "admin", Role: access.Admin}, access.Principal{Name: "acme-admin", Role: access.Admin, Tenant: "acme"},
		access.Principal{Name: "acme-viewer", Role: access.Viewer, Tenant: "acme"},
		access.Principal{Name: "zeta-admin", Role: access.Admin, Tenant: "zeta"},
		access.Principal{Name: "expired", Role: access.Admin, Expires: time.Now().Add(-time.Second)},
	)
	p.limits, err = limiter.New(store, limiter.Config{Minutes: true, Count: true, Timeout: 10 * time.Second})
	must(tb, err)
	config.Limiter = p.limits
	if change != nil {
		change(&config)
	}
	p.server, err = admin.New(config)
	must(tb, err)
	text := p.raw(http.MethodGet, "/api/v1/openapi.json", "", "", nil)
	p.spec, err = parsed(string(text.body))
	must(tb, err)
	return p
}

// descriptions has what parsed has read, by its text: reading it takes longer than most tests.
var descriptions sync.Map

func parsed(text string) (*openapi3.T, error) {
	if known, ok := descriptions.Load(text); ok {
		return known.(*openapi3.T), nil // The next lines store no other.
	}
	spec, err := openapi3.NewLoader().LoadFromData([]byte(text))
	if err == nil {
		descriptions.Store(text, spec)
	}
	return spec, err
}

// issue makes keys and returns what the server is given of them.
func (p *plant) issue(all ...access.Principal) *access.Keys {
	p.tb.Helper()
	var file strings.Builder
	for _, who := range all {
		key, line, err := access.NewKey(who)
		must(p.tb, err)
		p.keys[who.Name] = "Bearer " + key
		fmt.Fprintln(&file, line)
	}
	keys, err := access.ParseKeys(file.String())
	must(p.tb, err)
	return keys
}

// slow stores a policy by which each tenant has 10 tokens a day.
func (p *plant) slow() {
	p.tb.Helper()
	own := policy.Policy{Version: 1, Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Tokens: 10, Per: 24 * time.Hour, Burst: 10}}}}
	text, err := policy.Marshal(own)
	must(p.tb, err)
	must(p.tb, p.store.PutPolicy(p.tb.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: policy.DefaultDedupWindow}))
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// object reads the body.
func (r reply) object(tb testing.TB) map[string]any {
	tb.Helper()
	var value map[string]any
	if err := json.Unmarshal(r.body, &value); err != nil {
		tb.Fatalf("%s: %v", r.body, err)
	}
	return value
}

// raw calls a path as it stands.
func (p *plant) raw(method, target, credential, body string, header http.Header) reply {
	p.tb.Helper()
	n := callers.Add(1)
	return p.rawFrom(fmt.Sprintf("10.%d.%d.%d:4000", n>>16&255, n>>8&255, n&255), method, target, credential, body, header)
}

// rawFrom is raw from an address.
func (p *plant) rawFrom(remote, method, target, credential, body string, header http.Header) reply {
	p.tb.Helper()
	r := httptest.NewRequestWithContext(p.tb.Context(), method, target, strings.NewReader(body))
	r.RemoteAddr = remote
	if credential != "" {
		r.Header.Set("Authorization", credential)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(r.Header, header)
	w := httptest.NewRecorder()
	p.server.Handler().ServeHTTP(w, r)
	return reply{w.Code, w.Header(), w.Body.Bytes()}
}

// ask is a call of an operation.
type ask struct {
	op     string // as in "GET /api/v1/jobs/{tenant}/{id}"
	path   map[string]string
	query  string
	body   string
	header http.Header
}

// call makes a call and checks the answer against the description of its operation.
func (p *plant) call(credential string, a ask) reply {
	p.tb.Helper()
	got, err := p.answer(credential, a)
	if err != nil {
		p.tb.Error(err)
	}
	return got
}

// answer makes a call; the error is that its answer is not as described.
func (p *plant) answer(credential string, a ask) (reply, error) {
	p.tb.Helper()
	method, path, _ := strings.Cut(a.op, " ")
	target := path
	for name, value := range a.path {
		target = strings.ReplaceAll(target, "{"+name+"}", url.PathEscape(value))
	}
	if strings.Contains(target, "{") {
		p.tb.Fatalf("%s lacks a name", target)
	}
	if a.query != "" {
		target += "?" + a.query
	}
	if key, ok := p.keys[credential]; ok {
		credential = key
	}
	got := p.raw(method, target, credential, a.body, a.header)
	item := p.spec.Paths.Value(path)
	if item == nil || item.GetOperation(method) == nil {
		p.tb.Fatalf("the description has no %s", a.op)
	}
	r := httptest.NewRequestWithContext(p.tb.Context(), method, target, http.NoBody)
	err := openapi3filter.ValidateResponse(p.tb.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: r, PathParams: a.path,
			Route: &routers.Route{Spec: p.spec, Path: path, PathItem: item, Method: method, Operation: item.GetOperation(method)},
		},
		Status: got.status, Header: got.header, Body: io.NopCloser(bytes.NewReader(got.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		return got, fmt.Errorf("%s answers %d, which is not as described: %w\n%s", a.op, got.status, err, got.body)
	}
	if got.status < 300 {
		p.seen.Lock()
		p.seen.good[a.op] = true
		p.seen.Unlock()
	}
	return got, nil
}

// want is call with a status that it must have.
func (p *plant) want(status int, credential string, a ask) reply {
	p.tb.Helper()
	got := p.call(credential, a)
	if got.status != status {
		p.tb.Fatalf("%s %v %s as %s: %d, want %d\n%s", a.op, a.path, a.body, credential, got.status, status, got.body)
	}
	return got
}

// enqueue enqueues jobs over HTTP.
func (p *plant) enqueue(tenant string, ids ...string) {
	p.tb.Helper()
	for _, id := range ids {
		p.want(http.StatusCreated, "operator", ask{
			op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":%q,"queue":"mail","type":"welcome","id":%q,"payload":{"to":"ada"}}`, tenant, id),
		})
	}
}

var mailPool = store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}

// work makes a worker take n jobs and end them with an outcome; those of "" it keeps.
func (p *plant) work(ctx context.Context, n int, outcome store.Outcome) {
	p.tb.Helper()
	_, err := p.store.Partitions()[0].Register(ctx, "w1", mailPool, n, time.Minute)
	must(p.tb, err)
	leases, err := p.store.Partitions()[0].Read(ctx, "w1", mailPool.ID(), n, -1, false)
	must(p.tb, err)
	if len(leases) != n {
		p.tb.Fatalf("%d leases, want %d", len(leases), n)
	}
	if outcome == "" {
		return
	}
	for _, l := range leases {
		_, _, err := p.store.Partitions()[0].Finish(ctx, mailPool.ID(), "w1", []store.Finish{{
			Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: outcome, Reason: "discarded", Text: "bad address",
		}})
		must(p.tb, err)
	}
	for more := true; more; {
		more, err = p.store.Partitions()[0].Reclaim(ctx, "w1")
		must(p.tb, err)
	}
}

// operations returns every operation of the description.
func (p *plant) operations() []string {
	var all []string
	for path, item := range p.spec.Paths.Map() {
		for method := range item.Operations() {
			all = append(all, method+" "+path)
		}
	}
	slices.Sort(all)
	return all
}
