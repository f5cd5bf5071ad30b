package producer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// entry is one job on its way, and what became of it. It is written by the pilot of its flight until its ticket
// is settled, and only then read by its caller.
type entry struct {
	job     admission.Job
	verdict admission.Verdict
	err     error
	// learned says that the job's cost is a guess, and cut what the pilot has cut it to, zero for nothing.
	learned bool
	cut     admission.Tokens
	// ended, if not nil, is told what the caller of a batch is.
	ended func(admission.Verdict, error)
}

// ticket is the jobs that one caller sends together: they board together or not at all.
type ticket struct {
	entries []entry
	// one is the room for a job that is sent alone.
	one [1]entry
	// bytes is the sum of the payloads.
	bytes int
	// ctx is the caller's, for its values: its end does not end the flight. deadline is when the caller goes at the latest.
	ctx      context.Context //nolint:containedctx // A ticket is a request to another goroutine.
	deadline time.Time
	// done has room for what is sent when the ticket is settled, and then nobody but its caller knows it.
	done chan struct{}
	// failure is why the ticket's jobs have no verdicts. It is written before done is sent to.
	failure error

	// What follows is guarded by the line's lock.

	state state
	// flight is the one that it is aboard of.
	flight *flight
	// left says that the caller has gone.
	left bool
	// waits is the tenant's place in the line while queued, ahead and behind its neighbours there.
	waits         *waiting
	ahead, behind *ticket
}

// state is where a ticket is; the package comment draws it.
type state uint8

const (
	// queued is in the line.
	queued state = iota
	// aboard is of a flight of which certainly nothing has been sent.
	aboard
	// flying is of a flight that is, or may have been, sent.
	flying
	// settled has its answer.
	settled
)

// newTicket returns that of a call whose time-out ends at end.
func newTicket(ctx context.Context, end time.Time, entries []entry) *ticket {
	t := &ticket{done: make(chan struct{}, 1)}
	t.begin(ctx, end, entries)
	return t
}

// ticket is newTicket of one job, used again where one was recycled.
func (l *line) ticket(ctx context.Context, end time.Time, job *admission.Job) *ticket {
	t, ok := l.used.Get().(*ticket)
	if !ok {
		t = &ticket{done: make(chan struct{}, 1)}
	}
	t.one[0].job = *job
	t.begin(ctx, end, t.one[:])
	return t
}

// recycle takes a ticket back whose caller was answered. One whose caller has left may be of a flight still.
func (l *line) recycle(t *ticket) {
	if !t.left {
		*t = ticket{done: t.done}
		l.used.Put(t)
	}
}

func (t *ticket) begin(ctx context.Context, end time.Time, entries []entry) {
	t.entries, t.ctx, t.deadline = entries, ctx, end
	if own, ok := ctx.Deadline(); ok && own.Before(end) {
		t.deadline = own
	}
	for i := range entries {
		t.bytes += len(entries[i].job.Payload)
	}
}

// tenant is the one whose turn the ticket takes: a batch of several takes that of its first.
func (t *ticket) tenant() string { return t.entries[0].job.Tenant }

// settleLocked gives a ticket its answer.
func (t *ticket) settleLocked(failure error) {
	if t.state != settled {
		t.state, t.failure, t.flight = settled, failure, nil
		t.done <- struct{}{}
	}
}

// line is where tickets wait while calls are under way. Tenants take turns. While anybody waits there is at least one pilot.
type line struct {
	// places is the largest number of pilots.
	places int
	// jobs and bytes bound what waits.
	jobs, bytes int
	// patience is the longest that a call is taken to last, half of the producer's time-out: nobody who has just come is told
	// that there is no time left, so however slow calls have been, they are tried.
	patience time.Duration
	// watched says that Producer.watch looks in a while.
	watched atomic.Bool
	// used are tickets that were recycled.
	used sync.Pool
	// crowd is nil unless somebody was turned away of late: then it is worth to ask before making a ticket.
	crowd atomic.Pointer[crowd]

	mu struct {
		sync.Mutex

		waiting turns
		pilots  int
		// takes is how long a call lasts: it rises to that of a slow one at once, and falls by quarters. It is above most of
		// the calls of late.
		takes time.Duration
		// tookOff is when the last call went out, and aloft how many jobs those under way have.
		tookOff time.Time
		aloft   int
		// failures counts the calls without an answer since the last that had one; back is closed when one has again.
		failures int
		back     chan struct{}
	}
}

