package guard

import "time"

// ring counts what happened in the last so many seconds, in buckets of one: exact but for what is of the oldest second, in a fixed
// room however much happens. It is for one goroutine at a time.
type ring struct {
	buckets []int
	// sum is that of all buckets, newest the bucket that counts now, and last its second since the Unix epoch.
	sum, newest int
	last        int64
}

func newRing(seconds int) *ring { return &ring{buckets: make([]int, seconds)} }

// add counts n at a time.
func (r *ring) add(now time.Time, n int) {
	at := r.turn(now)
	r.buckets[at] += n
	r.sum += n
}

// count returns how much there was in the window that ends with the second of now.
func (r *ring) count(now time.Time) int {
	r.turn(now)
	return r.sum
}

// turn empties the buckets of the seconds that have passed since the last turn, and returns that of now. While the clock is set back no time
// passes, and from then on it does as before: what was counted is not to stay until the clock is as late as it was. One second back is no step,
// but somebody who asked for the time a little sooner.
func (r *ring) turn(now time.Time) int {
	size, second := len(r.buckets), now.Unix()
	passed := second - r.last
	switch {
	case passed >= int64(size):
		clear(r.buckets)
		r.sum = 0
	case passed > 0:
		for range passed {
			r.newest = (r.newest + 1) % size
			r.sum -= r.buckets[r.newest]
			r.buckets[r.newest] = 0
		}
	case passed >= -1:
		return r.newest
	}
	r.last = second
	return r.newest
}
