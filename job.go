package headgate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
)

// Args are the arguments of a job, which its handler is given. They travel as JSON.
type Args interface {
	// Kind names the type of job, 1-128 bytes of [A-Za-z0-9._:@/-]: what commands, HTTP, Filter and HandleRaw call its type. It is the same for all
	// values of the Go type.
	Kind() string
}

// Raw are arguments that somebody else encoded: bytes of the type Type. HandleRaw takes them as they are.
type Raw struct {
	Type    string
	Payload []byte
}

// Kind returns the type.
func (r Raw) Kind() string { return r.Type }

// Job is what Enqueue asks for. Tenant, Queue and Args are needed; the rest has defaults.
type Job struct {
	// Tenant is the customer on whose behalf the job runs, Queue the kind of traffic that it belongs to: 1-128 bytes of
	// [A-Za-z0-9._@/-].
	Tenant, Queue string
	// Args are what its handler is given, and by their Kind which handler.
	Args Args
	// ID names the job within its tenant; empty lets the client make one. Enqueued again, also after an error, it is the same job
	// while it lives and for the dedup window of the policy after that (30 s unless set).
	ID string
	// Priority is one of the queue's classes; empty means Medium.
	Priority Priority
	// Deadline is the latest time at which the job may start; zero means none.
	Deadline time.Time
	// Cost is how many tokens it takes from every bucket, 1 to 1,000,000; zero means 1. LearnedCost is what jobs of the type have cost the tenant
	// in the queue of late, as handlers of this Client's workers have told by SetCost: nine in ten of the last 32 were not above it, at first it is
	// 1,000 tokens, and it is never above the least burst on the way.
	Cost Tokens
	// Downstream is what the handler calls, the key of its circuit breaker; it may be empty. SERVICE+ACCOUNT, such as shopify+shop-42, is a service
	// that is called for one of many accounts there: the breaker is the service's, caps and rates are those of the service and of the account.
	Downstream string
	// MaxAttempts is how many times a failing job runs in all, 1-255, as far as the policy allows; zero means 5.
	MaxAttempts int
	// Timeout ends the handler's ctx; zero means the worker's default.
	Timeout time.Duration
	// RunAt is the earliest time at which the job may start, and Delay how long after it entered that is; at most one of the two.
	RunAt time.Time
	Delay time.Duration
	// Unique keeps others like it out while the job is there.
	Unique Unique
	// Headers travel with the payload.
	Headers map[string]string
}

// admitted returns the job as the rooms have it. The error of arguments says with them what else is wrong, as Enqueue promises.
func (j Job) admitted() (admission.Job, error) {
	out, bad := j.translated()
	if bad != nil {
		return out, errors.Join(bad, out.Validate(0))
	}
	return out, nil
}

// translated returns the job as the rooms have it. The error is one of its arguments alone.
func (j Job) translated() (admission.Job, error) {
	kind, payload, bad := encoded(j.Args)
	out := admission.NewJob(j.Tenant, j.Queue, kind, payload)
	out.ID, out.Deadline, out.Downstream, out.MaxAttempts, out.Timeout = j.ID, j.Deadline, j.Downstream, j.MaxAttempts, j.Timeout
	out.RunAt, out.Delay, out.Unique, out.Headers = j.RunAt, j.Delay, j.Unique, j.Headers
	if j.Priority != "" {
		out.Priority = j.Priority
	}
	if j.Cost != 0 {
		out.Cost = j.Cost
	}
	return out, bad
}

// encoded returns arguments as they travel, and of a fault also a kind, so that nothing else is said of that.
func encoded(args Args) (kind string, payload []byte, err error) {
	switch args := args.(type) {
	case nil:
		return "none", nil, &FieldError{Field: "args", Value: "nil", Allowed: "arguments with a Kind, or Raw"}
	case Raw:
		return args.Type, args.Payload, nil
	}
	payload, err = json.Marshal(args)
	if err != nil {
		return args.Kind(), nil, &FieldError{Field: "args", Value: fmt.Sprintf("%T (%v)", args, err), Allowed: "what encoding/json can write"}
	}
	return args.Kind(), payload, nil
}

// Receipt says what became of a job that is in.
type Receipt struct {
	// ID is the job's.
	ID string
	// Duplicate says that a job of this ID was in already: nothing was charged.
	Duplicate bool
	// Position is how many jobs of its lane are ahead of it or level with it, itself included; 0 when it went straight to a worker.
	Position int
	// EstimatedWait is a guess of the time until it starts, by how fast its queue's jobs were dispatched of late; negative where none was, and
	// where its queue is paused or its tenant or downstream stands behind a gate, such as an open breaker, a rate or a cap, so that nobody
	// knows: Inspect().Explain says which. A gate that no dispatch has met yet is not in it.
	EstimatedWait time.Duration
	// Remaining is what the bucket on its way that holds least had left after it, in whole tokens, and Burst that bucket's size: what jobs of
	// that way may still take at once. Both are zero for a duplicate, and where no limit is on the way.
	Remaining, Burst Tokens
	// Bypassed says that it went beside the limits of its queue and class, which the policy's bypass lets jobs of its class do: they were not charged.
	Bypassed bool
}

// Refusal is a certain no: the job is not in, or the call may not go on, and nothing was charged.
//
//nolint:errname // It is public, and a decision rather than a fault.
type Refusal struct {
	// Reason is why.
	Reason Reason
	// Scope is the one whose limit refused, as in "acme:mail", where a limit did: its bucket held Remaining tokens of Burst.
	Scope            Scope
	Remaining, Burst Tokens
	// RetryAfter is when another try may enter; zero where none will. Of ReasonUnique it is when the key of the job that is in is given up
	// at the latest: that job is the one asked for, so there is seldom a use in waiting. EnqueueWait knows which to wait for.
	RetryAfter time.Duration

	inner error // of the rooms; nil where the fields say all of it
}

