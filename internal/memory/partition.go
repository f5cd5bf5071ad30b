package memory

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/bank"
	"github.com/headgate/headgate/internal/memory/internal/names"
	"github.com/headgate/headgate/store"
)

// Config is what a Partition needs. The zero value works.
type Config struct {
	// Now is the clock; nil means time.Now. It may step, as that of a Redis may.
	Now func() time.Time
	// KeepEnded keeps what Redis drops by its own clock alone and nobody misses, such as buckets that are full: for a comparison with a Redis
	// whose scripts are told another time.
	KeepEnded bool

	// Bounds are other than those of a Redis, so that a test meets them soon.
	Bounds Bounds
	// Dispatched is told of each job that is dispatched, while the partition is locked; nil tells nobody.
	Dispatched func(fairqueue.Dispatch)
	// Rendered is told, in the same way, of each job that has left and has told what it cost, before that counts.
	Rendered func(j *fairqueue.Job, actual admission.Tokens)
}

// Bounds are what a partition does and keeps at most. A zero one is what it is in Redis.
type Bounds struct {
	// Moves are how many jobs a call moves; the next one goes on. Letters are the dead letters that are kept, and Holders the limiters
	// that hold tokens of a scope.
	Moves, Letters, Holders int
	// Quiet is after how long a breaker is forgotten of which nothing is heard.
	Quiet time.Duration
}

// Partition keeps one partition in memory. It may be used by several goroutines.
type Partition struct {
	now func() time.Time

	mu    sync.Mutex
	model *model
	// waiting are those who wait for something to happen, by what it is: the channel is closed when it does.
	waiting map[string]chan struct{}
}

// What may be waited for: entries of a pool, or its end; a call to the schedulers; a transition of a breaker.
const (
	readyTopic  = "ready:"
	wakeTopic   = "wake"
	eventsTopic = "events"
)

// New returns an empty partition.
func New(config Config) *Partition {
	if config.Now == nil {
		config.Now = time.Now
	}
	p := &Partition{now: config.Now, model: newModel(), waiting: map[string]chan struct{}{}}
	m, b := p.model, config.Bounds
	m.keepEnded, m.onDispatch, m.onRendered = config.KeepEnded, config.Dispatched, config.Rendered
	m.moves, m.deadCap, m.leases, m.quiet = cmp.Or(b.Moves, m.moves), cmp.Or(b.Letters, m.deadCap), bank.NewLeases(b.Holders), cmp.Or(b.Quiet, m.quiet)
	return p
}

// write runs do on the model, alone, at the time of the clock in microseconds, and wakes who waits for what has happened.
func (p *Partition) write(do func(m *model, now int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p.model, p.now().UnixMicro())
	for topic := range p.model.happened {
		if waiting, ok := p.waiting[topic]; ok {
			close(waiting)
			delete(p.waiting, topic)
		}
	}
	clear(p.model.happened)
}

// read runs do on the model, alone. It changes nothing.
func (p *Partition) read(do func(m *model, now int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p.model, p.now().UnixMicro())
}

// await calls try, which returns whether it has what is waited for, now and whenever something of the topic has happened, until wait is
// over or ctx ends. wait 0 is for ever, below zero not at all, as BLOCK is to Redis.
func (p *Partition) await(ctx context.Context, topic string, wait time.Duration, try func(m *model, now int64) bool) error {
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	for {
		happened, found := p.try(topic, wait >= 0, try)
		if found || wait < 0 {
			return nil
		}
		select {
		case <-happened:
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *Partition) try(topic string, waits bool, try func(m *model, now int64) bool) (happened <-chan struct{}, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found = try(p.model, p.now().UnixMicro()); found || !waits {
		return nil, found
	}
	if p.waiting[topic] == nil {
		p.waiting[topic] = make(chan struct{})
	}
	return p.waiting[topic], false
}

var _ store.Partition = (*Partition)(nil)

// Promote is PromoteAfter for one who cannot tell a step of the clock from silence.
func (p *Partition) Promote(ctx context.Context, owner string, timerLease time.Duration) (store.Promotion, error) {
	return p.PromoteAfter(ctx, store.LeapSilence, owner, timerLease)
}

// ReadTimeout is not known of memory.
func (p *Partition) ReadTimeout() time.Duration { return 0 }

// Connections are none.
func (p *Partition) Connections() int { return 0 }

// CheckLayout finds nothing: nobody migrates what is in memory.
func (p *Partition) CheckLayout(context.Context) error { return nil }

// LeaseRight asks for something that so many callers may do at a time, as store.Common.LeaseRight.
func (p *Partition) LeaseRight(_ context.Context, right, token string, limit int, lease time.Duration) (leased bool, err error) {
	p.write(func(m *model, now int64) {
		leased = m.rights.Lease(right, token, limit, now, lease)
	})
	return leased, nil
}

// ReturnRight ends a lease of LeaseRight.
func (p *Partition) ReturnRight(_ context.Context, right, token string) error {
	p.write(func(m *model, _ int64) { m.rights.Return(right, token) })
	return nil
}

// recordSlack is for how long a tenant's buckets are kept beyond twice what the slowest takes to fill, as redisstore has it.
const recordSlack = 2 * time.Second

// tenantRecord returns what a tenant has beside the policy.
func (m *model) tenantRecord(tenant string) store.TenantRecord {
	if r, ok := m.records[tenant]; ok {
		return r
	}
	return store.TenantRecord{Tenant: tenant, Version: store.NoRecord}
}

// stale reports limits that come from another version of the policy, or from other records of tenants: those that a call names, version by tenant, in
// its order.
func (m *model) stale(version int64, records iter.Seq2[string, int64]) error {
	if version != m.version {
		return store.ErrStale
	}
	var named []string
	old := map[string]bool{}
	for tenant, of := range records {
		if of == 0 {
			return nil // The policy has none.
		}
		if !slices.Contains(named, tenant) {
			named = append(named, tenant)
		}
		if m.tenantRecord(tenant).Version != of {
			old[tenant] = true
		}
	}
	if len(old) == 0 {
		return nil
	}
	stale := &store.StaleRecordsError{}
	for _, tenant := range named {
		if old[tenant] {
			stale.Records = append(stale.Records, m.tenantRecord(tenant))
		}
	}
	return stale
}

func questionsRecords(questions []store.Question) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for i := range questions {
			if !yield(questions[i].Tenant, questions[i].Record) {
				return
			}
		}
	}
}

