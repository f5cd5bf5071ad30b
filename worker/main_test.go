package worker_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// TestMain runs the tests, or a worker for one of them as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv(roleAddr) != "" {
		os.Exit(playWorker())
	}
	goleak.VerifyTestMain(suite{m})
}

// suite ends the shared servers before leaks are looked for.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	_ = flag.Set("test.parallel", "16") // These tests wait more than they work. -parallel has the last word.
	defer redistest.StopShared()
	return s.m.Run()
}

// patience is how long anything may take before a test gives up.
const patience = time.Minute

// rig is one test's own corner of a Redis, with a producer.
type rig struct {
	tb       testing.TB
	server   *redistest.Server
	client   *redis.Client
	prefix   string
	store    store.Deployment
	producer *producer.Producer
}

func newRig(tb testing.TB) *rig {
	tb.Helper()
	return newRigOn(tb, redistest.Shared(tb))
}

func newRigOn(tb testing.TB, server *redistest.Server) *rig {
	tb.Helper()
	r := &rig{tb: tb, server: server, client: server.Client(tb), prefix: redistest.Prefix(tb)}
	r.store = r.open(r.client)
	p, err := producer.New(r.store, producer.Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	r.producer = p
	return r
}

func (r *rig) open(client *redis.Client) store.Deployment {
	r.tb.Helper()
	s, err := redisstore.Open(r.tb.Context(), client, redisstore.Config{Prefix: r.prefix})
	if err != nil {
		r.tb.Fatal(err)
	}
	return s
}

// job returns a job for the queue "mail" with an id.
func job(jobType, id string) admission.Job {
	j := admission.NewJob("acme", "mail", jobType, []byte(`{}`))
	j.ID = id
	return j
}

func (r *rig) enqueue(jobs ...admission.Job) {
	r.tb.Helper()
	results, err := r.producer.EnqueueBatch(r.tb.Context(), jobs)
	if err != nil {
		r.tb.Fatal(err)
	}
	for _, result := range results {
		if result.Verdict.Decision != admission.Admitted {
			r.tb.Fatalf("got %+v", result.Verdict)
		}
	}
}

// census counts until it finds what is conserved (law L4): the store names the lanes before it counts, so a count
// while jobs move may miss one.
func (r *rig) census() store.Census {
	r.tb.Helper()
	var c store.Census
	r.await("a census that adds up", func() bool {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.tb.Context()), patience)
		defer cancel()
		var err error
		c, err = r.store.Census(ctx)
		if err != nil {
			r.tb.Fatal(err)
		}
		return c.Conserved()
	})
	return c
}

// idle waits until no accepted job is left but dead letters.
func (r *rig) idle() store.Census {
	r.tb.Helper()
	var c store.Census
	r.await("all jobs to end", func() bool {
		c = r.census()
		return c.Waiting+c.Later+c.Ready == 0
	})
	return c
}

func (r *rig) await(what string, done func() bool) {
	r.tb.Helper()
	redistest.Await(r.tb, what, done)
}

// registrations returns the names of the registered workers.
func (r *rig) registrations() []string {
	r.tb.Helper()
	names, err := r.client.HKeys(r.tb.Context(), redisstore.Keys(r.store).Workers()).Result()
	if err != nil {
		r.tb.Fatal(err)
	}
	return names
}

// why returns the reason and the text of the dead letter "a".
func (r *rig) why() string {
	r.tb.Helper()
	text, err := r.client.HGet(r.tb.Context(), redisstore.Keys(r.store).Why(), "acme:a").Result()
	if err != nil {
		r.tb.Fatal(err)
	}
	return text
}

// journal keeps the events of a worker.
type journal struct {
	mu       sync.Mutex
	started  []worker.Event
	finished []worker.Event
}

func (j *journal) observer() worker.Observer {
	note := func(list *[]worker.Event) func(worker.Event) {
		return func(e worker.Event) {
			j.mu.Lock()
			defer j.mu.Unlock()
			*list = append(*list, e)
		}
	}
	return worker.Observer{Started: note(&j.started), Finished: note(&j.finished)}
}

