package laws_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

const (
	crowdProducers = 32
	crowdCalls     = 100 // of each
	crowdBatch     = 6
	crowdVersions  = 12
)

// TestAdmittedCostStaysWithinTheBound asserts L1 under 32 producers at once, each with its own connection, random
// limits at all four levels and of each type of job, a part of the global one kept for high, whose jobs go beside their queue's and class' within a share and a reserve, and random costs, while the limits change, loops and operators move and scale them, and producers with stale ones reload: at every
// scope, in every window from one admission to another, cost ≤ the largest burst in force + ∫rate. The times are those
// at which the script says it decided, and each lies between the times of its call.
func TestAdmittedCostStaysWithinTheBound(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.check(c.change()) // to limits of its own
	c.produce()
	c.collect()
	c.compare()
}

// crowd is a site under load by many producers.
type crowd struct {
	*site
	classes []admission.Class
	raising bool
	fixed   bool // The policy does not change.
	kept    int  // How many percent of the global limit are kept for high.
	// bypass is how high goes beside limits.
	bypass policy.Bypass
	mu     struct {
		sync.Mutex
		calls int
		// eras are the versions of the policy, with the time at which each began.
		eras []era
		sent map[admission.Key]entrance
	}
	mover mover
	// order is what was admitted, by seq.
	order []entrance
}

type era struct {
	compiled *policy.Compiled
	from     int64 // µs by Redis
}

// entrance is one admitted job. Times are in µs.
type entrance struct {
	key           admission.Key
	job           *admission.Job
	version       int64
	bypassed      bool
	before, after int64
	seq           uint64
	at            int64
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{site: newSite(t, redistest.Shared(t)), classes: admission.DefaultClasses()}
	compiled, err := policy.Unlimited().Prepare()
	c.check(err)
	c.mu.eras = []era{{compiled: compiled}}
	c.mu.sent = map[admission.Key]entrance{}
	c.raising, c.kept = c.chance(2), choose(c.site, 20, 50, 80)
	c.bypass = policy.Bypass{Classes: []admission.Priority{admission.High}, ReservePercent: choose(c.site, 10, 100), SharePercent: choose(c.site, 10, 50)}
	return c
}

var (
	crowdTenants = []string{"ann", "bob", "cy", "dot"}
	crowdQueues  = []string{"mail", "hook"}
	crowdTypes   = []string{"send", "report", "sync"}
)

// change stores a policy with new limits. A bucket remembers only its last write, so bursts go up only or down only in
// one run: package buckets derives why.
func (c *crowd) change() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.mu.eras[len(c.mu.eras)-1]
	p := policy.Default()
	p.Version = c.version + 1
	p.Tenants, p.Queues = map[string]policy.Tenant{}, map[string]policy.Queue{}
	p.QueueLimits, p.PriorityLimits = map[admission.Scope]admission.Limit{}, map[admission.Scope]admission.Limit{}
	p.Global = c.limit(now.compiled.LimitsFor("ann", "mail", admission.High)[admission.LevelGlobal], 8000)
	if c.kept > 0 && enabled(p.Global) {
		p.GlobalReserved = &policy.GlobalReserved{Classes: []admission.Priority{admission.High}, Percent: c.kept}
		p.Bypass = &c.bypass
	}
	for _, tenant := range crowdTenants {
		limit := c.limit(now.compiled.LimitsFor(tenant, "mail", admission.High)[admission.LevelTenant], 2400)
		own := policy.Tenant{Limit: &limit}
		if tenant == "ann" || tenant == "bob" { // They have limits of types of their own, which go before those of each tenant.
			own.Queues = map[string]policy.TenantQueue{}
			for _, queue := range crowdQueues {
				own.Queues[queue] = policy.TenantQueue{TypeLimits: map[string]admission.Limit{
					"report": c.limit(typeLimit(now.compiled, tenant, queue, "report"), 600), policy.Every: c.limit(typeLimit(now.compiled, tenant, queue, "send"), 400),
				}}
			}
		}
		p.Tenants[tenant] = own
		for _, queue := range crowdQueues {
			in := policy.Queue{EachTenant: policy.EachTenant{TypeLimits: map[string]admission.Limit{}}}
			for _, jobType := range crowdTypes[1:] {
				in.EachTenant.TypeLimits[jobType] = c.limit(typeLimit(now.compiled, tenant, queue, jobType), 800)
			}
			p.Queues[queue] = in
			old := now.compiled.LimitsFor(tenant, queue, admission.High)
			p.QueueLimits[admission.ScopeAt(admission.LevelQueue, tenant, queue, "")] = c.limit(old[admission.LevelQueue], 1600)
			for _, class := range c.classes {
				old := now.compiled.LimitsFor(tenant, queue, class.Name)[admission.LevelPriority]
				p.PriorityLimits[admission.ScopeAt(admission.LevelPriority, tenant, queue, class.Name)] = c.limit(old, 800)
			}
		}
	}
	text, err := policy.Marshal(p)
	if err != nil {
		return err
	}
	compiled, err := p.Prepare()
	if err != nil {
		return err
	}
	u := store.PolicyUpdate{Expected: c.version, Version: p.Version, Text: text, Window: policy.DefaultDedupWindow, Caps: c.caps()}
	if err := c.store.PutPolicy(c.Context(), u); err != nil {
		return err
	}
	c.version++
	from, err := c.changedAt()
	c.mu.eras = append(c.mu.eras, era{compiled, from})
	c.edited(from)
	return err
}

