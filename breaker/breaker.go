package breaker

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker is the circuit breaker of one downstream. Several goroutines may use it. It must not be copied.
type Breaker struct {
	// config has its defaults filled in and never changes.
	config Config
	// live is the slice in which calls are counted without the lock; nil unless the breaker is closed.
	live atomic.Pointer[slice]
	// streak is the number of failures since the last success of the closed period. Successes clear it without the lock.
	streak atomic.Uint64

	mu struct {
		sync.Mutex

		clock  clock
		window window
		state  State
		// cause and since are of the last transition; the Instants here are inner ones, of the clock above.
		cause Cause
		since Instant
		// period counts transitions. A call of another period is late.
		period uint32
		// forced says that an operator chose the state; it is never so for half-open.
		forced bool
		// until is when the state ends by time alone: of Open, and of Closed when forced.
		until Instant
		// reason is the one the operator gave last.
		reason string
		// trial is what is known of the probes since the breaker became half-open.
		trial trial
		// trips counts openings that no operator forced; inRow those since a stable closed period or a reset.
		trips, inRow uint64
		// totals leaves out what the window still holds.
		totals Totals
	}
}

// NewAt returns a closed breaker, or an error that names every bad field of the config. All later instants must be
// of the clock of now.
func NewAt(now Instant, config Config) (*Breaker, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure breaker: %w", err)
	}
	b := &Breaker{config: config.withDefaults()}
	b.mu.clock.mark = now
	b.mu.window.ring = make([]*slice, b.config.Buckets)
	b.mu.window.length = b.config.Window / time.Duration(b.config.Buckets)
	b.mu.trial.probes = make([]probe, b.config.MaxProbes)
	b.closeLocked(CauseNone, now)
	return b, nil
}

// Config returns the configuration in force, defaults filled in.
func (b *Breaker) Config() Config { return b.config }

// State returns the state that the last call with a time left. A cooldown that has ended since shows once a
// call or AdvanceAt notices it.
func (b *Breaker) State() State {
	if b.live.Load() != nil {
		return Closed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.state
}

// TryAcquireAt asks whether a call may be made now. If so it returns the Call, which must be ended; if not,
// the zero Call, and NextChangeAt says when to ask again. The Transition is a change that the time brought about. While
// the breaker is closed it takes no lock.
func (b *Breaker) TryAcquireAt(now Instant) (Call, Transition, bool) {
	if s := b.live.Load(); s != nil && s.covers(now) {
		return Call{breaker: b, began: now, period: s.period}, Transition{}, true
	}
	return b.acquire(now)
}

// acquire is TryAcquireAt where the time may have changed something.
func (b *Breaker) acquire(now Instant) (Call, Transition, bool) {
	jitter := b.config.Rand()
	b.mu.Lock()
	defer b.mu.Unlock()
	inner, change := b.advanceLocked(now, jitter)
	place, ok := 0, b.mu.state == Closed
	if b.mu.state == HalfOpen {
		place, ok = b.mu.trial.take(inner)
	}
	if !ok {
		b.mu.totals.Refused++
		return Call{}, change, false
	}
	return Call{breaker: b, began: now, period: b.mu.period, place: place}, change, true
}

// AdvanceAt makes the change that is due by time alone, if any: the end of a cooldown or of a forced state, a probe's
// time-out. Every other method that is given the time does so too, except SnapshotAt and NextChangeAt.
func (b *Breaker) AdvanceAt(now Instant) Transition {
	if s := b.live.Load(); s != nil && s.covers(now) {
		return Transition{}
	}
	jitter := b.config.Rand()
	b.mu.Lock()
	defer b.mu.Unlock()
	_, change := b.advanceLocked(now, jitter)
	return change
}

// NextChangeAt returns how long after now the state changes by time alone, 0 if that is due; false means that it
// does not. For an open breaker it is the rest of the cooldown: the length for which a gate may be shut.
func (b *Breaker) NextChangeAt(now Instant) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	until, ok := b.nextChangeLocked()
	if !ok {
		return 0, false
	}
	ahead := b.mu.clock
	inner, _ := ahead.read(now)
	return max(0, until.Sub(inner)), true
}

// nextChangeLocked returns the inner instant of the next change by time alone.
func (b *Breaker) nextChangeLocked() (Instant, bool) {
	if b.mu.state == HalfOpen {
		began, ok := b.mu.trial.oldest()
		return began.Add(b.config.ProbeTimeout), ok
	}
	return b.mu.until, b.mu.state == Open || b.mu.forced
}

// advanceLocked makes the change that is due at now, and slides the window of a closed breaker. It returns now as
// an inner instant. The jitter is for a cooldown that may begin.
func (b *Breaker) advanceLocked(now Instant, jitter float64) (Instant, Transition) {
	inner, stepped := b.mu.clock.read(now)
	if until, ok := b.nextChangeLocked(); ok && inner >= until {
		return inner, b.expireLocked(inner, jitter)
	}
	if b.mu.state == Closed {
		b.slideLocked(inner, stepped)
	} else {
		b.mu.clock.mark = inner
	}
	return inner, Transition{}
}

// expireLocked makes the change of a state whose time is over.
func (b *Breaker) expireLocked(inner Instant, jitter float64) Transition {
	switch {
	case b.mu.state == HalfOpen:
		return b.tripLocked(CauseProbeTimeout, inner, jitter)
	case b.mu.state == Closed:
		return b.closeLocked(CauseForceEnded, inner)
	case b.mu.forced:
		return b.halfOpenLocked(CauseForceEnded, inner)
	}
	return b.halfOpenLocked(CauseCooldownOver, inner)
}

// enterLocked begins a new period in the given state, unforced and without an end.
func (b *Breaker) enterLocked(to State, cause Cause, inner Instant) Transition {
	change := Transition{From: b.mu.state, To: to, Cause: cause, At: b.mu.clock.outer(inner)}
	b.live.Store(nil)
	b.streak.Store(0)
	b.mu.state, b.mu.cause, b.mu.since = to, cause, inner
	b.mu.forced, b.mu.until = false, 0
	b.mu.period++
	b.mu.clock.mark = inner
	return change
}
