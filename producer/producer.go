package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/store"
)

// Producer enqueues jobs. It may be used by several goroutines: their calls share round trips. Beside Run, which it works
// without, it has goroutines only while calls are under way, and a timer for a second after (Flush). It needs no closing.
type Producer struct {
	store store.Deployment
	// part is the partition that its lines send to; the first where it has parts.
	part   store.Partition
	config Config
	limits *limits
	// small and large are the lines of jobs of up to and above largeBytes.
	small, large line
	// parts are producers of single partitions, with lines of their own, that share all else; nil where there is but one.
	parts []*Producer
	// heard is what the partition has told of queues that are pressed.
	heard heard
	// doubts are of callers that were told that an outcome is unknown.
	doubts doubts
	// refusals are those that wait to be logged.
	refusals refusals
	counting *counting
	// timers are of callers that wait.
	timers sync.Pool
	// overtime is the cause of a ctx that Config.Timeout ended.
	overtime error
}

// errTimeout matches the cause of a ctx that Config.Timeout ended.
var errTimeout = errors.New("no answer in time")

// New returns a Producer on a store. It sends nothing: the policy is read by the first call.
func New(store store.Deployment, config Config) (*Producer, error) {
	config = config.withDefaults(store)
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure producer: %w", err)
	}
	limits, err := newLimits(store, config)
	if err != nil {
		return nil, fmt.Errorf("configure producer: %w", err)
	}
	config.Observer = config.Observer.guarded(callback.NewGuard(config.Logger))
	p := &Producer{
		store: store, part: store.Partitions()[0], config: config, limits: limits, counting: &counting{store: store},
		overtime: fmt.Errorf("%w, %s: %w", errTimeout, config.Timeout, context.DeadlineExceeded),
	}
	p.openLines()
	if parts := store.Partitions(); len(parts) > 1 {
		for _, part := range parts {
			one := &Producer{store: store, part: part, config: config, limits: limits, counting: p.counting, overtime: p.overtime}
			one.openLines()
			p.parts = append(p.parts, one)
		}
	}
	return p, nil
}

// largeBytes is the payload above which a ticket waits in the line of the large ones: a quarter of what a call takes.
const largeBytes = store.MaxBatchBytes / 4

// openLines gives an empty producer its lines. The large have half as many calls, since each keeps Redis for longer.
func (p *Producer) openLines() {
	for l, places := range map[*line]int{&p.small: p.config.InFlight, &p.large: (p.config.InFlight + 1) / 2} {
		l.places, l.jobs, l.bytes, l.patience = places, p.config.MaxWaiting, p.config.MaxWaitingBytes, p.config.Timeout/2
	}
}

// of returns the producer of a tenant's partition.
func (p *Producer) of(tenant string) *Producer {
	if p.parts == nil {
		return p
	}
	return p.parts[p.store.PartitionOf(tenant)]
}

// Enqueue asks for one job to enter and returns the verdict. The error is nil if it was admitted or is a duplicate,
// a *headgate.RefusedError if it was refused, a *headgate.FieldError for each bad field if it is not valid; it
// matches headgate.ErrUnavailable if nothing was sent for want of a Redis, and headgate.ErrOutcomeUnknown if the
// job may have entered all the same. The verdict names the job's ID, but with headgate.ErrOverloaded where the caller gave none. A duplicate is a job whose ID lives in
// its tenant, or ended less than the policy's dedup window ago (30 s unless set): sent later than that it enters again.
func (p *Producer) Enqueue(ctx context.Context, job admission.Job) (admission.Verdict, error) {
	if err := p.validate(&job); err != nil {
		return admission.Verdict{ID: job.ID}, err
	}
	if err := p.turnAway(&job); err != nil {
		return admission.Verdict{ID: job.ID}, err
	}
	fresh := job.ID == ""
	if err := identify(&job); err != nil {
		return admission.Verdict{ID: job.ID}, err
	}
	ended := p.enqueuing(ctx, &job)
	verdict, err := p.enqueue(ctx, job, fresh)
	if ended != nil {
		ended(verdict, err)
	}
	return verdict, err
}

