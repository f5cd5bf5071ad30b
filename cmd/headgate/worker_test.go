package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// receiver answers by the type of the job, and remembers what came.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []string // "type attempt"
}

func newReceiver(t *testing.T, answer func(w http.ResponseWriter, jobType string, times int)) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		jobType := request.Header.Get("Headgate-Type")
		r.mu.Lock()
		r.got = append(r.got, jobType+" "+request.Header.Get("Headgate-Attempt"))
		times := 0
		for _, delivery := range r.got {
			if strings.HasPrefix(delivery, jobType+" ") {
				times++
			}
		}
		r.mu.Unlock()
		answer(w, jobType, times)
	}))
	t.Cleanup(r.Close)
	return r
}

// deliveries returns what came, each as "type attempt", sorted.
func (r *receiver) deliveries() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(r.got)), ", ")
}

// why returns why a job of acme is a dead letter.
func (d *deployment) why(id string) string {
	d.t.Helper()
	text, err := redistest.Shared(d.t).Client(d.t).HGet(d.t.Context(), redisstore.Keys(d.store).Why(), "acme:"+id).Result()
	if err != nil {
		d.t.Errorf("%s is no dead letter: %v", id, err)
	}
	return text
}

func TestWorkerDeliversByHTTP(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	r := newReceiver(t, func(w http.ResponseWriter, jobType string, times int) {
		switch {
		case jobType == "busy" && times == 1:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case jobType == "down" && times == 1:
			w.Header().Set("Retry-After", time.Now().Add(time.Second).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusServiceUnavailable)
		case jobType == "bad":
			http.Error(w, "no such user: the payload", http.StatusUnprocessableEntity)
		case jobType == "broken" || jobType == "mended" && times == 1:
			w.WriteHeader(http.StatusInternalServerError)
		case jobType == "moved":
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusFound)
		}
	})
	for _, jobType := range []string{"good", "busy", "down", "bad", "broken", "mended", "moved"} {
		d.enqueue(jobType, "--max-attempts", "2", "--payload", "the payload")
	}
	stop := d.work("--deliver", r.URL+"/?token=sesame", "--allow-private")
	c := d.idle()
	out := stop()
	if out.code != cli.ExitOK || out.stdout != "" {
		t.Errorf("got %+v", out)
	}
	if c.Left["completed"] != 4 || c.Dead != 3 || c.Died["discarded"] != 1 || c.Died["max_attempts"] != 2 {
		t.Errorf("got %+v", c)
	}
	// A snooze burns no attempt, a failure does.
	if got := r.deliveries(); got != "bad 1, broken 1, broken 2, busy 1, busy 1, down 1, down 1, good 1, mended 1, mended 2, moved 1, moved 2" {
		t.Errorf("got %s", got)
	}
	for id, want := range map[string]string{
		"bad":    "discarded|answered 422 Unprocessable Entity: no such user: the payload",
		"broken": "max_attempts|answered 500 Internal Server Error",
		"moved":  "max_attempts|answered 302 Found, and redirects are not followed",
	} {
		if got := d.why(id); got != want {
			t.Errorf("%s died of %q, want %q", id, got, want)
		}
	}
	checkLog(t, out.stderr)
	for _, want := range []string{`"error":"answered 422 Unprocessable Entity"`, `"check":"persistence"`, `"message":"worker drained"`, `"completed":4,"retried":3,"dead":3`} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("%q is not in %s", want, out.stderr)
		}
	}
	if strings.Contains(out.stderr, `"check":"workers"`) {
		t.Errorf("a worker that starts misses workers: %s", out.stderr)
	}
}

// checkLog checks that a log is JSON and tells nothing that it should not.
func checkLog(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		decode(t, line)
	}
	for _, secret := range []string{"the payload", "sesame"} {
		if strings.Contains(log, secret) {
			t.Errorf("%q is in the log:\n%s", secret, log)
		}
	}
}

