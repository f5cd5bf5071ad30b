package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker/internal/fleet"
)

// GuestConfig is what a Guest needs beside a store. The zero value works.
type GuestConfig struct {
	// Logger says how breakers change and what goes wrong; its zero value is silent.
	Logger zerolog.Logger
	// Breaker configures the circuit breakers, Breakers those of single downstreams.
	Breaker  breaker.Config
	Breakers map[string]breaker.Config
	// Changed, if not nil, is called after each change of a fleet's breaker that this process hears of, from several
	// goroutines. What it waits for, other changes wait for too. A panic of it is logged and changes nothing.
	Changed func(downstream string)
}

// Guest lets a process whose work comes from elsewhere than Headgate's queues call downstreams under the fleet's circuit
// breakers: what its calls come to counts in the same windows, under the same quorum, as the calls of workers, and while a
// breaker is half-open its calls and the workers' jobs are probes within one limit. Several goroutines may use it.
//
// Its work is of no tenant and so of no partition. Where a deployment has several, calls of a downstream are under its breaker in
// the partition that its name picks, and all of them hear of the outcomes.
type Guest struct {
	store  store.Deployment
	config GuestConfig
	// parts are what it has in each partition.
	parts []guestPart
}

type guestPart struct {
	store     store.Partition
	breakers  *fleet.Breakers
	scheduler *scheduler.Scheduler
}

// NewGuest returns a Guest on a store. It sends nothing before Run.
func NewGuest(store store.Deployment, config GuestConfig) (*Guest, error) {
	full := Config{Logger: config.Logger, Breaker: config.Breaker, Breakers: config.Breakers}.withDefaults()
	if err := errors.Join(append(full.validateDownstreams(), admission.FieldErrors(full.Breaker.Validate()))...); err != nil {
		return nil, fmt.Errorf("configure guest: %w", err)
	}
	guard := callback.NewGuard(config.Logger)
	full = full.guarded(guard)
	g := &Guest{store: store, config: config}
	var all []*fleet.Breakers
	for i, part := range store.Partitions() {
		timers, err := scheduler.NewOf(store, i, full.Scheduler)
		if err != nil {
			return nil, fmt.Errorf("configure guest: %w", err)
		}
		followed, err := fleet.NewClasses()
		if err != nil {
			return nil, fmt.Errorf("configure guest: %w", err)
		}
		own := fleet.NewBreakers(store, i, full.setupOf(), followed, fleet.NewNudge())
		own.Guest = true
		own.Changed = func(downstream string) {
			if config.Changed != nil && store.PartitionOf(downstream) == i {
				guard.Do("Changed", func() { config.Changed(downstream) })
			}
		}
		all = append(all, own)
		g.parts = append(g.parts, guestPart{part, own, timers})
	}
	fleet.Introduce(all)
	return g, nil
}

// of returns the part that a downstream's name picks.
func (g *Guest) of(downstream string) *guestPart { return &g.parts[g.store.PartitionOf(downstream)] }

