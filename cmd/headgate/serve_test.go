package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
)

// makeKey makes a key as a user would, and returns it with its line.
func makeKey(t *testing.T, args ...string) (key, line string) {
	t.Helper()
	out := runHeadgate(t.Context(), append([]string{"key", "new", "--json"}, args...)...)
	made := decode(t, out.stdout)
	key, _ = made["key"].(string)
	line, _ = made["line"].(string)
	return key, line
}

// startServe runs headgate serve on a free port until stop is called, which checks that it ended well.
func startServe(t *testing.T, log *lockedBuffer, args ...string) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	line := []string{"serve", "--address", "127.0.0.1:0", "--redis", redistest.Shared(t).URL(), "--prefix", redistest.Prefix(t)}
	go func() { ended <- execute(ctx, append(line, args...), os.Stdin, io.Discard, log) }()
	awaitLog(t, log.String, "admin API listens", 1)
	for line := range strings.Lines(log.String()) {
		if event := decode(t, line); event["message"] == "admin API listens" {
			address, _ = event["address"].(string)
		}
	}
	return address, func() {
		cancel()
		if code := <-ended; code != cli.ExitOK {
			t.Errorf("exit code %d\n%s", code, log.String())
		}
	}
}

// status is how a server answers a key.
func status(ctx context.Context, url, key string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// TestServeWithANewKey does what docs/guides/operating.md says: make a key, start the server, call it.
func TestServeWithANewKey(t *testing.T) {
	t.Parallel()
	key, line := makeKey(t, "--name", "ops", "--role", "viewer")
	file := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(file, []byte(line+"\n"), 0o600))
	address, stop := startServe(t, &lockedBuffer{}, "--keys-file", file)
	for path, want := range map[string]int{"/api/v1/queues": 200, "/api/v1/health/ready": 200, "/api/v1/queues/mail/drain": 405} {
		if got, err := status(t.Context(), address+path, key); err != nil || got != want {
			t.Errorf("%s: %d, %v", path, got, err)
		}
	}
	stop()
}

// TestServeEndsWhenItsDeploymentWasMigrated: a migration does not wait for a server that has done nothing.
func TestServeEndsWhenItsDeploymentWasMigrated(t *testing.T) {
	t.Parallel()
	on := []string{"--redis", redistest.Shared(t).URL(), "--prefix", redistest.Prefix(t)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log, ended := &lockedBuffer{}, make(chan int, 1)
	go func() {
		ended <- execute(ctx, append([]string{"serve", "--address", "127.0.0.1:0", "--insecure-no-auth"}, on...), os.Stdin, io.Discard, log)
	}()
	awaitLog(t, log.String, "admin API listens", 1)
	for _, line := range [][]string{{"pause", "--queue", "mail", "--reason", "x"}, {"migrate", "--partitions", "2"}} {
		if out := runHeadgate(ctx, append(line, on...)...); out.code != cli.ExitOK {
			t.Fatalf("%v: %+v", line, out)
		}
	}
	if code := <-ended; code != cli.ExitFailure || !strings.Contains(log.String(), "another number of partitions than when this process began, 2 now: start it anew") {
		t.Errorf("exit code %d\n%s", code, log.String())
	}
}

// TestKeysRotateUnderLoad replaces a key while a caller uses it without a pause: the new one is taken before the old one goes,
// so no call is refused. Then the old one is dead. The server's file says where the keys are, and more that can change.
func TestKeysRotateUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, oldLine := makeKey(t, "--name", "caller", "--role", "viewer")
	fresh, freshLine := makeKey(t, "--name", "caller", "--role", "viewer")
	keys, file := filepath.Join(dir, "keys"), filepath.Join(dir, "headgate.yaml")
	write := func(name, text string) { must(t, os.WriteFile(name, []byte(text), 0o600)) }
	serve := func(level, lease, more string) {
		write(file, "serve: {keys_file: "+keys+", admin_rate: 1000000, admin_burst: 1000000"+more+"}\nworker: {lease: "+lease+"}\nlog: {level: "+level+"}\n")
	}
	write(keys, oldLine)
	serve("info", "1m", "")
	log := &lockedBuffer{}
	address, stop := startServe(t, log, "--config", file)

	var current atomic.Pointer[string]
	current.Store(&old)
	called := make(chan struct{})
	calls := t.Context()
	ctx, end := context.WithCancel(calls)
	var calling sync.WaitGroup
	calling.Go(func() {
		for ctx.Err() == nil {
			if got, err := status(calls, address+"/api/v1/queues", *current.Load()); got != http.StatusOK {
				t.Errorf("%d, %v", got, err)
			}
			select {
			case called <- struct{}{}:
			default:
			}
		}
	})
	// Two, since the first may have begun before.
	twice := func() { <-called; <-called }
	read := 0
	await := func(changed string) {
		read++
		awaitLog(t, log.String, "configuration read anew", read)
		if !strings.Contains(log.String(), changed) {
			t.Errorf("%s is not in %s", changed, log.String())
		}
		twice()
	}
	twice()
	write(keys, oldLine+"\n"+freshLine)
	await(`"changed":["serve.keys_file"]`)
	current.Store(&fresh)
	twice()
	write(keys, freshLine)
	await(`"changed":["serve.keys_file"]`)
	if got, err := status(t.Context(), address+"/api/v1/queues", old); got != http.StatusUnauthorized {
		t.Errorf("the old key gets %d, %v", got, err)
	}

	write(keys, "broken")
	awaitLog(t, log.String, "configuration is wrong: the old one stays in force", 1)
	twice()
	write(keys, freshLine)
	await("")
	serve("warn", "2m", ", max_body: 4096, allow: [127.0.0.0/8]")
	awaitLog(t, log.String, `"option":"serve.max_body"`, 1)
	twice()
	end()
	calling.Wait()
	stop()
	if strings.Contains(log.String(), "worker.lease") {
		t.Errorf("a server minds what is a worker's: %s", log.String())
	}
}

