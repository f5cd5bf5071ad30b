package sessions

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/share"
	"github.com/headgate/headgate/store"
)

// Where a deployment has several partitions, the slots of a session go to them as those of a worker do (package share). What is
// registered in Redis says how many each has. Whoever serves a call of the session shares them out anew, one at a time, while any
// partition has none free: first fewer in one partition, then more in another, so that there are never more in all than the
// session has.

const (
	// shareEvery is how often the slots of a session are shared out at most.
	shareEvery = 100 * time.Millisecond
	// shareTimeout bounds that, and shareLease is for how long nobody else begins.
	shareTimeout = 2 * time.Second
	shareLease   = 5 * time.Second
)

// shares are those of the sessions that this server has heard of.
type shares struct {
	mu struct {
		sync.Mutex
		sessions perSession[sharer]
	}
}

// sharer shares out the slots of one session.
type sharer struct {
	// slots is how many each partition had when that was last looked at.
	slots atomic.Pointer[[]int]

	mu struct {
		sync.Mutex
		ledger share.Ledger
		done   time.Time
	}
}

// of returns the one of a session.
func (s *shares) of(worker string) *sharer {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, _ := s.mu.sessions.hear(worker, time.Now())
	return one
}

// firstShares returns how many slots a new session is to have in each partition.
func (a *Sessions) firstShares(ctx context.Context, s session, pool store.Pool, slots int) []int {
	if len(a.parts) == 1 {
		return []int{slots}
	}
	one := a.shares.of(s.worker)
	one.mu.Lock()
	defer one.mu.Unlock()
	first := one.mu.ledger.Next(slots, a.places(ctx, pool, make([]store.Registration, len(a.parts))))
	one.slots.Store(&first)
	return first
}

// shareSlots shares the slots of a session out, unless each partition has one free, or that was done a moment ago. It is nobody's
// answer: what fails here the next call does.
func (a *Sessions) shareSlots(ctx context.Context, s session) {
	one := a.shares.of(s.worker)
	if !one.mu.TryLock() {
		return // Another call does it.
	}
	defer one.mu.Unlock()
	if time.Since(one.mu.done) < shareEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	has, err := a.registrations(ctx, s)
	one.mu.done = time.Now()
	if err != nil {
		return
	}
	defer func() { one.note(has) }()
	if !crowded(has) {
		return
	}
	mine, done, err := a.alone(ctx, s)
	defer done()
	if err != nil || !mine {
		return
	}
	again, err := a.registrations(ctx, s)
	if err != nil {
		return
	}
	has = again
	targets := one.mu.ledger.Next(s.slots, a.places(ctx, has[0].Pool, has))
	a.resize(ctx, s, has, targets)
}

// alone reports whether nobody else shares out the slots of a session, and nobody does until done is called.
func (a *Sessions) alone(ctx context.Context, s session) (mine bool, done func(), err error) {
	token := uuid.NewString()
	mine, err = a.config.Store.LeaseRight(ctx, store.SharingRight(s.worker), token, 1, shareLease)
	return mine, func() {
		if mine {
			_ = a.config.Store.ReturnRight(context.WithoutCancel(ctx), store.SharingRight(s.worker), token) // Else it ends by itself.
		}
	}, err
}

// ending waits until nobody shares out the slots of a session that is to end, and nobody begins until done is called: who shares them out would
// register it anew. Who began before has ended after shareTimeout.
func (a *Sessions) ending(ctx context.Context, s session) (done func()) {
	if len(a.parts) == 1 {
		return func() {}
	}
	for end := time.Now().Add(shareTimeout); ; {
		mine, done, err := a.alone(ctx, s)
		if mine || err != nil || time.Now().After(end) {
			return done
		}
		pause := time.NewTimer(shareEvery / 5)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return done
		}
	}
}

func (s *sharer) note(has []store.Registration) {
	slots := make([]int, len(has))
	for i := range has {
		slots[i] = has[i].Slots
	}
	s.slots.Store(&slots)
}

// registrations returns what a session has in each partition. With one that is away nobody knows how many slots are left.
func (a *Sessions) registrations(ctx context.Context, s session) ([]store.Registration, error) {
	has := make([]store.Registration, len(a.parts))
	err := a.config.Store.Each(func(i int, part store.Partition) (err error) {
		has[i], err = part.Registration(ctx, s.pool, s.worker)
		return err
	})
	return has, err
}

// crowded reports whether the session has no free slot in a partition, or its pool has not.
func crowded(has []store.Registration) bool {
	return slices.ContainsFunc(has, func(r store.Registration) bool { return r.Held >= r.Slots || r.Room <= 0 })
}

// places asks every partition what is runnable there.
func (a *Sessions) places(ctx context.Context, pool store.Pool, has []store.Registration) []share.Place {
	demands := make([]*store.Demand, len(a.parts))
	_ = a.config.Store.Each(func(i int, part store.Partition) error { // One that is away keeps what it has.
		d, err := part.Demand(ctx, pool)
		if err == nil {
			demands[i] = &d
		}
		return err
	})
	places := make([]share.Place, len(a.parts))
	for i, part := range share.Parts(pool, demands) {
		places[i] = share.Place{Part: part, Used: used(has[i]), Taken: has[i].Held, Lost: demands[i] == nil}
	}
	return places
}

// used returns how many slots a partition keeps from the others.
func used(r store.Registration) int { return max(r.Slots, r.Held) }

// resize registers the session anew where its slots change.
func (a *Sessions) resize(ctx context.Context, s session, has []store.Registration, targets []int) {
	register := func(i, slots int) bool {
		more, err := a.parts[i].Register(ctx, s.worker, has[i].Pool, slots, s.lease)
		a.promote(ctx, a.parts[i], s.worker, err == nil && more)
		return err == nil
	}
	free := s.slots
	for i := range has {
		if targets[i] < has[i].Slots && register(i, targets[i]) {
			has[i].Slots = targets[i]
		}
		free -= used(has[i])
	}
	for i := range has {
		more := min(targets[i], has[i].Slots+max(free, 0))
		if more <= has[i].Slots {
			continue
		}
		before := used(has[i])
		has[i].Slots = more // Also where it is not known whether Redis has heard of it.
		free -= used(has[i]) - before
		register(i, more)
	}
}
