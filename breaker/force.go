package breaker

// endless is an instant that no clock reaches; later ones are taken for it.
const endless Instant = 1 << 62

// ForceOpenAt lets no call pass before until, whatever happens; then the breaker is half-open. An until that
// is not after now ends with the next call that is given the time. The reason is kept for SnapshotAt.
func (b *Breaker) ForceOpenAt(now, until Instant, reason string) Transition {
	b.mu.Lock()
	defer b.mu.Unlock()
	inner, end := b.forceLocked(now, until, reason)
	return b.openLocked(CauseForced, inner, end, true)
}

// ForceClosedAt lets every call pass before until, whatever happens; then the breaker is closed with an empty window.
// Calls are counted meanwhile. An until that is not after now ends with the next call that is given the
// time. The reason is kept for SnapshotAt.
func (b *Breaker) ForceClosedAt(now, until Instant, reason string) Transition {
	b.mu.Lock()
	defer b.mu.Unlock()
	inner, end := b.forceLocked(now, until, reason)
	return b.forceClosedLocked(inner, end)
}

// ResetAt closes the breaker with an empty window and forgets its trips in a row. It ends a forced state. The
// reason is kept for SnapshotAt.
func (b *Breaker) ResetAt(now Instant, reason string) Transition {
	b.mu.Lock()
	defer b.mu.Unlock()
	inner, _ := b.forceLocked(now, now, reason)
	b.mu.inRow = 0
	return b.closeLocked(CauseReset, inner)
}

// forceLocked keeps the reason, brings the window of a closed breaker up to date for those who look at it later, and
// returns both instants as inner ones.
func (b *Breaker) forceLocked(now, until Instant, reason string) (inner, end Instant) {
	b.mu.reason = reason
	inner, stepped := b.mu.clock.read(now)
	if b.mu.state == Closed {
		b.slideLocked(inner, stepped)
	}
	return inner, min(until, endless).Add(b.mu.clock.skew)
}
