package headgate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// Operation acts on jobs and queues. Each act is in the audit.
type Operation struct {
	client *Client
	author string
}

// Operate returns what acts on jobs and queues, in the name of an author.
func (c *Client) Operate(author string) Operation { return Operation{c, author} }

// Target is what is paused or resumed: a queue, a tenant or a downstream.
type Target struct{ gate store.GateName }

// Queue is all jobs of a queue.
func Queue(name string) Target { return Target{store.QueueGate(name)} }

// Tenant is all jobs of a tenant.
func Tenant(name string) Target { return Target{store.TenantGate(name)} }

// Downstream is all jobs that name a downstream.
func Downstream(name string) Target { return Target{store.DownstreamGate(name)} }

// Hold is how long something is held, and why. A zero For is until somebody ends it.
type Hold struct {
	For    time.Duration
	Reason string
}

// For is a Hold.
func For(d time.Duration, reason string) Hold { return Hold{For: d, Reason: reason} }

// Pause keeps jobs from the workers; those that run go on, and their number is returned. New jobs enter and wait.
func (o Operation) Pause(ctx context.Context, t Target, hold Hold) (running int, err error) {
	return o.client.store.Pause(ctx, t.gate, hold.For, store.Intervention{Author: o.author, Reason: hold.Reason})
}

// Resume ends what Pause began; was is false where nothing was paused.
func (o Operation) Resume(ctx context.Context, t Target, reason string) (was bool, err error) {
	return o.client.store.Unpause(ctx, t.gate, store.Intervention{Author: o.author, Reason: reason})
}

// OpenBreaker stops calls of a downstream over the whole fleet, whatever they come to, for the time of the hold: jobs that name it wait,
// and Breaker.Acquire refuses.
func (o Operation) OpenBreaker(ctx context.Context, downstream string, hold Hold) error {
	_, err := o.client.store.ForceBreaker(ctx, downstream, breaker.Open, hold.For, store.Intervention{Author: o.author, Reason: hold.Reason})
	return err
}

// ResetBreaker closes the breaker of a downstream, opened by hand or not, and lets it judge again.
func (o Operation) ResetBreaker(ctx context.Context, downstream, reason string) error {
	_, err := o.client.store.ResetBreaker(ctx, downstream, store.Intervention{Author: o.author, Reason: reason})
	return err
}

// Cancel ends a job: one that runs is told by its ctx (running), any other is gone at once.
func (o Operation) Cancel(ctx context.Context, key Key, reason string) (running bool, err error) {
	for {
		is, more, err := o.client.store.Cancel(ctx, key, store.Intervention{Author: o.author, Reason: reason})
		running = running || is
		if err != nil || !more {
			return running, err
		}
	}
}

// DryRun has Redrive count, and change nothing.
const DryRun = true

// Redrive brings the dead letters that a filter chooses back through admission, each charged like a new job, and returns how many are
// in. Refused ones stay dead letters: the error joins the first refusal with ErrRefused. With DryRun it only counts.
func (o Operation) Redrive(ctx context.Context, f Filter, reason string, dry bool) (n int, err error) {
	f.Place = PlaceDead
	var all []Key // Redriving while listing would list twice what dies again.
	for job, err := range o.client.Inspect().Jobs(ctx, f) {
		if err != nil {
			return 0, err
		}
		all = append(all, job.Key)
	}
	if dry {
		return len(all), nil
	}
	var refused error
	for keys := range slices.Chunk(all, store.MaxBatchJobs) {
		results, err := o.client.producer.RedriveWith(ctx, RedriveOptions{Author: o.author, Reason: reason}, keys...)
		for _, r := range results {
			if r.Err == nil && r.Verdict.Decision == Admitted {
				n++
			}
		}
		switch {
		case err != nil && !errors.Is(err, ErrRefused):
			return n, err
		case refused == nil:
			refused = told(err)
		}
	}
	return n, refused
}
