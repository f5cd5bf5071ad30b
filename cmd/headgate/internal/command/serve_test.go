package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// TestServeWithANewKey does what the README says: make a key, start the server, call it.
func TestServeWithANewKey(t *testing.T) {
	t.Parallel()
	out := runHeadgate(t.Context(), "key", "new", "--name", "ops", "--role", "viewer", "--json")
	made := decode(t, out.stdout)
	key, _ := made["key"].(string)
	line, _ := made["line"].(string)
	file := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(file, []byte(line+"\n"), 0o600))

	ctx, stop := context.WithCancel(t.Context())
	read, written := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		var stdout bytes.Buffer
		ended <- Run(ctx, []string{"serve", "--address", "127.0.0.1:0", "--keys-file", file, "--redis", redistest.Shared(t).Addr(), "--prefix", redistest.Prefix(t)}, &stdout, written)
		_ = written.Close()
	}()
	log := bufio.NewScanner(read)
	var event struct{ Address string }
	for event.Address == "" && log.Scan() {
		must(t, json.Unmarshal(log.Bytes(), &event))
	}
	go func() {
		for log.Scan() { // What is logged must be read for the server to go on.
		}
	}()
	for path, want := range map[string]int{"/api/v1/queues": 200, "/api/v1/health/ready": 200, "/api/v1/queues/mail/drain": 405} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, event.Address+path, http.NoBody)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != want {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestMistakesOfServeAndKeyAreNamed(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"key new --name ops":                                         `invalid role ""`,
		"key new --name o:ps,x --role admin":                         "invalid name",
		"key new --name ops --role admin --expires -1h":              "invalid --expires -1h0m0s",
		"key new --name ops --role admin --tenant global":            "invalid tenant",
		"serve --insecure-no-auth --address :9080 --redis localhost": "only with an --address on loopback",
		"serve --tls-min 1.0 --redis localhost":                      `invalid --tls-min "1.0": allowed is 1.2 or 1.3`,
		"serve --log loud --max-body 1 --redis localhost":            "invalid --max-body 1: allowed is 1024 to 67108864 bytes",
		"serve --keys-file x":                                        "say which Redis with --redis",
	} {
		if out := runHeadgate(t.Context(), strings.Fields(line)...); out.code != exitUsage || !strings.Contains(out.stderr, want) {
			t.Errorf("headgate %s: exit code %d\n%s", line, out.code, out.stderr)
		}
	}
}

// TestSecretsAreNotInHelp: what the environment holds is not shown as a default.
func TestSecretsAreNotInHelp(t *testing.T) {
	t.Setenv("HEADGATE_KEYS", "hush")
	t.Setenv("HEADGATE_JWKS", "hush")
	t.Setenv(redisVariable, "redis://user:hush@localhost:1")
	for _, line := range []string{"serve --help", "key new --help", "serve"} {
		if out := runHeadgate(t.Context(), strings.Fields(line)...); strings.Contains(out.stdout+out.stderr, "hush") {
			t.Errorf("headgate %s: %s%s", line, out.stdout, out.stderr)
		}
	}
}
