package scheduler_test

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(suite{m})
}

// suite ends the shared servers before leaks are looked for.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	_ = flag.Set("test.parallel", "16") // These tests wait more than they work. -parallel has the last word.
	defer redistest.StopShared()
	return s.m.Run()
}

// handOver is the timer lease where another is to take over. Who loses it meanwhile, because the machine halts for longer, tells
// again what was told; where nobody takes over it is a minute.
const handOver = 5 * time.Second

func open(tb testing.TB, client redis.UniversalClient) store.Deployment {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), client, redisstore.Config{Prefix: redistest.Prefix(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// run runs a scheduler until stop is called, or the test ends.
func run(tb testing.TB, store store.Deployment, config scheduler.Config) (stop func()) {
	tb.Helper()
	_, stop = begin(tb, store, config)
	return stop
}

// begin is run for one who asks the scheduler something.
func begin(tb testing.TB, store store.Deployment, config scheduler.Config) (s *scheduler.Scheduler, stop func()) {
	tb.Helper()
	s, err := scheduler.New(store, config)
	if err != nil {
		tb.Fatal(err)
	}
	return s, start(tb, s)
}

// start runs a scheduler until stop is called, or the test ends.
func start(tb testing.TB, s *scheduler.Scheduler) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			tb.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	tb.Cleanup(stop)
	return stop
}

// bench is a worker's place that a test fills by hand: it admits jobs and reads them.
type bench struct {
	tb     testing.TB
	store  store.Partition
	pool   store.Pool
	worker string
}

func newBench(tb testing.TB, s store.Partition) *bench {
	tb.Helper()
	b := &bench{tb: tb, store: s, pool: store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, worker: "hand"}
	if _, err := s.Register(tb.Context(), b.worker, b.pool, 100, time.Hour); err != nil {
		tb.Fatal(err)
	}
	return b
}

func (b *bench) admit(id string) {
	b.tb.Helper()
	j := admission.NewJob("acme", "mail", "send", nil)
	j.ID = id
	none := admission.Limit{Disabled: true}
	limits := [admission.Levels]admission.Limit{none, none, none, none}
	verdicts, err := b.store.Admit(b.tb.Context(), 0, []store.Candidate{{Job: &j, Class: 1, Limits: &limits}})
	if err != nil || verdicts[0].Decision != admission.Admitted {
		b.tb.Fatalf("admit %s: %+v, %v", id, verdicts, err)
	}
}

// read returns the next job, waiting for it up to a minute.
func (b *bench) read() (store.Lease, bool) {
	b.tb.Helper()
	leases, err := b.store.Read(b.tb.Context(), b.worker, b.pool.ID(), 1, time.Minute, false)
	if err != nil {
		b.tb.Fatal(err)
	}
	if len(leases) == 0 {
		return store.Lease{}, false
	}
	return leases[0], true
}

func (b *bench) finish(lease store.Lease, outcome store.Outcome, delay time.Duration) {
	b.tb.Helper()
	f := store.Finish{Token: lease.Token, Key: admission.Key{Tenant: lease.Job.Tenant, ID: lease.Job.ID}, Outcome: outcome, Delay: delay}
	if ends, _, err := b.store.Finish(b.tb.Context(), b.pool.ID(), "worker", []store.Finish{f}); err != nil || ends[0] == store.EndedLost {
		b.tb.Fatalf("finish: %v, %v", ends, err)
	}
}

// logs keeps what a logger writes.
type logs struct {
	mu   sync.Mutex
	text string
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(b)
	return len(b), nil
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

func (l *logs) logger() zerolog.Logger { return zerolog.New(l) }

func await(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	redistest.Await(tb, what, done)
}
