package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker/internal/fleet"
	"github.com/headgate/headgate/worker/internal/inhand"
)

// finisher tells Redis how jobs ended. No timer is involved: what is submitted while one call is in flight goes with
// the next one, up to store.MaxBatchJobs and store.MaxBatchBytes of results.
//
// A call whose answer was lost is sent again: Redis answers "lost" for what the first one ended, so that is taken
// for done. Nothing is given up while the worker runs, for a job that is not ended here would be held for ever.
type finisher struct {
	store     store.Partition
	pool      string
	logger    zerolog.Logger
	watch     *outage.Watch
	promoting fleet.Nudge
	work      fleet.Nudge
	classes   *fleet.Classes
	slots     *inhand.Slots
	// room is that of the last call's finishes.
	room []store.Finish
	// worker is the name of the latest registration, for the jobs' histories.
	worker atomic.Pointer[string]

	mu struct {
		sync.Mutex
		waiting []*ending
		stopped bool
	}
}

// ending is one job's end on its way.
type ending struct {
	finish store.Finish
	// class is the index of the job's class, jobType its type.
	class   int
	jobType string
	// last says that a retry burns the last attempt.
	last bool
	// slotted says that the job holds a slot, left that it has left it: its end is on its way. left may be read once done is closed.
	slotted, left bool
	// ended may be read once done is closed. It is store.EndedLost too where the finisher had to stop first, or Redis refused it: then
	// refused is set, and Redis has the job as this worker's still.
	ended   store.Ended
	refused bool
	done    chan struct{}
}

// refusals is how often Redis may refuse one job's end with an error before it is given up.
const refusals = 5

func newFinisher(store store.Partition, pool string, logger zerolog.Logger, watch *outage.Watch, promoting fleet.Nudge, classes *fleet.Classes, slots *inhand.Slots) *finisher {
	return &finisher{store: store, pool: pool, logger: logger, watch: watch, promoting: promoting, work: fleet.NewNudge(), classes: classes, slots: slots}
}

// submit takes the end of a lease, which holds a slot if slotted. The caller waits for done, which is closed whatever happens.
func (f *finisher) submit(lease *store.Lease, a answer, slotted bool) *ending {
	e := &ending{slotted: slotted, finish: finishOf(lease, a), class: lease.Class, jobType: lease.Job.Type, last: lease.Attempts+1 >= lease.Job.MaxAttempts, ended: store.EndedLost, done: make(chan struct{})}
	f.mu.Lock()
	stopped := f.mu.stopped
	if !stopped {
		f.mu.waiting = append(f.mu.waiting, e)
	}
	f.mu.Unlock()
	if stopped {
		close(e.done)
		return e
	}
	f.work.Give()
	return e
}

// run sends until ctx ends. What is left then is lost to this worker; Redis takes it back with the lease.
func (f *finisher) run(ctx context.Context) {
	for {
		select {
		case <-f.work:
		case <-ctx.Done():
			f.stop()
			return
		}
		for batch := f.next(); len(batch) > 0; batch = f.next() {
			f.send(ctx, batch, false)
		}
	}
}

// next takes what goes with the next call.
func (f *finisher) next() []*ending {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(f.mu.waiting), store.MaxBatchJobs) {
		bytes += len(f.mu.waiting[n].finish.Result)
		if n > 0 && bytes > store.MaxBatchBytes {
			break
		}
		n++
	}
	batch := f.mu.waiting[:n:n]
	f.mu.waiting = f.mu.waiting[n:]
	if len(f.mu.waiting) == 0 {
		f.mu.waiting = nil
	}
	return batch
}

func (f *finisher) stop() {
	f.mu.Lock()
	left := f.mu.waiting
	f.mu.waiting, f.mu.stopped = nil, true
	f.mu.Unlock()
	for _, e := range left {
		close(e.done)
	}
}

