package stage

import (
	"context"
	"time"

	"github.com/headgate/headgate/store"
)

// settleEvery is how often Settle looks.
const settleEvery = 25 * time.Millisecond

// Settled reports whether a run is over, by what Redis holds. Of the jobs that are due later, spared were probes of a
// breaker that is not closed, and will stand behind it again.
type Settled func(c store.Census, spared int) bool

// NothingRunnable is the end of a run in which no job is in a worker's hand, in its stream, or due later but behind a
// breaker. What still waits then stands behind a gate: no script ends with room in a stream and a runnable job (law W).
func NothingRunnable(c store.Census, spared int) bool {
	return c.Ready == 0 && c.Later <= int64(spared)
}

// NothingWaits is the end of a run in which every job has left or is a dead letter.
func NothingWaits(c store.Census, _ int) bool { return c.Live == c.Dead }

// Settle waits until a worker is there and a run is over, and is seen to be twice in a row, or ctx ends. It counts in
// Redis only while no handler starts.
func (s *Stage) Settle(ctx context.Context, over Settled) error {
	if err := s.awaitWorker(ctx); err != nil {
		return err
	}
	runs, quiet := -1, 0
	for quiet < 2 {
		if !sleep(ctx, settleEvery) {
			return context.Cause(ctx)
		}
		p := s.ledger.Progress()
		still := p.Running == 0 && p.Runs == runs
		runs = p.Runs
		if !still {
			quiet = 0
			continue
		}
		census, err := s.store.Census(ctx)
		if err != nil {
			return err
		}
		if over(census, s.ledger.Spared()) {
			quiet++
		} else {
			quiet = 0
		}
	}
	return nil
}

// awaitWorker waits for a worker: until one has registered nothing is runnable, and all is still to come.
func (s *Stage) awaitWorker(ctx context.Context) error {
	for {
		workers, err := s.store.Workers(ctx)
		if err != nil || len(workers) > 0 {
			return err
		}
		if !sleep(ctx, settleEvery) {
			return context.Cause(ctx)
		}
	}
}
