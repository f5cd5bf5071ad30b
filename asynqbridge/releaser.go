package asynqbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// ReleaserConfig is what a Releaser needs beside asynq's Redis and a store. Only Queues has no default.
type ReleaserConfig struct {
	// Logger says what goes wrong; its zero value is silent.
	Logger zerolog.Logger
	// Queues are handed over, each to asynq's queue of the same name, 1 to 64 of them.
	Queues []string
	// Low and High are asynq's pending tasks of a queue: at Low or below, tasks are handed over until there are High. Low
	// is to last asynq's servers for longer than Every, or they find nothing and sleep (their TaskCheckInterval); what
	// High holds is served before any newcomer. 0 to 100000; zero means 100 and twice Low. With n Releasers there
	// may be n times High.
	Low, High int
	// Every is how often the lists are read while tasks wait for it, 1 ms to 1 min; zero means 10 ms.
	Every time.Duration
	// Retention is the shortest time for which asynq keeps a task that has completed, 1 s to 24 h; zero means 1 min. A
	// task is handed over once as long as a lost answer is found out within it, which takes a lease of 15 s and up to a
	// second.
	Retention time.Duration
	// Concurrency is how many tasks of a queue are on their way at a time, 1 to 1000; zero means 16. They have left the
	// waiting room, so newcomers wait for them too.
	Concurrency int
}

const (
	maxQueues      = 64
	maxMark        = 100_000
	maxConcurrency = 1000
	// waitTimeout is how long a job waits for asynq in its slot before it goes back, and handTimeout how long its
	// hand-over takes.
	waitTimeout = 5 * time.Minute
	handTimeout = 5 * time.Second
	// backAfter is when a job comes back that could not be handed over.
	backAfter = time.Second
)

func (c ReleaserConfig) withDefaults() ReleaserConfig {
	c.Queues = slices.Clone(c.Queues)
	c.Low = cmp.Or(c.Low, 100)
	c.High = cmp.Or(c.High, 2*c.Low)
	c.Every = cmp.Or(c.Every, 10*time.Millisecond)
	c.Retention = cmp.Or(c.Retention, time.Minute)
	c.Concurrency = cmp.Or(c.Concurrency, 16)
	return c
}

// validate reports every bad field at once.
func (c ReleaserConfig) validate() error {
	var bad []error
	field := func(ok bool, name, value, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: name, Value: value, Allowed: allowed})
		}
	}
	field(len(c.Queues) >= 1 && len(c.Queues) <= maxQueues, "Queues", fmt.Sprintf("%d queues", len(c.Queues)), "1 to 64 queues")
	for i, queue := range c.Queues {
		if err := admission.ValidateName(fmt.Sprintf("Queues[%d]", i), queue, true); err != nil {
			bad = append(bad, err)
		}
		field(!slices.Contains(c.Queues[:i], queue), fmt.Sprintf("Queues[%d]", i), strconv.Quote(queue), "a queue that is named once")
	}
	field(c.Low >= 1 && c.Low <= maxMark, "Low", strconv.Itoa(c.Low), "1 to 100000 tasks")
	field(c.High > c.Low && c.High <= 2*maxMark, "High", strconv.Itoa(c.High), "above Low, up to 200000 tasks")
	field(c.Every >= time.Millisecond && c.Every <= time.Minute, "Every", c.Every.String(), "1ms to 1m")
	field(c.Retention >= time.Second && c.Retention <= 24*time.Hour, "Retention", c.Retention.String(), "1s to 24h")
	field(c.Concurrency >= 1 && c.Concurrency <= maxConcurrency, "Concurrency", strconv.Itoa(c.Concurrency), "1 to 1000 tasks")
	return errors.Join(bad...)
}

