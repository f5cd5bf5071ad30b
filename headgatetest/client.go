package headgatetest

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/store"
)

// Client is a client of a deployment in memory. Its Worker returns workers that run by themselves.
type Client struct {
	*headgate.Client

	t       testing.TB
	jobs    *journal
	store   store.Deployment
	bubble  bool
	ctx     context.Context //nolint:containedctx // It ends the workers with the test.
	running sync.WaitGroup

	mu      sync.Mutex
	workers []*headgate.Worker // that do not run yet
	begun   int                // how many do
}

// New returns a client of an empty deployment, which ends with the test. Its log is the test's.
//
//nolint:thelper // Those who call it have a t.
func New(t testing.TB) *Client {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	jobs := &journal{Partition: memory.New(memory.Config{})}
	c := &Client{t: t, jobs: jobs, store: store.Single(jobs, io.NopCloser(nil)), bubble: inBubble(), ctx: ctx}
	var err error
	c.Client, err = headgate.OpenStore(c.store, headgate.Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		c.running.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// inBubble reports whether the caller is in the bubble of a synctest.Test.
func inBubble() (is bool) {
	defer func() { is = recover() == nil }()
	synctest.Wait()
	return
}

// testLease is that of workers which have none of their own: it is renewed seldom, so that much time may pass.
const testLease = 10 * time.Minute

// Worker is headgate.Client.Worker of one that runs from the next Drain or Advance on, until the test ends: handlers come before. Unless
// Concurrency says something else it runs one job at a time, so that a test knows their order and needs no locks. An error of its Run fails
// the test.
func (c *Client) Worker(config headgate.WorkerConfig) *headgate.Worker {
	if config.Lease == 0 && c.bubble {
		config.Lease = testLease
	}
	if config.Concurrency == 0 {
		config.Concurrency = 1
	}
	w := c.Client.Worker(config)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers = append(c.workers, w)
	return w
}

// begin runs workers that do not run yet, and waits until the deployment knows them.
func (c *Client) begin() {
	c.t.Helper()
	c.mu.Lock()
	for _, w := range c.workers {
		c.running.Go(func() {
			if err := w.Run(c.ctx); err != nil {
				c.t.Errorf("run a worker: %v", err)
			}
		})
	}
	c.begun += len(c.workers)
	c.workers = nil
	begun := c.begun
	c.mu.Unlock()
	c.until("a worker to begin", func() bool {
		known, err := c.store.Workers(c.ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		return len(known) >= begun || c.t.Failed()
	})
}

// patience is how long Drain waits, by the clock of the test.
const patience = 10 * time.Minute

// until waits for something, a little longer from look to look.
func (c *Client) until(what string, done func() bool) {
	c.t.Helper()
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		if c.bubble {
			synctest.Wait()
		}
		if done() {
			return
		}
		if time.Since(began) > patience {
			c.t.Fatalf("waited %s for %s", patience, what)
		}
		time.Sleep(pause) //nolint:forbidigo // A bubble, and a test without one, both wait so.
	}
}

// Drain waits until no job runs and none can: what is left waits for a time, for a limit, or for a worker that there is none of. Handlers
// that end are waited for, 10 min at most.
func (c *Client) Drain() {
	c.t.Helper()
	c.begin()
	idle := false
	c.until("handlers to end", func() bool {
		census, err := c.store.Census(c.ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		was := idle
		idle = census.Ready == 0
		return idle && was // Twice: a scheduler may have had work left.
	})
}

// Advance lets so much time pass, and all happen that is due by then. The test must be in a synctest.Test, whose clock it is.
func (c *Client) Advance(d time.Duration) {
	c.t.Helper()
	if !c.bubble {
		c.t.Fatal("Advance moves the clock of a synctest.Test, and this test is in none")
	}
	c.begin()
	time.Sleep(d) //nolint:forbidigo // It is in a bubble.
	c.Drain()
}
