package worker

import (
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/admission"
)

// BackoffFunc returns how long a job waits after its attempt'th failed run, from 1. What is below 0 counts as 0, what is
// above headgate.MaxDelay as that. Several goroutines call it. Where it panics, that is logged, and the job waits as by default.
type BackoffFunc func(attempt int) time.Duration

// ExponentialBackoff returns a backoff with full jitter: even in [0, d), where d is base after the first failed run
// and doubles with each further one, up to most. Both must be above 0.
func ExponentialBackoff(base, most time.Duration) BackoffFunc {
	return func(attempt int) time.Duration {
		d := base
		for i := 1; i < attempt && d < most; i++ {
			d *= 2
		}
		return rand.N(max(min(d, most), 1))
	}
}

// defaultBackoff is that of a Config without one.
func defaultBackoff(attempt int) time.Duration {
	return ExponentialBackoff(time.Second, 10*time.Minute)(attempt)
}

// backoff returns how long a job waits after its attempt'th failed run: by its own header, else by its type, its queue,
// or the default. What its own header says is at least what the policy says: a failed run costs its tenant nothing.
func (c Config) backoff(job *admission.Job, attempt int, least time.Duration) time.Duration {
	if text, ok := job.Headers[admission.HeaderBackoff]; ok {
		// The producer has checked it; what another wrote and cannot be read is as good as absent.
		if base, most, err := admission.ParseBackoff(text); err == nil && base == most {
			return max(base, least)
		} else if err == nil {
			return max(ExponentialBackoff(base, most)(attempt), least)
		}
	}
	wait := c.Backoff
	if own := c.QueueBackoff[job.Queue]; own != nil {
		wait = own
	}
	if own := c.TypeBackoff[job.Type]; own != nil {
		wait = own
	}
	return max(wait(attempt), 0)
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
