package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker/internal/fleet"
	"github.com/headgate/headgate/worker/internal/inhand"
	"github.com/headgate/headgate/worker/internal/loads"
)

// Worker runs jobs. Make it with New, give it handlers with Register, RegisterAny and Use, then call Run once. Breakers may be
// called from several goroutines at any time.
type Worker struct {
	// store is the partition whose jobs it runs.
	store  store.Partition
	config Config
	pool   store.Pool
	// handlers, anyType (nil for none) and middleware are written before Run and only read after.
	handlers   map[string]Handler
	anyType    Handler
	middleware []Middleware
	// problems are what Register found wrong; Run returns them.
	problems []error
	ran      atomic.Bool

	scheduler *scheduler.Scheduler
	promoting fleet.Nudge
	clock     inhand.RedisClock
	slots     *inhand.Slots
	finisher  *finisher
	breakers  *fleet.Breakers
	classes   *fleet.Classes
	// suspects are the jobs that run and were lost with a worker before.
	suspects *suspects
	// parts are workers of single partitions, which run the jobs with slots that this one shares out; nil where there is but
	// one.
	parts []*Worker
	// resized says that the slots of such a worker have changed.
	resized fleet.Nudge
	// shared is what such a worker has in common with the others; nil for one that is alone.
	shared *shared
	// guard says whether jobs may be taken; nil where nothing is limited. Workers of partitions have one in common.
	guard *guard.Guard
	// telling is how it tells how busy it is. Workers of partitions have one in common, and the first tells; index is that of the partition.
	telling *loads.Teller
	index   int
	// leave ends Run with an error that waiting does not mend.
	leave context.CancelCauseFunc
	// unknown is for warnings about types without a handler.
	unknown  sampled
	failures *failures
	// watch knows whether Redis is away.
	watch *outage.Watch
}

// ErrDraining is the cause with which a handler's ctx ends when Config.DrainTimeout has passed: the job is handed back
// unharmed, whatever error the handler returns.
var ErrDraining = errors.New("worker is draining")

// New returns a Worker on a store. It sends nothing yet.
func New(store store.Deployment, config Config) (*Worker, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure worker: %w", err)
	}
	config = config.guarded(callback.NewGuard(config.Logger))
	w, err := newOf(store, config)
	if err != nil {
		return nil, err
	}
	if err = w.addGuard(); err != nil {
		return nil, err
	}
	return w, nil
}

// newOf returns a Worker without a guard.
func newOf(store store.Deployment, config Config) (*Worker, error) {
	if len(store.Partitions()) > 1 {
		return newOfParts(store, config)
	}
	return newWorker(store, 0, config)
}

