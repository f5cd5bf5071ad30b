package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// This binary plays a worker as a process of its own when it is told where.
const (
	roleAddr   = "HEADGATE_WORKER_ADDR"
	rolePrefix = "HEADGATE_WORKER_PREFIX"
	roleURL    = "HEADGATE_WORKER_URL"
	// roleProbe is the time-out of probes, of a breaker that one failure opens and one success closes; empty for the defaults.
	roleProbe = "HEADGATE_WORKER_PROBE"
	roleSlots = 8
)

// playWorker serves the queue "mail" until SIGTERM, and returns the exit code. Jobs of the type "poison" kill the
// process, those of the type "long" run until their ctx ends, those of the type "call" call the URL that it is told, those of the type "post" post to it. Of
// those of the type "probe" the first fails, and the next one of whatever process kills it.
func playWorker() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) //nolint:forbidigo // This is the main of a process.
	defer stop()
	options := &redis.Options{Addr: os.Getenv(roleAddr), ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	redisclient.Settings(options)
	client := redis.NewClient(options)
	defer client.Close()
	s, err := redisstore.Open(ctx, client, redisstore.Config{Prefix: os.Getenv(rolePrefix)})
	for tries := 1; err != nil && tries < 10; tries++ { // A busy machine; a supervisor would start it again.
		s, err = redisstore.Open(ctx, client, redisstore.Config{Prefix: os.Getenv(rolePrefix)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	config := worker.Config{
		Queues: []store.QueueWeight{{Queue: "mail"}}, Concurrency: roleSlots, Lease: patience, DrainTimeout: 50 * time.Millisecond,
		Backoff: quick,
	}
	if timeout, err := time.ParseDuration(os.Getenv(roleProbe)); err == nil {
		config.Breaker = breaker.Config{
			FailureThreshold: 1, SuccessThreshold: 1, OpenBase: 200 * time.Millisecond, OpenMax: 200 * time.Millisecond, ProbeTimeout: timeout,
		}
	}
	w, err := worker.New(s, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	worker.Register(w, "send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		select { // Long enough to be there when the poison acts.
		case <-time.After(20 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	worker.Register(w, "call", func(ctx context.Context, _ worker.Job[[]byte]) error { return call(ctx, os.Getenv(roleURL)) })
	poster := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: roleSlots}}
	worker.Register(w, "post", func(ctx context.Context, _ worker.Job[[]byte]) error { return post(ctx, poster, os.Getenv(roleURL)) })
	worker.Register(w, "poison", func(context.Context, worker.Job[[]byte]) error {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
	worker.Register(w, "probe", func(ctx context.Context, _ worker.Job[[]byte]) error {
		switch n, err := client.Incr(ctx, os.Getenv(rolePrefix)+"probes").Result(); {
		case err != nil:
			return worker.Snooze(time.Second)
		case n == 1:
			return worker.RetryAfter(time.Second, errDown) // Its report is on its way before.
		case n == 2:
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	})
	worker.Register(w, "long", func(ctx context.Context, _ worker.Job[[]byte]) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is a worker in a process of its own. ended is closed when it has ended.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

// process starts one, whose environment has some variables more. It ends with the test at the latest.
func (r *rig) process(more ...string) *process {
	r.tb.Helper()
	binary, err := os.Executable()
	if err != nil {
		r.tb.Fatal(err)
	}
	//nolint:gosec // It is this binary.
	p := &process{command: exec.CommandContext(context.WithoutCancel(r.tb.Context()), binary), ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), roleAddr+"="+r.server.Addr(), rolePrefix+"="+r.prefix)
	p.command.Env = append(p.command.Env, more...)
	p.command.Stderr = os.Stderr
	if err := p.command.Start(); err != nil {
		r.tb.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.command.Wait() // How it ended is in its state.
	}()
	r.tb.Cleanup(func() {
		_ = p.command.Process.Kill() // Most have ended.
		<-p.ended
	})
	return p
}

// expire ends the leases of workers that are dead. They are long, so that none ends because the machine halts.
func (r *rig) expire(workers []string) {
	r.tb.Helper()
	for _, name := range workers {
		if _, err := r.store.Partitions()[0].Heartbeat(r.tb.Context(), name, 50*time.Millisecond, ""); err != nil {
			r.tb.Fatal(err)
		}
	}
}

// end waits for the process to have ended, up to patience, and returns the signal that did it, 0 for none.
func (p *process) end(tb testing.TB) syscall.Signal {
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		tb.Fatal("the process does not end")
	}
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return status.Signal()
	}
	if code := p.command.ProcessState.ExitCode(); code != 0 {
		tb.Errorf("the process exited with %d", code)
	}
	return 0
}