// send sends a batch as often as need be, and settles it. doubt says that a call of it may have been carried out already.
func (f *finisher) send(ctx context.Context, batch []*ending, doubt bool) {
	finishes, stale := slices.Grow(f.room[:0], len(batch))[:len(batch)], 0
	f.room = finishes
	defer clear(finishes)
	f.fill(finishes, batch)
	f.leave(batch)
	trouble := f.watch.Trouble("finish", fleet.FirstPause, fleet.LastPause)
	defer trouble.Leave()
	for refused := 0; ctx.Err() == nil && refused < refusals; {
		ends, more, err := f.call(ctx, finishes)
		if err == nil {
			trouble.Over()
			f.settle(batch, ends, doubt)
			if more {
				f.promoting.Give()
			}
			return
		}
		switch {
		case errors.Is(err, store.ErrStale):
			if stale++; f.spendAnew(ctx, finishes, batch, stale, err) {
				continue
			}
		case store.InDoubt(err):
			doubt = true
		case errors.Is(err, admission.ErrUnavailable):
		case len(batch) > 1:
			// One of them is at fault: alone, it does not keep the others.
			for i := range batch {
				f.send(ctx, batch[i:i+1], doubt)
			}
			return
		default:
			refused++
		}
		trouble.Failed(ctx, err)
	}
	if ctx.Err() == nil {
		f.logger.Error().Str("tenant", finishes[0].Key.Tenant).Str("job", finishes[0].Key.ID).
			Msg("redis refuses to end this job: it stays with this worker until the lease ends")
	}
	for _, e := range batch {
		e.refused = ctx.Err() == nil
		close(e.done)
	}
}

// leave leaves the slots of a batch that is to be sent: by the time that a read for them has come to Redis the call has made room there, and a slot is
// idle for one round trip less. No more jobs can come than Redis has slots for, whose entries leave the stream by the call alone.
func (f *finisher) leave(batch []*ending) {
	n := 0
	for _, e := range batch {
		if e.slotted && !e.left {
			e.left = true
			n++
		}
	}
	f.slots.Leave(n)
}

// stales is how many policies may be found stale one after the other before the costs that go by them are given up.
const stales = 5

// fill takes the ends of a batch, with the limits that costs of theirs go by.
func (f *finisher) fill(finishes []store.Finish, batch []*ending) {
	for i, e := range batch {
		finishes[i] = e.finish
		if e.finish.Spent != nil {
			finishes[i].Spent = f.classes.Spent(&e.finish, e.class, e.jobType)
		}
	}
}

// spendAnew has the costs of a batch go by the policy that is in force now, and reports whether to send at once. Where policies are stale
// again and again, the reservations stand: a job's end is not to wait for what it costs.
func (f *finisher) spendAnew(ctx context.Context, finishes []store.Finish, batch []*ending, stale int, answer error) bool {
	reading, cancel := context.WithTimeout(ctx, fleet.CallTimeout)
	defer cancel()
	err := f.classes.Renew(reading, f.store, answer)
	if f.fill(finishes, batch); stale < stales {
		return err == nil
	}
	f.logger.Warn().Err(err).Int("jobs", len(batch)).Msg("the limits of jobs could not be read: what they have cost is not told, their reservations stand")
	for i := range finishes {
		finishes[i].Spent = nil
	}
	return true
}

// call makes one round trip.
func (f *finisher) call(ctx context.Context, finishes []store.Finish) ([]store.Ended, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, fleet.CallTimeout)
	defer cancel()
	return f.store.Finish(ctx, f.pool, *f.worker.Load(), finishes)
}

// settle hands out the answers. After a lost one, what is gone was ended by it.
func (f *finisher) settle(batch []*ending, ends []store.Ended, doubt bool) {
	for i, e := range batch {
		e.ended = ends[i]
		if doubt && ends[i] == store.EndedLost {
			e.ended = e.intended()
		}
		close(e.done)
	}
}
