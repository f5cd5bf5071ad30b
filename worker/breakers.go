package worker

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/store"
)

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

// breakers guards the downstreams that this worker knows, at most maxBreakers: each by what it hears of the fleet's
// breaker, and by one of its own. Its methods may be called from several goroutines.
//
//	fleet's breaker     own breaker   a job                            its outcome
//	open                              goes back
//	half-open                         runs if it is a probe, by its    is reported at once
//	                                  lease's period; else goes back
//	closed              closed        runs                             is counted in both, reported in batches
//	closed              not closed    goes back: this worker is        is reported, if it was the own breaker's probe
//	                                  lonely
//	forced closed                     runs                             is counted in both
//
// The fleet's is changed by one script in Redis (store.Partition.ReportOutcomes). With Redis away the last word of it stands,
// and the own one goes on; reports wait, and those older than the window are dropped.
type breakers struct {
	// store is the partition whose breakers these are, fleet all of the deployment, which has several if divided.
	store     store.Partition
	fleet     store.Deployment
	divided   bool
	logger    zerolog.Logger
	watch     *outage.Watch
	observer  Observer
	config    breaker.Config
	own       map[string]breaker.Config // by downstream
	promoting nudge
	// callTimeout is what a call may take, callTimeouts those of single downstreams.
	callTimeout  time.Duration
	callTimeouts map[string]time.Duration
	// others are those of the other partitions: each of them hears of every outcome, so that all open together.
	others []*breakers
	// name is this worker's in its reports, the same for all its registrations; guest says that it has none.
	name  string
	guest bool
	// changed, if not nil, is called after each new word on a fleet's breaker.
	changed func(downstream string)
	// policy is the one that is followed, plain that the worker's configuration says nothing of breakers in general.
	policy *classes
	plain  bool
	// read is the last version that run has read, or tried to.
	read int64
	// every and after say when outcomes are reported: so long after the first, or so many.
	every time.Duration
	after int
	// born is the origin of all Instants.
	born time.Time
	// sequence numbers reports.
	sequence atomic.Uint64
	// probes numbers the probes that are leased over all partitions.
	probes atomic.Uint64
	// work says that there is something to report, urgent that it is not to wait.
	work, urgent nudge

	mu struct {
		sync.Mutex
		guards map[string]*guard
		// dirty is the guards with something to report.
		dirty map[*guard]bool
	}
}

// maxBreakers bounds the memory that names of downstreams can take. Beyond it the guard goes that is closed and was
// not used for longest.
const maxBreakers = 4096

func newBreakers(of store.Deployment, partition int, config Config, followed *classes, promoting nudge) *breakers {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	parts := of.Partitions()
	b := &breakers{
		store: parts[partition], fleet: of, divided: len(parts) > 1, logger: *config.BreakerLogger, watch: outage.NewWatch(*config.BreakerLogger), observer: config.Observer, config: config.Breaker, own: config.Breakers,
		promoting: promoting, policy: followed, plain: isPlain(config.Breaker), callTimeout: config.CallTimeout, callTimeouts: config.CallTimeouts, name: fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()),
		every: config.ReportEvery, after: config.ReportAfter, born: time.Now(), work: newNudge(), urgent: newNudge(),
	}
	b.mu.guards, b.mu.dirty = make(map[string]*guard), make(map[*guard]bool)
	return b
}

// isPlain reports whether a config says nothing.
func isPlain(config breaker.Config) bool {
	config.Rand = nil
	return reflect.DeepEqual(config, breaker.Config{})
}

// instant reads the clock of all breakers.
func (b *breakers) instant() breaker.Instant { return breaker.Instant(time.Since(b.born)) }

// guardOf returns the guard of a downstream; nil when there is no room for another, and then nothing is guarded.
func (b *breakers) guardOf(downstream string) *guard {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.mu.guards[downstream]; g != nil {
		b.adopt(g)
		return g
	}
	if len(b.mu.guards) >= maxBreakers && !b.evictLocked() {
		return nil
	}
	g := &guard{name: downstream}
	if !b.adopt(g) {
		return nil // Config.validate has let its rules pass, so this does not happen.
	}
	b.mu.guards[downstream] = g
	return g
}

