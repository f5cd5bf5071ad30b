package limiter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/estimate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Limiter answers checks. Several goroutines may use it. It has no goroutines while nobody asks.
type Limiter struct {
	// parts are limiters of single partitions, among which this one shares the checks out; nil where there is but one. turn
	// numbers the checks that any of them can answer.
	parts []*Limiter
	turn  atomic.Uint64

	store store.Deployment
	// part is the partition whose scopes it knows; the first where it has parts.
	part   store.Partition
	config Config
	// member is the limiter's name in Redis.
	member string
	clock  clock
	ways   ways
	line   line
	// turns are those who wait in Wait and ReserveWait.
	turns turns
	// policy is the one in force as last read; nil until it was first read.
	policy   atomic.Pointer[policy.Compiled]
	editions *editions
	breaker  *breaker.Breaker
	// shut is until when the breaker lets nothing through, a breaker.Instant.
	shut atomic.Int64
	// members is how many limiters live, as last heard; beatAt is when this one says again that it does, hearing that a check has sent for that,
	// and heardUntil is until when what it was told then is good. Both are breaker.Instants.
	members            atomic.Int64
	beatAt, heardUntil atomic.Int64
	hearing            atomic.Bool
	// changed is when limits last changed, edited the latest edit of a record, as last heard, and cuts how often stocks and denials were ended.
	changed, edited atomic.Int64
	cuts            atomic.Uint64
	// declaredAt is from when on the policy is looked for again that has a class or a dimension which is missing, a breaker.Instant.
	declaredAt atomic.Int64
	blind      blind
	counts     *counts
	// costs are those that Commit was told.
	costs   estimate.Book
	reports reports
}

// clock is the monotonic clock of the process. Tests set it.
type clock struct {
	start time.Time
	set   *atomic.Int64
}

func (c *clock) now() breaker.Instant {
	if c.set != nil {
		return breaker.Instant(c.set.Load())
	}
	return breaker.Instant(time.Since(c.start))
}

// ErrClosed matches a check of a limiter that was closed.
var ErrClosed = errors.New("limiter closed")