// Error says which scope refused, what it held, and when to retry.
func (r *Refusal) Error() string { return r.Unwrap().Error() }

// Unwrap returns the error of the reason, such as ErrLimited. That of a Refusal that a test made of its fields is the same.
func (r *Refusal) Unwrap() error {
	if r.inner == nil { // It is made for who asks: most look at the fields alone.
		return &RefusedError{Verdict: Verdict{Reason: r.Reason, Scope: r.Scope, TokensLeft: r.Remaining, Burst: r.Burst, RetryAfter: r.RetryAfter}}
	}
	return r.inner
}

// told returns what callers hear of an error of the rooms: a refusal of theirs as a *Refusal.
func told(err error) error {
	if err == nil {
		return nil
	}
	if no, ok := errors.AsType[*RefusedError](err); ok {
		v := &no.Verdict
		return &Refusal{Reason: v.Reason, Scope: v.Scope, Remaining: v.TokensLeft, Burst: v.Burst, RetryAfter: v.RetryAfter, inner: err}
	}
	if no, ok := errors.AsType[*OverloadedError](err); ok {
		return &Refusal{Reason: ReasonUnavailable, RetryAfter: no.RetryAfter, inner: err}
	}
	return err
}

func receiptOf(v *Verdict) Receipt {
	r := Receipt{ID: v.ID, Duplicate: v.Decision == Duplicate, Position: v.Position, EstimatedWait: v.EstimatedWait}
	if v.Decision == Admitted { // Of a refusal they are its own.
		r.Remaining, r.Burst, r.Bypassed = v.TokensLeft, v.Burst, v.Bypassed
	}
	return r
}

// Enqueue asks for one job to enter. A nil error says that it is in. Otherwise the error is one of three, or the ctx's own with one
// of the last two:
//
//	*Refusal            certain: it is not in, nothing was charged; RetryAfter says when to come again
//	ErrUnavailable      certain: nothing was sent, for want of a Redis in time
//	ErrOutcomeUnknown   it was sent and no answer came: enqueue the same ID again, it will be one job
//
// or a *FieldError for each bad field, before anything is sent. The receipt names the ID in every case but that of bad fields.
func (c *Client) Enqueue(ctx context.Context, job Job) (Receipt, error) {
	return c.enqueue(ctx, job, c.producer.Enqueue)
}

// EnqueueWait is Enqueue for whoever would rather wait than be refused: it asks again, each time after the refusal's RetryAfter, until the
// job enters or ctx ends. What it waits for, by Refusal.Reason:
//
//	waits     ReasonLimited, ReasonShed, ReasonDoomed, ReasonOverflow, ReasonBreaker, ReasonPaused (enqueueing is suspended), ReasonDedup,
//	          ReasonBuckets, ReasonQueues, ReasonLanes, ReasonMemory: they pass
//	returns   ReasonTooCostly, ReasonTooLarge, ReasonDeadline: no wait helps; ReasonUnique: the job that was asked for is in
//
// When ctx ends meanwhile the error matches ctx's and the last refusal's.
func (c *Client) EnqueueWait(ctx context.Context, job Job) (Receipt, error) {
	return c.enqueue(ctx, job, c.producer.EnqueueWait)
}

func (c *Client) enqueue(ctx context.Context, job Job, by func(context.Context, admission.Job) (Verdict, error)) (Receipt, error) {
	j, err := job.admitted()
	if err != nil {
		return Receipt{}, err
	}
	if c.closed.Load() {
		return Receipt{ID: j.ID}, ErrClosed
	}
	verdict, err := by(ctx, j)
	return receiptOf(&verdict), told(err)
}

// Result is what became of one job of a batch: exactly what Enqueue would have returned for it.
type Result struct {
	Receipt Receipt
	Err     error
}

// EnqueueBatch asks for many jobs to enter, in few calls of Redis, and returns a Result for each, in their order: each is decided on
// alone. The error is nil if and only if all are in.
func (c *Client) EnqueueBatch(ctx context.Context, jobs []Job) ([]Result, error) {
	results := make([]Result, len(jobs))
	batch, places := make([]admission.Job, 0, len(jobs)), make([]int, 0, len(jobs))
	for i, job := range jobs {
		j, err := job.admitted()
		if err != nil {
			results[i].Err = err
			continue
		}
		batch, places = append(batch, j), append(places, i)
	}
	var inner []producer.Result
	switch {
	case c.closed.Load():
		inner = slices.Repeat([]producer.Result{{Err: ErrClosed}}, len(batch))
		for k := range inner {
			inner[k].Verdict.ID = batch[k].ID
		}
	case len(batch) > 0:
		inner, _ = c.producer.EnqueueBatch(ctx, batch) // What failed is in the results.
	}
	for k, r := range inner {
		results[places[k]] = Result{Receipt: receiptOf(&r.Verdict), Err: told(r.Err)}
	}
	failed := 0
	var first error
	for _, r := range results {
		if r.Err != nil {
			failed++
			if first == nil {
				first = r.Err
			}
		}
	}
	if failed > 0 {
		return results, fmt.Errorf("%d of %d jobs are not certainly in, the first: %w", failed, len(jobs), first)
	}
	return results, nil
}

// ResultOf returns what a job's handler left with Run.SetResult, decoded into R, once the job has completed and for as long as the
// handler said. The error matches ErrUnknownJob where there is none, yet or any more.
func ResultOf[R any](ctx context.Context, c *Client, key Key) (result R, err error) {
	data, err := c.producer.Result(ctx, key.Tenant, key.ID)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(data, &result); err != nil {
		return result, fmt.Errorf("read result of job %s: %w", key, err)
	}
	return result, nil
}
