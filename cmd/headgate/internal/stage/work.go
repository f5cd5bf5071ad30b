package stage

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/ledger"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// Task is a job in a handler's hands.
type Task struct {
	// Number is the job's in the ledger.
	Number int
	admission.Job
}

// Work runs jobs of the given types with one handler until ctx ends, and drains. It is to be called once.
func (s *Stage) Work(ctx context.Context, types []string, handle func(context.Context, Task) error) error {
	w, err := worker.New(s.store, worker.Config{
		Logger: s.config.Logger, Queues: []store.QueueWeight{{Queue: s.config.Queue}}, Concurrency: s.config.Concurrency,
		DrainTimeout: s.config.DrainTimeout, DefaultTimeout: admission.MaxTimeout, Backoff: s.config.Backoff,
		Breaker: s.config.Breaker, Observer: worker.Observer{Started: s.started, Finished: s.finished},
	})
	if err != nil {
		return err
	}
	clock, err := readClock(ctx, s.store)
	if err != nil {
		return err
	}
	for _, name := range types {
		worker.Register(w, name, func(ctx context.Context, job worker.Job[[]byte]) error {
			number := numberOf(job.ID)
			s.ledger.Arrive(number, job.Admitted, clock.now().Sub(job.Admitted))
			return handle(ctx, Task{Number: number, Job: job.Job})
		})
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { s.watch(watching, w) })
	err = w.Run(ctx)
	stop()
	watch.Wait()
	return err
}

func (s *Stage) started(e worker.Event) {
	if token, err := ledger.ParseToken(e.Token); err == nil {
		s.ledger.Start(numberOf(e.Key.ID), token, time.Now())
	}
}

// finished writes down how a delivery ended. One whose handler never started is a dispatch all the same.
func (s *Stage) finished(e worker.Event) {
	number := numberOf(e.Key.ID)
	if token, err := ledger.ParseToken(e.Token); err == nil {
		s.ledger.Deliver(number, token)
	}
	if ran(e) {
		s.ledger.End(number, endingOf(e))
	}
}

// ran reports whether the handler of a finished event had started.
func ran(e worker.Event) bool { return e.RunTime > 0 || e.Outcome == worker.Completed }

func endingOf(e worker.Event) ledger.Ending {
	switch e.Outcome {
	case worker.Completed:
		return ledger.Succeeded
	case worker.Retried, worker.Dead:
		return ledger.Failed
	case worker.Released:
		if e.Reason == worker.ReasonProbe {
			return ledger.Spared
		}
	case worker.Expired, worker.Cancelled, worker.Lost:
	}
	return ledger.BrokenOff
}