func TestWorkerSignsCloudEvents(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	key := []byte("sesame sesame sesame sesame 1234")
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("whsec_"+base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	type request struct {
		header http.Header
		body   string
	}
	got := make(chan request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header, string(body)}
	}))
	t.Cleanup(server.Close)
	d.enqueue("send", "--payload", `{"to":"ada"}`)
	stop := d.work("--deliver", server.URL, "--allow-private", "--cloudevents", "--secret-file", file)
	r := <-got
	d.idle()
	out := stop()
	checkLog(t, out.stderr)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", r.header.Get("Webhook-Id"), r.header.Get("Webhook-Timestamp"), r.body)
	signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.header.Get("Webhook-Signature"), "v1,"))
	if err != nil || !hmac.Equal(signature, mac.Sum(nil)) {
		t.Errorf("the signature %s is not that of the body", r.header.Get("Webhook-Signature"))
	}
	e := decode(t, r.body)
	if e["specversion"] != "1.0" || e["type"] != "send" || fmt.Sprint(e["data"]) != "map[to:ada]" || e["headgatetenant"] != "acme" ||
		r.header.Get("Content-Type") != "application/cloudevents+json; charset=utf-8" {
		t.Errorf("got %v with %v", e, r.header)
	}
}

func TestWorkerRunsACommand(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	for _, jobType := range []string{"0", "65", "3"} {
		d.enqueue(jobType, "--max-attempts", "2", "--payload", "the payload")
	}
	d.enqueue("75", "--deadline", "3s") // It snoozes for longer, so it expires, no attempt burnt.
	stop := d.work("--exec", "sh", "-c", `test "$HEADGATE_TYPE" = 75 || test "$(cat)" = "the payload" || exit 99; echo "exit $1$HEADGATE_TYPE" >&2; exit "$HEADGATE_TYPE"`,
		"sh", "--with ")
	c := d.idle()
	out := stop()
	if out.code != cli.ExitOK || c.Left["completed"] != 1 || c.Died["discarded"] != 1 || c.Died["max_attempts"] != 1 || c.Died["expired"]+c.Left["expired"] != 1 {
		t.Errorf("exit code %d: %+v\n%s", out.code, c, out.stderr)
	}
	if got := d.why("3"); got != "max_attempts|exit status 3: exit --with 3" {
		t.Errorf("got %s", got)
	}
	if n := strings.Count(out.stderr, `"job":"75"`); n < 1 || !strings.Contains(out.stderr, `"reason":"snoozed"`) {
		t.Errorf("75 ended %d times: %s", n, out.stderr)
	}
	checkLog(t, out.stderr)
}

func TestWorkerEndsACommandAsItDrains(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	started := filepath.Join(t.TempDir(), "started")
	d.enqueue("long", "--max-attempts", "1")
	stop := d.work("--drain-timeout", "100ms", "--exec", "sh", "-c", `trap "" TERM; echo $$ > "$1"; sleep 300`, "sh", started)
	d.await("the command to start", func(store.Census) bool { _, err := os.Stat(started); return err == nil })
	out := stop()
	if out.code != cli.ExitOK || !strings.Contains(out.stderr, `"reason":"shutdown"`) {
		t.Errorf("exit code %d: %s", out.code, out.stderr)
	}
	c := d.await("the job to be back", func(store.Census) bool { return true })
	if c.Waiting+c.Ready != 1 || c.Dead != 0 {
		t.Errorf("the job is not back: %+v", c)
	}
	text, err := os.ReadFile(started)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(text))); err == nil {
		t.Errorf("process %s is still there", text)
	}
}

func TestWorkerTakesTheTypesItIsTold(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	r := newReceiver(t, func(http.ResponseWriter, string, int) {})
	d.enqueue("mine")
	d.enqueue("other")
	d.work("--deliver", r.URL, "--allow-private", "--types", "mine,also", "--strict")
	d.await("its own", func(c store.Census) bool { return c.Left["completed"] == 1 })
	if got := r.deliveries(); got != "mine 1" {
		t.Errorf("got %s", got)
	}
	d.work("--deliver", r.URL, "--allow-private", "--strict")
	d.idle()
	if got := r.deliveries(); got != "mine 1, other 1" {
		t.Errorf("got %s", got)
	}
}

