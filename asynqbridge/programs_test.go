package asynqbridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/asynqbridge"
)

// enqueuer is what a program of asynq's users has of asynq.Client.
type enqueuer interface {
	EnqueueContext(ctx context.Context, task *asynq.Task, options ...asynq.Option) (*asynq.TaskInfo, error)
}

// welcome is the payload of the programs' tasks.
type welcome struct{ User int }

// program does what asynq's documentation shows, with one client and one server: a mux with middleware, delays, weighted
// queues, time-outs, retries, unique tasks, results that are kept, groups, periodic tasks. It returns what happened.
type program struct {
	*site
	client enqueuer
	ticked atomic.Bool // Of the ticks only that there was one: how many there are depends on the time a run takes.
	mu     sync.Mutex
	seen   map[string]int
}

func (p *program) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[fmt.Sprintf(format, args...)]++
}

func (p *program) saw(what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[what] > 0
}

func (p *program) task(name string, user int, options ...asynq.Option) *asynq.Task {
	payload, err := json.Marshal(welcome{user})
	must(p.tb, err)
	return asynq.NewTask(name, payload, options...)
}

// enqueue notes an error of asynq's own by its name.
func (p *program) enqueue(task *asynq.Task, options ...asynq.Option) {
	ctx := asynqbridge.WithTenant(p.tb.Context(), "acme")
	info, err := p.client.EnqueueContext(ctx, task, options...)
	switch {
	case errors.Is(err, asynq.ErrDuplicateTask):
		p.note("duplicate %s", task.Type())
	case errors.Is(err, asynq.ErrTaskIDConflict):
		p.note("conflict %s", task.Type())
	case err != nil:
		p.tb.Error(err)
	default:
		p.note("enqueued %s %s %s", info.Type, info.Queue, info.State)
	}
}

// mux is the server's side.
func (p *program) mux() *asynq.ServeMux {
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			err := next.ProcessTask(ctx, task)
			if task.Type() == "tick" {
				p.ticked.Store(true)
			} else {
				p.note("logged %s", task.Type())
			}
			return err
		})
	})
	mux.HandleFunc("email:", func(ctx context.Context, task *asynq.Task) error {
		var w welcome
		if err := json.Unmarshal(task.Payload(), &w); err != nil {
			return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		queue, _ := asynq.GetQueueName(ctx)
		most, _ := asynq.GetMaxRetry(ctx)
		p.note("ran %s for %d in %s, retries %d", task.Type(), w.User, queue, most)
		return nil
	})
	mux.HandleFunc("flaky", func(ctx context.Context, _ *asynq.Task) error {
		n, _ := asynq.GetRetryCount(ctx)
		p.note("flaky, retry %d", n)
		if n < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	mux.HandleFunc("image:resize", func(_ context.Context, task *asynq.Task) error {
		_, err := task.ResultWriter().Write([]byte("320x200"))
		return err
	})
	mux.HandleFunc("digest", func(_ context.Context, task *asynq.Task) error {
		p.note("digest of %s", task.Payload())
		return nil
	})
	mux.HandleFunc("tick", func(context.Context, *asynq.Task) error { return nil })
	return mux
}

// run runs the program to its end.
func (p *program) run() {
	p.serve(asynq.Config{
		Concurrency: 4, Queues: map[string]int{"critical": 6, "default": 3, "low": 1}, TaskCheckInterval: 20 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond },
		GroupGracePeriod: 3 * time.Second, GroupMaxSize: 3, GroupAggregator: asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			return asynq.NewTask("digest", fmt.Appendf(nil, "%s %d", group, len(tasks)))
		}),
	}, p.mux())
	p.enqueue(p.task("email:welcome", 1))
	p.enqueue(p.task("email:reminder", 2, asynq.MaxRetry(5), asynq.Timeout(20*time.Second)), asynq.ProcessIn(300*time.Millisecond), asynq.Queue("low"))
	p.enqueue(p.task("email:later", 3), asynq.ProcessAt(time.Now().Add(300*time.Millisecond)), asynq.Queue("critical"), asynq.MaxRetry(10))
	p.enqueue(asynq.NewTask("email:broken", []byte("{"), asynq.MaxRetry(3)))
	p.enqueue(asynq.NewTask("flaky", nil), asynq.MaxRetry(3))
	p.enqueue(p.task("email:once", 4), asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour))
	p.enqueue(p.task("email:once", 4), asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour))
	p.enqueue(p.task("email:named", 5), asynq.TaskID("named"), asynq.Retention(time.Hour))
	p.enqueue(p.task("email:named", 5), asynq.TaskID("named"))
	p.enqueue(p.task("image:resize", 6), asynq.TaskID("image"), asynq.Retention(time.Hour))
	for range 3 {
		p.enqueue(asynq.NewTask("note", []byte("x")), asynq.Group("user:7"))
	}
	scheduler := asynq.NewScheduler(p.asynq, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	_, err := scheduler.Register("@every 1s", asynq.NewTask("tick", nil))
	must(p.tb, err)
	must(p.tb, scheduler.Start())
	soon(p.tb, "everything", func() bool {
		if !p.ticked.Load() || !p.saw("digest of user:7 3") || !p.saw("ran email:later for 3 in critical, retries 10") || !p.saw("ran email:reminder for 2 in low, retries 5") {
			return false
		}
		for _, queue := range []string{"critical", "default", "low"} {
			if info, err := p.inspector().GetQueueInfo(queue); err != nil || info.Pending+info.Active+info.Retry+info.Aggregating > 0 {
				return false
			}
		}
		return true
	})
	scheduler.Shutdown()
	image, err := p.inspector().GetTaskInfo("default", "image")
	must(p.tb, err)
	p.note("image %s %s", image.State, image.Result)
	archived, err := p.inspector().ListArchivedTasks("default")
	must(p.tb, err)
	for _, task := range archived {
		p.note("archived %s after %d retries", task.Type, task.Retried)
	}
}

// TestAsynqsProgramsRunUnchangedBehindTheGate: what happens is the same with asynq's client and with the one behind the gate,
// but for the tokens.
func TestAsynqsProgramsRunUnchangedBehindTheGate(t *testing.T) {
	t.Parallel()
	plain := &program{site: newSite(t, 1, daily(1)), seen: map[string]int{}}
	client := asynq.NewClient(plain.asynq)
	t.Cleanup(func() { _ = client.Close() })
	plain.client = client
	plain.run()
	limit := daily(1000)
	gated := &program{site: newSite(t, 1, limit), seen: map[string]int{}}
	gated.client = gated.site.client()
	gated.run()
	if !maps.Equal(plain.seen, gated.seen) {
		t.Errorf("behind the gate\n%v\nwith asynq alone\n%v", gated.seen, plain.seen)
	}
	const charged = admission.Tokens(11) // 13 calls, of which asynq refuses two
	if left := gated.left("acme", limit); left != 1000-charged {
		t.Errorf("%d tokens left, want %d", left, 1000-charged)
	}
}
