package guard

import "time"

// ring counts what happened in the last so many seconds, in buckets of one: exact but for what is of the oldest second, in a fixed
// room however much happens. It is for one goroutine at a time.
type ring struct {
	buckets []int
	// sum is that of all buckets, last the second that the newest counts, since the Unix epoch.
	sum  int
	last int64
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

// turn empties the buckets of the seconds that have passed since the last turn, and returns that of now. A clock that was set back
// counts in the newest.
func (r *ring) turn(now time.Time) int {
	size := int64(len(r.buckets))
	second := max(now.Unix(), r.last)
	if second-r.last >= size {
		clear(r.buckets)
		r.sum = 0
	} else {
		for passed := r.last + 1; passed <= second; passed++ {
			r.sum -= r.buckets[passed%size]
			r.buckets[passed%size] = 0
		}
	}
	r.last = second
	return int(second % size)
}