func TestWorkerRefusesPrivateAddresses(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	r := newReceiver(t, func(http.ResponseWriter, string, int) {})
	for _, url := range []string{r.URL, strings.Replace(r.URL, "127.0.0.1", "localhost", 1)} {
		ctx, cancel := context.WithTimeout(t.Context(), patience) // Else it works, and does not end.
		defer cancel()
		out := d.run(ctx, nil, "worker", "--queue", "q", "--deliver", url)
		if out.code != cli.ExitUsage || !strings.Contains(out.stderr, "loopback") || !strings.Contains(out.stderr, "--allow-private") {
			t.Errorf("%s: %+v", url, out)
		}
	}
	if got := r.deliveries(); got != "" {
		t.Errorf("got %s", got)
	}
}

// TestAFlagBehindTheCommandIsTold, which it takes: of those that are the worker's too, unless -- says that they are the command's.
func TestAFlagBehindTheCommandIsTold(t *testing.T) {
	t.Parallel()
	const warning = "headgate: warning: after --exec all belongs to the command, "
	for args, want := range map[string]string{
		"--exec true --redis 127.0.0.1:2":                            "--redis too",
		"--exec true report --redis=127.0.0.1:2 --queue r --redis x": "--redis, --queue too",
		"--exec -- true --redis 127.0.0.1:2":                         "",
		"--exec true -- --redis 127.0.0.1:2":                         "",
		"--exec true --fast --help -redis":                           "",
		"--deliver http://example.com":                               "",
	} {
		out := runHeadgate(t.Context(), append(strings.Fields("worker --redis 127.0.0.1:1 --queue q"), strings.Fields(args)...)...)
		if _, told, _ := strings.Cut(out.stderr, warning); out.code != cli.ExitFailure || !strings.HasPrefix(told, want) || strings.Contains(out.stderr, warning) != (want != "") {
			t.Errorf("%s: exit code %d, want %q: %s", args, out.code, want, out.stderr)
		}
	}
	out := runHeadgate(t.Context(), strings.Fields("worker --queue q --exec true --redis 127.0.0.1:1")...)
	if out.code != cli.ExitUsage || !strings.Contains(out.stderr, warning+"--redis too") || !strings.Contains(out.stderr, "say which Redis") {
		t.Errorf("exit code %d: %s", out.code, out.stderr)
	}
}