// Releaser hands jobs that wait in Headgate to asynq, in Headgate's order, while asynq's list of pending tasks is short. It
// is a worker of Headgate whose handler enqueues: a job completes when asynq has it. A hand-over whose answer was lost is
// made again under the same task id, TENANT:ID, and asynq takes one of the two. A job whose id asynq has for another task becomes a
// dead letter. Any number may run.
type Releaser struct {
	store  store.Deployment
	config ReleaserConfig
	redis  redis.UniversalClient
	asynq  *asynq.Client
	marks  *marks
}

// NewReleaser returns a Releaser on asynq's Redis and Headgate's store. It sends nothing before Run.
func NewReleaser(connection asynq.RedisConnOpt, store store.Deployment, config ReleaserConfig) (*Releaser, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure releaser: %w", err)
	}
	client, _, err := connect(connection)
	if err != nil {
		return nil, fmt.Errorf("configure releaser: %w", err)
	}
	return &Releaser{store: store, config: config, redis: client, asynq: asynq.NewClientFromRedisClient(client), marks: newMarks(client, config)}, nil
}

// Close ends the connections to asynq's Redis. It must not be called before Run has returned.
func (r *Releaser) Close() error { return r.redis.Close() }

// Run hands over until ctx ends, and returns when nothing is under way any more. Each queue has a pool of its own, so that
// one whose servers are away stops no other.
func (r *Releaser) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.marks.run(ctx) })
	errs := make([]error, len(r.config.Queues))
	var workers sync.WaitGroup
	for i, queue := range r.config.Queues {
		w, err := worker.New(r.store, worker.Config{
			Logger: r.config.Logger, Queues: []store.QueueWeight{{Queue: queue}}, Concurrency: r.config.Concurrency,
			DefaultTimeout: waitTimeout, NoScheduler: i > 0,
		})
		if err != nil {
			cancel(err)
			workers.Wait()
			return fmt.Errorf("hand over queue %s: %w", queue, err)
		}
		worker.RegisterAny(w, func(jobCtx context.Context, job worker.Job[[]byte]) error {
			return r.hand(jobCtx, ctx.Done(), &job.Job, job.Admitted)
		})
		workers.Go(func() {
			if errs[i] = w.Run(ctx); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	workers.Wait()
	cancel(nil)
	return errors.Join(errs...)
}

// errOtherTask is of a job that asynq does not take.
var errOtherTask = errors.New("asynq has another task of this id, which was handed over before: it waits, runs, is archived or retained")

// hand gives one job to asynq.
func (r *Releaser) hand(ctx context.Context, stopping <-chan struct{}, job *admission.Job, admitted time.Time) error {
	task, options, err := taskOf(job, admitted, r.config.Retention)
	if err != nil {
		return worker.Discard(err)
	}
	if !r.marks.wait(ctx, stopping, job.Queue) {
		return worker.Snooze(0)
	}
	defer r.marks.done(job.Queue)
	ctx, cancel := context.WithTimeout(ctx, handTimeout)
	defer cancel()
	_, err = r.asynq.EnqueueContext(ctx, task, options...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		var other bool
		if other, err = r.hasOther(task, admission.Key{Tenant: job.Tenant, ID: job.ID}, job.Queue); other {
			return worker.Discard(errOtherTask)
		}
	}
	if err == nil {
		return nil
	}
	r.config.Logger.Warn().Err(err).Str("tenant", job.Tenant).Str("job", job.ID).Msg("job not handed to asynq")
	return worker.Snooze(backAfter)
}

// hasOther reports whether the task by which asynq refused another of its id is of another job. One that does not say, because an older release has
// handed it over, is taken for the job's own.
func (r *Releaser) hasOther(task *asynq.Task, key admission.Key, queue string) (bool, error) {
	there, err := asynq.NewInspectorFromRedisClient(r.redis).GetTaskInfo(queue, taskID(key))
	if err != nil {
		return false, fmt.Errorf("look at the task of the same id: %w", err)
	}
	of := there.Headers[headerAdmitted]
	return of != "" && of != task.Headers()[headerAdmitted], nil
}