// join adds a ticket. start says that its caller is to start a pilot, which begins with first: the ticket, which then is not in
// the line, or nil. The error is a *headgate.OverloadedError where the ticket could not be sent in time.
func (l *line) join(t *ticket, now time.Time) (first *ticket, start bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.pilots == 0 {
		l.mu.pilots++
		t.state = aboard
		return t, true, nil
	}
	if err := l.refuseLocked(t.tenant(), len(t.entries), t.bytes, t.deadline.Sub(now)); err != nil {
		return nil, false, err
	}
	l.mu.waiting.push(t)
	if l.mu.pilots == l.places || !l.anotherLocked(now) {
		return nil, false, nil
	}
	l.mu.pilots++
	return nil, true, nil
}

// due reports whether a new pilot is to fly for those who wait, and whether anybody does.
func (l *line) due(now time.Time) (pilot, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waits = l.mu.waiting.tickets > 0
	if pilot = waits && l.mu.pilots < l.places && l.anotherLocked(now); pilot {
		l.mu.pilots++
	}
	return pilot, waits
}

// anotherLocked reports whether a call is to go out beside those that are under way: as many jobs wait as these have together, so that
// calls are as few as keep Redis busy: it has the next when it is done with one, in the place of waiting until who had its answers sends again. Or
// the last went out longer ago than calls take, divided by the places, but at least minLate if they take as long: so all places take turns where
// Redis is far away.
// While calls have no answer one pilot is enough to find out when they have.
func (l *line) anotherLocked(now time.Time) bool {
	full := l.mu.waiting.jobs >= min(store.MaxBatchJobs, l.mu.aloft) || l.mu.waiting.bytes >= store.MaxBatchBytes
	late := min(l.mu.takes, max(minLate, l.mu.takes/time.Duration(l.places)))
	return l.mu.failures == 0 && (full || now.Sub(l.mu.tookOff) > late)
}

// minLate is the least time for which fewer jobs wait than are under way, where calls take as long.
const minLate = time.Millisecond

// refuse returns why a job may not wait, where the line is crowded: most callers are turned away then, and that must cost little.
func (l *line) refuse(job *admission.Job, left time.Duration) error {
	crowd := l.crowd.Load()
	if crowd == nil {
		return nil
	}
	if err := crowd.answer(job, left); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.pilots == 0 {
		return nil
	}
	return l.refuseLocked(job.Tenant, 1, len(job.Payload), left)
}

// refuseLocked returns why a ticket may not wait. A tenant may have as much waiting as is left free, so one alone fills half
// of the line, and there is room for another that comes later. What is larger than the line may wait alone.
func (l *line) refuseLocked(tenant string, jobs, bytes int, left time.Duration) error {
	all, own := l.mu.waiting.sums, l.mu.waiting.sumsOf(tenant)
	wait := l.waitLocked(own)
	room := all.tickets == 0 || own.jobs+jobs <= l.jobs-all.jobs && own.bytes+bytes <= l.bytes-all.bytes
	switch {
	case wait == 0 && l.mu.takes > left:
		return tooLate(left, l.mu.takes)
	case !room || wait+l.mu.takes > left:
		err := &admission.OverloadedError{Waiting: all.jobs, RetryAfter: max(wait, l.mu.takes, time.Millisecond)}
		if c := l.crowdLocked(); jobs == 1 {
			c.note(&turnedAway{tenant: tenant, bytes: bytes, left: left, answer: err})
		}
		return err
	}
	return nil
}

// crowdLocked returns the crowd, which begins with whom it is asked for.
func (l *line) crowdLocked() *crowd {
	c := l.crowd.Load()
	if c == nil {
		c = &crowd{room: l.mu.waiting.jobs / crowdShare}
		l.crowd.Store(c)
	}
	return c
}

// roomLocked notes that so many jobs less wait. It ends a crowd that there is enough room for.
func (l *line) roomLocked(jobs int) {
	c := l.crowd.Load()
	if c == nil {
		return
	}
	if c.room -= jobs; c.room <= 0 {
		l.crowd.Store(nil)
	}
}

// waitLocked estimates the wait of a tenant that has own waiting already: before its next ticket goes, each tenant has at most
// as many turns as it.
func (l *line) waitLocked(own sums) time.Duration {
	all := l.mu.waiting.sums
	if all.tickets == 0 {
		return 0
	}
	share := min(1, float64(own.tickets+1)*float64(len(l.mu.waiting.of))/float64(all.tickets))
	calls := max(float64(all.jobs)/store.MaxBatchJobs, float64(all.bytes)/store.MaxBatchBytes) * share
	return time.Duration(calls / float64(l.places) * float64(l.mu.takes))
}

