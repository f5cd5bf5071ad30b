package producer

import (
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lua"
)

// entry is one job on its way, and what became of it. It is written by the leader of its flight until its ticket
// is settled, and only then read by its caller.
type entry struct {
	job     headgate.Job
	verdict headgate.Verdict
	err     error
	// ended, if not nil, is told what the caller of a batch is.
	ended func(headgate.Verdict, error)
}

// ticket is the jobs that one caller sends together: they board together or not at all.
type ticket struct {
	entries []entry
	// bytes is the sum of the payloads.
	bytes int
	// turn wakes the caller, once for each change to leading or settled. Its capacity of one is enough: whoever is
	// woken to lead is next woken only by itself.
	turn chan struct{}

	// What follows is guarded by the line's lock.

	state state
	// flight is the one to take over, when leading one that is already under way.
	flight *flight
	// failure is why the ticket's jobs have no verdicts, when settled.
	failure error
	// left says that the caller has gone while flying.
	left bool
}

// state is where a ticket is; the package comment draws it.
type state uint8

const (
	queued state = iota
	leading
	flying
	settled
)

func newTicket(entries []entry) *ticket {
	t := &ticket{entries: entries, turn: make(chan struct{}, 1)}
	for i := range entries {
		t.bytes += len(entries[i].job.Payload)
	}
	return t
}

// line is where tickets wait while all places of flights are taken. Order is arrival.
type line struct {
	// places is the largest number of flights at a time.
	places int

	mu struct {
		sync.Mutex
		waiting []*ticket // all queued; nobody waits while a place is free
		taken   int       // places taken
	}
}

// join adds a ticket. It reports whether its caller leads a flight now; otherwise the caller waits for its turn.
func (l *line) join(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.taken < l.places {
		l.mu.taken++
		t.state = leading
		return true
	}
	l.mu.waiting = append(l.mu.waiting, t)
	return false
}

// isSettled reports whether the results are there. If not, a woken caller is to lead.
func (l *line) isSettled(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.state == settled
}

// board makes a flight of the leader's ticket and of those at the head of the line that fit into the same call. The
// first that does not fit ends it, so that nobody is overtaken. A leader that was handed a flight gets that one.
func (l *line) board(leader *ticket) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	leader.state = flying
	if f := leader.flight; f != nil {
		leader.flight = nil
		return f
	}
	f := &flight{tickets: []*ticket{leader}}
	jobs, bytes, n := len(leader.entries), leader.bytes, 0
	for _, t := range l.mu.waiting {
		jobs, bytes = jobs+len(t.entries), bytes+t.bytes
		if jobs > lua.MaxBatchJobs || bytes > lua.MaxBatchBytes {
			break
		}
		t.state = flying
		f.tickets = append(f.tickets, t)
		n++
	}
	l.popLocked(n)
	return f
}

// land ends a flight: its tickets are settled, with failure unless that is nil, and its place goes to the next.
func (l *line) land(f *flight, failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range f.tickets {
		t.state, t.failure = settled, failure
		t.wake()
	}
	l.nextLocked()
}

// handOver gives a flight whose leader must go to another of its callers that still waits. It reports false when
// there is none.
func (l *line) handOver(f *flight, leader *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	leader.left = true
	return l.handOverLocked(f)
}

func (l *line) handOverLocked(f *flight) bool {
	for _, t := range f.tickets {
		if !t.left {
			t.state, t.flight = leading, f
			t.wake()
			return true
		}
	}
	return false
}

// leave takes a ticket out whose caller's ctx has ended. It returns where the ticket was: queued means that
// nothing was sent, leading that the flight was given to the caller in the same moment and has been passed on,
// flying that it is under way without the caller, settled that the results are there after all. A flight that
// nobody is left to lead is returned for the caller to land.
func (l *line) leave(t *ticket) (was state, orphan *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was = t.state
	switch was {
	case queued:
		for i, other := range l.mu.waiting {
			if other == t {
				l.mu.waiting = append(l.mu.waiting[:i:i], l.mu.waiting[i+1:]...)
				break
			}
		}
	case leading:
		f := t.flight
		if f == nil {
			l.nextLocked()
			return queued, nil
		}
		t.left = true
		if !l.handOverLocked(f) {
			return flying, f
		}
		return flying, nil
	case flying:
		t.left = true
	case settled:
	}
	return was, nil
}

// nextLocked gives a free place to the head of the line.
func (l *line) nextLocked() {
	if len(l.mu.waiting) == 0 {
		l.mu.taken--
		return
	}
	t := l.mu.waiting[0]
	l.popLocked(1)
	t.state = leading
	t.wake()
}

// popLocked takes n tickets from the head. The array is left behind when it empties, so it does not grow for ever.
func (l *line) popLocked(n int) {
	clear(l.mu.waiting[:n])
	l.mu.waiting = l.mu.waiting[n:]
	if len(l.mu.waiting) == 0 {
		l.mu.waiting = nil
	}
}

// wake tells the caller to look at its ticket. It never blocks.
func (t *ticket) wake() {
	select {
	case t.turn <- struct{}{}:
	default:
	}
}
