package drive

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/record"
)

// watchEvery is how exact the times of breakers are.
const watchEvery = 20 * time.Millisecond

// watch returns the changes of breakers until ctx ends, and calls progress meanwhile.
func watch(ctx context.Context, s System, book *record.Book, progress func(record.Progress)) []figures.BreakerChange {
	var changes []figures.BreakerChange
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
				changes = append(changes, figures.BreakerChange{At: book.Now(), Downstream: downstream, State: state})
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