func TestWorkerMistakesAreNamed(t *testing.T) {
	t.Parallel()
	short := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(short, []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok := "--queue q --deliver http://example.com"
	for args, want := range map[string]string{
		"--queue q":                             "by one of --deliver URL and --exec COMMAND",
		ok + " --exec":                          "by one of --deliver URL and --exec COMMAND",
		"--queue q --exec":                      "invalid --exec nothing",
		ok + " extra":                           `there is no argument, got "extra"`,
		"--deliver http://h":                    `invalid --queue ""`,
		ok + " --queue q=0":                     `invalid --queue "q=0"`,
		ok + " --queue r=x":                     `invalid --queue "r=x"`,
		ok + " --queue r=1001":                  `invalid --queue "r=1001"`,
		ok + " --queue q":                       `invalid --queue "q"`,
		ok + " --concurrency 0":                 "invalid --concurrency 0",
		ok + " --timeout 0":                     "invalid --timeout 0",
		ok + " --timeout 25h":                   "invalid --timeout 25h0m0s",
		ok + " --drain-timeout 2h":              "invalid --drain-timeout 2h0m0s",
		ok + " --types a,a":                     `invalid --types "a"`,
		ok + " --log loud":                      `invalid --log "loud"`,
		ok + " --secret-file " + short:          "invalid --secret-file " + short + " in line 1 (6 bytes): allowed is 24 to 64 random bytes",
		ok + " --secret-file /nowhere":          "read secret: open /nowhere",
		ok + " --notify ftp://example.com/":     "invalid --notify",
		ok + " --notify http://10.0.0.1/sesame": `invalid --notify "http://10.0.0.1": allowed is an address of the public internet`,
		ok + " --notify http://localhost:1/":    "allow such addresses with --notify-allow-private",
		ok + " --notify http://example.com/ --notify-secret-file " + short: "invalid --notify-secret-file " + short + " in line 1 (6 bytes)",
		ok + " --notify http://example.com/ --set scheduler.enabled=false": "--notify needs scheduler.enabled",
		"--queue q --exec /nowhere/job":                                    "find command",
		"--queue q --cloudevents --exec true":                              "are for --deliver",
		"--queue q --deliver http://sesame@127.0.0.1/":                     `invalid --deliver "http://127.0.0.1"`,
		"--queue q --deliver ftp://example.com/ --strict ":                 `invalid --deliver "ftp://example.com": allowed is http://host/path or https://host/path`,
		"--queue q --deliver localhost:8080/sesame":                        `invalid --deliver "localhost:8080": allowed is http://localhost:8080/path or https://localhost:8080/path`,
		"--queue q --deliver app.example.com?sesame":                       `invalid --deliver "app.example.com": allowed is http://app.example.com/path`,
		"--queue q --deliver ada:sesame@h":                                 "invalid --deliver (not a URL): allowed is http://host/path",
		"--queue q --deliver http://h/#sesame":                             `invalid --deliver "http://h/#***": allowed is http://host/path or https://host/path, without #`,
	} {
		out := runHeadgate(t.Context(), append([]string{"worker", "--redis", "127.0.0.1:1"}, strings.Fields(args)...)...)
		if out.code != cli.ExitUsage || !strings.Contains(out.stderr, want) || strings.Contains(out.stderr, "sesame") {
			t.Errorf("%s: exit code %d, want %q: %s", args, out.code, want, out.stderr)
		}
	}
	for args, want := range map[string]string{
		"worker " + ok:    "say which Redis with --redis",
		"enqueue --jsonl": "say which Redis with --redis",
		"enqueue --redis 127.0.0.1:1 --tenant global":      `invalid tenant "global"`,
		"enqueue --redis 127.0.0.1:1 --jsonl --payload x":  "--payload is for one job",
		"enqueue --redis 127.0.0.1:1 --strict":             "--strict is for --jsonl",
		"enqueue --redis 127.0.0.1:1 --payload @/nowhere":  "read payload: open /nowhere",
		"enqueue --redis 127.0.0.1:1 --cost much":          `invalid --cost "much"`,
		"enqueue --redis 127.0.0.1:1 --deadline yesterday": `invalid deadline "yesterday"`,
	} {
		out := runHeadgate(t.Context(), strings.Fields(args)...)
		if out.code != cli.ExitUsage || !strings.Contains(out.stderr, want) {
			t.Errorf("%s: exit code %d, want %q: %s", args, out.code, want, out.stderr)
		}
	}
	for args, want := range map[string]string{
		"worker --redis 127.0.0.1:1 --queue q --exec true":                        "nobody listens there",
		"enqueue --redis 127.0.0.1:1 --tenant acme --queue q --type send":         "nobody listens there",
		"enqueue --redis 127.0.0.1:1 --jsonl --tenant acme --queue q --type send": "nobody listens there",
	} {
		out := runHeadgate(t.Context(), strings.Fields(args)...)
		if out.code != cli.ExitFailure || !strings.Contains(out.stderr, want) {
			t.Errorf("%s: exit code %d, want %q: %s", args, out.code, want, out.stderr)
		}
	}
	d := newDeployment(t)
	out := d.run(t.Context(), nil, "enqueue", "--tenant", "acme", "--queue", "q", "--type", "send", "--priority", "odd")
	if out.code != cli.ExitUsage || !strings.Contains(out.stderr, "a class of queue q: high, medium, low") {
		t.Errorf("got %+v", out)
	}
}