// Run reports outcomes, follows the fleet's breakers and runs a scheduler for their times, until ctx ends. Without it each breaker is this process's own. Its
// error is that the deployment was migrated: open it anew.
func (g *Guest) Run(ctx context.Context) error {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	var wg sync.WaitGroup
	for _, part := range g.parts {
		wg.Go(func() { part.breakers.Run(ctx) })
		wg.Go(func() { part.breakers.Follow(ctx) })
		wg.Go(func() { promote(ctx, part.scheduler, part.breakers.Promoting, g.config.Logger) })
		wg.Go(func() {
			if err := part.scheduler.Run(ctx); err != nil {
				leave(err)
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); store.IsOutdated(cause) {
		return fmt.Errorf("run guest: %w", cause)
	}
	return nil
}

// FleetState is the last word on a fleet's breaker.
type FleetState struct {
	State breaker.State
	// Period grows with each transition.
	Period uint64
	// Rest is how long an open one stays so, as Redis said it by its clock and this process has counted on; at most OpenMax
	// unless it was forced, and store.MaxForce where it stays so until somebody ends it.
	Rest time.Duration
}

// FirstWord is Fleet for a process that has begun to follow the breakers only now: until it has heard of them it asks, for 2 s at most.
func (g *Guest) FirstWord(ctx context.Context, downstream string) FleetState {
	b := g.of(downstream).breakers
	if own := b.GuardOf(downstream); own != nil && !b.Learned() {
		b.Ask(ctx, own)
	}
	return g.Fleet(downstream)
}

// Fleet returns the last word on a downstream's breaker; closed where there was none.
func (g *Guest) Fleet(downstream string) FleetState {
	b := g.of(downstream).breakers
	own := b.GuardOf(downstream)
	if own == nil {
		return FleetState{}
	}
	view := own.Fleet()
	s := FleetState{State: view.State, Period: view.Period}
	switch {
	case view.State == breaker.Open && view.Until == 0:
		s.Rest = store.MaxForce
	case view.State == breaker.Open:
		s.Rest = max(0, view.Until.Sub(b.Instant()))
	}
	return s
}

// Begin asks whether a call of a downstream, "" for none, may begin. If it may, the call must be ended. If not, wait is when to ask
// again, 0 where nobody knows, and Fleet tells whether the fleet's breaker is the reason or only this process's own.
func (g *Guest) Begin(ctx context.Context, downstream string) (call *GuestCall, wait time.Duration, ok bool) {
	part := g.of(downstream)
	b := part.breakers
	var own *fleet.Guard
	if downstream != "" {
		own = b.GuardOf(downstream)
	}
	if own == nil {
		return &GuestCall{}, 0, true
	}
	call = &GuestCall{guest: g, part: part, downstream: downstream}
	var lease uint64
	if own.Fleet().State != breaker.Closed {
		if lease, wait, ok = g.probe(ctx, own, call); !ok {
			own.HeldBack.Add(1)
			return nil, wait, false
		}
	}
	if call.call, ok = b.TryAcquire(ctx, downstream, "", lease); ok {
		return call, 0, true
	}
	call.giveBack(ctx)
	wait, _ = own.Local().NextChangeAt(b.Instant())
	return nil, wait, false
}

// probe asks for a probe, and returns its period. It may find that the breaker has closed, and then all may begin.
func (g *Guest) probe(ctx context.Context, own *fleet.Guard, call *GuestCall) (lease uint64, wait time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, fleet.CallTimeout)
	defer cancel()
	call.probe = uuid.NewString()
	probe, word, more, err := call.part.store.BeginProbe(ctx, own.Name, call.probe)
	if err != nil {
		g.config.Logger.Warn().Err(err).Str("downstream", own.Name).Msg("no word on a probe: its call is held back")
		return 0, 0, false
	}
	call.part.answered(own, word, more)
	if !probe {
		call.probe = ""
		if word.State == breaker.Open && word.For < 0 {
			return 0, store.MaxForce, false
		}
		return 0, max(0, word.For), word.State == breaker.Closed
	}
	return word.Period, 0, true
}

// answered takes a word on a fleet's breaker.
func (p *guestPart) answered(own *fleet.Guard, word store.BreakerWord, more bool) {
	if more {
		p.breakers.Promoting.Give()
	}
	if word.Period == 0 {
		own.Forget()
		return
	}
	p.breakers.Hear(own, p.breakers.ViewOf(word))
}

// GuestCall is one call that may go on. It must be ended once; further ends do nothing.
type GuestCall struct {
	guest      *Guest
	part       *guestPart
	downstream string
	// call is nil where nothing is guarded, probe the name under which it holds a place; empty for none.
	call  *fleet.GuardedCall
	probe string
}

// Probe reports whether the call decides about a half-open breaker: its failure is the breaker's, not the work's.
func (c *GuestCall) Probe() bool { return c.call.Probe() }

// Timeout returns how long the call may take, where it is a probe; zero for as long as its work.
func (c *GuestCall) Timeout() time.Duration { return c.call.MostTime() }

// Succeeded ends the call: the downstream answered well. That of a probe is reported before it returns.
func (c *GuestCall) Succeeded(ctx context.Context) {
	c.call.Succeeded()
	c.giveBack(ctx)
}

// Failed ends the call: the downstream failed, or gave no answer in time. That of a probe is reported before it returns.
func (c *GuestCall) Failed(ctx context.Context) { c.FailedBy(ctx, nil) }

// FailedBy is Failed, and keeps the error among the last ones of the breaker; nil is none.
func (c *GuestCall) FailedBy(ctx context.Context, err error) {
	_ = c.call.Failed(err)
	c.giveBack(ctx)
}

// Throttled ends the call without a verdict: the downstream refused it as one too many.
func (c *GuestCall) Throttled(ctx context.Context) {
	c.call.Throttled()
	c.giveBack(ctx)
}

// Ignored ends the call without a verdict: it was cancelled, or refused on this side.
func (c *GuestCall) Ignored(ctx context.Context) {
	c.call.Ignored()
	c.giveBack(ctx)
}

// giveBack gives a probe's place free, whatever became of ctx.
func (c *GuestCall) giveBack(ctx context.Context) {
	c.call.ReturnProbe(ctx)
	if c.probe == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fleet.CallTimeout)
	defer cancel()
	word, more, err := c.part.store.EndProbe(ctx, c.downstream, c.probe)
	if err != nil {
		c.guest.config.Logger.Warn().Err(err).Str("downstream", c.downstream).Msg("a probe keeps its place until its time-out")
		return
	}
	c.probe = ""
	if own := c.part.breakers.GuardOf(c.downstream); own != nil {
		c.part.answered(own, word, more)
	}
}
