package worker

import (
	"math/rand/v2"
	"time"
)

// ExponentialBackoff returns a backoff with full jitter: even in [0, d), where d is base after the first failed run
// and doubles with each further one, up to most. Both must be above 0.
func ExponentialBackoff(base, most time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		d := base
		for i := 1; i < attempt && d < most; i++ {
			d *= 2
		}
		return rand.N(max(min(d, most), 1))
	}
}

// The time for which a job goes back that this worker cannot run now: long enough for another worker to take
// it, short enough to go unnoticed, and never the same for two.
const (
	shortestReturn = 200 * time.Millisecond
	longestReturn  = time.Second
)

func returnDelay() time.Duration {
	return shortestReturn + rand.N(longestReturn-shortestReturn)
}