// limit draws a limit of at most so many tokens a second. Some are disabled, some stay, some have a rate far apart.
func (c *crowd) limit(old admission.Limit, about int) admission.Limit {
	if !old.Disabled && c.chance(3) {
		return old
	}
	l := admission.Limit{
		Tokens: admission.Tokens(c.between(about/4, about)), Per: choose(c.site, time.Second, time.Second, time.Second, 10*time.Second),
		Burst: admission.Tokens(c.between(about/10, about/5)), Disabled: c.chance(5),
	}
	switch {
	case !enabled(old):
	case c.raising:
		l.Burst = max(l.Burst, old.Burst)
	default:
		l.Burst = min(l.Burst, old.Burst)
	}
	return l
}

// produce runs the producers. Who makes the call that is due for it changes the policy.
func (c *crowd) produce() {
	c.Helper()
	crew := make([]producer, crowdProducers)
	for i := range crew {
		own := *c.site
		own.client, own.random = c.server.Client(c.T), rand.New(rand.NewPCG(c.random.Uint64(), 0))
		own.store = own.open(own.client)
		crew[i] = producer{site: &own, crowd: c, name: strconv.Itoa(i)}
	}
	var running sync.WaitGroup
	for i := range crew {
		running.Go(func() {
			for range crowdCalls {
				err := crew[i].call()
				if err == nil {
					err = c.upset()
				}
				if err != nil {
					c.Errorf("producer %d: %v", i, err)
					return
				}
			}
		})
	}
	running.Wait()
	if c.Failed() {
		c.FailNow()
	}
}

// upset counts a call, and changes the policy or moves a limit after it where that is due.
func (c *crowd) upset() error {
	c.mu.Lock()
	c.mu.calls++
	calls, of := c.mu.calls, crowdProducers*crowdCalls
	c.mu.Unlock()
	switch {
	case c.fixed:
	case calls%(of/crowdVersions) == 0:
		return c.change()
	case calls%(of/crowdMoves) == 0:
		return c.move()
	}
	return nil
}

// producer is one of the crowd, with the policy that it has read last.
type producer struct {
	*site
	crowd    *crowd
	name     string
	compiled *policy.Compiled
	calls    int
}

func (p *producer) call() error {
	p.calls++
	jobs := make([]store.Candidate, p.between(1, crowdBatch))
	for i := range jobs {
		class := p.between(0, len(p.crowd.classes)-1)
		j := p.job(choose(p.site, crowdTenants...), choose(p.site, crowdQueues...), class, p.crowd.classes)
		j.Job.ID = fmt.Sprintf("%s-%d-%d", p.name, p.calls, i)
		j.Job.Cost, j.Job.Type = admission.Tokens(choose(p.site, 1, 1, 3, p.between(1, 40))), choose(p.site, crowdTypes...)
		jobs[i] = j
	}
	for {
		if p.compiled != nil {
			for i := range jobs {
				j := jobs[i].Job
				limits := p.compiled.LimitsFor(j.Tenant, j.Queue, j.Priority)
				jobs[i].Limits = (*[admission.Levels]admission.Limit)(&limits)
				jobs[i].TypeLimit = p.compiled.TypeLimit(j.Tenant, j.Queue, j.Type)
			}
			before := redistest.Now().UnixMicro()
			verdicts, err := p.store.Partitions()[0].Admit(p.Context(), p.compiled.Version(), jobs)
			if !errors.Is(err, store.ErrStale) {
				p.crowd.note(p.compiled.Version(), jobs, verdicts, before)
				return err
			}
		}
		text, err := p.store.Policy(p.Context())
		if err != nil {
			return err
		}
		read, err := policy.Unmarshal(text)
		if err != nil {
			return err
		}
		if p.compiled, err = read.Prepare(); err != nil {
			return err
		}
	}
}

func (c *crowd) note(version int64, jobs []store.Candidate, verdicts []admission.Verdict, before int64) {
	after := redistest.Now().UnixMicro()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, v := range verdicts {
		if v.Decision == admission.Admitted {
			key := admission.Key{Tenant: jobs[i].Job.Tenant, ID: jobs[i].Job.ID}
			c.mu.sent[key] = entrance{key: key, job: jobs[i].Job, version: version, bypassed: v.Bypassed, before: before, after: after}
		}
	}
}

