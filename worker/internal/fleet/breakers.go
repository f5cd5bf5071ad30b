package fleet

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

	"github.com/headgate/headgate/admission"
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

// Breakers guards the downstreams that this worker knows, at most maxBreakers: each by what it hears of the fleet's
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
type Breakers struct {
	// store is the partition whose breakers these are, fleet all of the deployment, which has several if divided.
	store      store.Partition
	fleet      store.Deployment
	divided    bool
	logger     zerolog.Logger
	Watch      *outage.Watch
	lonelyHook func(downstream string, lonely bool)
	config     breaker.Config
	own        map[string]breaker.Config // by downstream
	Promoting  Nudge
	// callTimeout is what a call may take, callTimeouts those of single downstreams.
	callTimeout  time.Duration
	callTimeouts map[string]time.Duration
	// others are those of the other partitions: each of them hears of every outcome, so that all open together.
	others []*Breakers
	// name is this worker's in its reports, the same for all its registrations; guest says that it has none.
	name  string
	Guest bool
	// changed, if not nil, is called after each new word on a fleet's breaker.
	Changed func(downstream string)
	// policy is the one that is followed, plain that the worker's configuration says nothing of breakers in general.
	policy *Classes
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
	// knows says that every breaker was read.
	knows atomic.Bool
	// work says that there is something to report, urgent that it is not to wait.
	work, urgent Nudge

	mu struct {
		sync.Mutex
		guards map[string]*Guard
		// dirty is the guards with something to report.
		dirty map[*Guard]bool
		// held is until when accounts are held back by what this worker has told, at most maxBreakers.
		held map[string]breaker.Instant
	}
}

// maxBreakers bounds the memory that names of downstreams can take. Beyond it the guard goes that is closed and was
// not used for longest.
const maxBreakers = 4096

// Setup is how breakers are configured.
type Setup struct {
	Logger zerolog.Logger
	// Breaker configures them, Breakers those of single downstreams.
	Breaker  breaker.Config
	Breakers map[string]breaker.Config
	// CallTimeout is what a call may take, CallTimeouts those of single downstreams.
	CallTimeout  time.Duration
	CallTimeouts map[string]time.Duration
	// ReportEvery and ReportAfter say when outcomes are reported: so long after the first, or so many.
	ReportEvery time.Duration
	ReportAfter int
	// Lonely, if not nil, is Observer.Lonely.
	Lonely func(downstream string, lonely bool)
}

// NewBreakers returns the breakers of a partition of a deployment, which are guests where they have no registration.
func NewBreakers(of store.Deployment, partition int, config Setup, followed *Classes, promoting Nudge) *Breakers {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	parts := of.Partitions()
	b := &Breakers{
		store: parts[partition], fleet: of, divided: len(parts) > 1, logger: config.Logger, Watch: outage.NewWatch(config.Logger), lonelyHook: config.Lonely, config: config.Breaker, own: config.Breakers,
		Promoting: promoting, policy: followed, plain: isPlain(config.Breaker), callTimeout: config.CallTimeout, callTimeouts: config.CallTimeouts, name: fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()),
		every: config.ReportEvery, after: config.ReportAfter, born: time.Now(), work: NewNudge(), urgent: NewNudge(),
	}
	b.mu.guards, b.mu.dirty = make(map[string]*Guard), make(map[*Guard]bool)
	return b
}

// isPlain reports whether a config says nothing.
func isPlain(config breaker.Config) bool {
	config.Rand = nil
	return reflect.DeepEqual(config, breaker.Config{})
}

// Instant reads the clock of all breakers.
func (b *Breakers) Instant() breaker.Instant { return breaker.Instant(time.Since(b.born)) }

// GuardOf returns the guard of a downstream; nil when there is no room for another, and then nothing is guarded.
func (b *Breakers) GuardOf(downstream string) *Guard {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.mu.guards[downstream]; g != nil {
		b.adopt(g)
		return g
	}
	if len(b.mu.guards) >= maxBreakers && !b.evictLocked() {
		return nil
	}
	g := &Guard{Name: downstream}
	if !b.adopt(g) {
		return nil // Config.validate has let its rules pass, so this does not happen.
	}
	b.mu.guards[downstream] = g
	return g
}

