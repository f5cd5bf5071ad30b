package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/cmd/headgate/internal/stage"
)

// Config says how to tell the story. The zero value works.
type Config struct {
	// Duration is the story's length, 3 s to 1 min, zero means DefaultDuration.
	Duration time.Duration
	// Redis is the address of a Redis; empty means a private one. Keep leaves the keys there.
	Redis string
	Keep  bool
	// Logger is that of the producer and the worker.
	Logger zerolog.Logger
	// Progress takes progress and notes, standard error for one.
	Progress io.Writer
}

// DefaultDuration is long enough to read along.
const DefaultDuration = 20 * time.Second

const (
	minDuration = 3 * time.Second
	maxDuration = time.Minute
)

func (c Config) withDefaults() Config {
	c.Duration = cmp.Or(c.Duration, DefaultDuration)
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

// Validate reports a bad field by the name of its flag.
func (c Config) Validate() error {
	c = c.withDefaults()
	if c.Duration >= minDuration && c.Duration <= maxDuration {
		return nil
	}
	return &admission.FieldError{Field: "--duration", Value: c.Duration.String(), Allowed: "3s to 1m"}
}

// errMailDead is what the bakery's handler says while its downstream is dead.
var errMailDead = errors.New("mail: connection refused")

// sendEvery is the pace at which tenants send what has become due.
const sendEvery = 20 * time.Millisecond

// demo is one telling.
type demo struct {
	config Config
	script script
	stage  *stage.Stage
	start  time.Time
	// stopped is the moment of the story at which it was interrupted; 0 while it was not.
	stopped atomic.Int64
}

// Run tells the story. When ctx ends before the story does, it drains and returns what there is, as interrupted.
func Run(ctx context.Context, config Config) (outcome *Outcome, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	s := newScript(config.Duration)
	opened, err := stage.Open(ctx, stage.Config{
		Redis: config.Redis, Name: "demo", Queue: queue, Policy: limits(), Jobs: 4096, Concurrency: slots,
		DrainTimeout: time.Second, Backoff: s.backoff(), Breaker: s.breakers(),
		Logger: config.Logger, Notes: config.Progress, Keep: config.Keep,
	})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	defer func() { err = errors.Join(err, opened.Close(ctx)) }()
	d := &demo{config: config, script: s, stage: opened}
	return d.run(ctx)
}

func (d *demo) run(ctx context.Context) (*Outcome, error) {
	d.start = time.Now()
	showing, stopShowing := context.WithCancel(context.WithoutCancel(ctx))
	var show sync.WaitGroup
	show.Go(func() { d.show(showing) })
	show.Go(func() { d.stopClock(ctx, showing) })
	err := d.perform(ctx)
	wall := time.Since(d.start)
	stopShowing()
	show.Wait()
	interrupted := ctx.Err() != nil
	if err != nil && !interrupted {
		return nil, err
	}
	census, err := d.stage.Census(ctx)
	if err != nil {
		return nil, fmt.Errorf("count what Redis holds: %w", err)
	}
	figures := d.stage.Figures()
	return &Outcome{
		Run: report.Run{
			Rows: figures.Progress.Asked, Figures: figures, Census: census, States: d.stage.BreakerStates(), Wall: wall, Interrupted: interrupted,
		},
		script: d.script, start: d.start, told: d.elapsed(), limits: d.limitTexts(), timelines: d.timelines(wall),
		beside: d.stage.Ledger().WaitOf(bakery.tenant, d.start.Add(d.script.at(floodBegins)), d.start.Add(d.script.at(mailDies))),
	}, nil
}

// stopClock stops the clock of the story when ctx ends: while the worker drains nothing of it happens any more.
func (d *demo) stopClock(ctx, over context.Context) {
	select {
	case <-ctx.Done():
	case <-over.Done():
	}
	if ctx.Err() != nil {
		d.stopped.Store(int64(time.Since(d.start)))
	}
}

// elapsed returns how much of the story was told.
func (d *demo) elapsed() time.Duration {
	if stopped := d.stopped.Load(); stopped > 0 {
		return time.Duration(stopped)
	}
	return time.Since(d.start)
}

// errOver is why the sending ends when the worker cannot work.
var errOver = errors.New("the story is over")

// perform lets everybody send, works, and waits for what is left. The worker has drained when it returns.
func (d *demo) perform(ctx context.Context) error {
	working, stopWork := context.WithCancel(ctx)
	playing, stopPlay := context.WithCancelCause(ctx)
	defer stopPlay(errOver)
	var work, play sync.WaitGroup
	kinds := make([]string, len(cast))
	for i, a := range cast {
		kinds[i] = a.kind
		play.Go(func() {
			if err := d.send(playing, a); err != nil {
				stopPlay(err)
			}
		})
	}
	work.Go(func() {
		if err := d.stage.Work(working, kinds, d.handle); err != nil {
			stopPlay(err)
		}
	})
	play.Wait()
	err := context.Cause(playing)
	if err == nil {
		err = d.settle(playing)
	}
	stopWork()
	work.Wait()
	return err
}

// settle waits for what is left, but not for ever: a demo ends.
func (d *demo) settle(ctx context.Context) error {
	most := d.script.at(parts*1.4) - time.Since(d.start)
	ctx, cancel := context.WithTimeoutCause(ctx, most, errOver)
	defer cancel()
	err := d.stage.Settle(ctx, stage.NothingWaits)
	if errors.Is(context.Cause(ctx), errOver) {
		return nil // Whatever call it ended.
	}
	return err
}

// send enqueues an actor's jobs as they become due.
func (d *demo) send(ctx context.Context, a actor) error {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	sent := 0
	for elapsed := time.Duration(0); elapsed < d.script.at(sendingEnds); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		elapsed = time.Since(d.start)
		var jobs []admission.Job
		for due := d.script.due(a, elapsed); sent < due; sent++ {
			jobs = append(jobs, a.job())
		}
		if err := d.stage.Enqueue(ctx, jobs); err != nil {
			return fmt.Errorf("enqueue for %s: %w", a.tenant, err)
		}
	}
	return nil
}

func (a actor) job() admission.Job {
	j := admission.NewJob(a.tenant, queue, a.kind, []byte("{}"))
	j.Priority, j.Downstream, j.Cost = a.class, a.downstream, a.cost
	j.MaxAttempts = 10
	if a.deadline > 0 {
		j.Deadline = time.Now().Add(a.deadline)
	}
	return j
}

// handle is every tenant's handler. A dead downstream fails fast.
func (d *demo) handle(ctx context.Context, task stage.Task) error {
	if task.Downstream == bakery.downstream && d.script.mailDead(d.elapsed()) {
		return errMailDead
	}
	for _, a := range cast {
		if a.kind != task.Type {
			continue
		}
		timer := time.NewTimer(a.runTime)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
