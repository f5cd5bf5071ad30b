package fleet

// Nudge is a request that need not be made twice.
type Nudge chan struct{}

// NewNudge returns one that nobody has made.
func NewNudge() Nudge { return make(Nudge, 1) }

// Give makes the request. It never blocks.
func (n Nudge) Give() {
	select {
	case n <- struct{}{}:
	default:
	}
}
