package breaker

import "time"

// tripLocked opens the breaker for a cooldown that doubles with each trip in a row.
func (b *Breaker) tripLocked(cause Cause, inner Instant, jitter float64) Transition {
	if b.stableLocked(inner) {
		b.mu.inRow = 0
	}
	cooldown := b.config.cooldown(b.mu.inRow, jitter)
	b.mu.trips++
	b.mu.inRow++
	return b.openLocked(cause, inner, inner.Add(cooldown), false)
}

// stableLocked reports whether the breaker has been closed for so long that earlier trips are forgotten.
func (b *Breaker) stableLocked(inner Instant) bool {
	return b.mu.state == Closed && inner.Sub(b.mu.since) >= b.config.ResetAfter
}

// openLocked begins an open period that ends at until. The window stays as it was, for whoever wants to know why.
func (b *Breaker) openLocked(cause Cause, inner, until Instant, forced bool) Transition {
	change := b.enterLocked(Open, cause, inner)
	b.mu.until, b.mu.forced = until, forced
	change.Until = b.mu.clock.outer(until)
	return change
}

// cooldown returns how long to stay open after earlier trips in a row, with equal jitter.
func (c Config) cooldown(earlier uint64, jitter float64) time.Duration {
	full := c.fullCooldown(earlier)
	half := full / 2
	return half + time.Duration(min(max(jitter, 0), 1)*float64(full-half))
}

// fullCooldown is the cooldown before jitter.
func (c Config) fullCooldown(earlier uint64) time.Duration {
	if c.OpenBase <= c.OpenMax>>earlier {
		return c.OpenBase << earlier
	}
	return c.OpenMax
}
