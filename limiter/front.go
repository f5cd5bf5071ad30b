package limiter

import (
	"sync/atomic"

	"github.com/headgate/headgate/admission"
)

// front is a cache before the map of ways, which costs a hash of three strings: a way stands in the one place that the ends of
// its names give, and whoever comes later takes the place over. A check on a busy way finds it in a few nanoseconds.
type front [4096]atomic.Pointer[way]

func (f *front) place(tenant, queue string, class admission.Priority) *atomic.Pointer[way] {
	const odd = 0x9e3779b1 // 2³² divided by the golden ratio: multiplied, near numbers part.
	h := tail(tenant) * odd
	h = (h ^ h>>15 ^ tail(queue)) * odd
	h = (h ^ h>>15 ^ tail(class)) * odd
	return &f[h>>20]
}

// tail is the last four bytes of a name and its length.
func tail[S ~string](s S) uint32 {
	n := len(s)
	if n >= 4 {
		return (uint32(s[n-4]) | uint32(s[n-3])<<8 | uint32(s[n-2])<<16 | uint32(s[n-1])<<24) ^ uint32(n)<<3
	}
	h := uint32(n)
	for i := range n {
		h = h<<8 | uint32(s[i])
	}
	return h
}

// clear forgets all.
func (f *front) clear() {
	for i := range f {
		f[i].Store(nil)
	}
}
