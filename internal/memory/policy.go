package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/memory/internal/audit"
	"github.com/headgate/headgate/store"
)

// settings are what dispatch and admission know of a policy.
type settings struct {
	queues    map[string]store.QueueSettings // "*" is of each queue that is not named
	overflows map[string]store.Overflow      // by TENANT:QUEUE, or TENANT over all its queues
	tiers     map[string]string              // of tenants, by which bounds differ
	anyTiers  map[string]store.Overflow      // of each tenant of a tier in each queue that has none
	allTiers  map[string]store.Overflow      // of each tenant of a tier over all its queues
	maxParked map[string]int                 // by downstream, "" for every other
	weights   map[classTenant]store.TenantWeight
	ofTiers   map[classTenant]admission.Weight // by class and tier
	tierCaps  map[string]int                   // of tenants whose records name a tier, by that
	caps      map[string]bound
	pressured map[string]bool
	load      time.Duration // how often workers tell how busy they are
	usage     bool
	watched   bool
	reserves  map[string]store.Reserve // by queue
}

// classTenant names a tenant in a class of every queue; one without a name is everybody else.
type classTenant struct {
	class  admission.Priority
	tenant string
}

// bound is a cap, or a rate.
type bound struct {
	limit int
	rate  buckets.Limit
	// least and most are the bounds between which a loop moves what is in force of a cap; zero where none does.
	least, most int
	loop        string
	// byTier says that it is the cap of its tenant's tier.
	byTier bool
}

// settingsIn returns those of an update, defaults filled in.
func settingsIn(u *store.PolicyUpdate) settings {
	s := settings{
		tiers: maps.Clone(u.Tiers), queues: make(map[string]store.QueueSettings, len(u.Queues)), overflows: make(map[string]store.Overflow, len(u.Overflows)),
		maxParked: make(map[string]int, len(u.MaxParked)), weights: make(map[classTenant]store.TenantWeight, len(u.Weights)), ofTiers: make(map[classTenant]admission.Weight, len(u.TierWeights)),
		caps: make(map[string]bound, len(u.Caps)), pressured: make(map[string]bool, len(u.Pressured)),
		load: u.Load.Truncate(time.Microsecond), tierCaps: make(map[string]int, len(u.TierCaps)),
		reserves: make(map[string]store.Reserve, len(u.Reserves)),
	}
	for _, q := range u.Queues {
		q.Classes, q.Overflow, q.Tiers = slices.Clone(q.Classes), overflowOf(q.Overflow), overflowsOf(q.Tiers)
		q.Horizon, q.MaxWait, q.KeepDead = q.Horizon.Truncate(time.Microsecond), q.MaxWait.Truncate(time.Microsecond), q.KeepDead.Truncate(time.Microsecond)
		q.PoisonLimit, q.MaxDead = cmp.Or(q.PoisonLimit, store.DefaultPoisonLimit), cmp.Or(q.MaxDead, store.DefaultMaxDead)
		s.queues[q.Queue] = q
	}
	for _, o := range u.Overflows {
		name := o.Tenant
		if o.Queue != "" {
			name += ":" + o.Queue
		}
		s.overflows[name] = overflowOf(o.Overflow)
		switch {
		case o.Tenant == store.Every && o.Queue == store.Every:
			s.anyTiers = overflowsOf(o.Tiers)
		case o.Tenant == store.Every:
			s.allTiers = overflowsOf(o.Tiers)
		}
	}
	for _, c := range u.Caps {
		if isRate(string(c.Gate)) {
			s.caps[string(c.Gate)] = bound{rate: buckets.LimitOf(c.Rate), limit: c.Limit, least: c.Least, most: c.Most, loop: c.Loop}
		} else {
			s.caps[string(c.Gate)] = bound{limit: c.Limit, least: c.Least, most: c.Most, loop: c.Loop, byTier: c.ByTier}
		}
	}
	maps.Copy(s.maxParked, u.MaxParked)
	for _, queue := range u.Pressured {
		s.pressured[queue] = true
	}
	s.usage, s.watched = u.Usage, u.Watched
	for _, r := range u.Reserves {
		r.Classes = slices.Clone(r.Classes)
		s.reserves[r.Queue] = r
	}
	for _, w := range u.Weights {
		s.weights[classTenant{w.Class, w.Tenant}] = w
	}
	for _, w := range u.TierWeights {
		s.ofTiers[classTenant{w.Class, w.Tier}] = w.Weight
	}
	for _, of := range u.TierCaps {
		s.tierCaps[of.Tier] = of.Limit
	}
	return s
}

