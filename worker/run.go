package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker/internal/fleet"
)

// answer is what a worker makes of a job.
type answer struct {
	outcome store.Outcome
	delay   time.Duration
	// reason is for the record and for the Observer, err for both too where it is not nil.
	reason string
	err    error
	// ran is how long the handler ran.
	ran time.Duration
	// cancelled says that the job was cancelled and this worker knows; the outcome is then Release, which Redis takes
	// for the end.
	cancelled bool
	// result of a completed job is kept for keep, if that is above zero.
	result []byte
	keep   time.Duration
	// spent is what the job has cost, its limits yet to be filled in; nil leaves its reservation as it is.
	spent *store.Spent
}

// handle takes a job from its start to the end that Redis takes note of. It holds a slot meanwhile, and leaves it when the finisher tells Redis.
func (s *session) handle(jobs context.Context, lease *store.Lease) {
	left := false
	defer func() { s.w.giveSlot(left) }()
	defer s.held.Remove(lease.Token)
	own, cancel := context.WithCancelCause(jobs)
	defer cancel(nil)
	s.held.Watch(lease.Token, cancel)
	end := s.w.shared.begin(own)
	event := s.event(lease)
	own, ended := s.w.taken(own, event, lease.Job.Headers)
	a := s.decide(own, lease, &event)
	end()
	event.Reason, event.Err = a.reason, a.err
	if a.outcome == store.Complete || !errors.Is(context.Cause(jobs), admission.ErrLeaseLost) {
		if !s.held.Claim(lease.Token) {
			event.Outcome, event.Reason = Released, ReasonShutdown
			ended.call(event)
			return // A drain has handed it back, and says so.
		}
		e := s.w.finisher.submit(lease, a, true)
		<-e.done
		left = e.left
		if e.refused {
			s.held.Keep(lease.Token)
		}
		event.Outcome = outcomeOf(e.ended)
		if learn := s.w.config.Learn; learn != nil && a.spent != nil && (event.Outcome == Completed || event.Outcome == Dead) {
			learn(lease.Job.Tenant, lease.Job.Queue, lease.Job.Type, a.spent.Cost)
		}
		if event.Outcome == Cancelled && !a.cancelled {
			event.Reason = ReasonCancelled // This worker had not heard of it.
		}
	} else {
		// The lease is over: Redis gives the job to another, and would refuse to hear from this worker.
		event.Outcome = Lost
	}
	s.w.failures.tell(&s.logger, event, a)
	s.w.finished(event)
	ended.call(event)
}

// giveSlot gives the slot of a job back. While the guard keeps new jobs away Redis has one less to fill.
func (w *Worker) giveSlot(left bool) {
	w.slots.Give(left)
	if w.guard != nil && w.slots.IsShut() {
		w.resized.Give()
	}
}

// decide runs the job unless something stands against it. It fills in the event's times.
func (s *session) decide(ctx context.Context, lease *store.Lease, event *Event) answer {
	job := &lease.Job
	if lease.Err != nil {
		reason := ReasonUnreadable
		if errors.Is(lease.Err, store.ErrRecordGone) {
			reason = ReasonRecordGone
		}
		return answer{outcome: store.Kill, reason: reason, err: lease.Err}
	}
	if reason, ok := cancelledBy(ctx); ok {
		return answer{outcome: store.Release, reason: reason, cancelled: true}
	}
	if ctx.Err() != nil {
		return answer{outcome: store.Release, reason: ReasonShutdown}
	}
	if s.w.tooLateFor(job) {
		return answer{outcome: store.Expire, reason: ReasonDeadline}
	}
	handler := s.w.handlerOf(job.Type)
	if handler == nil {
		if s.w.unknown.allow() {
			s.logger.Warn().Str("type", job.Type).Str("queue", job.Queue).Msg("no handler for this type: jobs are handed back")
		}
		return answer{outcome: store.Release, delay: returnDelay(), reason: ReasonUnknown}
	}
	if lease.Suspect && !s.w.suspects.tryBegin(s) {
		return answer{outcome: store.Release, delay: returnDelay(), reason: ReasonSuspect}
	} else if lease.Suspect {
		defer s.w.suspects.end()
	}
	call, ok := s.w.breakers.TryAcquire(ctx, job.Downstream, job.Tenant, lease.Period)
	if !ok {
		return answer{outcome: store.Release, delay: returnDelay(), reason: ReasonBreaker}
	}
	defer call.ReturnProbe(ctx)
	defer call.Ignored() // Does nothing after a verdict.
	if call != nil {
		defer context.AfterFunc(ctx, func() {
			if _, ok := cancelledBy(ctx); ok {
				call.Ignored() // Also where the handler takes its time: what it does now is not the downstream's.
			}
		})()
	}
	if lease.Suspect {
		if err := s.noteStart(ctx, lease); errors.Is(err, store.ErrBeside) {
			return answer{outcome: store.Release, delay: returnDelay(), reason: ReasonSuspect}
		} else if err != nil {
			return answer{outcome: store.Release, delay: returnDelay(), reason: ReasonSuspect, err: err}
		}
	}
	if s.w.tooLateFor(job) { // Once more, the last thing of all: the leases of probes and the note of a suspect take their time.
		return answer{outcome: store.Expire, reason: ReasonDeadline}
	}
	return s.run(ctx, handler, lease, call, event)
}

