package asynqbridge

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
)

// Headers of a job that carry what a task has for asynq. A task's own headers stand beside them.
const (
	headerMaxRetry  = "asynq-max-retry"
	headerTimeout   = "asynq-timeout"
	headerDeadline  = "asynq-deadline" // Unix seconds, as asynq keeps it
	headerRetention = "asynq-retention"
	headerGroup     = "asynq-group"
)

// headerAdmitted is the header of a task in asynq that says when its job was admitted, in microseconds. It tells a hand-over that is made again from
// another task of the same id.
const headerAdmitted = "headgate-admitted"

// Fair enqueues tasks into Headgate, from where a Releaser hands them to asynq. A task becomes a job of the queue, the type
// and the payload that it has, so that a worker of Headgate's own may take it as well. Several goroutines may use it.
type Fair struct {
	producer *producer.Producer
	resolver resolver
}

// NewFair returns a Fair that enqueues with p.
func NewFair(p *producer.Producer) *Fair { return &Fair{producer: p, resolver: newResolver()} }

// Enqueue is EnqueueContext without a ctx.
func (f *Fair) Enqueue(task *asynq.Task, options ...asynq.Option) (*asynq.TaskInfo, error) {
	return f.EnqueueContext(context.Background(), task, options...) //nolint:forbidigo // as asynq.Client does
}

// EnqueueContext is that of asynq.Client for a task whose tenant an option, the ctx or a header names. The TaskInfo is what
// asynq will have once the task is handed over; its ID is TENANT:ID. A task that is in already, or was within the dedup
// window, is asynq.ErrTaskIDConflict; other errors are those of producer.Producer.Enqueue. asynq.ProcessAt and ProcessIn
// wait in Headgate. asynq.Unique is refused: nobody could tell the caller of a duplicate found later; a TaskID serves.
func (f *Fair) EnqueueContext(ctx context.Context, task *asynq.Task, options ...asynq.Option) (*asynq.TaskInfo, error) {
	info, err := f.resolver.resolve(ctx, task, options)
	if err != nil {
		return nil, err
	}
	claim, err := claimOf(ctx, task, options)
	if err != nil {
		return nil, err
	}
	if info.unique {
		return nil, &admission.FieldError{Field: "option", Value: "Unique", Allowed: "TaskID, which is unique while the task is there and for the dedup window"}
	}
	job := jobOf(info.TaskInfo, claim)
	verdict, err := f.producer.Enqueue(ctx, job)
	if err != nil {
		return nil, err
	}
	if verdict.Decision == admission.Duplicate {
		return nil, fmt.Errorf("%w", asynq.ErrTaskIDConflict)
	}
	info.ID = taskID(admission.Key{Tenant: job.Tenant, ID: job.ID})
	return info.TaskInfo, nil
}

// taskID is what makes a hand-over count once.
func taskID(key admission.Key) string { return key.String() }

func jobOf(info *asynq.TaskInfo, own claim) admission.Job {
	job := admission.NewJob(own.tenant, info.Queue, info.Type, info.Payload)
	job.ID, job.Priority, job.Cost = info.ID, own.class, own.cost
	if info.State == asynq.TaskStateScheduled {
		job.RunAt = info.NextProcessAt
	}
	job.Headers = maps.Clone(info.Headers)
	if job.Headers == nil {
		job.Headers = make(map[string]string)
	}
	delete(job.Headers, headerAdmitted) // A handler may pass on the headers of its own task.
	job.Headers[headerMaxRetry] = strconv.Itoa(info.MaxRetry)
	for name, d := range map[string]time.Duration{headerTimeout: info.Timeout, headerRetention: info.Retention} {
		if d > 0 {
			job.Headers[name] = d.String()
		}
	}
	if !info.Deadline.IsZero() {
		job.Headers[headerDeadline] = strconv.FormatInt(info.Deadline.Unix(), 10)
	}
	if info.Group != "" {
		job.Headers[headerGroup] = info.Group
	}
	return job
}

// taskOf is the way back: the task of a job, which was admitted at a time, and its options. retention is the shortest.
func taskOf(job *admission.Job, admitted time.Time, retention time.Duration) (*asynq.Task, []asynq.Option, error) {
	headers := map[string]string{}
	maps.Copy(headers, job.Headers)
	headers[headerAdmitted] = strconv.FormatInt(admitted.UnixMicro(), 10)
	options := []asynq.Option{asynq.TaskID(taskID(admission.Key{Tenant: job.Tenant, ID: job.ID})), asynq.Queue(job.Queue)}
	var err error
	take := func(name string, read func(text string) error) {
		if text, ok := headers[name]; ok && err == nil {
			delete(headers, name)
			if failed := read(text); failed != nil {
				err = &admission.FieldError{Field: "header " + name, Value: strconv.Quote(text), Allowed: "what Fair writes"}
			}
		}
	}
	duration := func(use func(time.Duration)) func(string) error {
		return func(text string) error {
			d, err := time.ParseDuration(text)
			use(d)
			return err
		}
	}
	take(headerMaxRetry, func(text string) error {
		n, err := strconv.Atoi(text)
		options = append(options, asynq.MaxRetry(n))
		return err
	})
	take(headerTimeout, duration(func(d time.Duration) { options = append(options, asynq.Timeout(d)) }))
	take(headerRetention, duration(func(d time.Duration) { retention = max(retention, d) }))
	take(headerDeadline, func(text string) error {
		at, err := strconv.ParseInt(text, 10, 64)
		options = append(options, asynq.Deadline(time.Unix(at, 0)))
		return err
	})
	take(headerGroup, func(text string) error {
		options = append(options, asynq.Group(text))
		return nil
	})
	options = append(options, asynq.Retention(retention))
	return asynq.NewTaskWithHeaders(job.Type, job.Payload, headers), options, err
}