// board makes a flight of first, or of the head of the line, and of those behind that fit into the same call. The first that
// does not fit ends it, so that nobody is overtaken. Who has less time left than a call takes is told so instead, but for the last:
// how long calls take is known from calls alone. It returns nil when the pilot is not needed any more.
func (l *line) board(first *ticket, now time.Time) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	waited := l.mu.waiting.jobs
	defer func() { l.roomLocked(waited - l.mu.waiting.jobs) }()
	f := &flight{}
	f.tickets = f.few[:0]
	jobs, bytes := 0, 0
	take := func(t *ticket) {
		t.state, t.flight = aboard, f
		f.tickets = append(f.tickets, t)
		jobs, bytes = jobs+len(t.entries), bytes+t.bytes
	}
	if first != nil {
		take(first)
	} else if l.mu.pilots > 1 && !l.anotherLocked(now) {
		l.mu.pilots--
		return nil
	}
	for t := l.mu.waiting.head(); t != nil; t = l.mu.waiting.head() {
		left := t.deadline.Sub(now)
		if left < l.mu.takes && (len(f.tickets) > 0 || l.mu.waiting.tickets > 1) {
			l.mu.waiting.pop().settleLocked(tooLate(left, l.mu.takes))
			continue
		}
		if len(f.tickets) > 0 && (jobs+len(t.entries) > store.MaxBatchJobs || bytes+t.bytes > store.MaxBatchBytes) {
			break
		}
		take(l.mu.waiting.pop())
	}
	if len(f.tickets) == 0 {
		l.mu.pilots--
		return nil
	}
	f.jobs = jobs
	l.mu.aloft += jobs
	return f
}

// takeOff marks the tickets of a flight as sent, without those whose callers have left or have no time for it, and returns the
// latest of their deadlines; false when nobody is left.
func (l *line) takeOff(f *flight, now time.Time) (latest time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stay := f.tickets[:0]
	for _, t := range f.tickets {
		left := t.deadline.Sub(now)
		switch {
		case t.left:
			continue
		case !f.doubted && f.failure != nil && left < l.mu.takes:
			t.settleLocked(joinCause(tooLate(left, l.mu.takes), f.failure))
			continue
		case left <= 0:
			continue // Its caller is about to leave, and knows best what to say.
		}
		t.state = flying
		stay = append(stay, t)
		if t.deadline.After(latest) {
			latest = t.deadline
		}
	}
	clear(f.tickets[len(stay):])
	f.tickets = stay
	l.mu.tookOff = now
	return latest, len(stay) > 0
}

// answered notes a call that had an answer. It reports whether the one before had none.
func (l *line) answered(took time.Duration) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.takes = min(max(took, l.mu.takes-(l.mu.takes-took)/4), l.patience)
	if l.mu.failures == 0 {
		return false
	}
	l.mu.failures = 0
	close(l.mu.back)
	return true
}

// missed notes a call that had no answer. If nothing can have arrived the tickets are as if it had not been made. It returns
// what is closed when another call is answered, the number of failures in a row, and that of the pilots.
func (l *line) missed(f *flight, took time.Duration, err error) (back <-chan struct{}, failures, pilots int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.failure = err
	for _, t := range f.tickets {
		if !f.doubted {
			t.state = aboard
		}
	}
	if f.doubted {
		l.mu.takes = max(l.mu.takes, min(took, l.patience))
	}
	if l.mu.failures++; l.mu.failures == 1 {
		l.mu.back = make(chan struct{})
	}
	return l.mu.back, l.mu.failures, l.mu.pilots
}

// land ends a flight: its tickets are settled, with failure unless that is nil.
func (l *line) land(f *flight, failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.aloft -= f.jobs
	for _, t := range f.tickets {
		t.settleLocked(failure)
	}
}

// leave takes a ticket out whose caller goes because of cause, and returns what the caller is to be told.
func (l *line) leave(t *ticket, cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.left = true
	var failure error
	if t.flight != nil {
		failure = t.flight.failure
	}
	switch t.state {
	case queued:
		l.mu.waiting.remove(t)
		l.roomLocked(len(t.entries))
	case flying:
		return unknown(joinCause(cause, failure))
	case settled:
		return t.failure
	case aboard:
	}
	return joinCause(notSent(cause), failure)
}