// tooLateFor reports whether a job's deadline has passed, by the clock of Redis as far as it is known.
func (w *Worker) tooLateFor(job *admission.Job) bool {
	return !job.Deadline.IsZero() && w.clock.Now().After(job.Deadline)
}

// noteStart tells Redis that the handler of a suspect, a job that was lost with a worker before, begins: if this worker
// is lost too, it counts against the job, or parts it from those that it began with. Other jobs in hand then count nothing, and pay
// nothing for the note. store.ErrBeside means that suspects run here beside which it is not to begin.
func (s *session) noteStart(ctx context.Context, lease *store.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, fleet.CallTimeout)
	defer cancel()
	return s.w.store.Started(ctx, s.w.pool.ID(), s.name, lease.Token, admission.Key{Tenant: lease.Job.Tenant, ID: lease.Job.ID})
}

// run runs the handler and makes an answer of its.
func (s *session) run(ctx context.Context, handler Handler, lease *store.Lease, call *fleet.GuardedCall, event *Event) answer {
	if s.w.config.Observer.Started != nil {
		s.w.config.Observer.Started(*event)
	}
	if event.Attempt == 1 {
		s.w.telling.Began(event.Queue, event.Downstream, event.Wait)
	}
	began := time.Now()
	var left result
	soon, err := s.call(context.WithValue(ctx, resultKey{}, &left), handler, lease, call)
	event.RunTime = time.Since(began)
	call.Pushed(left.pushed())
	a := s.judge(ctx, lease, call, soon, err)
	a.ran = event.RunTime
	if a.outcome == store.Complete {
		a.result, a.keep = left.get()
	}
	if a.outcome != store.Release && !lease.Uncharged {
		a.spent = left.spent()
	}
	return a
}

// call runs the handler until it returns, panics or exits. soon says that a time-out of the job's own ended it, too soon to say
// anything about its downstream.
func (s *session) call(ctx context.Context, handler Handler, lease *store.Lease, call *fleet.GuardedCall) (soon bool, err error) {
	cut := s.timeout(&lease.Job, call)
	ctx, cancel := context.WithTimeoutCause(ctx, cut.after, cut)
	defer cancel()
	answered := make(chan error, 1)
	go func() { // A handler may end its goroutine, and this one has things left to do.
		err := errExited
		defer func() { answered <- err }()
		err = callback.Try(func() error { return handler(ctx, s.jobOf(lease)) })
	}()
	err = cut.explain(ctx, <-answered)
	soon = cut.after == lease.Job.Timeout && cut.after < call.Patience() && context.Cause(ctx) == error(cut) //nolint:errorlint // this very one
	return soon, err
}

// jobOf returns what a handler is given.
func (s *session) jobOf(lease *store.Lease) Job[[]byte] {
	job := Job[[]byte]{
		Job: lease.Job, Args: lease.Job.Payload, Attempt: lease.Attempts + 1, Lost: lease.Lost, Suspect: lease.Suspect,
		Admitted: lease.Arrival,
	}
	job.Priority = s.w.classes.Name(job.Queue, lease.Class)
	return job
}

