package limiter

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// ticket is one check on its way to Redis. Its pilot writes the answer before it closes done.
type ticket struct {
	route route
	// way is what the caller knew of the route; where it is nil or of an old policy the pilot looks it up.
	way *way
	// cost is zero where more tokens are fetched and nobody waits.
	cost admission.Tokens
	// tell says that the caller wants to know what is left where it is admitted.
	tell bool
	// boarded is the way on which it was asked. Only the pilot uses it before done.
	boarded *way
	// left says that the caller has gone.
	left atomic.Bool
	done chan struct{}

	verdict Verdict
	err     error
	// away says that Redis gave no answer.
	away bool
}

func newTicket(at route, w *way, cost admission.Tokens) *ticket {
	return &ticket{route: at, way: w, cost: cost, done: make(chan struct{})}
}

func (t *ticket) telling(remaining bool) *ticket {
	t.tell = remaining
	return t
}

// line is where tickets wait while all places of calls are taken. What waits while a call is under way goes with the next.
type line struct {
	places int
	// flying are the pilots.
	flying sync.WaitGroup

	mu struct {
		sync.Mutex
		// waiting are those whose callers wait; fetching go where these leave room.
		waiting, fetching []*ticket
		pilots            int
		closed            bool
	}
}

// join adds a ticket. pilot says that a new pilot is to fly, ok that the line is open.
func (l *line) join(t *ticket) (pilot, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return false, false
	}
	if t.cost > 0 {
		l.mu.waiting = append(l.mu.waiting, t)
	} else {
		l.mu.fetching = append(l.mu.fetching, t)
	}
	if l.mu.pilots >= l.places {
		return false, true
	}
	l.mu.pilots++
	l.flying.Add(1)
	return true, true
}

// board returns the next tickets, at most as many as a call takes; none when the pilot is not needed any more.
func (l *line) board() []*ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	tickets := boarding(nil, &l.mu.waiting)
	tickets = boarding(tickets, &l.mu.fetching)
	if len(tickets) == 0 {
		l.mu.pilots--
		l.flying.Done()
	}
	return tickets
}

// boarding adds the next of a queue, while there is room in a call.
func boarding(tickets []*ticket, queue *[]*ticket) []*ticket {
	for len(tickets) < store.MaxBatchJobs && len(*queue) > 0 {
		t := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		if !t.left.Load() {
			tickets = append(tickets, t)
		}
	}
	if len(*queue) == 0 {
		*queue = nil // The array does not grow for ever.
	}
	return tickets
}

// close lets nobody join any more, and waits for those that are in it.
func (l *line) close() {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.Unlock()
	l.flying.Wait()
}

func (l *line) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.closed
}

// ask takes a ticket through the line.
func (l *Limiter) ask(ctx context.Context, t *ticket) (Verdict, error) {
	now := l.clock.now()
	if int64(now) < l.shut.Load() {
		return l.answerBlind(ctx, t, t.way, now), nil
	}
	if ctx.Err() != nil { // Nobody hears the answer: nothing is charged for it.
		return Verdict{}, context.Cause(ctx)
	}
	if err := l.send(ctx, t); err != nil {
		return Verdict{}, err
	}
	timer := time.NewTimer(l.config.Timeout)
	defer timer.Stop()
	select {
	case <-t.done:
		if t.away {
			return l.answerBlind(ctx, t, cmp.Or(t.boarded, t.way), l.clock.now()), nil
		}
		if t.err == nil {
			l.counts.answered(t.verdict.Admitted)
			l.noteVerdict(ctx, t.boarded, &t.verdict, t.cost)
		}
		return t.verdict, t.err
	case <-timer.C:
		t.left.Store(true)
		return l.answerBlind(ctx, t, t.way, l.clock.now()), nil
	case <-ctx.Done():
		t.left.Store(true)
		return Verdict{}, context.Cause(ctx)
	}
}

// fetch asks for more tokens of a way, and nobody waits for them.
func (l *Limiter) fetch(ctx context.Context, w *way) {
	if int64(l.clock.now()) < l.shut.Load() || l.send(ctx, newTicket(w.asked, w, 0)) != nil {
		w.fetched()
		l.hearing.Store(false)
	}
}

// send puts a ticket into the line, with a pilot where there is a place. A pilot flies for whoever waits, so the end of this
// caller's ctx is not its own.
func (l *Limiter) send(ctx context.Context, t *ticket) error {
	pilot, ok := l.line.join(t)
	if !ok {
		return ErrClosed
	}
	if pilot {
		go l.pilot(context.WithoutCancel(ctx))
	}
	return nil
}

// pilot makes calls until nobody waits. The line's WaitGroup counts it.
func (l *Limiter) pilot(ctx context.Context) {
	for {
		tickets := l.line.board()
		if len(tickets) == 0 {
			return
		}
		l.serve(ctx, tickets)
		l.ways.sweep(l.clock.now())
	}
}