// New returns a limiter on a store. It asks Redis for nothing yet. The error joins one *headgate.FieldError for each bad field.
func New(store store.Deployment, config Config) (*Limiter, error) {
	err := config.withDefaults().validate()
	if err != nil {
		return nil, fmt.Errorf("configure limiter: %w", err)
	}
	l := &Limiter{store: store, part: store.Partitions()[0], config: config.withDefaults(), member: rand.Text(), clock: clock{start: time.Now()}, editions: &editions{}, counts: newCounts(&config)}
	if config.Policy != nil {
		snapshot, err := config.Policy.Prepare()
		if err != nil {
			return nil, fmt.Errorf("configure limiter: %w", err)
		}
		l.policy.Store(snapshot)
	}
	if stores := store.Partitions(); len(stores) > 1 {
		err = l.divide(stores)
	} else {
		err = l.prepare(1)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// prepare makes a limiter of one partition of so many ready.
func (l *Limiter) prepare(parts int) (err error) {
	l.members.Store(1)
	l.ways = newWays(&l.config, parts)
	l.line.places = l.config.InFlight
	l.line.watch, l.line.every = time.AfterFunc(time.Hour, l.watch), max(lateAfter, min(watchEvery, l.config.Timeout/4))
	l.line.watch.Stop()
	l.breaker, err = newBreaker(l.clock.now(), l.config.Timeout)
	return err
}

// Check asks whether a request may pass now. A refusal is a Verdict; the error is a *headgate.FieldError for bad input, ErrClosed,
// the ctx's own, or what Redis said that is no answer. It returns within Config.Timeout, or when ctx ends.
func (l *Limiter) Check(ctx context.Context, r Request) (v Verdict, err error) {
	if len(r.Also) > 0 || r.beside() {
		if l.parts == nil && l.alsoLocally(ctx, &r, &v) {
			return v, nil
		}
		return l.checkAlso(ctx, &r)
	}
	if r.Cost == 0 {
		r.Cost = 1
	}
	if l.parts != nil {
		return l.checkParts(ctx, r)
	}
	w := l.ways.find(&r)
	if w == nil || w.policy != l.policy.Load() || uint64(r.Cost) > uint64(admission.MaxCost) {
		if w, err = l.first(ctx, r.route(), r.Cost); err != nil {
			return Verdict{}, err
		}
		if w == nil {
			return l.ask(ctx, l.line.ticket(r.route(), nil, r.Cost).telling(r.Remaining))
		}
	}
	now := l.clock.now()
	var a answer
	var at epochs
	l.try(w, now, r.Cost, &at, &a)
	switch {
	case a.outcome == asking:
		return l.ask(ctx, l.line.ticket(w.asked, w, r.Cost).telling(r.Remaining))
	case a.outcome == denied:
		if l.counts.byDenial != nil {
			l.counts.byDenial.Add(1)
		}
		l.note(ctx, w, oneRefused, r.Cost)
		a.denial.tell(&v, a.scope.told(), a.wait)
		return v, nil
	case a.low && w.refill(), l.unheard(now):
		l.fetch(ctx, w)
	}
	if l.counts.byLease != nil {
		l.counts.byLease.Add(1)
	}
	l.note(ctx, w, oneAdmitted, r.Cost)
	v = byLease
	if r.Remaining {
		w.remaining(&v)
	}
	return v, nil
}

// byLease is a Verdict that is copied whole: callers read it by words of 16 bytes, which would wait for two bytes that were just written.
var byLease = Verdict{Admitted: true, Source: Leased}

// try takes cost of what is held here, or tells of a denial.
func (l *Limiter) try(w *way, now breaker.Instant, cost admission.Tokens, at *epochs, a *answer) {
	if l.spends(w, now) {
		w.try(now, cost, at, a)
	} else {
		w.deniedBy(now, cost, a)
	}
}

// spends reports whether what is held of a way may be spent: it is known since less than a second that limits are what they were.
func (l *Limiter) spends(w *way, now breaker.Instant) bool {
	free := w.free()
	return (int64(now) < l.heardUntil.Load() || len(w.scopes) == 0 && free == nil) && (free == nil || !free.ended(now))
}

// first returns a way that is not known, nil where the policy was never read. It finds bad input: what the policy does not have may be new, and is looked
// for in a later one.
func (l *Limiter) first(ctx context.Context, at route, cost admission.Tokens) (*way, error) {
	if err := errors.Join(at.validate(), checkCost(cost)); err != nil {
		return nil, err
	}
	if l.line.isClosed() {
		return nil, ErrClosed
	}
	inForce := l.policy.Load()
	if inForce == nil {
		return nil, nil //nolint:nilnil // as it says
	}
	w, err := l.ways.open(l.clock.now(), at, inForce)
	if err != nil {
		if fresh := l.redeclared(ctx, inForce); fresh != inForce {
			return l.ways.open(l.clock.now(), at, fresh)
		}
	}
	return w, err
}

// A Limiter of several partitions has one of each, which knows the tenants of its own: their scopes are as with one partition.
// Of the global limit each has an even part, from which it leases by itself, so the parts of the bound add up to the bound.
// One partition that is away is an outage to its tenants alone.

// divide makes l a limiter of several partitions.
func (l *Limiter) divide(stores []store.Partition) error {
	for i, of := range stores {
		part := &Limiter{store: l.store, part: of, config: l.config, member: l.member, clock: l.clock, editions: l.editions, counts: l.counts}
		part.config.MaxScopes = max(1, l.config.MaxScopes/len(stores))
		part.config.Logger = l.config.Logger.With().Int("partition", i).Logger()
		part.policy.Store(l.policy.Load())
		if err := part.prepare(len(stores)); err != nil {
			return err
		}
		l.parts = append(l.parts, part)
	}
	return nil
}

// checkParts is Check for several partitions. What names no tenant is of no partition: the next in turn answers it, and while
// one is known to refuse, that after it.
func (l *Limiter) checkParts(ctx context.Context, r Request) (Verdict, error) {
	if r.Tenant != "" {
		return l.parts[l.store.PartitionOf(r.Tenant)].Check(ctx, r)
	}
	first := int(l.turn.Add(1) % uint64(len(l.parts))) //nolint:gosec // partitions are few
	var soonest Verdict
	for i := range l.parts {
		v, err := l.parts[(first+i)%len(l.parts)].Check(ctx, r)
		if err != nil || v.Source != Cached {
			return v, err
		}
		if i == 0 || v.RetryAfter < soonest.RetryAfter {
			soonest = v
		}
	}
	return soonest, nil
}

// closeParts is Close for several partitions. Its own line has no tickets, but says to reservations and semaphores, which are of all of them, that it is closed.
func (l *Limiter) closeParts(ctx context.Context) error {
	l.line.close()
	errs := make([]error, len(l.parts))
	var closing sync.WaitGroup
	for i, part := range l.parts {
		closing.Go(func() { errs[i] = part.guarded(func() error { return part.Close(ctx) }) })
	}
	closing.Wait()
	return errors.Join(errs...)
}
