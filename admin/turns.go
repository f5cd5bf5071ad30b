package admin

import (
	"context"
	"sync"
	"time"
)

// turns lets calls in, so many at a time and with so many bytes of bodies, and no more of one caller than its share. Who does not
// get in waits in a line of its own, and the lines take turns: one caller's thousand calls keep another's first waiting for as long
// as it takes one of them to end.
//
//	enter ──▶ free, and within the share? ──yes──▶ in ──leave──▶ the next of the next line that may
//	                     │ no
//	                     └──▶ the caller's line, up to mostInLine ──time is over──▶ refused
type turns struct {
	// calls and bytes are how much is in at a time; patience is how long a call waits to get in.
	calls    int
	bytes    int64
	patience time.Duration
	mu       struct {
		sync.Mutex

		calls int
		bytes int64
		lines map[string]*line
		// order are the lines in which somebody waits; the first has the next turn.
		order []*line
	}
}

// mostInLine is how many calls of one caller wait at a time.
const mostInLine = 1024

// line is one caller's: what is in, and who waits.
type line struct {
	caller  string
	share   share
	calls   int
	bytes   int64
	waiting []*waiter
}

// share is how much of one caller is in at a time.
type share struct {
	calls int
	bytes int64
}

// waiter is a call that waits. in is closed as it gets in, and only under the lock.
type waiter struct {
	bytes int64
	in    chan struct{}
}

func newTurns(calls int, bytes int64, patience time.Duration) *turns {
	t := &turns{calls: calls, bytes: bytes, patience: patience}
	t.mu.lines = map[string]*line{}
	return t
}

// enter waits until a call with a body of so many bytes is in, and returns what to call once when it has ended; nil if it did not
// get in for as long as it may wait. bytes are at most those of the share.
func (t *turns) enter(ctx context.Context, caller string, most share, bytes int64) (leave func()) {
	t.mu.Lock()
	l := t.mu.lines[caller]
	if l == nil {
		l = &line{caller: caller}
		t.mu.lines[caller] = l
	}
	l.share = most
	if len(l.waiting) == 0 && t.fitsLocked(l, bytes) {
		t.letInLocked(l, bytes)
		t.mu.Unlock()
		return func() { t.leave(l, bytes) }
	}
	if len(l.waiting) >= mostInLine {
		t.mu.Unlock()
		return nil
	}
	w := &waiter{bytes, make(chan struct{})}
	l.waiting = append(l.waiting, w)
	if len(l.waiting) == 1 {
		t.mu.order = append(t.mu.order, l)
	}
	t.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, t.patience)
	defer stop()
	select {
	case <-w.in:
	case <-ctx.Done():
		if t.giveUp(l, w) {
			return nil
		}
	}
	return func() { t.leave(l, bytes) }
}

// underWay returns how many calls are in.
func (t *turns) underWay() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.calls
}

func (t *turns) fitsLocked(l *line, bytes int64) bool {
	return t.mu.calls < t.calls && t.mu.bytes+bytes <= t.bytes && l.calls < l.share.calls && l.bytes+bytes <= l.share.bytes
}

func (t *turns) letInLocked(l *line, bytes int64) {
	t.mu.calls, t.mu.bytes, l.calls, l.bytes = t.mu.calls+1, t.mu.bytes+bytes, l.calls+1, l.bytes+bytes
}

// giveUp takes a call out of its line, and reports whether it was there still.
func (t *turns) giveUp(l *line, w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, other := range l.waiting {
		if other == w {
			l.waiting = append(l.waiting[:i:i], l.waiting[i+1:]...)
			t.nextLocked() // Those behind it may be smaller.
			t.forgetLocked(l)
			return true
		}
	}
	return false
}

func (t *turns) leave(l *line, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.calls, t.mu.bytes, l.calls, l.bytes = t.mu.calls-1, t.mu.bytes-bytes, l.calls-1, l.bytes-bytes
	t.nextLocked()
	t.forgetLocked(l)
}

// forgetLocked lets go of a line in which nothing is.
func (t *turns) forgetLocked(l *line) {
	if l.calls == 0 && len(l.waiting) == 0 {
		delete(t.mu.lines, l.caller)
	}
}

// nextLocked lets in who may, line by line in turns. A line whose first does not fit keeps its place.
func (t *turns) nextLocked() {
	var stay []*line
	for len(t.mu.order) > 0 {
		l := t.mu.order[0]
		t.mu.order = t.mu.order[1:]
		switch {
		case len(l.waiting) == 0:
		case t.fitsLocked(l, l.waiting[0].bytes):
			t.letInLocked(l, l.waiting[0].bytes)
			close(l.waiting[0].in)
			l.waiting = l.waiting[1:]
			t.mu.order = append(t.mu.order, l)
		default:
			stay = append(stay, l)
		}
	}
	t.mu.order = stay
}
