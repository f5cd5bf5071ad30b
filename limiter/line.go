package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// ticket is one check on its way to Redis. Its pilot writes the answer before it sends to done, and knows it no more after that: whoever has
// received from done recycles it. One that nobody waits for (cost zero) the pilot recycles, and one whose caller has left nobody does.
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
	// done has room for the one answer; timer is stopped but while the caller waits.
	done  chan struct{}
	timer *time.Timer

	verdict Verdict
	err     error
	// away says that Redis gave no answer.
	away bool
}

func (t *ticket) telling(remaining bool) *ticket {
	t.tell = remaining
	return t
}

// queue is tickets in the order in which they came. Its zero value is empty.
type queue struct {
	// tickets begin with so many that have boarded.
	tickets []*ticket
	boarded int
}

func (q *queue) len() int { return len(q.tickets) - q.boarded }

func (q *queue) push(t *ticket) { q.tickets = append(q.tickets, t) }

// keptQueue is for how many tickets the room of a queue is kept where nobody is in it.
const keptQueue = 1024

// board adds the next of the queue whose callers have not left, while there is room in a call.
func (q *queue) board(tickets []*ticket) []*ticket {
	for ; len(tickets) < store.MaxBatchJobs && q.len() > 0; q.boarded++ {
		if t := q.tickets[q.boarded]; !t.left.Load() {
			tickets = append(tickets, t)
		}
	}
	if q.len() == 0 && cap(q.tickets) > keptQueue {
		*q = queue{}
	} else if q.boarded >= q.len() { // So that each is moved once, however many wait.
		q.tickets, q.boarded = slices.Delete(q.tickets, 0, q.boarded), 0
	}
	return tickets
}

// line is where tickets wait while all places of calls are taken. What waits while a call is under way goes with the next.
type line struct {
	places int
	// used are tickets that were recycled.
	used sync.Pool
	// flying are the pilots.
	flying sync.WaitGroup
	// watch is the timer of Limiter.watch, every after how long it goes.
	watch *time.Timer
	every time.Duration

	mu struct {
		sync.Mutex
		// waiting are those whose callers wait; fetching go where these leave room.
		waiting, fetching queue
		pilots            int
		// carried is how many tickets the last call took, tookOff when it went out.
		carried int
		tookOff breaker.Instant
		// watched says that watch is set.
		watched bool
		closed  bool
	}
}

// ticket returns one, a used one where there is any.
func (l *line) ticket(at route, w *way, cost admission.Tokens) *ticket {
	t, ok := l.used.Get().(*ticket)
	if !ok {
		t = &ticket{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		t.timer.Stop()
	}
	t.route, t.way, t.cost = at, w, cost
	return t
}

// recycle takes a ticket back that nobody knows any more.
func (l *line) recycle(t *ticket) {
	t.timer.Stop()
	*t = ticket{done: t.done, timer: t.timer}
	l.used.Put(t)
}

// pace is by what it is told whether another call goes out beside others.
type pace struct {
	now breaker.Instant
	// open says that the breaker of Redis is not closed: most calls then are none, but answers at once.
	open bool
}

func (l *Limiter) pace() pace { return pace{l.clock.now(), l.breaker.State() != breaker.Closed} }

// join adds a ticket. pilot says that a new pilot is to fly, ok that the line is open.
func (l *line) join(t *ticket, at pace) (pilot, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return false, false
	}
	if t.cost > 0 {
		l.mu.waiting.push(t)
	} else {
		l.mu.fetching.push(t)
	}
	if l.mu.pilots >= l.places || l.mu.pilots > 0 && !l.anotherLocked(l.mu.pilots, at) {
		l.watchLocked()
		return false, true
	}
	l.mu.pilots++
	l.flying.Add(1)
	return true, true
}

// watchEvery is how long somebody waits, at most, for whom nobody has sent a call when it was due; a quarter of the time-out where that is less. It is no less,
// as each time a processor is woken that 64 callers have use for.
const watchEvery = 12 * time.Millisecond

// watchLocked has the timer go while somebody waits.
func (l *line) watchLocked() {
	if !l.mu.watched && l.mu.waiting.len()+l.mu.fetching.len() > 0 && l.watch != nil {
		l.mu.watched = true
		l.watch.Reset(l.every)
	}
}

// due reports whether a new pilot is to fly for those who wait.
func (l *line) due(at pace) (pilot bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.watched = false
	if pilot = l.mu.pilots < l.places && l.anotherLocked(l.mu.pilots, at); pilot {
		l.mu.pilots++
		l.flying.Add(1)
	}
	l.watchLocked()
	return pilot
}

