package crash_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// The jobs of the script, by what becomes of them otherwise than that they complete at once.
const (
	scriptLarge    = 0
	scriptFails    = 1
	scriptUnique   = 2
	scriptSnoozes  = 3
	scriptDelayed  = 4
	scriptExhausts = 6
	scriptCancel   = 8
	scriptDiscard  = 10
)

// scriptJob returns one of the jobs of the script, the same for whatever process asks.
func scriptJob(n int) admission.Job {
	j := admission.NewJob("acme", []string{"mail", "hook"}[n%2], "work", fmt.Appendf(nil, "%d", n))
	j.ID, j.Cost = fmt.Sprintf("j%d", n), admission.Tokens(1+n%3)
	switch n {
	case scriptLarge:
		j.Payload = make([]byte, 5000)
	case scriptUnique:
		j.Unique.Key = "only"
	case scriptDelayed:
		j.Delay = 30 * time.Millisecond
	case scriptExhausts:
		j.MaxAttempts = 1
	case scriptCancel:
		j.Delay = time.Hour
	}
	return j
}

// playScript plays the script until all of it is done: a busy machine may be late with an answer.
func (p *player) playScript(ctx context.Context) error {
	sdk, err := producer.New(p.store, producer.Config{Timeout: 20 * time.Second})
	if err != nil {
		return err
	}
	for p.script(ctx, sdk) != nil {
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	p.book.note("done")
	<-ctx.Done()
	return nil
}

// script asks for the jobs, cancels one, and pauses a queue for a moment. Whoever takes the role over does it again.
func (p *player) script(ctx context.Context, sdk *producer.Producer) error {
	const batch = 7
	var jobs []admission.Job
	for n := range pointJobs {
		jobs = append(jobs, scriptJob(n))
	}
	if _, err := sdk.EnqueueBatch(ctx, jobs[:batch]); err != nil {
		return err
	}
	for _, j := range jobs[batch:] {
		if _, err := sdk.Enqueue(ctx, j); err != nil {
			return err
		}
	}
	cancelled := admission.Key{Tenant: "acme", ID: jobs[scriptCancel].ID}
	if _, _, err := p.store.Cancel(ctx, cancelled, store.Intervention{Reason: "as planned"}); err != nil && !errors.Is(err, admission.ErrEnded) {
		return err
	}
	_, err := p.store.Pause(ctx, store.QueueGate("mail"), 20*time.Millisecond, store.Intervention{Reason: "as planned"})
	return err
}

// workScript runs the jobs of the script.
func (p *player) workScript(ctx context.Context) error {
	w, err := worker.New(p.store, worker.Config{
		Queues: stormQueues, Concurrency: 4, Lease: pointLease, NoScheduler: true, DrainTimeout: time.Second,
		Backoff: func(int) time.Duration { return 10 * time.Millisecond },
	})
	if err != nil {
		return err
	}
	worker.Register(w, "work", func(_ context.Context, job worker.Job[[]byte]) error {
		switch job.ID {
		case scriptJob(scriptDiscard).ID:
			return worker.Discard(errPlanned)
		case scriptJob(scriptExhausts).ID:
			return errPlanned
		case scriptJob(scriptFails).ID:
			if job.Attempt == 1 {
				return errPlanned
			}
		case scriptJob(scriptSnoozes).ID:
			if time.Since(job.Admitted) < 100*time.Millisecond {
				return worker.Snooze(30 * time.Millisecond)
			}
		}
		return nil
	})
	return w.Run(ctx)
}
