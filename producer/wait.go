package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/admission"
)

// Bounds of the waits of EnqueueWait.
const (
	// shortestWait keeps many waiters of one small bucket from asking in a row without a pause.
	shortestWait = time.Millisecond
	// longestWait is when to ask again where the answer was to wait for days: the limit may have been raised.
	longestWait = time.Minute
	// waitJitter is the largest part of a wait that is added to it at random.
	waitJitter = 0.1
)

// EnqueueWait asks for one job to enter as often as it is refused for a reason that passes, each time after the
// refusal's RetryAfter and up to a tenth more, until it enters or ctx ends: also while an operator has suspended
// enqueueing. From headgate.PressureHigh on it waits for the RetryAfter of the verdict's Pressure where that is longer. A refusal that is permanent, one because another job holds the unique key (that job is the one that was
// asked for), and any other error comes back at once, as from Enqueue. When ctx ends while waiting, the error matches ctx's and the last
// refusal, whose verdict is returned: the job did not enter.
func (p *Producer) EnqueueWait(ctx context.Context, job admission.Job) (admission.Verdict, error) {
	fresh := job.ID == ""
	if err := p.prepare(&job); err != nil {
		return admission.Verdict{ID: job.ID}, err
	}
	ended := p.enqueuing(ctx, &job)
	verdict, err := p.wait(ctx, job, fresh)
	if ended != nil {
		ended(verdict, err)
	}
	return verdict, err
}

// wait sends a job that is prepared as often as EnqueueWait says.
func (p *Producer) wait(ctx context.Context, job admission.Job, fresh bool) (admission.Verdict, error) {
	for {
		verdict, err := p.enqueue(ctx, job, fresh)
		if !errors.Is(err, admission.ErrRefused) || verdict.Permanent() || verdict.Reason == admission.ReasonUnique {
			return verdict, err
		}
		timer := time.NewTimer(waitFor(&verdict))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return verdict, fmt.Errorf("wait for job %s to enter: %w: %w", job.ID, context.Cause(ctx), err)
		}
	}
}

// waitFor is how long a caller waits that can: where its queue is pressed, for as long as such callers are to send less.
func waitFor(v *admission.Verdict) time.Duration {
	wait := v.RetryAfter
	if v.Pressure.Level >= admission.PressureHigh {
		wait = max(wait, v.Pressure.RetryAfter)
	}
	wait = min(max(wait, shortestWait), longestWait)
	return wait + time.Duration(rand.Float64()*waitJitter*float64(wait))
}