// adopt lets a guard go by the policy in force, if it has not looked at that yet: by what it says of the downstream, and else by
// this worker's configuration. Its own breaker begins anew where the rules are others.
func (b *Breakers) adopt(g *Guard) bool {
	now, known := b.policy.policy.Load(), g.by.Load()
	if known != nil && known.version == now.Version() {
		return true
	}
	next := &guardRules{config: b.config, version: now.Version(), callTimeout: b.callTimeouts[g.Name], moves: now.DispatchMoves(g.Name), holdMost: now.MaxRetryAfter(g.Name)}
	if !b.plain {
		next.origin = breaker.OriginWorker
	}
	if own, ok := b.own[g.Name]; ok {
		next.config, next.origin = own, breaker.OriginWorker
	}
	if rules, ok := now.Breaker(g.Name); ok {
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
	if next.local, err = breaker.NewAt(b.Instant(), next.config); err != nil {
		return known != nil
	}
	next.config = full
	g.by.Store(next)
	if known != nil {
		b.logger.Info().Str("downstream", g.Name).Stringer("origin", next.origin).Int64("policy", next.version).Msg("circuit breaker has other rules")
	}
	return true
}

// reread reads the policy, since another version than the last is in force.
func (b *Breakers) reread(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if err := b.policy.Read(ctx, b.store); err != nil && ctx.Err() == nil {
		b.logger.Warn().Err(err).Msg("rules of circuit breakers not read from the policy")
	}
	for _, g := range b.all() {
		b.adopt(g)
	}
}

func (b *Breakers) evictLocked() bool {
	var oldest *Guard
	for _, g := range b.mu.guards {
		idle := !b.mu.dirty[g] && g.Local().State() == breaker.Closed && g.Fleet().State == breaker.Closed
		if idle && (oldest == nil || g.used.Load() < oldest.used.Load()) {
			oldest = g
		}
	}
	if oldest == nil {
		return false
	}
	delete(b.mu.guards, oldest.Name)
	return true
}

// all returns every guard by name.
func (b *Breakers) all() []*Guard {
	b.mu.Lock()
	guards := make([]*Guard, 0, len(b.mu.guards))
	for _, g := range b.mu.guards {
		guards = append(guards, g)
	}
	b.mu.Unlock()
	slices.SortFunc(guards, func(x, y *Guard) int { return strings.Compare(x.Name, y.Name) })
	return guards
}

// Status is how each breaker stands, in the order of their names.
func (b *Breakers) Status() []BreakerStatus {
	guards := b.all()
	all := make([]BreakerStatus, len(guards))
	for i, g := range guards {
		all[i] = g.status()
	}
	return all
}

// TryAcquire asks whether a call of the downstream may begin, of a tenant's job whose lease is of a period.
func (b *Breakers) TryAcquire(ctx context.Context, downstream, tenant string, period uint64) (*GuardedCall, bool) {
	if downstream == "" {
		return nil, true
	}
	service, ofAccount := admission.ServiceOf(downstream)
	g := b.GuardOf(service)
	if g == nil {
		return nil, true
	}
	now := b.Instant()
	g.used.Store(int64(now))
	if period > g.Fleet().Period {
		b.Ask(ctx, g) // The gate that let the job through knew more than this worker.
	}
	c := &GuardedCall{breakers: b, guard: g, began: now, tenant: breaker.TenantNumber(tenant), own: new(breaker.Call)}
	if ofAccount {
		c.account = downstream
	}
	if !c.begin(period) || !c.leaseProbe(ctx) {
		g.HeldBack.Add(1)
		return nil, false
	}
	c.lookElsewhere()
	c.timer = time.AfterFunc(g.Local().Config().SlowCallDuration, c.markSlow)
	return c, true
}

// noted looks at a change of a worker's own breaker: an opening is the fleet's business, at once.
func (b *Breakers) noted(g *Guard, change breaker.Transition) {
	switch {
	case !change.Happened():
	case change.To == breaker.Open:
		b.urgent.Give()
		b.work.Give()
	case change.To == breaker.Closed:
		b.lonely(g, false)
	}
}

// lonely says, once, that this worker stands alone with its judgement, or no longer does.
func (b *Breakers) lonely(g *Guard, is bool) {
	if !g.setLonely(is) {
		return
	}
	if is {
		b.logger.Warn().Str("downstream", g.Name).
			Msg("calls of this downstream fail here and not in the rest of the fleet: its jobs are left to others")
	} else {
		b.logger.Info().Str("downstream", g.Name).Msg("no longer alone with failing calls of this downstream")
	}
	if b.lonelyHook != nil {
		b.lonelyHook(g.Name, is)
	}
}

// Introduce lets the breakers of all partitions know of each other.
func Introduce(all []*Breakers) {
	for i, one := range all {
		one.others = slices.Concat(all[:i], all[i+1:])
	}
}

// CallTimeout bounds single calls that have no other bound.
const CallTimeout = 2 * time.Second
