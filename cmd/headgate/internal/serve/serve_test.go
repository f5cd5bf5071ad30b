package serve_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/gateway"
	"github.com/headgate/headgate/cmd/headgate/internal/serve"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
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

// lines hands the lines of a log on.
type lines chan map[string]any

func (l lines) Write(line []byte) (int, error) {
	var event map[string]any
	if err := json.Unmarshal(line, &event); err != nil {
		return 0, err
	}
	l <- event
	return len(line), nil
}

// until returns the first event with a message.
func (l lines) until(t *testing.T, message string) map[string]any {
	t.Helper()
	soon := time.After(time.Minute)
	for {
		select {
		case event := <-l:
			if event["message"] == message {
				return event
			}
		case <-soon:
			t.Fatalf("no event says %q", message)
		}
	}
}

// plain is a configuration on a free port.
func plain() serve.Config {
	return serve.Config{
		Address: "127.0.0.1:0", MinTLS: tls.VersionTLS13, MaxBody: admin.DefaultMaxBody, Timeout: admin.DefaultTimeout,
		AdminLimit: admission.PerSecond(admin.DefaultAdminRate).WithBurst(admin.DefaultAdminBurst), Limiter: &limiter.Config{Minutes: true, Count: true, Timeout: 10 * time.Second},
	}
}

func newServer(t *testing.T, log lines, config serve.Config) (*serve.Server, error) {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	return serve.New(s, zerolog.New(log), zerolog.Nop(), config)
}

// start runs a server until the test ends.
func start(t *testing.T, config serve.Config) (server *serve.Server, address string, log lines) {
	t.Helper()
	log = make(lines, 1000)
	server, err := newServer(t, log, config)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	address, _ = log.until(t, "admin API listens")["address"].(string)
	return server, address, log
}

// get returns the status of a call on a connection of its own, 0 where it was turned away at the door.
func get(t *testing.T, client *http.Client, url, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	r.Close = true
	response, err := client.Do(r)
	if err != nil {
		return 0
	}
	must(t, response.Body.Close())
	return response.StatusCode
}

// credentials returns a key and what takes it alone.
func credentials(t *testing.T) (key string, all access.Credentials) {
	t.Helper()
	key, line, err := access.NewKey(access.Principal{Name: "ops", Role: access.Admin})
	must(t, err)
	all.Keys, err = access.ParseKeys(line)
	must(t, err)
	return key, all
}

// certify returns a certificate that signs itself.
func certify(t *testing.T, serial int64) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestCertificatesRotateWithoutARestart(t *testing.T) {
	t.Parallel()
	config := plain()
	_, config.Credentials = credentials(t)
	config.Certificate = certify(t, 1)
	server, address, _ := start(t, config)
	shown := func() (serial int64, version uint16) {
		dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // The test looks at the certificate itself.
		connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "https://"))
		must(t, err)
		defer func() { _ = connection.Close() }()
		state := connection.(*tls.Conn).ConnectionState()
		return state.PeerCertificates[0].SerialNumber.Int64(), state.Version
	}
	if serial, version := shown(); serial != 1 || version != tls.VersionTLS13 {
		t.Errorf("certificate %d by version %x", serial, version)
	}
	next := config.Live
	next.Certificate = certify(t, 2)
	must(t, server.Apply(next))
	if serial, _ := shown(); serial != 2 {
		t.Errorf("certificate %d after another was given", serial)
	}
	next.Certificate = nil
	if err := server.Apply(next); err == nil || !strings.Contains(err.Error(), "from http to https or back") {
		t.Errorf("it goes from https to http: %v", err)
	}
	if serial, _ := shown(); serial != 2 || !strings.HasPrefix(address, "https://") {
		t.Errorf("certificate %d at %s after a change that was refused", serial, address)
	}
}