func (j *journal) starts() []worker.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.started)
}

// ends returns the finished events of a job, "" for all.
func (j *journal) ends(id string) []worker.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []worker.Event
	for _, e := range j.finished {
		if id == "" || e.Key.ID == id {
			all = append(all, e)
		}
	}
	return all
}

// said returns what became of a job, as "outcome(reason)", by commas.
func (j *journal) said(id string) string {
	var parts []string
	for _, e := range j.ends(id) {
		part := string(e.Outcome)
		if e.Reason != "" {
			part += "(" + e.Reason + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// running is a worker that runs.
type running struct {
	*worker.Worker
	*journal
	logs *logs
	// stop ends Run's ctx; wait returns what Run returned, after at most patience.
	stop context.CancelFunc
	wait func() error
}

// run starts a worker without a scheduler, which drains sooner, on a store. It is stopped and waited for at the end of
// the test at the latest.
func (r *rig) run(store store.Deployment, config worker.Config, register func(*worker.Worker)) *running {
	r.tb.Helper()
	config.NoScheduler = true
	return r.runWithTimers(store, config, register)
}

// runWithTimers starts a worker as users do.
func (r *rig) runWithTimers(store store.Deployment, config worker.Config, register func(*worker.Worker)) *running {
	r.tb.Helper()
	said := &logs{}
	a := r.launch(store, zerolog.New(said), config, register)
	a.logs = said
	return a
}

// runLogging is runWithTimers with a logger of the test's own.
func (r *rig) runLogging(logger zerolog.Logger, config worker.Config, register func(*worker.Worker)) *running {
	r.tb.Helper()
	return r.launch(r.store, logger, config, register)
}

func (r *rig) launch(s store.Deployment, logger zerolog.Logger, config worker.Config, register func(*worker.Worker)) *running {
	r.tb.Helper()
	a := &running{journal: &journal{}, logs: &logs{}}
	if config.Queues == nil {
		config.Queues = []store.QueueWeight{{Queue: "mail"}}
	}
	if config.Concurrency == 0 {
		config.Concurrency = 4
	}
	if config.Logger = logger; config.Observer.Finished == nil {
		config.Observer = a.observer()
	}
	w, err := worker.New(s, config)
	if err != nil {
		r.tb.Fatal(err)
	}
	register(w)
	a.Worker = w
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.tb.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	a.stop = cancel
	a.wait = sync.OnceValue(func() error {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case err := <-done:
			return err
		case <-timer.C:
			return fmt.Errorf("worker did not drain within %s", patience)
		}
	})
	r.tb.Cleanup(func() {
		cancel()
		if err := a.wait(); err != nil {
			r.tb.Errorf("run worker: %v", err)
		}
		if r.tb.Failed() {
			r.tb.Logf("worker said:\n%s", a.logs)
		}
	})
	return a
}

// on returns a function for run that registers one handler of raw payloads.
func on(jobType string, handler func(context.Context, worker.Job[[]byte]) error) func(*worker.Worker) {
	return func(w *worker.Worker) { worker.Register(w, jobType, handler) }
}

// nothing is a handler that completes at once.
func nothing(context.Context, worker.Job[[]byte]) error { return nil }

// quick is a backoff for tests.
func quick(int) time.Duration { return 10 * time.Millisecond }

// logs keeps what a logger writes.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// tally counts by name.
type tally struct {
	mu sync.Mutex
	by map[string]int
}

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]int{}
	}
	t.by[name]++
}

// repeated returns the names that were not counted exactly once, of want in all.
func (t *tally) repeated(want int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var bad []string
	for name, n := range t.by {
		if n != 1 {
			bad = append(bad, fmt.Sprintf("%s %d times", name, n))
		}
	}
	if len(t.by) != want {
		bad = append(bad, fmt.Sprintf("%d names, want %d", len(t.by), want))
	}
	slices.Sort(bad)
	return strings.Join(bad, ", ")
}