func TestMistakesOfServeAndKeyAreNamed(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"key new --name ops":                                         `invalid role ""`,
		"key new --name o:ps,x --role admin":                         "invalid name",
		"key new --name ops --role admin --expires -1h":              "invalid --expires -1h0m0s",
		"key new --name ops --role admin --tenant global":            "invalid tenant",
		"serve --insecure-no-auth --address :9080 --redis localhost": `invalid --insecure-no-auth "true": allowed is only with an address (--address) on loopback`,
		"serve --tls-min 1.0 --redis localhost":                      `invalid --tls-min "1.0": allowed is one of 1.2, 1.3`,
		"serve --log loud --max-body 1 --redis localhost":            "invalid --max-body 1: allowed is 1024 to 67108864 (whole number)",
		"serve --keys-file x":                                        "say which Redis with --redis",
		"serve --redis localhost":                                    "say who may call, by --keys-file FILE",
	} {
		if out := runHeadgate(t.Context(), strings.Fields(line)...); out.code != cli.ExitUsage || !strings.Contains(out.stderr, want) {
			t.Errorf("headgate %s: exit code %d\n%s", line, out.code, out.stderr)
		}
	}
}

// TestSecretsAreNotInHelp: what the environment holds is not shown as a default.
func TestSecretsAreNotInHelp(t *testing.T) {
	t.Setenv("HEADGATE_KEYS", "hush")
	t.Setenv("HEADGATE_JWKS", "hush")
	t.Setenv(cli.RedisVariable, "redis://user:hush@localhost:1")
	for _, line := range []string{"serve --help", "key new --help", "serve"} {
		if out := runHeadgate(t.Context(), strings.Fields(line)...); strings.Contains(out.stdout+out.stderr, "hush") {
			t.Errorf("headgate %s: %s%s", line, out.stdout, out.stderr)
		}
	}
}

func TestKeysAreListedAndChecked(t *testing.T) {
	t.Parallel()
	key, line := makeKey(t, "--name", "ops", "--role", "admin")
	other, ended := makeKey(t, "--name", "acme-ci", "--role", "operator", "--tenant", "acme", "--expires", "1h")
	ended = ended[:strings.Index(ended, "expires=")] + "expires=2020-01-31T00:00:00Z"
	file := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(file, []byte(line+"\n"+ended+"\n"), 0o600))
	out := runHeadgate(t.Context(), "key", "list", "--keys-file", file)
	for _, want := range []string{"ops", "admin", "for good", "acme-ci", "2020-01-31 00:00:00Z, which is over"} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("%q is not in %+v", want, out)
		}
	}
	hash := strings.Fields(line)[3]
	if strings.Contains(out.stdout, strings.TrimPrefix(hash, "sha256:")[:8]) {
		t.Errorf("a hash is shown: %s", out.stdout)
	}
	for given, code := range map[string]int{key + "\n": cli.ExitOK, other: cli.ExitNothing, "hgk_sesame": cli.ExitNothing, "": cli.ExitNothing} {
		var stdout, stderr strings.Builder
		if got := execute(t.Context(), []string{"key", "check", "--json", "--keys-file", file}, strings.NewReader(given), &stdout, &stderr); got != code {
			t.Errorf("%q: exit code %d, want %d: %s", given, got, code, stderr.String())
		}
		if code == cli.ExitOK && decode(t, stdout.String())["name"] != "ops" {
			t.Errorf("%s", stdout.String())
		}
		if strings.Contains(stdout.String()+stderr.String(), "sesame") {
			t.Errorf("a key is shown: %s", stderr.String())
		}
	}
	if out := runHeadgate(t.Context(), "key", "list"); out.code != cli.ExitOK {
		t.Errorf("%+v", out)
	}
}