func TestKeysAndNetworksChangeWithoutARestart(t *testing.T) {
	t.Parallel()
	config := plain()
	old, own := credentials(t)
	config.Credentials = own
	server, address, _ := start(t, config)
	calls := func() [2]int {
		return [2]int{get(t, http.DefaultClient, address+"/api/v1/workers", old), get(t, http.DefaultClient, address+"/api/v1/health/live", "")}
	}
	fresh, other := credentials(t)
	elsewhere := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, step := range []struct {
		live   serve.Live
		refuse bool
		want   [2]int
	}{
		{serve.Live{Credentials: own}, false, [2]int{200, 200}},
		{serve.Live{Credentials: own, Allow: elsewhere}, false, [2]int{}},
		{serve.Live{Credentials: own, Allow: make([]netip.Prefix, 1001)}, true, [2]int{}},
		{serve.Live{}, false, [2]int{401, 200}},
		{serve.Live{Credentials: other}, false, [2]int{401, 200}},
	} {
		if err := server.Apply(step.live); (err != nil) != step.refuse {
			t.Errorf("%+v: %v", step.live, err)
		}
		if got := calls(); got != step.want {
			t.Errorf("%+v: %v, want %v", step.live, got, step.want)
		}
	}
	if got := get(t, http.DefaultClient, address+"/api/v1/workers", fresh); got != http.StatusOK {
		t.Errorf("the new key gets %d", got)
	}
}

func TestAServerThatNobodyCouldCallDoesNotStart(t *testing.T) {
	t.Parallel()
	config := plain()
	config.MaxBody = 1
	if _, err := newServer(t, nil, config); err == nil || !strings.Contains(err.Error(), "headgate key new") || !strings.Contains(err.Error(), "invalid max body 1") {
		t.Error(err)
	}
}

func TestOpenOnLoopbackEverybodyIsAnAdmin(t *testing.T) {
	t.Parallel()
	config := plain()
	config.NoAuth = true
	server, address, log := start(t, config)
	log.until(t, "everybody on this machine is an admin: --insecure-no-auth")
	must(t, server.Apply(serve.Live{}))
	if got := get(t, http.DefaultClient, address+"/api/v1/workers", ""); got != http.StatusOK {
		t.Errorf("%d", got)
	}
}

// TestMetricsTellOfTheProcess: its memory, its goroutines and which build it is, as those of a worker do.
func TestMetricsTellOfTheProcess(t *testing.T) {
	t.Parallel()
	config := plain()
	config.NoAuth, config.Version = true, "v9.8.7"
	_, address, _ := start(t, config)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/metrics", http.NoBody)
	must(t, err)
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, err)
	must(t, response.Body.Close())
	for _, want := range []string{"go_goroutines ", "process_resident_memory_bytes ", `headgate_build_info{goversion="` + runtime.Version() + `",version="v9.8.7"} 1`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestTheLimiterOfAServerIsCountedAndGivesBack: its metrics tell where checks were decided, and its end leaves nothing on lease.
func TestTheLimiterOfAServerIsCountedAndGivesBack(t *testing.T) {
	t.Parallel()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	rules := policy.Policy{Version: 1, Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Tokens: 12, Per: 24 * time.Hour, Burst: 2000}}}}
	own, err := rules.Prepare()
	must(t, err)
	text, err := policy.Marshal(rules)
	must(t, err)
	must(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: policy.DefaultDedupWindow}))
	config := plain()
	config.NoAuth = true
	log := make(lines, 1000)
	server, err := serve.New(s, zerolog.New(log), zerolog.Nop(), config)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	address, _ := log.until(t, "admin API listens")["address"].(string)
	call := func(method, path, body string) string {
		r, err := http.NewRequestWithContext(t.Context(), method, address+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		must(t, errors.Join(err, answer.Body.Close()))
		return string(text)
	}
	// How soon there is a lease goes by how fast checks come.
	checks, leased := 0, false
	for ; checks < 1000 && !leased; checks += 40 {
		for range 40 {
			call(http.MethodPost, "/api/v1/rate-limit/check", `{"scope":"acme"}`)
		}
		metrics := call(http.MethodGet, "/metrics", "")
		leased = strings.Contains(metrics, `headgate_limiter_checks_total{result="admitted",source="leased"}`) && !strings.Contains(metrics, "headgate_limiter_lease_grants_total 0")
	}
	if !leased {
		t.Errorf("no lease was granted for %d checks", checks)
	}
	stop()
	must(t, <-ended)
	limit := own.LimitsFor("acme", "", "")
	for level := admission.LevelQueue; level < admission.Levels; level++ {
		limit[level].Disabled = true
	}
	_, answers, err := s.Check(t.Context(), 1, true, []store.Question{{Tenant: "acme", Cost: 1, Limits: limit}})
	must(t, err)
	if left := answers[0].Left[admission.LevelTenant].Tokens(); left != admission.Tokens(2000-checks) {
		t.Errorf("%d of 2000 tokens are left after %d checks", left, checks)
	}
}

