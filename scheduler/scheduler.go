package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/store"
)

// Scheduler runs timers. Its methods may be called from several goroutines; Run is to be called once.
type Scheduler struct {
	store store.Deployment
	// part is the partition whose timers it runs, the one at index.
	part  store.Partition
	index int
	// first says that it is the first of several, which has the policy that all follow.
	first  bool
	config Config
	// owner names it among the schedulers that live, and the holders of the timer lease.
	owner string
	// holding is until when this Scheduler may take itself for the holder of the timer lease, in nanoseconds since born.
	holding atomic.Int64
	// taken says that another has been seen to hold it since this Scheduler last forgot what it knew as the holder.
	taken atomic.Bool
	born  time.Time
	clock watch
	// away knows whether Redis is.
	away *outage.Watch
	// stepped says that the clock of Redis has stepped since the follower last looked.
	stepped atomic.Bool
	// woken holds a token when the earliest timer has been lowered since the last look.
	woken chan struct{}
	// others are the schedulers of the partitions beside the first; nil where there is but one.
	others []*Scheduler
	// adapting is what the first partition's knows of limits that move by themselves.
	adapting adapting
	// told, refused and givenUp count as Stats has it.
	told, refused, givenUp atomic.Uint64
}

// New returns a Scheduler on a store. It sends nothing yet.
func New(store store.Deployment, config Config) (*Scheduler, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure scheduler: %w", err)
	}
	parts := store.Partitions()
	s := newScheduler(store, 0, config)
	for i := 1; i < len(parts); i++ {
		other := config
		other.OnBreaker, other.OnAnomaly, other.OnTrigger = nil, nil, nil // Each partition hears of each outcome, and one tells what became of it.
		s.others = append(s.others, newScheduler(store, i, other))
	}
	return s, nil
}

// NewOf returns a Scheduler of one partition, by its index, for who has one of each.
func NewOf(store store.Deployment, partition int, config Config) (*Scheduler, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure scheduler: %w", err)
	}
	return newScheduler(store, partition, config), nil
}

func newScheduler(of store.Deployment, index int, config Config) *Scheduler {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	parts := of.Partitions()
	s := &Scheduler{
		store: of, part: parts[index], index: index, first: index == 0 && len(parts) > 1, config: config, owner: fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()), born: time.Now(),
		woken: make(chan struct{}, 1), away: outage.NewWatch(config.Logger),
	}
	if index == 0 {
		s.adapting.told = make(chan struct{}, 1)
	}
	return s
}

// Run runs timers until ctx ends, and returns nil when all its goroutines have: within a second, because a blocked
// read of Redis cannot be interrupted. While Redis is away it tries again, more and more seldom. Once headgate migrate has given the deployment another
// number of partitions, or has moved it, it ends with an error: open the deployment anew.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	var running sync.WaitGroup
	for _, other := range s.others {
		running.Go(func() {
			if err := other.Run(ctx); err != nil {
				leave(err)
			}
		})
	}
	if s.first {
		running.Go(func() { s.spreadPolicy(ctx) })
	}
	if s.adapting.told != nil {
		running.Go(func() { s.adapt(ctx) })
	}
	running.Go(func() { s.balance(ctx) })
	running.Go(func() { s.moveSpilled(ctx) })
	running.Go(func() { s.watch(ctx) })
	running.Go(func() { s.live(ctx) })
	if s.config.OnDead != nil {
		running.Go(func() { s.follow(ctx) })
	}
	if s.config.OnBreaker != nil {
		running.Go(func() { s.followBreakers(ctx) })
	}
	if s.config.OnAnomaly != nil {
		running.Go(func() { followFeed(ctx, s, s.anomalies()) })
	}
	if s.config.OnTrigger != nil {
		running.Go(func() { followFeed(ctx, s, s.triggerEvents()) })
	}
	s.loop(ctx, leave)
	running.Wait()
	if cause := context.Cause(ctx); store.IsOutdated(cause) {
		return fmt.Errorf("run scheduler: %w", cause)
	}
	return nil
}

// Promote runs what is due now, as far as this Scheduler may: unless another holds the timer lease. It is for
// whoever was told that work is left, and serves whether Run runs or not.
func (s *Scheduler) Promote(ctx context.Context) error {
	if s.others == nil {
		return s.promoteAll(ctx)
	}
	errs := make([]error, len(s.others)+1)
	var running sync.WaitGroup
	for i, other := range s.others {
		running.Go(func() { errs[i] = other.promoteAll(ctx) })
	}
	errs[len(s.others)] = s.promoteAll(ctx)
	running.Wait()
	return errors.Join(errs...)
}

// promoteAll is Promote for one partition.
func (s *Scheduler) promoteAll(ctx context.Context) error {
	for range roundsInARow {
		p, err := s.promote(ctx)
		if err != nil {
			return err
		}
		if !p.More {
			return nil
		}
	}
	return nil // The store has a timer for what is left.
}

// roundsInARow is how many calls of Promote follow each other without a pause.
const roundsInARow = 64

// The pauses between two tries of a call while Redis is away.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// trouble returns one goroutine's dealings with a Redis that is away.
func (s *Scheduler) trouble(what string) *outage.Trouble {
	return s.away.Trouble(what, firstPause, lastPause)
}

// callTimeout bounds one call.
const callTimeout = 2 * time.Second

func (s *Scheduler) promote(ctx context.Context) (store.Promotion, error) {
	p, seen, err := s.promoteAfter(ctx, store.LeapAsk)
	if err == nil && p.Leapt {
		p, seen, err = s.promoteAfter(ctx, s.clock.leap(seen))
	}
	if err != nil {
		return p, err
	}
	s.clock.note(seen)
	if p.Held {
		s.taken.Store(true)
	} else {
		s.holding.Store(int64(seen.sent + s.config.TimerLease))
		s.adapting.note(p.Adaptive)
	}
	if p.Stepped {
		s.stepped.Store(true)
		s.config.Logger.Error().Msg("the clock of redis has stepped by more than 5 s: all worker leases were armed anew")
	}
	return p, nil
}

// promoteAfter is one call.
func (s *Scheduler) promoteAfter(ctx context.Context, leap store.Leap) (store.Promotion, glance, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sent := time.Since(s.born)
	p, err := s.part.PromoteAfter(ctx, leap, s.owner, s.config.TimerLease)
	return p, glance{redis: p.At, sent: sent, heard: time.Since(s.born)}, err
}
