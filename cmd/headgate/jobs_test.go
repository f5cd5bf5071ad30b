package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// patience bounds what must happen, on a machine that does other things too.
const patience = 60 * time.Second

// deployment is a prefix in the shared Redis, as commands and as the test see it.
type deployment struct {
	t     *testing.T
	where []string // flags
	store store.Deployment
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	server, prefix := redistest.Shared(t), redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return &deployment{t: t, where: []string{"--redis", server.URL(), "--prefix", prefix}, store: s}
}

// run runs a command on the deployment with the given standard input.
func (d *deployment) run(ctx context.Context, stdin io.Reader, name string, args ...string) output {
	var stdout, stderr bytes.Buffer
	all := append(append([]string{name}, d.where...), args...)
	code := execute(ctx, all, stdin, &stdout, &stderr)
	return output{code, stdout.String(), stderr.String()}
}

// enqueue enqueues a job of acme in queue q that must get in.
func (d *deployment) enqueue(jobType string, args ...string) {
	d.t.Helper()
	all := append([]string{"--tenant", "acme", "--queue", "q", "--type", jobType, "--id", jobType}, args...)
	if out := d.run(d.t.Context(), strings.NewReader(""), "enqueue", all...); out.code != cli.ExitOK {
		d.t.Fatalf("enqueue: %+v", out)
	}
}

// work starts a worker of queue q; the function it returns drains it and returns what it came to.
func (d *deployment) work(args ...string) (stop func() output) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	done := make(chan output, 1)
	go func() {
		done <- d.run(ctx, strings.NewReader(""), "worker", append([]string{"--queue", "q", "--log", "debug"}, args...)...)
	}()
	stop = func() output {
		cancel()
		select {
		case out := <-done:
			done <- out // For whoever asks again.
			return out
		case <-time.After(patience):
			d.t.Error("the worker does not drain")
			return output{}
		}
	}
	d.t.Cleanup(func() { stop() })
	return stop
}

// start starts a command; the function it returns ends it and returns its exit code.
func (d *deployment) start(stderr io.Writer, name string, args ...string) (stop func() int) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	done := make(chan int, 1)
	go func() {
		all := append(append([]string{name}, d.where...), args...)
		done <- execute(ctx, all, strings.NewReader(""), io.Discard, stderr)
	}()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-done
	})
	d.t.Cleanup(func() { stop() })
	return stop
}

// await waits until Redis holds what it should.
func (d *deployment) await(what string, done func(store.Census) bool) store.Census {
	d.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var c store.Census
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		var err error
		if c, err = d.store.Census(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
		if done(c) {
			return c
		}
	}
	d.t.Fatalf("waited in vain for %s: %+v", what, c)
	return c
}

// idle waits until no job waits or runs.
func (d *deployment) idle() store.Census {
	d.t.Helper()
	return d.await("all jobs to end", func(c store.Census) bool { return c.Waiting+c.Later+c.Ready == 0 })
}