// addGuard gives a Worker the guard of its config.
func (w *Worker) addGuard() error {
	parts := w.parts
	if parts == nil {
		parts = []*Worker{w}
	}
	made, err := guard.New(w.config.Guard, guard.Parts{
		Logger: w.config.Logger, Sampler: w.config.sampler, Changed: w.config.Observer.Guarded,
		Throttled: func(on bool) {
			for _, part := range parts {
				part.slots.Shut(on)
				part.resized.Give()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("configure worker: guard: %w", err)
	}
	if made == nil {
		return nil
	}
	w.guard = made
	if w.shared == nil { // Redis is told of slots by who shares them.
		w.shared = newShared(w.config.Concurrency)
	}
	for _, part := range parts {
		part.guard = made
	}
	return nil
}

// newWorker returns a Worker of one partition.
func newWorker(of store.Deployment, partition int, config Config) (*Worker, error) {
	timers, err := scheduler.NewOf(of, partition, config.Scheduler)
	if err != nil {
		return nil, fmt.Errorf("configure worker: %w", err)
	}
	names, err := fleet.NewClasses()
	if err != nil {
		return nil, fmt.Errorf("configure worker: %w", err)
	}
	s := of.Partitions()[partition]
	w := &Worker{
		store: s, config: config, handlers: make(map[string]Handler), scheduler: timers, classes: names,
		pool:      store.Pool{Queues: config.Queues, Strict: config.Strict},
		promoting: fleet.NewNudge(), slots: inhand.NewSlots(config.Concurrency), suspects: &suspects{}, resized: fleet.NewNudge(), failures: newFailures(),
		watch: outage.NewWatch(config.Logger), telling: loads.New(config.Logger, config.Queues, config.sampler), index: partition,
	}
	w.finisher = newFinisher(s, w.pool.ID(), config.Logger, w.watch, w.promoting, names, w.slots)
	w.breakers = fleet.NewBreakers(of, partition, config.setupOf(), names, w.promoting)
	w.breakers.Watch = w.watch
	return w, nil
}

// Run registers the worker and runs jobs until ctx ends. Then it drains: it takes no further jobs, gives the running
// handlers DrainTimeout, cancels those that are left with ErrDraining, hands their jobs back, and returns when
// all of its goroutines have. A handler that ignores the end of its ctx is left behind, and the error says how many
// were. Redis may be away for any time: Run waits for it, and returns an error only for what waiting does not mend. Once ctx
// has ended it waits for Redis no longer than the lease: Run returns a few seconds after DrainTimeout, or after the end of the
// lease if that is later, whatever Redis and the handlers do, and jobs whose end it could not tell run again elsewhere.
func (w *Worker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return errors.New("run worker: it ran before")
	}
	if err := errors.Join(w.problems...); err != nil {
		return fmt.Errorf("run worker: %w", err)
	}
	w.wrap()
	var guarding sync.WaitGroup
	defer guarding.Wait()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	w.leave = leave
	for _, part := range w.parts {
		part.leave = leave
	}
	guarding.Go(func() { w.guard.Run(ctx) })
	do := w.run
	if w.parts != nil {
		do = w.runParts
	}
	err := do(ctx)
	if cause := context.Cause(ctx); store.IsOutdated(cause) {
		err = errors.Join(fmt.Errorf("run worker: %w", cause), err)
	}
	return err
}

// run is Run for one partition.
func (w *Worker) run(ctx context.Context) error {
	// What ends jobs outlives ctx, because a drain needs it.
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var support sync.WaitGroup
	support.Go(func() { w.finisher.run(after) })
	support.Go(func() { w.breakers.Run(after) })
	support.Go(func() { w.breakers.Follow(ctx) })
	support.Go(func() { promote(after, w.scheduler, w.promoting, w.config.Logger) })
	if !w.config.NoScheduler {
		// It stops with ctx: what is due runs with other workers now, or with nobody.
		support.Go(func() { _ = w.scheduler.Run(ctx) })
	}
	for ctx.Err() == nil {
		w.serve(ctx, after)
	}
	w.await(w.slots.AllFree(), cancelGrace) // Handlers of registrations that were lost, too.
	end()
	support.Wait()
	w.await(w.slots.AllFree(), endGrace)
	if left := w.slots.InHand(); left > 0 {
		return fmt.Errorf("run worker: %d handlers ignored the end of their ctx and were left running", left)
	}
	return nil
}

// await waits for a channel to be closed, for a time.
func (w *Worker) await(done <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Breakers returns the state of every circuit breaker, by the name of its downstream.
func (w *Worker) Breakers() []BreakerStatus {
	if w.parts != nil {
		return w.breakersOfParts()
	}
	return statusOf(w.breakers)
}

// SchedulerStats returns the counters of the scheduler beside the worker.
func (w *Worker) SchedulerStats() scheduler.Stats {
	if w.parts != nil {
		return w.parts[0].SchedulerStats() // Only the first partition's scheduler tells of transitions.
	}
	return w.scheduler.Stats()
}

// promote runs what is due as often as somebody says that work is left.
func promote(ctx context.Context, timers *scheduler.Scheduler, asked fleet.Nudge, logger zerolog.Logger) {
	for {
		select {
		case <-asked:
		case <-ctx.Done():
			return
		}
		if err := timers.Promote(ctx); err != nil && ctx.Err() == nil {
			logger.Debug().Err(err).Msg("promote: left to the schedulers")
		}
	}
}
