package main

import (
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

// collecting is an OTLP receiver.
type collecting struct {
	*httptest.Server

	mu    sync.Mutex
	auth  map[string]bool
	spans map[string]*otlp.Span // by name
}

func newCollector(t *testing.T) *collecting {
	t.Helper()
	c := &collecting{auth: map[string]bool{}, spans: map[string]*otlp.Span{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var export otlp.TracesData
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &export) != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.auth[r.Header.Get("Authorization")] = true
		for _, of := range export.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					c.spans[span.GetName()] = span
				}
			}
		}
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(c.Close)
	return c
}

// process starts headgate as a process of its own, whose log is kept.
func process(t *testing.T, log *lockedBuffer, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], args...) //nolint:gosec // It is this test.
	command.Env, command.Stderr = append(os.Environ(), asCommand+"=1"), log
	must(t, command.Start())
	return command
}

// TestOneTraceFromEnqueueToReceiver lets a job go through processes: one that enqueues it, and a worker that posts it.
func TestOneTraceFromEnqueueToReceiver(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	to := newCollector(t)
	parents := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parents <- r.Header.Get("Traceparent") }))
	t.Cleanup(receiver.Close)
	headers := filepath.Join(t.TempDir(), "headers")
	must(t, os.WriteFile(headers, []byte("Authorization: Bearer sesame\n"), 0o600))
	file := writeConfig(t, "tracing: {endpoint: '"+to.URL+"', insecure: true, headers_file: "+headers+"}\n")

	log := &lockedBuffer{}
	where := append(slices.Clone(d.where), "--config", file)
	worker := process(t, log, append([]string{"worker", "--queue", "q", "--deliver", receiver.URL, "--allow-private"}, where...)...)
	enqueue := process(t, log, append([]string{"enqueue", "--tenant", "acme", "--queue", "q", "--type", "send"}, where...)...)
	must(t, enqueue.Wait())
	parent := <-parents
	must(t, worker.Process.Signal(syscall.SIGTERM))
	must(t, worker.Wait())

	to.mu.Lock()
	defer to.mu.Unlock()
	if got := slices.Sorted(maps.Keys(to.spans)); !slices.Equal(got, []string{"enqueue q", "run q", "wait q"}) {
		t.Fatalf("spans %q: %s", got, log.String())
	}
	enqueued, run := to.spans["enqueue q"], to.spans["run q"]
	for name, span := range to.spans {
		if string(span.GetTraceId()) != string(enqueued.GetTraceId()) {
			t.Errorf("%s is of another trace", name)
		}
		if name != "enqueue q" && string(span.GetParentSpanId()) != string(enqueued.GetSpanId()) {
			t.Errorf("%s has another parent", name)
		}
	}
	if want := hex.EncodeToString(run.GetTraceId()) + "-" + hex.EncodeToString(run.GetSpanId()); !strings.Contains(parent, want) {
		t.Errorf("the receiver was told %s, and the run is %s", parent, want)
	}
	if len(to.auth) != 1 || !to.auth["Bearer sesame"] || strings.Contains(log.String(), "sesame") {
		t.Errorf("%v: %s", to.auth, log.String())
	}
}

// TestTracesThatNobodyTakesKeepNobody enqueues while the collector is away, and without any.
func TestTracesThatNobodyTakesKeepNobody(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	job := append([]string{"enqueue", "--tenant", "acme", "--queue", "q", "--type", "send"}, d.where...)
	out := runHeadgate(t.Context(), append(job, "--set", "tracing.endpoint=https://127.0.0.1:1/sesame")...)
	if out.code != cli.ExitOK || !strings.Contains(out.stderr, `"message":"traces are lost"`) || strings.Contains(out.stderr, "sesame") {
		t.Errorf("%+v", out)
	}
	out = runHeadgate(t.Context(), append(job, "--set", "tracing.endpoint=http://127.0.0.1:1")...)
	if out.code != cli.ExitUsage || !strings.Contains(out.stderr, "would send traces and headers in the clear") {
		t.Errorf("%+v", out)
	}
}
