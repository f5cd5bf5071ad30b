package fleet

import (
	"maps"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// holds notes until when what the call is for is to be held back, its account or else the downstream, and reports whether that is news.
func (c *GuardedCall) holds(until breaker.Instant) bool {
	if c.account == "" {
		return c.guard.holds(until)
	}
	b := c.breakers
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, held := b.mu.held[c.account]; held && until.Sub(was) < store.PauseSlack {
		return false
	}
	if b.mu.held == nil {
		b.mu.held = map[string]breaker.Instant{}
	}
	if len(b.mu.held) >= maxBreakers {
		now := b.Instant()
		maps.DeleteFunc(b.mu.held, func(_ string, until breaker.Instant) bool { return until < now })
	}
	if len(b.mu.held) < maxBreakers { // Beyond, each call that is refused asks Redis, which leaves a longer hold alone.
		b.mu.held[c.account] = until
	}
	return true
}

// unhold forgets what holds has noted.
func (c *GuardedCall) unhold() {
	if c.account == "" {
		c.guard.unhold()
		return
	}
	b := c.breakers
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.held, c.account)
}
