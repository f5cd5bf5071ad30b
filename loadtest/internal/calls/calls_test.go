package calls

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newServer is the admin API in this process, behind a handler of the test's.
func newServer(t *testing.T, around func(http.Handler) http.Handler) (Server, store.Deployment) {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	enqueuer, err := producer.New(s, producer.Config{})
	must(t, err)
	key, line, err := access.NewKey(access.Principal{Name: "loadtest", Role: access.Operator})
	must(t, err)
	keys, err := access.ParseKeys(line)
	must(t, err)
	api, err := admin.New(admin.Config{Store: s, Enqueuer: enqueuer, Credentials: access.Credentials{Keys: keys}, Timeout: time.Minute, AdminLimit: admission.PerSecond(1000)})
	must(t, err)
	server := httptest.NewServer(around(api.Handler()))
	t.Cleanup(server.Close)
	return Server{Address: server.URL, Key: key}, s
}

func newPlan(t *testing.T) *load.Plan {
	t.Helper()
	spec := load.DefaultSpec()
	spec.Rate, spec.Duration = 200, 500*time.Millisecond
	plan, err := load.New("steady", spec)
	must(t, err)
	return plan
}

// TestChecksDoNotWaitForAnswers lets the server answer no check before all were sent.
func TestChecksDoNotWaitForAnswers(t *testing.T) {
	t.Parallel()
	plan := newPlan(t)
	var sent sync.WaitGroup
	sent.Add(len(plan.Arrivals))
	server, store := newServer(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				sent.Done()
				sent.Wait()
			}
			next.ServeHTTP(w, r)
		})
	})
	result, err := Run(t.Context(), server, plan)
	must(t, err)
	if got := int(result.Checks.Count); got != len(plan.Arrivals) || result.Reads.Count != 10 || result.Updates.Count != 3 || len(result.Failed) > 0 {
		t.Errorf("%+v", result)
	}
	// The first check was answered after the last was due.
	if span := plan.Arrivals[len(plan.Arrivals)-1].At - plan.Arrivals[0].At; result.Checks.Max < float64(span.Milliseconds()) {
		t.Errorf("the slowest check took %g ms from when it was due, in a run of %s", result.Checks.Max, span)
	}
	current, err := rollout.Current(t.Context(), store)
	must(t, err)
	if len(current.QueueLimits) > 0 || current.Version < 3 {
		t.Errorf("version %d has %v", current.Version, current.QueueLimits)
	}
}

func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	server, _ := newServer(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	plan := newPlan(t)
	result, err := Run(t.Context(), server, plan)
	must(t, err)
	if result.Failed["POST 503"] != len(plan.Arrivals) || result.Checks.Count != 0 {
		t.Errorf("%+v", result)
	}
	server.Key = "hgk_none"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, server, plan); err == nil {
		t.Error("it runs although it was interrupted before")
	}
}

func TestAServerThatDoesNotListenIsNone(t *testing.T) {
	t.Parallel()
	if _, err := Start(t.Context(), "/nowhere/headgate", "127.0.0.1:1", io.Discard); err == nil || !strings.Contains(err.Error(), "start headgate serve") {
		t.Error(err)
	}
	var notes strings.Builder
	if address := listening(strings.NewReader("headgate: no\n{\"level\":\"error\"}\n"), &notes); address != "" || !strings.Contains(notes.String(), "headgate: no") {
		t.Errorf("%q, notes %q", address, notes.String())
	}
	if address := listening(strings.NewReader("{\"address\":\"http://h:1\"}\n"), &notes); address != "http://h:1" {
		t.Errorf("%q", address)
	}
}
