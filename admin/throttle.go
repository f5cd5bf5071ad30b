package admin

import (
	"sync"
	"time"

	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
)

// throttle has a bucket for each caller, of those that package buckets describes. They are in this process: a server
// whose Redis is away is guarded all the same.
type throttle struct {
	limit admission.Limit
	began time.Time

	mu struct {
		sync.Mutex

		set buckets.Set
		// names are the callers whose buckets are not known to be full, at most maxCallers.
		names map[string]bool
		// next is when to look again for buckets that are full, after a look in vain.
		next buckets.Instant
	}
}

func newThrottle(limit admission.Limit) *throttle {
	t := &throttle{limit: limit, began: time.Now()}
	t.mu.names = map[string]bool{}
	return t
}

// now does not step with the clock of the machine, which would have buckets filled at a later time wait for that.
func (t *throttle) now() buckets.Instant { return buckets.InstantOf(t.began.Add(time.Since(t.began))) }

func (t *throttle) path(name string, now buckets.Instant) []buckets.LevelLimit {
	return []buckets.LevelLimit{{Scope: admission.Scope(name), Limit: buckets.LimitAt(t.limit, now)}}
}

// take charges a call, or as many tokens as it costs, at most the burst; where the bucket holds less it returns how long to wait.
// Where too many callers have buckets that are not full, newcomers wait.
func (t *throttle) take(name string, cost admission.Tokens) (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if !t.mu.names[name] && len(t.mu.names) >= maxCallers && !t.sweepLocked(now) {
		return time.Second, false
	}
	t.mu.names[name] = true
	verdict := t.mu.set.Take(now, 0, t.path(name, now), min(cost, t.limit.Burst))
	return verdict.RetryAfter, verdict.Decision == admission.Admitted
}

// owe charges what a caller was given already, whose size nobody knew before: what its bucket lacks is a debt. The caller was let
// in by take.
func (t *throttle) owe(name string, cost admission.Tokens) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.mu.set.Debit(now, 0, t.path(name, now)[0], cost)
}

// sweepEvery is the pause after a sweep in vain: one looks at all buckets, and those that come meanwhile wait anyway.
const sweepEvery = 100 * time.Millisecond

// sweepLocked forgets the buckets that are full again, and reports whether there were any.
func (t *throttle) sweepLocked(now buckets.Instant) bool {
	if now < t.mu.next {
		return false
	}
	for name := range t.mu.names {
		step := t.path(name, now)[0]
		if t.mu.set.LevelAt(now, 0, step) >= step.Limit.Burst {
			t.mu.set.Put(step.Scope, buckets.Bucket{})
			delete(t.mu.names, name)
		}
	}
	if len(t.mu.names) < maxCallers {
		return true
	}
	t.mu.next = now + buckets.Instant(sweepEvery.Microseconds())
	return false
}

func tooMany(detail string, wait time.Duration) *problem.DetailsError {
	p := problem.New(problem.TooManyRequests, "%s: wait for as long as Retry-After says", detail)
	p.RetryAfter = wait
	return p
}
