package opa

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// build compiles a program, as one who works in folder would.
func build(tb testing.TB, folder, program string) (binary string) {
	tb.Helper()
	binary = filepath.Join(tb.TempDir(), filepath.Base(program))
	compile := exec.CommandContext(tb.Context(), "go", "build", "-o", binary, program)
	compile.Dir, compile.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := compile.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, text)
	}
	return binary
}

// startServe runs `headgate serve` on a Redis whose tenant acme has two requests a minute, and one of them in the queue search.
func startServe(tb testing.TB) (url, key string, stop func()) {
	tb.Helper()
	redis, folder := redistest.Start(tb, redistest.Options{}), tb.TempDir()
	binary, file, keys := build(tb, filepath.Join("..", ".."), "./cmd/headgate"), filepath.Join(folder, "policy.json"), filepath.Join(folder, "keys")
	must(tb, os.WriteFile(file, []byte(`{"tenants": {"acme": {"limit": {"tokens": 2, "per": "1m", "burst": 2}}}, "queue_limits": {"acme:search": {"tokens": 1, "per": "1m"}}}`), 0o600))
	if text, err := exec.CommandContext(tb.Context(), binary, "policy", "set", file, "--reason", "test", "--redis", redis.URL()).CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, text)
	}
	var line strings.Builder
	issue := exec.CommandContext(tb.Context(), binary, "key", "new", "--name", "opa", "--role", "producer")
	issue.Stderr = &line
	text, err := issue.Output()
	must(tb, err)
	for part := range strings.SplitSeq(string(text)+line.String(), "\n") {
		switch fields := strings.Fields(part); {
		case strings.Contains(part, "producer") && len(fields) >= 3:
			must(tb, os.WriteFile(keys, []byte(part+"\n"), 0o600))
		case len(fields) == 1 && key == "":
			key = fields[0]
		}
	}
	serve := exec.CommandContext(context.WithoutCancel(tb.Context()), binary, "serve")
	serve.Env = append(os.Environ(), "HEADGATE_REDIS="+redis.URL(), "HEADGATE_SERVE_ADDRESS=127.0.0.1:0", "HEADGATE_SERVE_KEYS_FILE="+keys)
	log, err := serve.StderrPipe()
	must(tb, err)
	must(tb, serve.Start())
	ended := false
	stop = func() {
		if !ended {
			ended = true
			must(tb, serve.Process.Kill())
			_ = serve.Wait() // It says that it was killed.
		}
	}
	tb.Cleanup(stop)
	for lines := bufio.NewScanner(log); url == ""; {
		if !lines.Scan() {
			tb.Fatal("headgate serve has ended")
		}
		var event struct{ Message, Address string }
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Message == "admin API listens" {
			url = event.Address
		}
	}
	return url, key, stop
}

type decision struct {
	Allow      bool     `json:"allow"`
	Away       bool     `json:"away"`
	RefusedBy  string   `json:"refused_by"`
	RetryAfter *float64 `json:"retry_after"`
}

// TestOPAAsks: opa lets through what the limits of a tenant and its queue hold, says of a refusal whose bucket it was and when to come back, asks once
// a decision, and fails closed where its key is none or nobody listens.
func TestOPAAsks(t *testing.T) {
	t.Parallel()
	opa := build(t, ".", "github.com/open-policy-agent/opa")
	if text, err := exec.CommandContext(t.Context(), opa, "check", "--strict", "headgate.rego").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	url, key, stop := startServe(t)
	ask := func(key, input string) (d decision) {
		t.Helper()
		evaluate := exec.CommandContext(t.Context(), opa, "eval", "--data", "headgate.rego", "--stdin-input", "--format", "json", "data.headgate")
		evaluate.Env, evaluate.Stdin = append(os.Environ(), "HEADGATE_URL="+url, "HEADGATE_KEY="+key), strings.NewReader(input)
		text, err := evaluate.Output()
		must(t, err)
		var all struct {
			Result []struct{ Expressions []struct{ Value decision } }
		}
		must(t, json.Unmarshal(text, &all))
		if len(all.Result) != 1 || len(all.Result[0].Expressions) != 1 {
			t.Fatalf("it says %s", text)
		}
		return all.Result[0].Expressions[0].Value
	}
	if d := ask(key, `{"tenant": "acme", "queue": "search"}`); !d.Allow || d.RetryAfter != nil {
		t.Errorf("the first: %+v", d)
	}
	if d := ask(key, `{"tenant": "acme", "queue": "search"}`); d.Allow || d.Away || d.RefusedBy != "acme:search" || d.RetryAfter == nil || *d.RetryAfter < 1 || *d.RetryAfter > 60 {
		t.Errorf("the second of one a minute: %+v", d)
	}
	if d := ask(key, `{"tenant": "acme", "cost": 2}`); d.Allow || d.RefusedBy != "acme" {
		t.Errorf("two, of which one is left: %+v", d)
	}
	if d := ask(key, `{"tenant": "acme"}`); !d.Allow {
		t.Errorf("the last of two a minute, so every decision was charged once: %+v", d)
	}
	if d := ask("wrong", `{"tenant": "globex"}`); d.Allow || !d.Away {
		t.Errorf("with a key that is none: %+v", d)
	}
	stop()
	if d := ask(key, `{"tenant": "globex"}`); d.Allow || !d.Away {
		t.Errorf("with nobody there: %+v", d)
	}
}
