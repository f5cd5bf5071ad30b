package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/cmd/headgate/internal/stage"
	"github.com/headgate/headgate/store"
)

// drainTimeout is how long handlers may go on after an interrupt.
const drainTimeout = 5 * time.Second

// replay is one run.
type replay struct {
	config Config
	stage  *stage.Stage
	jobs   jobs
	start  time.Time
}

// Run replays a trace. It returns when nothing is runnable any more; when ctx ends before, it drains and returns what
// it has, as interrupted. An error means that there is nothing to report.
func Run(ctx context.Context, config Config) (run report.Run, classes []admission.Class, err error) {
	if err := config.Validate(); err != nil {
		return report.Run{}, nil, err
	}
	config = config.withDefaults()
	s, err := stage.Open(ctx, stage.Config{
		Redis: config.Redis, Name: "replay", Queue: Queue, Policy: config.Policy, Jobs: len(config.Trace.Rows),
		Concurrency: config.Concurrency, DrainTimeout: drainTimeout, Backoff: backoff(config), Breaker: breakers(config),
		Logger: config.Logger, Notes: config.Progress, Keep: config.Keep,
	})
	if err != nil {
		return report.Run{}, nil, fmt.Errorf("open the store: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	classes = s.Classes()
	r := &replay{config: config, stage: s, jobs: newJobs(config, classes)}
	run, err = r.run(ctx)
	return run, classes, err
}

func (r *replay) run(ctx context.Context) (report.Run, error) {
	r.start = time.Now()
	showing, stopShowing := context.WithCancel(context.WithoutCancel(ctx))
	var show sync.WaitGroup
	show.Go(func() { r.show(showing) })
	err := r.perform(ctx)
	wall := time.Since(r.start)
	stopShowing()
	show.Wait()
	interrupted := ctx.Err() != nil
	if err != nil && !interrupted {
		return report.Run{}, err
	}
	census, err := r.stage.Census(ctx)
	if err != nil {
		return report.Run{}, fmt.Errorf("count what Redis holds: %w", err)
	}
	t := r.config.Trace
	return report.Run{
		Rows: len(t.Rows) + len(t.Bad) + r.config.Excluded, BadRows: len(t.Bad), Excluded: r.config.Excluded,
		Figures: r.stage.Figures(), Census: census, States: r.stage.BreakerStates(), Wall: wall, Interrupted: interrupted,
	}, nil
}

// perform enqueues, works and waits for the end. The worker has drained when it returns.
func (r *replay) perform(ctx context.Context) error {
	if r.config.Preload {
		if err := r.feed(ctx); err != nil {
			return err
		}
	}
	working, stopWork := context.WithCancel(ctx)
	feeding, stopFeed := context.WithCancelCause(ctx)
	defer stopFeed(nil)
	var work sync.WaitGroup
	work.Go(func() {
		if err := r.stage.Work(working, r.jobs.types(), r.jobs.handle); err != nil {
			stopFeed(err)
		}
	})
	var err error
	if !r.config.Preload {
		err = r.feed(feeding)
	}
	if err == nil {
		err = r.stage.Settle(feeding, stage.NothingRunnable)
	}
	stopWork()
	work.Wait()
	return err
}

// feed enqueues each row when its time has come. Rows whose time has come together go in one batch.
func (r *replay) feed(ctx context.Context) error {
	rows := r.config.Trace.Rows
	began := time.Now()
	for next := 0; next < len(rows); {
		due := func(i int) time.Duration { return r.config.scaled(rows[i].Arrival.Sub(rows[0].Arrival)) }
		if !sleep(ctx, due(next)-time.Since(began)) {
			return context.Cause(ctx)
		}
		elapsed := time.Since(began)
		var batch []admission.Job
		for next < len(rows) && len(batch) < store.MaxBatchJobs && due(next) <= elapsed {
			batch = append(batch, r.jobs.of(&rows[next]))
			next++
		}
		if err := r.stage.Enqueue(ctx, batch); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	return nil
}