// turnAway returns why a job cannot wait, before anything was made for it: under overload most calls end here. An observer of
// enqueuings is told of each, so with one it is asked later. The log, which is of refusals, has nothing of it.
func (p *Producer) turnAway(job *admission.Job) error {
	if p.config.Observer.Enqueuing != nil {
		return nil
	}
	err := p.of(job.Tenant).lineOf(len(job.Payload)).refuse(job, p.config.Timeout)
	if err != nil && p.config.Observer.Decided != nil {
		p.config.Observer.Decided(*job, admission.Verdict{ID: job.ID}, err)
	}
	return err
}

// enqueue sends a job that is prepared, and tells of the answer. fresh says that it is certainly not in.
func (p *Producer) enqueue(ctx context.Context, job admission.Job, fresh bool) (admission.Verdict, error) {
	if fresh {
		if verdict, ok := p.shed(&job); ok {
			err := verdict.Err()
			p.decided(&job, verdict, err)
			return verdict, err
		}
	}
	verdict, err := p.send(ctx, job)
	p.decided(&job, verdict, err)
	return verdict, err
}

// send sends a job that is prepared.
func (p *Producer) send(ctx context.Context, job admission.Job) (admission.Verdict, error) {
	l := p.of(job.Tenant).lineOf(len(job.Payload))
	if err := l.refuse(&job, p.config.Timeout); err != nil {
		return admission.Verdict{ID: job.ID}, err
	}
	end := time.Now().Add(p.config.Timeout)
	t := l.ticket(ctx, end, &job)
	defer l.recycle(t)
	e := &t.entries[0]
	if err := p.check(ctx, end, t.entries); err != nil {
		return admission.Verdict{ID: job.ID}, fmt.Errorf("enqueue job %s: %w", job.ID, err)
	}
	if e.err != nil {
		return admission.Verdict{ID: job.ID}, e.err
	}
	if err := p.of(job.Tenant).travel(ctx, end, t); err != nil {
		return admission.Verdict{ID: job.ID}, fmt.Errorf("enqueue job %s: %w", job.ID, err)
	}
	return e.result()
}

// result returns what a settled entry came to.
func (e *entry) result() (admission.Verdict, error) {
	if e.err != nil {
		return admission.Verdict{ID: e.job.ID}, e.err
	}
	return e.verdict, e.verdict.Err()
}

// prepare fills in what the caller left to the producer and checks all that needs no policy.
func (p *Producer) prepare(job *admission.Job) error {
	if err := p.validate(job); err != nil {
		return err
	}
	return identify(job)
}

// validate is prepare without the making of an ID.
func (p *Producer) validate(job *admission.Job) error {
	if job.Priority == "" {
		job.Priority = admission.Medium
	}
	if job.Cost != admission.LearnedCost {
		return job.Validate(p.config.MaxPayload)
	}
	job.Cost = 1
	err := job.Validate(p.config.MaxPayload)
	job.Cost = admission.LearnedCost
	return err
}

// identify gives a job that has none an ID.
func identify(job *admission.Job) error {
	if job.ID != "" {
		return nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make job id: %w", err)
	}
	job.ID = id.String()
	return nil
}

// check is that of limits, within the time-out of a whole call.
func (p *Producer) check(ctx context.Context, end time.Time, entries []entry) error {
	if !p.limits.know(entries) {
		ctx, cancel := context.WithDeadlineCause(ctx, end, p.overtime)
		defer cancel()
		if err := p.limits.check(ctx, entries); err != nil {
			return err
		}
	}
	p.limits.guess(entries)
	return nil
}

// bound gives ctx the time-out of a whole call.
func (p *Producer) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.config.Timeout, p.overtime)
}