// overflowOf leaves of a bound only what counts.
func overflowOf(o store.Overflow) store.Overflow {
	if o.Policy == "" || o.Policy == store.NoBound {
		return store.Overflow{Policy: o.Policy}
	}
	return o
}

func overflowsOf(tiers map[string]store.Overflow) map[string]store.Overflow {
	if len(tiers) == 0 {
		return nil
	}
	all := make(map[string]store.Overflow, len(tiers))
	for tier, o := range tiers {
		all[tier] = overflowOf(o)
	}
	return all
}

// weight is that of a tenant in a class: by its record, else of its own by the policy, else by its record's tier, else by its tier.
func (m *model) weight(class admission.Priority, tenant string) admission.Weight {
	if len(m.weights)+len(m.shares) == 0 {
		return 1
	}
	record := m.shares[tenant]
	if w := record.Weights[class]; w > 0 {
		return w
	}
	every := cmp.Or(m.weights[classTenant{class, ""}].Weight, 1)
	own := m.weights[classTenant{class, tenant}]
	if record.Tier != "" && (own.Weight == 0 || own.ByTier) {
		return cmp.Or(m.ofTiers[classTenant{class, record.Tier}], every)
	}
	return cmp.Or(own.Weight, every)
}

// tierOf returns the tier of a tenant by which bounds differ, empty for none.
func (m *model) tierOf(tenant string) string { return cmp.Or(m.shares[tenant].Tier, m.tiers[tenant]) }

// policy is the version in force, and those before it that are kept.
type policy struct {
	version  int64
	edit     string // names the one that stored it
	text     []byte // nil for none
	versions map[int64][]byte
	// obeyed says that gates are what the policy says, but for pauses: the next edit need not look at all.
	obeyed bool
}

// At most so many versions are kept, and of those before the newest so many bytes.
const (
	keptVersions     = 100
	keptVersionBytes = 64 << 20
)

// keep adds a version.
func (p *policy) keep(version int64, text []byte) {
	if _, kept := p.versions[p.version]; p.version != 0 && !kept {
		p.versions[p.version] = p.text
	}
	p.versions[version] = text
	kept, bytes := slices.Sorted(maps.Keys(p.versions)), 0
	slices.Reverse(kept)
	for i, one := range kept[1:] {
		if bytes += len(p.versions[one]); i+1 >= keptVersions || bytes > keptVersionBytes {
			delete(p.versions, one)
		}
	}
}

// PutPolicy stores a new version of the policy, as store.Partition.PutPolicy. However much it changes, it is stored at once.
func (p *Partition) PutPolicy(_ context.Context, u store.PolicyUpdate) (err error) {
	if err := u.Validate(); err != nil {
		return err
	}
	p.write(func(m *model, now int64) {
		if err = m.putPolicy(now, &u); err == nil && !u.SameBuckets {
			m.bank.KeepFor(cmp.Or(u.LongestFill, admission.MaxRefill).Microseconds(), now)
		}
	})
	return err
}

// CheckPolicy reports whether PutPolicy would store the same now, as store.Partition.CheckPolicy.
func (p *Partition) CheckPolicy(_ context.Context, u store.PolicyUpdate) (err error) {
	if err := u.Validate(); err != nil {
		return err
	}
	p.read(func(m *model, _ int64) { err = m.checkPolicy(&u, settingsIn(&u)) })
	return err
}

// SpreadPolicy has nothing to do: no edit is stored in steps.
func (p *Partition) SpreadPolicy(context.Context) error { return nil }

func (m *model) checkPolicy(u *store.PolicyUpdate, wanted settings) error {
	if m.version != u.Expected {
		return fmt.Errorf("%w: version %d is in force, %d was expected", store.ErrConflict, m.version, u.Expected)
	}
	queues := append(differing(wanted.queues, m.queues), missing(m.queues, wanted.queues)...)
	if !slices.Equal(wanted.classesOf(store.Every), m.classesOf(store.Every)) {
		queues = append(queues, slices.DeleteFunc(m.room.QueueNames(), func(queue string) bool { _, named := wanted.queues[queue]; return named })...)
	}
	for _, queue := range queues {
		if m.classTaken(queue, wanted.classesOf(queue)) {
			return fmt.Errorf("%w: queue %s", store.ErrClassInUse, queue)
		}
	}
	return nil
}

