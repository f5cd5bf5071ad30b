package worker

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/lua"
)

// BreakerStatus is the circuit breaker of one downstream, as this worker sees it.
type BreakerStatus struct {
	Downstream string        `json:"downstream"`
	State      breaker.State `json:"-"`
	// Opened counts how often it opened, HeldBack the jobs that were handed back because it was not closed.
	Opened   int `json:"opened"`
	HeldBack int `json:"held_back"`
}

// breakers keeps one local breaker a downstream, at most maxBreakers. Its methods may be called from several
// goroutines. Breakers of the whole fleet are another step: until then each worker judges by its own calls, and shuts
// the shared gate by its own judgement; see gates.go.
type breakers struct {
	store     *lua.Store
	logger    zerolog.Logger
	config    breaker.Config
	own       map[string]breaker.Config // by downstream
	gateLease time.Duration
	promoting nudge
	// born is the origin of all Instants.
	born time.Time
	// changed says that a guard wants attention.
	changed nudge

	mu struct {
		sync.Mutex
		guards map[string]*guard
		// attention is the guards whose gate may have to be set: those not closed, and those just closed.
		attention map[*guard]bool
	}
}

// guard is one downstream's breaker.
type guard struct {
	name     string
	breaker  *breaker.Breaker
	heldBack atomic.Int64
	// used is the Instant of the last call.
	used atomic.Int64
	// gate is what the shared gate was told. Only the goroutine of breakers.run uses it.
	gate gateNote
}

// maxBreakers bounds the memory that names of downstreams can take. Beyond it the breaker goes that is closed and was
// not used for longest.
const maxBreakers = 4096

func newBreakers(store *lua.Store, config Config, promoting nudge) *breakers {
	b := &breakers{
		store: store, logger: *config.BreakerLogger, config: config.Breaker, own: config.Breakers, gateLease: config.Lease,
		promoting: promoting, born: time.Now(), changed: newNudge(),
	}
	b.mu.guards, b.mu.attention = make(map[string]*guard), make(map[*guard]bool)
	return b
}

// instant reads the clock of all breakers.
func (b *breakers) instant() breaker.Instant { return breaker.Instant(time.Since(b.born)) }

// guardOf returns the guard of a downstream; nil when there is no room for another, and then nothing is guarded.
func (b *breakers) guardOf(downstream string) *guard {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.mu.guards[downstream]; g != nil {
		return g
	}
	if len(b.mu.guards) >= maxBreakers && !b.evictLocked() {
		return nil
	}
	config, ok := b.own[downstream]
	if !ok {
		config = b.config
	}
	local, err := breaker.NewAt(b.instant(), config)
	if err != nil {
		return nil // Config.validate has let it pass, so this does not happen.
	}
	g := &guard{name: downstream, breaker: local}
	b.mu.guards[downstream] = g
	return g
}

func (b *breakers) evictLocked() bool {
	var oldest *guard
	for _, g := range b.mu.guards {
		idle := !b.mu.attention[g] && g.breaker.State() == breaker.Closed
		if idle && (oldest == nil || g.used.Load() < oldest.used.Load()) {
			oldest = g
		}
	}
	if oldest == nil {
		return false
	}
	delete(b.mu.guards, oldest.name)
	return true
}

// status lists all breakers by name.
func (b *breakers) status() []BreakerStatus {
	b.mu.Lock()
	guards := make([]*guard, 0, len(b.mu.guards))
	for _, g := range b.mu.guards {
		guards = append(guards, g)
	}
	b.mu.Unlock()
	slices.SortFunc(guards, func(x, y *guard) int { return strings.Compare(x.name, y.name) })
	all := make([]BreakerStatus, len(guards))
	for i, g := range guards {
		snapshot := g.breaker.SnapshotAt(b.instant())
		all[i] = BreakerStatus{Downstream: g.name, State: snapshot.State, Opened: int(snapshot.Trips), HeldBack: int(g.heldBack.Load())}
	}
	return all
}

// guardedCall is one handler's call of its downstream. That of a job without one, nil, does nothing.
type guardedCall struct {
	breakers *breakers
	guard    *guard
	call     breaker.Call
	// slow marks the call as slow while it runs.
	slow *time.Timer
}

// tryAcquire asks whether a call of the downstream may begin.
func (b *breakers) tryAcquire(downstream string) (*guardedCall, bool) {
	if downstream == "" {
		return nil, true
	}
	g := b.guardOf(downstream)
	if g == nil {
		return nil, true
	}
	now := b.instant()
	g.used.Store(int64(now))
	c := &guardedCall{breakers: b, guard: g}
	var change breaker.Transition
	var ok bool
	c.call, change, ok = g.breaker.TryAcquireAt(now)
	b.noted(g, change)
	if !ok {
		g.heldBack.Add(1)
		return nil, false
	}
	c.slow = time.AfterFunc(g.breaker.Config().SlowCallDuration, func() { b.noted(g, c.call.MarkSlowAt(b.instant())) })
	return c, true
}

// probe reports whether the call decides about a half-open breaker.
func (c *guardedCall) probe() bool { return c != nil && c.call.Probe() }

func (c *guardedCall) succeeded() { c.end((*breaker.Call).SuccessAt) }

func (c *guardedCall) ignored() { c.end((*breaker.Call).IgnoreAt) }

// failed returns for how long the breaker stays open now.
func (c *guardedCall) failed() time.Duration {
	if c == nil {
		return 0
	}
	c.end((*breaker.Call).FailureAt)
	if c.guard.breaker.State() != breaker.Open {
		return 0
	}
	rest, _ := c.guard.breaker.NextChangeAt(c.breakers.instant())
	return rest
}

// end ends the call, once.
func (c *guardedCall) end(verdict func(*breaker.Call, breaker.Instant) breaker.Transition) {
	if c == nil {
		return
	}
	c.slow.Stop()
	c.breakers.noted(c.guard, verdict(&c.call, c.breakers.instant()))
}

// noted passes a change of state on to whoever sets the gates.
func (b *breakers) noted(g *guard, change breaker.Transition) {
	if !change.Happened() {
		return
	}
	level := zerolog.InfoLevel
	if change.To == breaker.Open {
		level = zerolog.WarnLevel
	}
	b.logger.WithLevel(level).Str("downstream", g.name).Stringer("from", change.From).Stringer("to", change.To).Stringer("cause", change.Cause).
		Msg("circuit breaker changed")
	b.mu.Lock()
	b.mu.attention[g] = true
	b.mu.Unlock()
	b.changed.give()
}
