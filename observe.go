package headgate

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// observed is what a client's process does through it, for whoever shows that. The client, its limiters and its workers tell it.
type observed struct {
	// by are those who are told; nil while there are none, which costs a job one load.
	by atomic.Pointer[[]observer]

	mu struct {
		sync.Mutex

		// limiters are those that are open, closed is what the others had counted.
		limiters map[*limiter.Limiter]struct{}
		closed   limiter.Stats
		// guards is the last change of each thing that a guard limits.
		guards map[string]worker.GuardChange
	}
}

// observer is told of jobs, and of a guard's changes. A nil function is not called.
type observer struct {
	decided  func(admission.Job, Verdict, error)
	finished func(worker.Event)
	guarded  func(worker.GuardChange)
}

// Observe has functions called with what this process does through the client from now on, also by workers that were made before; telemetry.Collector
// shows it to Prometheus. decided hears each answer on a job, as producer.Observer has it; finished each job that left the hand of a worker; guarded
// each change that a Guard found, and at once how those stand that it has found before. A nil function is not called. They are called by many
// goroutines, whose job waits for them, and must not call Observe. A panic of one is logged and changes nothing.
func (i Inspection) Observe(decided func(admission.Job, Verdict, error), finished func(worker.Event), guarded func(worker.GuardChange)) {
	o := &i.client.observed
	o.mu.Lock()
	defer o.mu.Unlock()
	var by []observer
	if before := o.by.Load(); before != nil {
		by = *before
	}
	by = append(slices.Clone(by), observer{decided, finished, guarded})
	o.by.Store(&by)
	if guarded == nil {
		return
	}
	for _, change := range o.mu.guards { // Under the lock, so that no older change comes after a newer one.
		guarded(change)
	}
}

// Limiters returns what the client's limiters have counted since it was opened, all together, those that are closed too. It asks Redis for nothing.
func (i Inspection) Limiters() limiter.Stats {
	o := &i.client.observed
	o.mu.Lock()
	defer o.mu.Unlock()
	sum := o.mu.closed
	for l := range o.mu.limiters {
		sum = sum.Plus(l.Stats())
	}
	return sum
}

// Breakers returns the fleet's circuit breakers of all downstreams, with what their calls came to, as Redis has them.
func (i Inspection) Breakers(ctx context.Context) ([]store.BreakerState, error) {
	return i.client.store.Breakers(ctx)
}

// opened counts a limiter in.
func (o *observed) opened(l *limiter.Limiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.limiters == nil {
		o.mu.limiters = map[*limiter.Limiter]struct{}{}
	}
	o.mu.limiters[l] = struct{}{}
}

// left keeps what a limiter has counted that holds nothing any more, and lets go of the limiter.
func (o *observed) left(l *limiter.Limiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, open := o.mu.limiters[l]; !open {
		return // It was closed before.
	}
	delete(o.mu.limiters, l)
	last := l.Stats()
	last.Levels = nil // Nothing of it is in force.
	o.mu.closed = o.mu.closed.Plus(last)
}

// producer returns the Observer of the client's producer.
func (o *observed) producer() producer.Observer {
	return producer.Observer{Decided: func(job admission.Job, verdict admission.Verdict, err error) {
		tell(o.all(), func(by observer) {
			if by.decided != nil {
				by.decided(job, verdict, err)
			}
		})
	}}
}

// worker returns the Observer of a worker of the client's.
func (o *observed) worker() worker.Observer {
	return worker.Observer{
		Finished: func(e worker.Event) {
			tell(o.all(), func(by observer) {
				if by.finished != nil {
					by.finished(e)
				}
			})
		},
		Guarded: func(change worker.GuardChange) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.mu.guards == nil {
				o.mu.guards = map[string]worker.GuardChange{}
			}
			o.mu.guards[string(change.Kind)] = change
			tell(o.all(), func(by observer) {
				if by.guarded != nil {
					by.guarded(change)
				}
			})
		},
	}
}

func (o *observed) all() []observer {
	if by := o.by.Load(); by != nil {
		return *by
	}
	return nil
}

// tell tells all, also where one of them panics: the producer or the worker, which called, logs that.
func tell(by []observer, of func(observer)) {
	if len(by) == 0 {
		return
	}
	defer tell(by[1:], of)
	of(by[0])
}
