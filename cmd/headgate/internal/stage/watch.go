package stage

import (
	"context"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/worker"
)

// watchEvery is how exact the times of a breaker's story are.
const watchEvery = 10 * time.Millisecond

// watch writes down what the worker's breakers do, until ctx ends, and then once more.
func (s *Stage) watch(ctx context.Context, w *worker.Worker) {
	known := map[string]worker.BreakerStatus{}
	for going := true; going; {
		going = sleep(ctx, watchEvery)
		for _, now := range w.Breakers() {
			s.compare(known[now.Downstream], now)
			known[now.Downstream] = now
		}
	}
	states := make(map[string]string, len(known))
	for downstream, status := range known {
		states[downstream] = status.State.String()
	}
	s.states.Store(&states)
}

// compare tells the ledger what happened between two looks at a breaker.
func (s *Stage) compare(before, now worker.BreakerStatus) {
	at := time.Now()
	for range now.Opened - before.Opened {
		s.ledger.Opened(now.Downstream, at)
	}
	if now.State == before.State {
		return
	}
	switch now.State {
	case breaker.HalfOpen:
		s.ledger.HalfOpened(now.Downstream, at)
	case breaker.Closed:
		s.ledger.Closed(now.Downstream, at)
	case breaker.Open:
	}
}

// BreakerStates returns the state of each breaker as Work left it, by downstream.
func (s *Stage) BreakerStates() map[string]string {
	if states := s.states.Load(); states != nil {
		return *states
	}
	return nil
}