// judge turns the handler's error into an answer, and tells the downstream's breaker, unless the call was cut too soon.
func (s *session) judge(ctx context.Context, lease *store.Lease, call *fleet.GuardedCall, soon bool, err error) answer {
	snooze, snoozed := errors.AsType[*snoozeError](err)
	retry, _ := errors.AsType[*retryError](err)
	drained := ctx.Err() != nil && !is[*callback.PanicError](err)
	reason, cancelled := cancelledBy(ctx)
	throttled := IsThrottled(err)
	if throttled && !cancelled {
		call.Throttled()
		call.Hold(ctx, max(snooze.after(), retry.after()))
	}
	switch {
	case cancelled:
		return answer{outcome: store.Release, reason: reason, err: err, cancelled: true}
	case err == nil:
		call.Succeeded()
		return answer{outcome: store.Complete}
	case snoozed:
		return answer{outcome: store.Release, delay: snooze.delay, reason: ReasonSnoozed, err: err}
	case is[*discardError](err):
		return answer{outcome: store.Kill, reason: ReasonDiscarded, err: err}
	case is[*payloadError](err):
		return answer{outcome: store.Kill, reason: ReasonBadPayload, err: err}
	case drained:
		return answer{outcome: store.Release, reason: ReasonShutdown, err: err}
	case soon, throttled, is[*ignoreError](err):
	default:
		if rest := call.Failed(err); call.Probe() {
			// A probe's failure is the breaker's, never the job's (law L11). The job comes back after the next probe
			// has been chosen, so that one bad job cannot be the probe for ever, and not before it asks to.
			return answer{outcome: store.Release, delay: max(rest+returnDelay(), retry.after()), reason: ReasonProbe, err: err}
		}
	}
	if retry != nil {
		return answer{outcome: store.Retry, delay: retry.delay, err: err}
	}
	return answer{outcome: store.Retry, delay: s.w.config.backoff(&lease.Job, lease.Attempts+1, s.w.classes.LeastBackoff(lease.Job.Queue)), err: err}
}

func finishOf(lease *store.Lease, a answer) store.Finish {
	f := lease.Finish(a.outcome)
	f.Delay, f.Ran, f.Result, f.KeepResult, f.Spent = min(a.delay, admission.MaxDelay), a.ran, a.result, a.keep, a.spent
	switch a.outcome {
	case store.Kill, store.Retry:
		f.Reason, f.Text = a.reason, a.err.Error()
		if said, ok := a.err.(*discardError); ok { //nolint:errorlint // One that is wrapped has its own words around it.
			f.Text = fmt.Sprint(said.cause) // The reason says the rest.
		}
	case store.Release:
		f.Text = a.reason // The error of a probe or of a shutdown is not the job's.
		if a.reason == ReasonUnknown {
			f.Text += " " + lease.Job.Type // Redis has it stay away longer each time, and counts it.
		}
		if a.cancelled {
			f.Reason = ReasonCancelled // Redis ends the job by the mark it has; this is for intended.
		}
	case store.Complete, store.Expire:
	}
	return f
}

func (s *session) event(lease *store.Lease) Event {
	job := &lease.Job
	return Event{
		Key: admission.Key{Tenant: job.Tenant, ID: job.ID}, Queue: job.Queue, Type: job.Type, Downstream: job.Downstream,
		Class: s.w.classes.Name(job.Queue, lease.Class), Token: lease.Token, Attempt: lease.Attempts + 1,
		Wait: max(s.w.clock.Now().Sub(lease.Arrival), 0), // The estimate may be behind.
	}
}

// departure is what is called when a job has left this worker's hand; nil for nothing.
type departure func(Event)

func (d departure) call(event Event) {
	if d != nil {
		d(event)
	}
}

// taken tells the observer of a job that came, and returns the ctx of its handler.
func (w *Worker) taken(ctx context.Context, event Event, headers map[string]string) (context.Context, departure) {
	if w.config.Observer.Taken == nil {
		return ctx, nil
	}
	return w.config.Observer.Taken(ctx, event, headers)
}

func (w *Worker) finished(event Event) {
	switch event.Outcome {
	case Completed, Retried, Dead:
		if event.RunTime > 0 {
			w.telling.Ended(event.Queue, event.Downstream, event.RunTime, event.Outcome != Completed)
		}
	case Expired, Released, Cancelled, Lost: // They say nothing of how jobs run.
	}
	if w.config.Observer.Finished != nil {
		w.config.Observer.Finished(event)
	}
}

// sampled lets one warning through in a while. Its zero value is ready; several goroutines may use it.
type sampled struct {
	next atomic.Int64 // when the next one may pass, in nanoseconds since the Unix epoch
}

const sampledEvery = time.Second

func (s *sampled) allow() bool {
	now := time.Now().UnixNano()
	next := s.next.Load()
	return now >= next && s.next.CompareAndSwap(next, now+int64(sampledEvery))
}