func candidatesRecords(jobs []store.Candidate) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for i := range jobs {
			if !yield(jobs[i].Job.Tenant, jobs[i].Record) {
				return
			}
		}
	}
}

// spentRecords are those of jobs whose costs are told.
func spentRecords(jobs []store.Finish) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for i := range jobs {
			if f := &jobs[i]; f.Spent != nil && !yield(f.Key.Tenant, f.Spent.Record) {
				return
			}
		}
	}
}

// PutRecord changes the record of a tenant, as store.Buckets.PutRecord.
func (p *Partition) PutRecord(_ context.Context, e store.RecordEdit) (version int64, err error) {
	if err := e.Validate(); err != nil {
		return 0, err
	}
	p.write(func(m *model, now int64) {
		was := m.tenantRecord(e.Tenant)
		switch {
		case e.Policy != m.version:
			err = store.ErrStale
			return
		case e.Expected > 0 && e.Expected != was.Version:
			version, err = was.Version, &store.RecordConflictError{Tenant: e.Tenant, Expected: e.Expected, InForce: was.Version}
			return
		}
		if version = was.Version; string(e.Text) == string(was.Text) {
			return
		}
		m.advance(now)
		recaps, name := m.recaps(e.Tenant, e.Text), string(store.TenantGate(e.Tenant))
		_, had := m.room.LimitOf(name)
		m.noteEdit(e.Tenant)
		action := store.AuditTenantRecord
		if len(e.Text) == 0 {
			action, version = store.AuditTenantRecordGone, store.NoRecord
			delete(m.records, e.Tenant)
		} else {
			if m.records == nil {
				m.records = map[string]store.TenantRecord{}
			}
			version = m.recorded
			m.records[e.Tenant] = store.TenantRecord{Tenant: e.Tenant, Version: version, Text: slices.Clone(e.Text)}
		}
		_, wasBound := m.bounds[e.Tenant]
		tiers, places := m.share(e.Tenant, e.Text), m.bind(e.Tenant, e.Text)
		if _, isBound := m.bounds[e.Tenant]; tiers || wasBound || isBound {
			m.spilledLook(e.Tenant, now)
		}
		m.bank.Forget(m.over(now))
		m.bank.LimitsChanged(e.Tenant, buckets.Instant(m.filled), (2*e.LongestFill + recordSlack).Microseconds(), now)
		m.recordEdit(now, &e, action, was.Version, version)
		rerates, inQueues := m.rerates(e.Tenant, e.Text), m.recapsIn(e.Tenant, e.Text)
		if recaps || rerates || len(inQueues) > 0 {
			c := m.begin(now)
			if recaps {
				m.recapped(c, name, had)
			}
			if rerates {
				m.rerated(c, e.Tenant)
			}
			m.recappedIn(c, inQueues, e.Text)
			c.WakeFreed()
			m.fill(c, now)
		}
		if tiers && e.Bounded || places {
			m.recount()
		}
	})
	return version, err
}

// share notes what a record says of tier, weights and cap, and reports whether its tier is another.
func (m *model) share(tenant string, text []byte) bool {
	was, is := m.shares[tenant], store.RecordSharesOf(text)
	if delete(m.shares, tenant); is.Tier != "" || len(is.Weights) > 0 || is.MaxRunning > 0 {
		if m.shares == nil {
			m.shares = map[string]store.RecordShares{}
		}
		m.shares[tenant] = is
	}
	one := map[bool]int{true: 1}
	m.tiered += one[is.Tier != ""] - one[was.Tier != ""]
	m.capped += one[is.MaxRunning > 0] - one[was.MaxRunning > 0]
	return is.Tier != was.Tier
}

