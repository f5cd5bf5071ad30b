package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/share"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker/internal/fleet"
)

// Partitions are served side by side: a Worker of several has one of each, with a registration, a reader, a finisher, breakers
// and timers of its own, and shares its slots out among them. One partition that is away keeps nobody else's jobs.

// splitEvery is how often slots are shared out while any partition has none free.
const splitEvery = 100 * time.Millisecond

// shared is what the workers of the partitions have in common; a lone one that may be shut has it too. Its methods do nothing for a
// nil one.
type shared struct {
	// full says that a partition has no slot free, confirmed that Redis has taken note of fewer slots.
	full, confirmed fleet.Nudge
	// handlers holds a token for each job in hand. A read that began when a partition had more slots may bring more jobs than it
	// has now: they wait for a token before they start.
	handlers chan struct{}

	mu struct {
		sync.Mutex
		// slots is how many each has in Redis, or may have.
		slots map[*Worker]int
	}
}

func newShared(slots int) *shared {
	s := &shared{full: fleet.NewNudge(), confirmed: fleet.NewNudge(), handlers: make(chan struct{}, slots)}
	s.mu.slots = make(map[*Worker]int)
	return s
}

// registered notes how many slots a worker has in Redis.
func (s *shared) registered(w *Worker, slots int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.mu.slots[w] = slots
	s.mu.Unlock()
	s.confirmed.Give()
}

// registering notes that a worker may have so many slots in Redis, and returns how many it had.
func (s *shared) registering(w *Worker, slots int) (had int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	had = s.mu.slots[w]
	s.mu.slots[w] = max(had, slots)
	return had
}

// begin waits until one more job may start, or ctx ends. The job calls end when it has ended, if it was let begin.
func (s *shared) begin(ctx context.Context) (end func()) {
	if s == nil {
		return func() {}
	}
	select {
	case s.handlers <- struct{}{}:
		return func() { <-s.handlers }
	case <-ctx.Done():
		return func() {}
	}
}

func (s *shared) of(w *Worker) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.slots[w]
}

// took notes that a worker has taken a slot.
func (s *shared) took(w *Worker) {
	if s == nil {
		return
	}
	if w.slots.Full() {
		s.full.Give()
	}
}

// newOfParts returns a Worker of several partitions.
func newOfParts(of store.Deployment, config Config) (*Worker, error) {
	w := &Worker{config: config, handlers: make(map[string]Handler), pool: store.Pool{Queues: config.Queues, Strict: config.Strict}}
	w.shared = newShared(config.Concurrency)
	suspects := &suspects{}
	parts := len(of.Partitions())
	for i := range parts {
		own := config
		own.Logger = config.Logger.With().Int("partition", i).Logger()
		if i > 0 {
			own.Scheduler.OnBreaker, own.Scheduler.OnAnomaly, own.Scheduler.OnTrigger = nil, nil, nil // The first partition's tells.
		}
		part, err := newWorker(of, i, own)
		if err != nil {
			return nil, err
		}
		part.shared, part.suspects = w.shared, suspects
		if i > 0 {
			part.telling = w.parts[0].telling
		}
		part.slots.Resize((config.Concurrency + i) / parts) // The parts of a number that is not divisible add up to it.
		w.parts = append(w.parts, part)
	}
	all := make([]*fleet.Breakers, len(w.parts))
	for i, part := range w.parts {
		all[i] = part.breakers
	}
	fleet.Introduce(all)
	return w, nil
}

// runParts is Run for several partitions.
func (w *Worker) runParts(ctx context.Context) error {
	errs := make([]error, len(w.parts))
	var shares share.Ledger
	for i, slots := range shares.Next(w.config.Concurrency, w.look(ctx)) {
		w.parts[i].slots.Resize(slots) // Redis has not heard of any yet: a backlog is not met with even parts.
	}
	var running sync.WaitGroup
	for i, part := range w.parts {
		part.handlers, part.anyType = w.handlers, w.anyType
		running.Go(func() { errs[i] = part.run(ctx) })
	}
	w.shareSlots(ctx, &shares)
	running.Wait()
	return errors.Join(errs...)
}

// shareSlots shares the slots out again and again until ctx ends: every 100 ms while a partition has none free. While each has
// one, whatever comes finds it, and nobody is asked anything.
func (w *Worker) shareSlots(ctx context.Context, shares *share.Ledger) {
	for ctx.Err() == nil {
		if !w.crowded() {
			select {
			case <-w.shared.full:
			case <-w.shared.confirmed:
			case <-ctx.Done():
			}
			continue
		}
		targets := shares.Next(w.config.Concurrency, w.look(ctx))
		w.resize(targets)
		timer := time.NewTimer(splitEvery)
		for waiting := true; waiting; {
			select {
			case <-w.shared.confirmed: // Of what others have given up, more can be had.
				w.resize(targets)
			case <-timer.C:
				waiting = false
			case <-ctx.Done():
				waiting = false
			}
		}
		timer.Stop()
	}
}

// crowded reports whether a partition has no free slot.
func (w *Worker) crowded() bool {
	for _, part := range w.parts {
		if part.slots.Full() {
			return true
		}
	}
	return false
}