// classTaken reports whether jobs wait in a class of a queue that it would have no more, or elsewhere.
func (m *model) classTaken(queue string, wanted []admission.Class) bool {
	v, _ := m.room.QueueView(queue)
	for i, class := range m.classesOf(queue) {
		if i < len(v.Waiting) && v.Waiting[i] > 0 && (i >= len(wanted) || wanted[i].Name != class.Name) {
			return true
		}
	}
	return false
}

// differing names what a map has and another has not, or has as something else, sorted; missing what only the other has.
func differing[K cmp.Ordered, V any](of, from map[K]V) (names []K) {
	for name, value := range of {
		if before, had := from[name]; !had || !reflect.DeepEqual(before, value) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func missing[K cmp.Ordered, V any](from, of map[K]V) (names []K) {
	for name := range from {
		if _, has := of[name]; !has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (m *model) putPolicy(now int64, u *store.PolicyUpdate) error {
	if m.version == u.Version && m.edit == u.Edit && m.text != nil && string(m.text) == string(u.Text) {
		return nil
	}
	wanted := settingsIn(u)
	if err := m.checkPolicy(u, wanted); err != nil {
		return err
	}
	c := m.begin(now)
	known := m.obeyed && u.Before != nil && reflect.DeepEqual(settingsIn(u.Before), m.settings)
	gates := m.editedGates(wanted.caps, known)
	counts := m.boundsAdded(wanted)
	m.setQueues(wanted, now)
	m.setReserves(c, wanted.reserves)
	m.recapTiers(c, wanted)
	m.settings = wanted
	if !wanted.usage {
		m.usedFrom = -1
	} else if m.usedFrom < 0 {
		m.usedFrom = now
	}
	m.setCaps(c, gates, now)
	m.measure(wanted.pressured)
	m.keep(u.Version, append([]byte{}, u.Text...))
	m.auditAdd(now, store.AuditEntry{
		Action: store.AuditPolicy, From: m.version, To: u.Version, Author: u.Author, Reason: u.Reason, Restored: u.Restored, Changes: u.Changes,
	})
	m.version, m.edit, m.text, m.obeyed = u.Version, u.Edit, m.versions[u.Version], true
	m.changed, m.dedup = buckets.Instant(m.filled), u.Window.Microseconds()
	m.spilledLook("", now)
	c.WakeFreed()
	m.fill(c, now)
	if counts {
		m.recount()
	}
	return nil
}

// boundsAdded reports whether a bound may be new, so that what has entered before it is to be counted: also where one goes that lifted another.
func (m *model) boundsAdded(wanted settings) bool {
	if !maps.Equal(wanted.overflows, m.overflows) || !maps.Equal(wanted.tiers, m.tiers) || !maps.Equal(wanted.anyTiers, m.anyTiers) || !maps.Equal(wanted.allTiers, m.allTiers) {
		return true
	}
	return slices.ContainsFunc(append(differing(wanted.queues, m.queues), missing(m.queues, wanted.queues)...), func(queue string) bool {
		is, was := wanted.queues[queue], m.queues[queue]
		return is.Overflow.Policy != "" || was.Overflow.Policy != "" || len(is.Tiers)+len(was.Tiers) > 0
	})
}

// setQueues takes over the classes of queues that differ, and looks at their dead letters.
func (m *model) setQueues(wanted settings, now int64) {
	if every := wanted.queues[store.Every].Classes; !slices.Equal(every, m.queues[store.Every].Classes) {
		m.room.SetEveryClasses(every, func(queue string) bool { _, named := wanted.queues[queue]; return named })
	}
	for _, queue := range differing(wanted.queues, m.queues) {
		m.lettersDue(queue, now)
		if queue != store.Every {
			m.room.SetClasses(queue, wanted.classesOf(queue))
		}
	}
	for _, queue := range missing(m.queues, wanted.queues) {
		m.lettersDue(queue, now)
		m.room.SetClasses(queue, wanted.classesOf(queue))
	}
}

// Policy returns the text of the policy in force; nil when none was stored.
func (p *Partition) Policy(context.Context) (text []byte, err error) {
	p.read(func(m *model, _ int64) { text = slices.Clone(m.text) })
	return text, nil
}

// PolicyInForce returns the version that is in force, 0 for the built-in policy.
func (p *Partition) PolicyInForce(context.Context) (version int64, err error) {
	p.read(func(m *model, _ int64) { version = m.version })
	return version, nil
}

// PolicyVersions returns the versions that are kept, the newest first, as store.Partition.PolicyVersions.
func (p *Partition) PolicyVersions(context.Context) (versions []store.AuditEntry, err error) {
	p.read(func(m *model, _ int64) {
		told := m.log.Edits()
		versions = make([]store.AuditEntry, 0, len(m.versions))
		for _, version := range slices.Backward(slices.Sorted(maps.Keys(m.versions))) {
			entry := told[version]
			entry.To, entry.Changes = version, slices.Clone(entry.Changes)
			versions = append(versions, entry)
		}
	})
	return versions, nil
}

// PolicyVersion returns the text of a version, to the byte as it was stored. One that is not kept is ErrUnknownVersion.
func (p *Partition) PolicyVersion(_ context.Context, version int64) (text []byte, err error) {
	p.read(func(m *model, _ int64) {
		kept, ok := m.versions[version]
		if !ok {
			err = fmt.Errorf("%w: %d", store.ErrUnknownVersion, version)
			return
		}
		text = slices.Clone(kept)
	})
	return text, err
}

// NewPolicyReader returns a store.PolicyReader.
func (p *Partition) NewPolicyReader() store.PolicyReader { return policyReader{p} }

type policyReader struct{ of *Partition }

// Next waits until another version than known is in force, as store.PolicyReader.Next.
func (r policyReader) Next(ctx context.Context, known int64) (int64, error) {
	version := known
	if ctx.Err() != nil {
		return known, nil //nolint:nilerr // as it says
	}
	_ = r.of.await(ctx, auditTopic, 0, func(m *model, _ int64) bool {
		version = m.version
		return version != known
	})
	return version, nil
}

func (policyReader) Close() error { return nil }

// auditTopic is waited for by those who follow the policy.
const auditTopic = "audit"

// auditAdd adds an entry to the audit.
func (m *model) auditAdd(now int64, e store.AuditEntry) {
	m.log.Add(now, m.newToken(now), "", e)
	m.happened[auditTopic] = true
}

// record tells the audit what was done to what a name says, to how many jobs, and for how long.
func (m *model) record(now int64, by store.Intervention, action, name string, n int, length time.Duration) {
	if by.Own {
		return
	}
	m.log.Record(now, m.newToken(now), by, action, name, n, length)
	m.happened[auditTopic] = true
}

// recordEdit notes in the audit that a tenant's record was changed.
func (m *model) recordEdit(now int64, e *store.RecordEdit, action string, from, to int64) {
	if len(e.Changes) == 0 {
		m.record(now, e.By.Named(), action, "records", 1, 0)
		return
	}
	if e.By.Own {
		return
	}
	m.log.Add(now, m.newToken(now), e.By.Named().Act, store.AuditEntry{
		Action: action, Name: string(store.TenantGate(e.Tenant)), From: from, To: to, Author: e.By.Author, Reason: e.By.Reason, Changes: e.Changes,
	})
	m.happened[auditTopic] = true
}

// Audit returns the entries that a query asks for, as store.Partition.Audit.
func (p *Partition) Audit(_ context.Context, q store.AuditQuery) (page store.AuditPage, err error) {
	if err := q.Validate(); err != nil {
		return page, err
	}
	if q.Cursor != "" && !audit.IsCursor(q.Cursor) {
		return page, &admission.FieldError{Field: "cursor", Value: strconv.Quote(q.Cursor), Allowed: "that of a page, as it is"}
	}
	p.read(func(m *model, _ int64) { page = m.log.Page(q) })
	return page, nil
}

// AuditAfter returns entries of the audit after a position, as store.Partition.AuditAfter.
func (p *Partition) AuditAfter(_ context.Context, after string, count int) (of store.Stretch[store.AuditRecord], err error) {
	p.read(func(m *model, _ int64) { of = m.log.After(after, count) })
	return of, nil
}
