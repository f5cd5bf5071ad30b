package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
)

// Config says what to run beside the plan.
type Config struct {
	// Redis is the address of a Redis; empty means a private one.
	Redis string
	// AsynqPoll is asynq's TaskCheckInterval; zero means its default.
	AsynqPoll time.Duration
	// Notes takes what the user must know about the store.
	Notes io.Writer
	// Progress is called some fifty times a second; nil is not.
	Progress func(record.Progress)
}

// lead is the time between the worker's being ready and the start.
const lead = 20 * time.Millisecond

// retryPause is how long a caller who was refused waits before it asks again, and up to half of it more or less.
const retryPause = 100 * time.Millisecond

// Run runs a plan. When ctx ends jobs arrive no more, and the result is marked as interrupted.
func Run(ctx context.Context, plan *load.Plan, open Open, config Config) (result *figures.Run, err error) {
	var book atomic.Pointer[record.Book]
	s, err := open(ctx, SystemConfig{
		Plan: plan, Book: book.Load, Redis: config.Redis, AsynqPoll: config.AsynqPoll, Notes: config.Notes,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	w, err := newWorld(ctx, plan, s.Redis())
	if err != nil {
		return nil, err
	}
	defer w.close()
	r := &run{plan: plan, system: s, world: w, book: &book, peaks: map[int]*most{}}
	for i, queue := range plan.Queues {
		if plan.Caps[queue] > 0 {
			r.peaks[i] = &most{}
		}
	}
	return r.perform(ctx, config)
}

// run is one run under way.
type run struct {
	plan   *load.Plan
	system System
	world  *world
	book   *atomic.Pointer[record.Book]
	peaks  map[int]*most
}

func (r *run) perform(ctx context.Context, config Config) (*figures.Run, error) {
	going := context.WithoutCancel(ctx) // What has begun is brought to its end: the books must balance.
	working, stopWork := context.WithCancel(going)
	defer stopWork()
	ready, failed := make(chan struct{}), make(chan error, 1)
	var work sync.WaitGroup
	work.Go(func() {
		if err := r.system.Work(working, func() { close(ready) }, r.handle); err != nil {
			failed <- fmt.Errorf("work: %w", err)
		}
	})
	select {
	case <-ready:
	case err := <-failed:
		return nil, err
	}
	book := record.NewBook(len(r.plan.Arrivals), time.Now().Add(lead))
	r.book.Store(book)
	result := &figures.Run{
		Plan: r.plan, System: r.system.Name(), Store: r.system.Redis().String(),
		Book: book, Peaks: map[string]int{},
	}
	watching, stopWatch := context.WithCancel(going)
	var beside sync.WaitGroup
	beside.Go(func() { result.Breakers = watch(watching, r.system, book, config.Progress) })
	err := r.arrive(ctx, book)
	settle(ctx, r.system, book, r.plan)
	result.Wall, result.Interrupted = book.Now(), ctx.Err() != nil
	stopWork()
	work.Wait()
	stopWatch()
	beside.Wait()
	for queue, m := range r.peaks {
		result.Peaks[r.plan.Queues[queue]] = int(m.peak.Load())
	}
	select {
	case workErr := <-failed:
		err = errors.Join(err, workErr)
	default:
	}
	if err != nil {
		return nil, err
	}
	result.Account, err = account(ctx, r.system)
	return result, err
}

// arrive sends every job at its time while the world goes its way.
func (r *run) arrive(ctx context.Context, book *record.Book) error {
	going := context.WithoutCancel(ctx)
	var world sync.WaitGroup
	var bad error
	world.Go(func() { bad = r.world.run(ctx, book.Start()) })
	load.Pace(ctx, r.plan.Arrivals, book.Start(), func(number int) {
		book.Send(number)
		answer := r.system.Enqueue(going, number)
		for range r.plan.Retries() {
			if answer.Outcome != record.Refused || !sleep(ctx, retryPause/2+rand.N(retryPause)) {
				break
			}
			book.SendAgain(number)
			answer = r.system.Enqueue(going, number)
		}
		book.Answer(number, answer)
	})
	world.Wait()
	return bad
}

// handle is the handler of every job.
func (r *run) handle(ctx context.Context, number int, admitted time.Time) error {
	book, a := r.book.Load(), &r.plan.Arrivals[number]
	if peak := r.peaks[a.Queue]; peak != nil {
		peak.enter()
		defer peak.leave()
	}
	book.Begin(number, admitted)
	if err := r.world.work(ctx, a); err != nil {
		return err
	}
	book.Complete(number)
	return nil
}