// look asks every partition what is runnable there.
func (w *Worker) look(ctx context.Context) []share.Place {
	ctx, cancel := context.WithTimeout(ctx, fleet.CallTimeout)
	defer cancel()
	demands := make([]*store.Demand, len(w.parts))
	var asking sync.WaitGroup
	for i, part := range w.parts {
		asking.Go(func() {
			if d, err := part.store.Demand(ctx, w.pool); err == nil {
				demands[i] = &d
			}
		})
	}
	asking.Wait()
	places := make([]share.Place, len(w.parts))
	for i, part := range share.Parts(w.pool, demands) {
		_, taken := w.parts[i].slots.Count()
		places[i] = share.Place{Part: part, Used: w.used(w.parts[i]), Taken: taken, Lost: demands[i] == nil}
	}
	return places
}

// used returns how many of the slots a partition keeps from the others.
func (w *Worker) used(part *Worker) int {
	size, taken := part.slots.Count()
	return max(size, taken, w.shared.of(part))
}

// resize takes slots from those that have more than their target, and gives the others what nobody uses any more: first
// Redis hears of fewer in one partition, and the jobs that are too many there end, then of more in another.
func (w *Worker) resize(targets []int) {
	free := w.config.Concurrency
	for i, part := range w.parts {
		if size, _ := part.slots.Count(); targets[i] < size {
			part.slots.Resize(targets[i])
			part.resized.Give()
		}
		free -= w.used(part)
	}
	for i, part := range w.parts {
		size, _ := part.slots.Count()
		if more := min(targets[i], size+max(free, 0)); more > size {
			before := w.used(part)
			part.slots.Resize(more)
			part.resized.Give()
			free -= w.used(part) - before
		}
	}
}

// followShare tells Redis whenever the partition's slots have changed, or were shut, until ctx ends.
func (s *session) followShare(ctx context.Context) {
	trouble := s.w.trouble("register slots")
	defer trouble.Leave()
	for {
		select {
		case <-s.w.resized:
		case <-ctx.Done():
			return
		}
		select {
		case s.registering <- struct{}{}:
		case <-ctx.Done():
			return
		}
		for err := s.registerSlots(ctx); err != nil && ctx.Err() == nil; err = s.registerSlots(ctx) {
			trouble.Failed(ctx, err)
		}
		trouble.Over()
		<-s.registering
	}
}

// registerSlots makes one call, unless Redis knows.
func (s *session) registerSlots(ctx context.Context) error {
	size := s.w.slots.Open()
	if s.w.shared.registering(s.w, size) == size || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fleet.CallTimeout)
	defer cancel()
	more, err := s.w.store.Register(ctx, s.name, s.w.pool, size, s.w.config.Lease)
	if err != nil {
		return err
	}
	s.w.shared.registered(s.w, size)
	if more {
		s.w.promoting.Give()
	}
	return nil
}

// breakersOfParts returns each downstream once: the state of the partition that lets the fewest through.
func (w *Worker) breakersOfParts() []BreakerStatus {
	var all []BreakerStatus
	at := map[string]int{}
	for _, part := range w.parts {
		for _, status := range statusOf(part.breakers) {
			i, known := at[status.Downstream]
			if !known {
				at[status.Downstream] = len(all)
				all = append(all, status)
				continue
			}
			if all[i].State == breaker.Closed || status.State == breaker.Open {
				all[i].State = status.State
			}
			all[i].Lonely = all[i].Lonely || status.Lonely
			all[i].Opened = max(all[i].Opened, status.Opened)
			all[i].HeldBack += status.HeldBack
		}
	}
	slices.SortFunc(all, func(a, b BreakerStatus) int { return strings.Compare(a.Downstream, b.Downstream) })
	return all
}

// BreakerStatus is the circuit breaker of one downstream, as this worker sees it.
type BreakerStatus struct {
	Downstream string `json:"downstream"`
	// State is that of the fleet's breaker; where that is closed, that of this worker's own.
	State breaker.State `json:"-"`
	// Lonely says that this worker's own breaker is not closed though the fleet's is.
	Lonely bool `json:"lonely"`
	// Opened counts how often the fleet's opened, HeldBack the jobs that this worker handed back because one was not
	// closed.
	Opened   int `json:"opened"`
	HeldBack int `json:"held_back"`
}

// statusOf returns the status of breakers.
func statusOf(of *fleet.Breakers) []BreakerStatus {
	found := of.Status()
	all := make([]BreakerStatus, len(found))
	for i, one := range found {
		all[i] = BreakerStatus(one)
	}
	return all
}

// setupOf returns how breakers are configured.
func (c Config) setupOf() fleet.Setup {
	return fleet.Setup{
		Logger: *c.BreakerLogger, Breaker: c.Breaker, Breakers: c.Breakers, CallTimeout: c.CallTimeout, CallTimeouts: c.CallTimeouts,
		ReportEvery: c.ReportEvery, ReportAfter: c.ReportAfter, Lonely: c.Observer.Lonely,
	}
}