// lateAfter is after how long a call is late: several times what one takes where Redis is near.
const lateAfter = time.Millisecond

// anotherLocked reports whether a call is to go out beside so many that are under way: as many tickets are there as the last one carried, so that calls
// become no smaller, and one for each, or the last one is late. So Redis has the next call when it is done with one, in the place of waiting until
// who had its answers asks again.
func (l *line) anotherLocked(others int, at pace) bool {
	tickets := l.mu.waiting.len() + l.mu.fetching.len()
	return tickets > 0 && (at.open || at.now.Sub(l.mu.tookOff) > lateAfter || tickets >= min(store.MaxBatchJobs, max(others, l.mu.carried)))
}

// board returns the next tickets, at most as many as a call takes, in a slice of which the pilot needs no more what it has; none when the pilot is not
// needed any more.
func (l *line) board(at pace, tickets []*ticket) []*ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	tickets = tickets[:0]
	if l.mu.pilots == 1 || l.anotherLocked(l.mu.pilots-1, at) {
		tickets = l.mu.waiting.board(tickets)
		tickets = l.mu.fetching.board(tickets)
	}
	if len(tickets) == 0 {
		l.mu.pilots--
		l.flying.Done()
		l.watchLocked()
		return nil
	}
	l.mu.carried, l.mu.tookOff = len(tickets), at.now
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
		defer l.line.recycle(t)
		return l.answerBlind(ctx, t, t.way, now), nil
	}
	if ctx.Err() != nil { // Nobody hears the answer: nothing is charged for it.
		return Verdict{}, context.Cause(ctx)
	}
	if err := l.send(ctx, t); err != nil {
		return Verdict{}, err
	}
	t.timer.Reset(l.config.Timeout)
	select {
	case <-t.done:
		defer l.line.recycle(t)
		if t.away {
			return l.answerBlind(ctx, t, cmp.Or(t.boarded, t.way), l.clock.now()), nil
		}
		if t.err == nil {
			l.counts.answered(t.verdict.Admitted)
			l.noteVerdict(ctx, t.boarded, &t.verdict, t.cost)
		}
		return t.verdict, t.err
	case <-t.timer.C:
		t.left.Store(true)
		return l.answerBlind(ctx, t, t.way, l.clock.now()), nil
	case <-ctx.Done():
		t.timer.Stop()
		t.left.Store(true)
		return Verdict{}, context.Cause(ctx)
	}
}

// fetch asks for more tokens of a way, and nobody waits for them.
func (l *Limiter) fetch(ctx context.Context, w *way) {
	if int64(l.clock.now()) < l.shut.Load() || l.send(ctx, l.line.ticket(w.asked, w, 0)) != nil {
		w.fetched()
		l.hearing.Store(false)
	}
}

// fetchAll asks for more tokens of those ways of which something is to be filled, where low says that there are some, and for what a beat is told.
func (l *Limiter) fetchAll(ctx context.Context, ways []*way, now breaker.Instant, low bool) {
	for _, w := range ways {
		if low && w.refill() || l.unheard(now) {
			l.fetch(ctx, w)
		}
	}
}

// send puts a ticket into the line, with a pilot where there is a place. A pilot flies for whoever waits, so the end of this
// caller's ctx is not its own.
func (l *Limiter) send(ctx context.Context, t *ticket) error {
	pilot, ok := l.line.join(t, l.pace())
	if !ok {
		return ErrClosed
	}
	if pilot {
		go l.pilot(context.WithoutCancel(ctx))
	}
	return nil
}

// watch starts a pilot where another call is due. Whether one is is asked as somebody joins and as a call ends, but the one that is under way may hang, and
// nobody may join behind those who wait.
func (l *Limiter) watch() {
	if l.line.due(l.pace()) {
		l.pilot(context.Background()) //nolint:forbidigo // A timer has no ctx; the pilot flies for whoever waits.
	}
}

// pilot makes calls until nobody waits, or too few do for a call beside the others'. The line's WaitGroup counts it.
func (l *Limiter) pilot(ctx context.Context) {
	var tickets []*ticket
	for {
		if tickets = l.line.board(l.pace(), tickets); len(tickets) == 0 {
			return
		}
		l.serve(ctx, tickets)
		l.ways.sweep(l.clock.now())
		runtime.Gosched() // Who had an answer asks again first, and goes with the next call.
	}
}

