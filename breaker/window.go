package breaker

import "time"

// slice is one part of the window. Its first fields never change once it is published, so that who holds it may read
// them without a lock; successes is the one counter that moves without a lock.
type slice struct {
	// lo and hi bound the instants of the caller's clock, [lo, hi), at which nothing is due but to count.
	lo, hi Instant
	// period is the closed period that the slice belongs to.
	period uint32

	// What every call reads stays off the cache lines that calls write.
	_ [44]byte

	// successes counts calls that ended well, those counted under the lock too. It is sealed once the slice
	// is folded away.
	successes counter

	// Guarded by Breaker.mu.

	failures uint64
	// slow counts the calls that became slow, slowEnds those that ended with a verdict having been slow.
	slow, slowEnds uint64
}

// covers reports whether a call at now may use the slice without asking anyone.
func (s *slice) covers(now Instant) bool { return now >= s.lo && now < s.hi }

// window is a ring of slices on a grid that starts with the closed period. The breaker's lock guards it.
type window struct {
	// ring holds slice number i at i modulo its length; nil where nothing has been counted.
	ring []*slice
	// start is the beginning of slice 0, an inner instant.
	start Instant
	// length is that of one slice.
	length time.Duration
	// index is the number of the newest slice.
	index int64
}

// beginning returns the inner instant at which slice number index begins.
func (w *window) beginning(index int64) Instant {
	return w.start.Add(time.Duration(index) * w.length)
}

// indexAt returns the number of the slice in force at an inner instant, never before the newest.
func (w *window) indexAt(inner Instant) int64 {
	return max(w.index, int64(inner.Sub(w.start)/w.length))
}

func (w *window) newest() *slice { return w.ring[w.slot(w.index)] }

func (w *window) slot(index int64) int { return int(index % int64(len(w.ring))) }

// restart empties the window and starts a new grid; what it held goes to folded.
func (w *window) restart(inner Instant, folded *Totals) {
	for slot := range w.ring {
		w.drop(slot, folded)
	}
	w.start, w.index = inner, 0
}

// slide moves the window on to the slice with the given number, above the newest one's; what it leaves behind goes to
// folded.
func (w *window) slide(index int64, folded *Totals) {
	for next := w.index + 1; next <= min(index, w.index+int64(len(w.ring))); next++ {
		w.drop(w.slot(next), folded)
	}
	w.index = index
}

// put makes fresh the newest slice. If there was one, with other bounds, its counts move over.
func (w *window) put(fresh *slice) {
	slot := w.slot(w.index)
	if old := w.ring[slot]; old != nil {
		fresh.failures, fresh.slow, fresh.slowEnds = old.failures, old.slow, old.slowEnds
		fresh.successes[0].n.Store(old.successes.seal())
	}
	w.ring[slot] = fresh
}

func (w *window) drop(slot int, folded *Totals) {
	s := w.ring[slot]
	if s == nil {
		return
	}
	w.ring[slot] = nil
	folded.Successes += s.successes.seal()
	folded.Failures += s.failures
	folded.Slow += s.slow
}

// countsAt adds up what counts while slice number index is in force.
func (w *window) countsAt(index int64) Counts {
	var c Counts
	for i := max(0, w.index-int64(len(w.ring))+1, index-int64(len(w.ring))+1); i <= w.index; i++ {
		if s := w.ring[w.slot(i)]; s != nil {
			c.Successes += s.successes.load()
			c.Failures += s.failures
			c.Slow += s.slow
			c.SlowEnds += s.slowEnds
		}
	}
	return c
}
