package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

// observer is an HTTP server that is told of transitions and remembers those of which it takes note.
type observer struct {
	*httptest.Server
	t   *testing.T
	key []byte
	mu  sync.Mutex
	// told are those of which it took note, as "downstream from>to cause"; ids are the webhook-ids of every try by downstream.
	told []string
	ids  map[string][]string
	// event, if there is one, is given each.
	event func(map[string]any)
}

// newObserver answers as status says, of a downstream and the number of its try.
func newObserver(t *testing.T, status func(r *http.Request, downstream string, try int) int) *observer {
	t.Helper()
	o := &observer{t: t, key: []byte("sesame sesame sesame sesame 1234"), ids: map[string][]string{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		o.check(r, body)
		event := decode(t, string(body))
		if o.event != nil {
			o.event(event)
		}
		data, _ := event["data"].(map[string]any)
		downstream, _ := data["downstream"].(string)
		o.mu.Lock()
		o.ids[downstream] = append(o.ids[downstream], r.Header.Get("Webhook-Id"))
		try := len(o.ids[downstream])
		o.mu.Unlock()
		code := status(r, downstream, try)
		if code < 300 {
			o.mu.Lock()
			o.told = append(o.told, fmt.Sprintf("%s %s>%s %s", downstream, data["from"], data["to"], data["cause"]))
			o.mu.Unlock()
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(o.Close)
	return o
}

// check checks the signature.
func (o *observer) check(r *http.Request, body []byte) {
	mac := hmac.New(sha256.New, o.key)
	fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), body)
	signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.Header.Get("Webhook-Signature"), "v1,"))
	if err != nil || !hmac.Equal(signature, mac.Sum(nil)) {
		o.t.Errorf("the signature %s is not that of the body", r.Header.Get("Webhook-Signature"))
	}
}

func (o *observer) notes() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.told, ", ")
}

func (o *observer) tries(downstream string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.ids[downstream]...)
}

// flags are those of a worker that tells it.
func (o *observer) flags() []string {
	file := filepath.Join(o.t.TempDir(), "secret")
	must(o.t, os.WriteFile(file, []byte("whsec_"+base64.StdEncoding.EncodeToString(o.key)), 0o600))
	return []string{"--notify", o.URL + "/?token=sesame", "--notify-secret-file", file, "--notify-allow-private"}
}

// follows waits until a follower has begun.
func (d *deployment) follows() {
	d.t.Helper()
	eventually(d.t, func() bool {
		place, err := d.store.Partitions()[0].EventsFollowed(d.t.Context(), "on_breaker")
		must(d.t, err)
		return place != ""
	})
}

// heard waits until a follower has noted that all transitions were told: one that ends before, between the receiver's answer and
// its note, leaves the last one to be told again.
func (d *deployment) heard() {
	d.t.Helper()
	_, last, err := d.store.Partitions()[0].BreakerEvents(d.t.Context(), "", 0)
	must(d.t, err)
	eventually(d.t, func() bool {
		place, err := d.store.Partitions()[0].EventsFollowed(d.t.Context(), "on_breaker")
		must(d.t, err)
		return place == last
	})
}

func (d *deployment) must(line string) {
	d.t.Helper()
	words := strings.Fields(line)
	if out := d.run(d.t.Context(), strings.NewReader(""), words[0], words[1:]...); out.code != cli.ExitOK {
		d.t.Fatalf("%s: %+v", line, out)
	}
}

// TestWorkersTellOfTransitions: two workers, each transition told once, a receiver that fails twice, nobody there for a
// while.
func TestWorkersTellOfTransitions(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	o := newObserver(t, func(_ *http.Request, downstream string, try int) int {
		if downstream == "smtp" && try <= 2 {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	// A holder of the timer lease that is late would tell again what the other has told.
	worker := append(o.flags(), "--set", "scheduler.timer_lease=5s", "--set", "worker.breaker.failure_threshold=3", "--set", "worker.breaker.open_base=10m", "--exec", "false")
	first, second := d.work(worker...), d.work(worker...)
	d.follows()
	d.must("breaker open smtp --for 1h --reason maintenance")
	d.must("breaker close api --reason spare")
	eventually(t, func() bool { return o.notes() == "api closed>closed forced, smtp closed>open forced" })
	if ids := o.tries("smtp"); len(ids) != 3 || ids[0] != ids[1] || ids[1] != ids[2] || ids[0] == o.tries("api")[0] {
		t.Errorf("got the ids %v", ids)
	}
	for i := range 3 {
		d.enqueue(fmt.Sprint("job-", i), "--downstream", "db", "--max-attempts", "1")
	}
	eventually(t, func() bool { return strings.Contains(o.notes(), ", db closed>open failure streak") })
	d.heard()
	told := 0
	for _, out := range []output{first(), second()} {
		checkLog(t, out.stderr)
		if strings.Contains(out.stderr, `"transitions_told":3,"transitions_refused":2,"transitions_given_up":0`) {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d workers say that they told", told)
	}
	d.must("breaker reset smtp --reason over")
	d.work(worker...)
	eventually(t, func() bool { return strings.HasSuffix(o.notes(), ", smtp open>closed reset") })
	if n := strings.Count(o.notes(), ","); n != 3 {
		t.Errorf("told %s", o.notes())
	}
}

// TestADeadReceiverHoldsUpNobody: one transition gets no answer, others are told, jobs run, and the worker ends at once.
func TestADeadReceiverHoldsUpNobody(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	o := newObserver(t, func(r *http.Request, downstream string, _ int) int {
		if downstream == "hangs" {
			<-r.Context().Done()
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	stop := d.work(append(o.flags(), "--exec", "true")...)
	d.follows()
	d.must("breaker open hangs --reason x")
	eventually(t, func() bool { return len(o.tries("hangs")) == 1 })
	d.enqueue("job")
	d.idle()
	d.must("breaker open smtp --reason x")
	eventually(t, func() bool { return o.notes() == "smtp closed>open forced" })
	eventually(t, func() bool { return len(o.tries("hangs")) == 2 })
	out := stop()
	checkLog(t, out.stderr)
	if strings.Count(out.stderr, "it took too long") != 1 { // Of the second try it does not await the end.
		t.Errorf("the log says\n%s", out.stderr)
	}
	if !strings.Contains(out.stderr, "telling it again") {
		t.Errorf("the log says\n%s", out.stderr)
	}
}
