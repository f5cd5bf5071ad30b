package scheduler

import (
	"sync"
	"time"

	"github.com/headgate/headgate/store"
)

// clockStep is how far the clock of Redis and this machine's own may part between two calls before that is a step.
const clockStep = 5 * time.Second

// glance is one look at the clock of Redis: what it showed some time between sent and heard, which are monotonic times of this
// process.
type glance struct {
	redis       time.Time
	sent, heard time.Duration
}

// stepped reports whether the clock of Redis was stepped between two glances, either way. However long a call is under way, or
// nobody calls, is no step.
func stepped(before, after glance) bool {
	passed := after.redis.Sub(before.redis)
	return passed > after.heard-before.sent+clockStep || passed < after.sent-before.heard-clockStep
}

// watch remembers the last glance. It may be used by several goroutines; the zero watch has seen nothing.
type watch struct {
	mu struct {
		sync.Mutex
		last glance
	}
}

func (w *watch) note(g glance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.last = g
}

// leap tells what a leap of the time of Redis is that g has seen the end of. Who has not seen its beginning takes it for silence: a
// worker that lives renews its own lease in time.
func (w *watch) leap(g glance) store.Leap {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.last.redis.IsZero() && stepped(w.mu.last, g) {
		return store.LeapStep
	}
	return store.LeapSilence
}
