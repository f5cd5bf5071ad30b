package drive

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/loadtest/internal/record"
	"github.com/headgate/headgate/loadtest/internal/system"
)

// watchEvery is how exact the times of breakers are.
const watchEvery = 20 * time.Millisecond

// BreakerChange is a breaker that was seen in another state than before.
type BreakerChange struct {
	At                time.Duration
	Downstream, State string
}

// watch returns the changes of breakers until ctx ends, and calls progress meanwhile.
func watch(ctx context.Context, s system.System, book *record.Book, progress func(record.Progress)) []BreakerChange {
	var changes []BreakerChange
	known := map[string]string{}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for going := true; going; {
		select {
		case <-ctx.Done():
			going = false
		case <-tick.C:
		}
		for downstream, state := range s.Breakers() {
			if before, ok := known[downstream]; !ok || before != state {
				changes = append(changes, BreakerChange{book.Now(), downstream, state})
			}
			known[downstream] = state
		}
		if progress != nil {
			progress(book.Progress())
		}
	}
	return changes
}

// most keeps the largest of the jobs of a queue that ran at a time.
type most struct{ running, peak atomic.Int64 }

func (m *most) enter() {
	now := m.running.Add(1)
	for peak := m.peak.Load(); now > peak && !m.peak.CompareAndSwap(peak, now); peak = m.peak.Load() {
	}
}

func (m *most) leave() { m.running.Add(-1) }
