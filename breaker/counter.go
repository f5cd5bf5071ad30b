package breaker

import (
	"sync"
	"sync/atomic"
)

// counter counts without a lock and can be sealed: who adds later is told so. It is spread over cache lines, one for
// each processor as far as may be. Measured on two processors that do nothing else: a call costs 15 to 30 ns so, and
// 60 ns if both count on one line; on one processor, 32 ns against 25.
type counter [stripes]stripe

// stripes is a power of two; whoever reads a counter adds up all of them.
const stripes = 8

// stripe is one part of a counter.
type stripe struct {
	// n has room for 2^63 before it carries into the seal.
	n atomic.Uint64
	_ [56]byte
}

// sealed is the bit of stripe.n that says: count elsewhere, this counter is no longer read.
const sealed uint64 = 1 << 63

// add counts one and reports whether it will be read.
func (c *counter) add() bool {
	l := lanes.Get().(*lane) //nolint:forcetypeassert // New makes nothing else.
	n := c[l.stripe%stripes].n.Add(1)
	lanes.Put(l)
	return n < sealed
}

// load returns the count: all that was added before, and perhaps some of what is added meanwhile.
func (c *counter) load() uint64 {
	sum := uint64(0)
	for i := range c {
		sum += c[i].n.Load() &^ sealed
	}
	return sum
}

// seal ends the counter and returns its count, to which nobody can add any more.
func (c *counter) seal() uint64 {
	sum := uint64(0)
	for i := range c {
		sum += c[i].n.Swap(sealed) &^ sealed
	}
	return sum
}

// lane is a processor's claim on one stripe of every counter.
type lane struct{ stripe uint32 }

// lanes gives a processor the lane that it used last, mostly: a sync.Pool keeps things near who put them there. When it
// has none, the next in turn is dealt. Two processors on one lane are slower, never wrong.
var lanes = sync.Pool{New: func() any { return &lane{nextLane.Add(1)} }}

var nextLane atomic.Uint32