// adopt lets a guard go by the policy in force, if it has not looked at that yet: by what it says of the downstream, and else by
// this worker's configuration. Its own breaker begins anew where the rules are others.
func (b *breakers) adopt(g *guard) bool {
	now, known := b.policy.policy.Load(), g.by.Load()
	if known != nil && known.version == now.Version() {
		return true
	}
	next := &guardRules{config: b.config, version: now.Version(), callTimeout: b.callTimeouts[g.name]}
	if !b.plain {
		next.origin = breaker.OriginWorker
	}
	if own, ok := b.own[g.name]; ok {
		next.config, next.origin = own, breaker.OriginWorker
	}
	if rules, ok := now.Breaker(g.name); ok {
		next.config, next.origin = rules.Config, breaker.OriginPolicy
		next.callTimeout = cmp.Or(rules.CallTimeout, next.callTimeout)
	}
	full, err := next.config.Complete()
	if err != nil {
		return known != nil
	}
	full.Rand = nil // Functions do not compare.
	if known != nil && reflect.DeepEqual(known.config, full) {
		next.config, next.local = full, known.local
		g.by.Store(next)
		return true
	}
	if next.local, err = breaker.NewAt(b.instant(), next.config); err != nil {
		return known != nil
	}
	next.config = full
	g.by.Store(next)
	if known != nil {
		b.logger.Info().Str("downstream", g.name).Stringer("origin", next.origin).Int64("policy", next.version).Msg("circuit breaker has other rules")
	}
	return true
}

// reread reads the policy, since another version than the last is in force.
func (b *breakers) reread(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := b.policy.read(ctx, b.store); err != nil && ctx.Err() == nil {
		b.logger.Warn().Err(err).Msg("rules of circuit breakers not read from the policy")
	}
	for _, g := range b.all() {
		b.adopt(g)
	}
}

func (b *breakers) evictLocked() bool {
	var oldest *guard
	for _, g := range b.mu.guards {
		idle := !b.mu.dirty[g] && g.local().State() == breaker.Closed && g.fleet().state == breaker.Closed
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

// all returns every guard by name.
func (b *breakers) all() []*guard {
	b.mu.Lock()
	guards := make([]*guard, 0, len(b.mu.guards))
	for _, g := range b.mu.guards {
		guards = append(guards, g)
	}
	b.mu.Unlock()
	slices.SortFunc(guards, func(x, y *guard) int { return strings.Compare(x.name, y.name) })
	return guards
}

func (b *breakers) status() []BreakerStatus {
	guards := b.all()
	all := make([]BreakerStatus, len(guards))
	for i, g := range guards {
		all[i] = g.status()
	}
	return all
}

// tryAcquire asks whether a call of the downstream may begin, of a tenant's job whose lease is of a period.
func (b *breakers) tryAcquire(ctx context.Context, downstream, tenant string, period uint64) (*guardedCall, bool) {
	if downstream == "" {
		return nil, true
	}
	g := b.guardOf(downstream)
	if g == nil {
		return nil, true
	}
	now := b.instant()
	g.used.Store(int64(now))
	if period > g.fleet().period {
		b.ask(ctx, g) // The gate that let the job through knew more than this worker.
	}
	c := &guardedCall{breakers: b, guard: g, began: now, tenant: breaker.TenantNumber(tenant), own: new(breaker.Call)}
	if !c.begin(period) || !c.leaseProbe(ctx) {
		g.heldBack.Add(1)
		return nil, false
	}
	c.lookElsewhere()
	c.timer = time.AfterFunc(g.local().Config().SlowCallDuration, c.markSlow)
	return c, true
}

// noted looks at a change of a worker's own breaker: an opening is the fleet's business, at once.
func (b *breakers) noted(g *guard, change breaker.Transition) {
	switch {
	case !change.Happened():
	case change.To == breaker.Open:
		b.urgent.give()
		b.work.give()
	case change.To == breaker.Closed:
		b.lonely(g, false)
	}
}

// lonely says, once, that this worker stands alone with its judgement, or no longer does.
func (b *breakers) lonely(g *guard, is bool) {
	if !g.setLonely(is) {
		return
	}
	if is {
		b.logger.Warn().Str("downstream", g.name).
			Msg("calls of this downstream fail here and not in the rest of the fleet: its jobs are left to others")
	} else {
		b.logger.Info().Str("downstream", g.name).Msg("no longer alone with failing calls of this downstream")
	}
	if b.observer.Lonely != nil {
		b.observer.Lonely(g.name, is)
	}
}