// collect drains the partition and asks each job when it was admitted.
func (c *crowd) collect() {
	c.Helper()
	for _, l := range c.drain(store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}, {Queue: "hook", Weight: 1}}}) {
		a, ok := c.mu.sent[admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}]
		if !ok {
			c.Fatalf("job %s:%s runs and was not admitted, or runs twice", l.Job.Tenant, l.Job.ID)
		}
		delete(c.mu.sent, a.key)
		a.seq, a.at = l.Seq, l.Arrival.UnixMicro()
		c.order = append(c.order, a)
	}
	for key := range c.mu.sent {
		c.Fatalf("job %s was admitted and never ran", key)
	}
	slices.SortFunc(c.order, func(a, b entrance) int { return cmp.Compare(a.seq, b.seq) })
	for i, a := range c.order {
		if a.at < a.before || a.at > a.after {
			c.Fatalf("job %s was admitted at %d, but asked for from %d to %d", a.key, a.at, a.before, a.after)
		}
		if i > 0 && (a.at < c.order[i-1].at || a.version < c.order[i-1].version) {
			c.Fatalf("admissions are out of order: %+v after %+v", a, c.order[i-1])
		}
		if from := c.mu.eras[a.version].from; a.at < from {
			c.Fatalf("job %s was admitted at %d by a policy of %d", a.key, a.at, from)
		}
	}
}

// drain completes all jobs and returns them.
func (s *site) drain(pool store.Pool) (all []store.Lease) {
	s.Helper()
	s.register("drainer", pool, store.MaxBatchJobs, longLease)
	for {
		leases := s.read("drainer", pool, store.MaxBatchJobs)
		if len(leases) == 0 {
			return all
		}
		all = append(all, leases...)
		s.finish(pool, leases, complete)
	}
}

// compare asserts the bound at every scope.
func (c *crowd) compare() {
	c.Helper()
	scopes := map[admission.Scope][]entrance{}
	levels := map[admission.Scope]admission.Level{}
	for _, a := range c.order {
		for level := range admission.Level(admission.Levels) {
			if a.bypassed && level > admission.LevelTenant {
				break
			}
			scope := admission.ScopeAt(level, a.job.Tenant, a.job.Queue, a.job.Priority)
			scopes[scope], levels[scope] = append(scopes[scope], a), level
		}
		if scope := buckets.ShareOf(a.job.Tenant); a.bypassed {
			scopes[scope], levels[scope] = append(scopes[scope], a), levelShare
		}
		if a.job.Priority != admission.High {
			scopes[buckets.Others], levels[buckets.Others] = append(scopes[buckets.Others], a), store.LevelOthers
		}
		if ofType := admission.ScopeAt(admission.LevelPriority, a.job.Tenant, a.job.Queue, admission.OfType(a.job.Type)); !a.bypassed {
			scopes[ofType], levels[ofType] = append(scopes[ofType], a), levelType
		}
	}
	n := len(scopes[admission.Global])
	c.Logf("%d jobs were admitted", n)
	if c.bypass.SharePercent > 0 && levels[buckets.ShareOf("ann")] != levelShare {
		c.Error("no job of ann went beside limits")
	}
	if n < 300 {
		c.Errorf("%d jobs were admitted: too few to show anything", n)
	}
	reigns := c.reigns()
	for scope, admissions := range scopes {
		c.compareScope(reigns, scope, levels[scope], admissions)
	}
}

// levelShare and levelType are beside those that have a number: that of the bucket of what of a tenant's goes beside limits, and that of a type.
const (
	levelShare admission.Level = -1
	levelType                  = store.LevelOthers + 1
)

// enabled says whether a limit has a bucket.
func enabled(l admission.Limit) bool { return !l.Disabled && l.Tokens > 0 }

// compareScope walks all windows that begin with an admission. Where a scope has no limit for a while its windows end.
// Two changes of the rate between two admissions may add a burst, and a burst that is raised after it was lowered what it is raised by, as package
// buckets says.
func (c *crowd) compareScope(reigns []reign, scope admission.Scope, level admission.Level, admissions []entrance) {
	c.Helper()
	in := make([]inForce, len(reigns))
	for i := range reigns {
		in[i] = c.limitIn(&reigns[i], level, admissions[0].job)
	}
	under := make([]int, len(admissions))
	for i := range admissions {
		under[i] = reignOf(reigns, &admissions[i])
	}
	for first, start := range admissions {
		now, at := under[first], start.at
		limit := in[now]
		largest, refilled, cost, hidden := limit.burst, 0.0, admission.Tokens(0), 0
		lowered, raised := false, 0.0
		for i, a := range admissions[first:] {
			changes := 0
			for limit.is && now < under[first+i] {
				now++
				next := in[now]
				refilled += float64(reigns[now].from-at) / 1e6 * limit.rate
				at = reigns[now].from
				if next.rate != limit.rate {
					changes++
				}
				if lowered = lowered || next.burst < limit.burst; lowered {
					raised += max(0, next.burst-limit.burst)
				}
				limit, largest = next, max(largest, next.burst)
			}
			if !limit.is {
				break
			}
			refilled += float64(a.at-at) / 1e6 * limit.rate
			at = a.at
			hidden += max(0, changes-1)
			cost += a.job.Cost
			if bound := largest*float64(1+hidden) + raised + refilled; float64(cost) > bound+1e-6 {
				c.Fatalf("law L1: scope %s admitted %d tokens in the %d µs after %s, bound %g (burst %g)",
					scope, cost, a.at-start.at, start.key, bound, largest)
			}
		}
	}
}
