package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/admission"
)

// spreadEvery is how often it is looked whether all partitions have the policy in force, by one Scheduler of the deployment.
const spreadEvery = time.Second

// spreadPolicy finishes what an edit of the policy has left undone whose process died.
func (s *Scheduler) spreadPolicy(ctx context.Context) {
	tick := time.NewTicker(spreadEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !s.holds() {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		err := s.store.SpreadPolicy(bounded)
		cancel()
		if err != nil && !errors.Is(err, admission.ErrUnavailable) {
			s.config.Logger.Warn().Err(err).Msg("a partition does not have the policy in force")
		}
	}
}
