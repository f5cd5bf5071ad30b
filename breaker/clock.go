package breaker

import "time"

// Instant is a reading of the caller's clock in nanoseconds since an origin of the caller's choice, within
// ±2^61 (73 years). A monotonic clock is best: Instant(time.Since(start)).
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns how long i is after j.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// MaxLag is how far behind the latest known time an instant may be and still count as the present. One further
// behind is taken as a clock that was set back.
const MaxLag = 5 * time.Second

// clock makes of the caller's clock one that never runs backwards; instants of the latter are "inner" here.
type clock struct {
	// skew is added to the caller's instants. It only grows, with each step back of the caller's clock.
	skew time.Duration
	// mark is the latest inner instant that is held to have passed. While closed that is the beginning of the
	// slice in force, so that calls that take no lock need not move it.
	mark Instant
}

// read returns the inner instant of now, never before the mark, and whether the caller's clock was found set back.
func (c *clock) read(now Instant) (inner Instant, stepped bool) {
	inner = now.Add(c.skew)
	if inner < c.mark.Add(-MaxLag) {
		c.skew += c.mark.Sub(inner)
		return c.mark, true
	}
	return max(inner, c.mark), false
}

// outer returns the reading of the caller's clock at an inner instant.
func (c *clock) outer(inner Instant) Instant { return inner.Add(-c.skew) }