// TestGatewaysAskBesideTheAPI: at a listener of its own, whose end comes with the server's.
func TestGatewaysAskBesideTheAPI(t *testing.T) {
	t.Parallel()
	config := plain()
	config.NoAuth = true
	config.Authz = gateway.Authz{Listen: "127.0.0.1:0", Tenant: []string{"header:X-API-Key", "ip"}, Routes: []string{"GET /orders/{id}"}}
	_, _, log := start(t, config)
	address, _ := log.until(t, "gateways are answered")["address"].(string)
	ask := func(path string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
		must(t, err)
		r.Header.Set("X-API-Key", "sesame")
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, answer.Body.Close())
		return answer
	}
	refused := map[int]int{}
	for range 400 { // The standard tier has 200 a second and holds 50.
		refused[ask("/authz/orders/1").StatusCode]++
	}
	if refused[200] == 0 || refused[429] == 0 || refused[200]+refused[429] != 400 {
		t.Errorf("%v", refused)
	}
	for range 400 {
		if got := ask("/authz/nginx"); got.StatusCode == http.StatusForbidden && got.Header.Get("X-Headgate-Status") == "429" {
			return
		}
	}
	t.Error("nothing was refused by 403")
}

// TestEnvoyIsAnsweredBesideTheAPI: over HTTP/2 without TLS, by a mapping that can be replaced, and counted.
func TestEnvoyIsAnsweredBesideTheAPI(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	must(t, os.WriteFile(file, []byte("domains: {edge: {rules: [{match: [{key: k}], tenant_from: k}]}}"), 0o600))
	config := plain()
	config.NoAuth, config.RLS = true, gateway.RLS{Listen: "127.0.0.1:0"}
	if _, err := newServer(t, make(lines, 1000), config); err == nil {
		t.Error("without a mapping there is a rate limit service")
	}
	var err error
	config.Mapping, err = gateway.ReadMapping(file)
	must(t, err)
	_, api, log := start(t, config)
	address, _ := log.until(t, "the rate limit service listens")["address"].(string)
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	call := func(path, message string) string {
		frame := string([]byte{0, 0, 0, 0, byte(len(message))}) + message
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+path, strings.NewReader(frame))
		must(t, err)
		r.Header.Set("Content-Type", "application/grpc")
		answer, err := (&http.Client{Transport: transport}).Do(r)
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		must(t, errors.Join(err, answer.Body.Close()))
		if answer.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%v %v", answer.Header, answer.Trailer)
		}
		return string(text)
	}
	if got := call("/grpc.health.v1.Health/Check", ""); got != "\x00\x00\x00\x00\x02\x08\x01" {
		t.Errorf("%q", got)
	}
	// The domain edge, and a descriptor with the entry k=acme.
	got := call("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "\x0a\x04edge\x12\x0b\x0a\x09\x0a\x01k\x12\x04acme")
	if !strings.HasPrefix(got[5:], "\x08\x01\x12") || !strings.Contains(got, "tenant") {
		t.Errorf("%q", got)
	}
	answer, err := http.Get(api + "/metrics") //nolint:noctx // a test's
	must(t, err)
	text, err := io.ReadAll(answer.Body)
	must(t, errors.Join(err, answer.Body.Close()))
	if !strings.Contains(string(text), "headgate_rls_calls_total 1") {
		t.Errorf("%s", text)
	}
}