// Wait: lines in which callers stand until the limits have tokens for them, before they ask as any other.

const (
	// maxInLine is how many may wait for one way in a limiter.
	maxInLine = 10_000
	// longestWait is when to ask again where the answer was to wait for days: the limit may have been raised.
	longestWait = time.Minute
)

// turns are the lines of those who wait, by way. The zero turns has none.
type turns struct {
	sync.Mutex

	of map[route][]*waiter
}

// waiter is one that stands in a line; its first is closed as it has come to the head.
type waiter struct{ first chan struct{} }

// stand puts another one into the line of a way; nil where that is full.
func (t *turns) stand(at route) *waiter {
	t.Lock()
	defer t.Unlock()
	line := t.of[at]
	if len(line) >= maxInLine {
		return nil
	}
	w := &waiter{first: make(chan struct{})}
	if len(line) == 0 {
		close(w.first)
	}
	if t.of == nil {
		t.of = map[route][]*waiter{}
	}
	t.of[at] = append(line, w)
	return w
}

// leave takes one out of the line, and lets the next come to its head.
func (t *turns) leave(at route, w *waiter) {
	t.Lock()
	defer t.Unlock()
	line := t.of[at]
	i := slices.Index(line, w)
	line = slices.Delete(line, i, i+1)
	switch {
	case len(line) == 0:
		delete(t.of, at)
		return
	case i == 0:
		close(line[0].first)
	}
	t.of[at] = line
}

// waiting returns how many stand in the line of a way.
func (t *turns) waiting(at route) int {
	t.Lock()
	defer t.Unlock()
	return len(t.of[at])
}

// Wait is Check that waits instead of refusing: it returns as the request passes, which is the leaky bucket as a queue. Those who wait for the same
// way in this limiter pass in the order in which they came, up to 10,000 of them; those of different processes compete for each token. A limit of
// burst 1 lets one token pass every 1/rate, and makes up for nothing that was not asked for in time.
//
// The error is nil for what was admitted alone. What waiting does not help, as a cost above a burst, is a *headgate.RefusedError at once; so is a wait
// that would end after the deadline of ctx, where it matches context.DeadlineExceeded, too, and nothing was taken. When ctx ends the error matches
// its cause and, of who was refused at the head of the line, that refusal. One more than may wait is a *headgate.OverloadedError. Others are those of
// Check.
func (l *Limiter) Wait(ctx context.Context, r Request) (v Verdict, err error) {
	err = l.inTurn(ctx, &r, func() (Verdict, error) {
		v, err = l.Check(ctx, r)
		return v, err
	})
	return v, err
}

// ReserveWait is Reserve that waits as Wait does; without a Cost, for what is learned: at first for 1,000 tokens or the least burst.
func (l *Limiter) ReserveWait(ctx context.Context, r Request) (reservation Reservation, err error) {
	err = l.inTurn(ctx, &r, func() (v Verdict, err error) {
		reservation, err = l.Reserve(ctx, r)
		if no, refused := errors.AsType[*admission.RefusedError](err); refused {
			return verdictOf(&no.Verdict), nil
		}
		return Verdict{Admitted: err == nil}, err
	})
	return reservation, err
}

// inTurn asks for a request once those that came before it have passed or gone, as often as it takes.
func (l *Limiter) inTurn(ctx context.Context, r *Request, ask func() (Verdict, error)) error {
	at := r.route()
	if err := at.validate(); err != nil {
		return err
	}
	mine := l.turns.stand(at)
	if mine == nil {
		return &admission.OverloadedError{Waiting: maxInLine, RetryAfter: time.Second}
	}
	defer l.turns.leave(at, mine)
	select {
	case <-mine.first:
	case <-ctx.Done():
		return fmt.Errorf("wait for %d others to pass: %w", l.turns.waiting(at)-1, context.Cause(ctx))
	}
	for {
		asked := time.Now() // Redis answers later: whoever waits from now on asks as the token comes.
		v, err := ask()
		switch {
		case err != nil || v.Admitted:
			return err
		case v.RetryAfter <= 0:
			return v.Err()
		}
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(asked.Add(v.RetryAfter)) {
			return fmt.Errorf("wait for tokens: %w: %w", context.DeadlineExceeded, v.Err())
		}
		timer := time.NewTimer(time.Until(asked.Add(min(v.RetryAfter, longestWait))))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for tokens: %w: %w", context.Cause(ctx), v.Err())
		}
	}
}