// RecordTiers returns how many records name each tier.
func (p *Partition) RecordTiers(context.Context) (map[string]int64, error) {
	tiers := map[string]int64{}
	p.read(func(m *model, _ int64) {
		for _, of := range m.shares {
			if of.Tier != "" {
				tiers[of.Tier]++
			}
		}
	})
	return tiers, nil
}

// Records returns those of tenants, in order.
func (p *Partition) Records(_ context.Context, tenants ...string) (all []store.TenantRecord, err error) {
	p.read(func(m *model, _ int64) {
		for _, tenant := range tenants {
			all = append(all, m.tenantRecord(tenant))
		}
	})
	return all, nil
}

// RecordsPage returns some records of all: here by name, from behind the cursor on.
func (p *Partition) RecordsPage(_ context.Context, q store.RecordsQuery) (page store.RecordsPage, err error) {
	limit, err := q.Least()
	if err != nil {
		return page, err
	}
	p.read(func(m *model, _ int64) {
		for _, tenant := range slices.Sorted(maps.Keys(m.records)) {
			if tenant <= q.Cursor || !strings.HasPrefix(tenant, q.Prefix) {
				continue
			}
			if len(page.Records) == limit {
				page.Next = page.Records[limit-1].Tenant
				return
			}
			page.Records = append(page.Records, m.records[tenant])
		}
	})
	return page, nil
}

// CountRecords returns how many tenants have a record.
func (p *Partition) CountRecords(context.Context) (n int64, err error) {
	p.read(func(m *model, _ int64) { n = int64(len(m.records)) })
	return n, nil
}

// Usage returns what was used in a day, as store.Partition.Usage.
func (p *Partition) Usage(_ context.Context, q store.UsageQuery) (all []store.DayUsage, err error) {
	p.read(func(m *model, _ int64) { all = m.usage.Of(&q) })
	return all, nil
}

// semaphore runs a call of a semaphore, by the clock that a step of the time does not move.
func (p *Partition) semaphore(name, token string, do func(m *model, c *names.Call, now int64)) error {
	if err := store.ValidateSemaphore(name); err != nil {
		return err
	}
	p.write(func(m *model, now int64) {
		m.advance(now)
		c := m.semaphores.Call(name, token, m.window, m.version)
		do(m, c, now)
		c.Close()
	})
	return nil
}

// Acquire leases permits, as store.Semaphores.Acquire.
func (p *Partition) Acquire(_ context.Context, ask store.Acquire) (permit store.Permit, err error) {
	if err := ask.Validate(); err != nil {
		return permit, err
	}
	p.write(func(m *model, now int64) {
		if err = m.stale(ask.Version, func(yield func(string, int64) bool) { yield(ask.Tenant(), ask.Record) }); err != nil {
			return
		}
		m.advance(now)
		c := m.semaphores.Call(ask.Name, ask.Token, m.window, m.version)
		permit = c.Acquire(&ask)
		permit.Expires = expiry(&permit, now)
		c.Close()
	})
	return permit, err
}

// Extend has a lease end later, as store.Semaphores.Extend.
func (p *Partition) Extend(_ context.Context, name, token string, lease time.Duration) (permit store.Permit, err error) {
	if err := store.ValidateSemaphoreLease(lease); err != nil {
		return permit, err
	}
	bad := p.semaphore(name, token, func(_ *model, c *names.Call, now int64) {
		permit, err = c.Extend(lease)
		permit.Expires = expiry(&permit, now)
	})
	if bad != nil {
		err = bad
	}
	return permit, err
}

// Release gives permits back, as store.Semaphores.Release.
func (p *Partition) Release(_ context.Context, name, token string) (err error) {
	if bad := p.semaphore(name, token, func(_ *model, c *names.Call, _ int64) { err = c.Release() }); bad != nil {
		return bad
	}
	return err
}

// Semaphore returns what one holds, as store.Semaphores.Semaphore.
func (p *Partition) Semaphore(_ context.Context, name string) (state store.SemaphoreState, err error) {
	err = p.semaphore(name, "", func(_ *model, c *names.Call, _ int64) { state = c.State() })
	return state, err
}

// SemaphoreNames returns the semaphores in use.
func (p *Partition) SemaphoreNames(context.Context) (all []string, err error) {
	p.read(func(m *model, _ int64) { all = m.semaphores.Names() })
	return all, nil
}

// expiry is when the lease of a permit ends, by the time of the store.
func expiry(permit *store.Permit, now int64) (at time.Time) {
	if permit.Granted() {
		at = time.UnixMicro(now).Add(permit.Left)
	}
	return at
}
