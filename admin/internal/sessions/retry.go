package sessions

import (
	"context"
	"time"

	"github.com/headgate/headgate/admin/internal/problem"
)

// longestRetry bounds how long a session is told to wait.
const longestRetry = time.Minute

// retryAfter is when a session that was handed nothing is to ask again: when time makes something runnable, as far as anybody can
// tell, else soon. Half a lease is the longest, so that who does as it says does not lose the session.
func (a *Sessions) retryAfter(ctx context.Context, s session) time.Duration {
	wait, err := a.config.Store.Foresee(ctx, s.pool)
	if err != nil || wait < 0 {
		return problem.RetrySoon
	}
	return max(problem.RetrySoon, min(wait, longestRetry, s.lease/2))
}
