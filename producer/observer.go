package producer

import (
	"context"
	"maps"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
)

// Observer is told about the jobs that a Producer is asked to enqueue. A nil function is not called. They are called from
// many goroutines at a time, outside of all locks; the caller waits for them, so they should be quick. A panic of one is logged and changes nothing.
type Observer struct {
	// Enqueuing is called with a job that is valid, before it is sent. The headers that it returns travel with the job, in
	// place of others of their names, unless a job may not have so many: then none of them does. ended, if not nil, is
	// called once with what the caller is told. EnqueueWait is one enqueuing, however often it asks.
	Enqueuing func(ctx context.Context, job admission.Job) (headers map[string]string, ended func(admission.Verdict, error))
	// Decided is called with each answer on a job: for each try of EnqueueWait, and for dead letters that are redriven. The
	// error is what the caller of Enqueue would be told.
	Decided func(job admission.Job, verdict admission.Verdict, err error)
}

// guarded returns the observer without its panics.
func (o Observer) guarded(guard *callback.Guard) Observer {
	given := o
	if given.Enqueuing != nil {
		o.Enqueuing = func(ctx context.Context, job admission.Job) (map[string]string, func(admission.Verdict, error)) {
			var headers map[string]string
			var ended func(admission.Verdict, error)
			guard.Do("Observer.Enqueuing", func() { headers, ended = given.Enqueuing(ctx, job) })
			if ended == nil {
				return headers, nil
			}
			return headers, func(verdict admission.Verdict, err error) {
				guard.Do("ended of Observer.Enqueuing", func() { ended(verdict, err) })
			}
		}
	}
	if given.Decided != nil {
		o.Decided = func(job admission.Job, verdict admission.Verdict, err error) {
			guard.Do("Observer.Decided", func() { given.Decided(job, verdict, err) })
		}
	}
	return o
}

// enqueuing tells the observer of a job that is prepared. What it returns is nil where nobody wants to hear how it ends.
func (p *Producer) enqueuing(ctx context.Context, job *admission.Job) (ended func(admission.Verdict, error)) {
	if p.config.Observer.Enqueuing == nil {
		return nil
	}
	headers, ended := p.config.Observer.Enqueuing(ctx, *job)
	if len(headers) == 0 {
		return ended
	}
	with := *job
	with.Headers = make(map[string]string, len(job.Headers)+len(headers)) // The caller's are read only.
	maps.Copy(with.Headers, job.Headers)
	maps.Copy(with.Headers, headers)
	if p.validate(&with) == nil {
		job.Headers = with.Headers
	}
	return ended
}

// decided tells the observer and the log of an answer.
func (p *Producer) decided(job *admission.Job, verdict admission.Verdict, err error) {
	if p.config.Observer.Decided != nil {
		p.config.Observer.Decided(*job, verdict, err)
	}
	p.refusals.note(p.config.Logger, job, err)
}
