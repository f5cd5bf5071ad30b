package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Ports are picked one after the other from [firstPort, lastPort), from a random one on: below those that the system gives to connections and to whoever
// asks for any, which could have one before a proxy does, and below those of redistest's servers.
const firstPort, lastPort = 4000, 10000

var (
	begin  = rand.IntN(lastPort - firstPort)
	picked atomic.Int64
)

// free is an address of this machine that nobody listens at, another one each time.
func free(tb testing.TB) string {
	tb.Helper()
	for {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+(begin+int(picked.Add(1)))%(lastPort-firstPort)))
		listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		must(tb, err)
		must(tb, listener.Close())
		return address
	}
}

// answers reports when somebody listens.
func answers(tb testing.TB, address string, ended <-chan error, said *bytes.Buffer) {
	tb.Helper()
	for range 1000 {
		connection, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", address)
		if err == nil {
			must(tb, connection.Close())
			return
		}
		select {
		case err := <-ended:
			tb.Fatalf("it has ended: %v\n%s", err, said)
		case <-time.After(10 * time.Millisecond):
		}
	}
	tb.Fatalf("nobody listens at %s", address)
}

// startNginx runs deploy/nginx/nginx.conf with the addresses of a test, and returns where it listens.
func startNginx(t *testing.T, headgate, application string) (url string) {
	t.Helper()
	binary, err := exec.LookPath("nginx")
	if err != nil {
		binary = "/usr/sbin/nginx" // Debian's, which is in nobody's PATH but root's.
	}
	folder, address := t.TempDir(), free(t)
	must(t, os.Chmod(folder, 0o755)) //nolint:gosec // Workers of a master that is root are somebody else.
	var spool strings.Builder
	spool.WriteString("access_log off;")
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		spool.WriteString(" " + kind + "_temp_path " + filepath.Join(folder, kind) + ";")
	}
	changed := deployed(t, "nginx/nginx.conf", map[string]string{
		"127.0.0.1:9081; keepalive": headgate + "; keepalive", "127.0.0.1:8000; keepalive": application + "; keepalive", "listen 127.0.0.1:8080": "listen " + address,
		"/tmp/headgate-nginx.pid": filepath.Join(folder, "pid"), "access_log off;": spool.String(), "worker_processes auto": "worker_processes 1",
	})
	file := filepath.Join(folder, "nginx.conf")
	must(t, os.WriteFile(file, []byte(changed), 0o600))
	run(t, address, exec.CommandContext(context.WithoutCancel(t.Context()), binary, "-p", folder, "-c", file, "-e", "stderr", "-g", "daemon off;")) //nolint:gosec // It is nginx.
	return "http://" + address
}

// deployed returns a file of deploy, with the addresses of a test.
func deployed(t *testing.T, name string, changes map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", filepath.FromSlash(name)))
	must(t, err)
	changed := string(text)
	for from, to := range changes {
		if strings.Count(changed, from) != 1 {
			t.Fatalf("%s has %q not once", name, from)
		}
		changed = strings.Replace(changed, from, to, 1)
	}
	return changed
}

// run runs a proxy until the test ends.
func run(t *testing.T, address string, proxy *exec.Cmd) {
	t.Helper()
	said := &bytes.Buffer{}
	proxy.Stderr = said
	must(t, proxy.Start())
	ended := make(chan error, 1)
	go func() { ended <- proxy.Wait() }()
	t.Cleanup(func() {
		_ = proxy.Process.Signal(syscall.SIGTERM)
		<-ended //nolint:errcheck // It says how it ended.
	})
	answers(t, address, ended, said)
}

// TestNginxAsks runs nginx by the configuration in deploy.
func TestNginxAsks(t *testing.T) {
	t.Parallel()
	asks(t, startNginx, http.StatusServiceUnavailable, true)
}

// asks holds a proxy to what all do: it lets pass what a limit admits, answers 429 with a time to come back beyond it, and with away while headgate is.
// Those that tell say of what is admitted, too, what is left.
func asks(t *testing.T, start func(t *testing.T, headgate, application string) (url string), away int, tells bool) {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs a proxy")
	}
	p := policy.Unlimited()
	p.QueueLimits = map[admission.Scope]admission.Limit{}
	for _, tenant := range []string{"ip-127.0.0.1", httplimit.KeyName("sesame")} { // A client that could say who and where it is had no limit.
		p.QueueLimits[admission.Scope(tenant+":"+httplimit.RouteName("POST /orders/{id}"))] = admission.Limit{Tokens: 60, Per: time.Hour, Burst: 2}
	}
	limits, err := limiter.New(store.Single(memory.New(memory.Config{}), nil), limiter.Config{Policy: &p, Timeout: 10 * time.Second})
	must(t, err)
	address := free(t)
	authz := Authz{Listen: address, Tenant: []string{"header:X-API-Key", "ip"}, Routes: []string{"POST /orders/{id}"}, Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	gateways, err := New(limits, zerolog.Nop(), nil, prometheus.NewRegistry(), authz, RLS{}, Mapping{})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gateways.Run(ctx) }()
	end := sync.OnceFunc(func() {
		stop()
		must(t, <-ended)
	})
	defer end()
	answers(t, address, ended, &bytes.Buffer{})
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _ = w.Write([]byte(r.Method + " " + r.URL.RequestURI() + " " + string(body)))
		}
	}))
	defer application.Close()
	url := start(t, address, strings.TrimPrefix(application.URL, "http://"))
	asked := 0
	ask := func(key string) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/orders/7?a=b", strings.NewReader("a body"))
		must(t, err)
		if key != "" {
			r.Header.Set("X-API-Key", key)
		}
		asked++
		r.Header.Set("X-Forwarded-For", fmt.Sprint("203.0.113.", asked)) // Which the proxy replaces: else each request could be somebody else's.
		for _, field := range []string{"X-Original-URI", "X-Forwarded-URI"} {
			r.Header.Set(field, "/free")
		}
		for _, field := range []string{"X-Original-Method", "X-Forwarded-Method"} {
			r.Header.Set(field, http.MethodGet)
		}
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		body, err := io.ReadAll(answer.Body)
		must(t, errors.Join(err, answer.Body.Close()))
		return answer, string(body)
	}
	for _, key := range []string{"", "sesame"} {
		for i, status := range []int{200, 200, 429} {
			got, body := ask(key)
			left := got.Header.Get("RateLimit") != "" && got.Header.Get("RateLimit-Policy") != ""
			told := left == (tells || status == http.StatusTooManyRequests) && (got.Header.Get("Retry-After") != "") == (status == 429)
			if got.StatusCode != status || !told || (body == "POST /orders/7?a=b a body") != (status == 200) {
				t.Errorf("%q, request %d: %d %v %q", key, i+1, got.StatusCode, got.Header, body)
			}
		}
	}
	end()
	if got, body := ask("another"); got.StatusCode != away || strings.Contains(body, "POST") {
		t.Errorf("without headgate: %d %q", got.StatusCode, body)
	}
}
