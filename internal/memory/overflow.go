package memory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/sorted"
	"github.com/headgate/headgate/store"
)

// depth is how many jobs count, and their bytes.
type depth struct{ jobs, bytes int }

// backlog is what a tenant has in a queue.
type backlog struct {
	of tenantQueue
	depth
	// old are the counted jobs that wait in lanes, the lowest class first, then by arrival; spilled those kept aside, by arrival.
	old, spilled *sorted.List[*modelJob]
}

func byAge(a, b *modelJob) int {
	return cmp.Or(cmp.Compare(b.Class, a.Class), cmp.Compare(a.Seq, b.Seq))
}

func byArrival(a, b *modelJob) int { return cmp.Compare(a.Seq, b.Seq) }

// backlogOf returns what a tenant has in a queue, for a change of it.
func (m *model) backlogOf(tenant, queue string) *backlog {
	of := tenantQueue{tenant, queue}
	b := m.backlogs[of]
	if b == nil {
		b = &backlog{of: of, old: sorted.New(byAge), spilled: sorted.New(byArrival)}
		m.backlogs[of] = b
	}
	return b
}

// depthOf is what counts of a tenant in a queue.
func (m *model) depthOf(of tenantQueue) depth {
	if b := m.backlogs[of]; b != nil {
		return b.depth
	}
	return depth{}
}

// totalOf is what counts of a tenant over all its queues.
func (m *model) totalOf(tenant string) depth {
	if d := m.totals[tenant]; d != nil {
		return *d
	}
	return depth{}
}

// spilledIn returns a tenant's jobs of a queue that are kept aside, nil for none.
func (m *model) spilledIn(tenant, queue string) *sorted.List[*modelJob] {
	if b := m.backlogs[tenantQueue{tenant, queue}]; b != nil {
		return b.spilled
	}
	return nil
}

// count has a job count in the depths of its tenant.
func (m *model) count(j *modelJob) {
	j.counted = true
	m.addDepth(j, 1, j.size)
}

// uncount takes a job out of them.
func (m *model) uncount(j *modelJob) {
	if !j.counted {
		return
	}
	j.counted = false
	m.addDepth(j, -1, -j.size)
	if of := (tenantQueue{j.Tenant, j.Queue}); m.spilledIn(of.tenant, of.queue).Len() > 0 {
		if _, known := m.depthFreed[of]; !known {
			m.depthFreed[of] = false
		}
	} else {
		m.tidy(of)
	}
}

func (m *model) addDepth(j *modelJob, jobs, bytes int) {
	b, all := m.backlogOf(j.Tenant, j.Queue), m.totals[j.Tenant]
	if all == nil {
		all = &depth{}
		m.totals[j.Tenant] = all
	}
	b.jobs, b.bytes = b.jobs+jobs, b.bytes+bytes
	all.jobs, all.bytes = all.jobs+jobs, all.bytes+bytes
	if all.jobs == 0 {
		delete(m.totals, j.Tenant)
	}
}

// tidy forgets a backlog that holds nothing.
func (m *model) tidy(of tenantQueue) {
	if b := m.backlogs[of]; b != nil && b.jobs == 0 && b.old.Len() == 0 && b.spilled.Len() == 0 {
		delete(m.backlogs, of)
	}
}

// bind notes what a record says of depth, and reports whether it says so of other places than the one before it.
func (m *model) bind(tenant string, text []byte) bool {
	was, is := m.bounds[tenant], store.RecordBoundsOf(text)
	if delete(m.bounds, tenant); !is.Empty() {
		if m.bounds == nil {
			m.bounds = map[string]store.RecordBounds{}
		}
		m.bounds[tenant] = is
	}
	return !was.SamePlaces(&is)
}

// bound returns what bounds a tenant in a queue, without a policy where nothing does: by its record, else by the policy.
func (m *model) bound(tenant, queue string) store.Overflow {
	said := m.bounds[tenant]
	o, ok := said.Of(queue)
	if !ok {
		o, ok = m.overflows[tenant+":"+queue]
	}
	if !ok {
		q := m.queues[queue]
		o = q.Overflow
		tiers := q.Tiers
		if o.Policy == "" && len(tiers) == 0 {
			o, tiers = m.overflows["*:*"], m.anyTiers
		}
		if other, differs := tiers[m.tierOf(tenant)]; differs {
			o = other
		}
	}
	if o.Policy == store.NoBound {
		return store.Overflow{}
	}
	return o
}

// total returns what bounds a tenant over all its queues, as bound does in one.
func (m *model) total(tenant string) store.Overflow {
	said := m.bounds[tenant]
	o, ok := said.Of("")
	if !ok {
		o, ok = m.overflows[tenant]
	}
	if !ok {
		o = m.overflows["*"]
		if other, differs := m.allTiers[m.tierOf(tenant)]; differs {
			o = other
		}
	}
	if o.Policy == store.NoBound {
		return store.Overflow{}
	}
	return o
}

func fits(o store.Overflow, jobs, bytes int) bool {
	return (o.MaxJobs == 0 || jobs <= o.MaxJobs) && (o.MaxBytes == 0 || bytes <= int(o.MaxBytes))
}

// entrant is what the overflow policy makes of a job that nothing else refuses.
type entrant struct {
	counted, spilled bool
	victims          []*modelJob
}

// mostDrops is how many jobs a call drops for others.
const mostDrops = 64

// overflowPlan is the depths as one call leaves them.
type overflowPlan struct {
	m       *model
	depths  map[tenantQueue]*depth
	totals  map[string]*depth
	spilled map[tenantQueue]int // by this call
	dropped map[*modelJob]bool
}

func newOverflowPlan(m *model) *overflowPlan {
	return &overflowPlan{
		m: m, depths: map[tenantQueue]*depth{}, totals: map[string]*depth{}, spilled: map[tenantQueue]int{}, dropped: map[*modelJob]bool{},
	}
}

// planned returns the depths as the call leaves them so far.
func (p *overflowPlan) planned(of tenantQueue) (own, all *depth) {
	if p.depths[of] == nil {
		d := p.m.depthOf(of)
		p.depths[of] = &d
	}
	if p.totals[of.tenant] == nil {
		d := p.m.totalOf(of.tenant)
		p.totals[of.tenant] = &d
	}
	return p.depths[of], p.totals[of.tenant]
}

// decide says what becomes of a job of so many bytes, or returns its refusal.
func (p *overflowPlan) decide(of tenantQueue, class, size int, now int64) (e entrant, refusal *admission.Verdict) {
	b, most := p.m.bound(of.tenant, of.queue), p.m.total(of.tenant)
	if b.Policy == "" && most.Policy == "" {
		return e, nil
	}
	for _, one := range []store.Overflow{b, most} {
		if one.MaxBytes > 0 && size > int(one.MaxBytes) {
			return e, refuse(admission.ReasonTooLarge, 0, "%d bytes", size)
		}
	}
	own, all := p.planned(of)
	spilled := p.m.spilledIn(of.tenant, of.queue).Len() + p.spilled[of]
	jobs, bytes := 1, size
	switch {
	case (b.Policy != store.Spillover || spilled <= 0) && fits(b, own.jobs+1, own.bytes+size):
	case b.Policy == store.Spillover && spilled < b.MaxSpilled:
		p.spilled[of]++
		return entrant{spilled: true}, nil
	case b.Policy == store.DropOldest && p.chooseVictims(&e, of, class, size, b, own):
		jobs -= len(e.victims)
		for _, v := range e.victims {
			bytes -= v.size
		}
	default:
		return e, refuse(admission.ReasonOverflow, store.RefusedRetry, "%d jobs of %d bytes", own.jobs, own.bytes)
	}
	if kept := all.bytes + uniqueBytes*p.m.staying[of.tenant].Len(now); most.Policy != "" && !fits(most, all.jobs+jobs, kept+bytes) {
		return entrant{}, refuseTenant(of.tenant, store.RefusedRetry, "%d jobs of %d bytes", all.jobs, kept)
	}
	for _, v := range e.victims {
		p.dropped[v] = true
	}
	e.counted = true
	for _, d := range []*depth{own, all} {
		d.jobs, d.bytes = d.jobs+jobs, d.bytes+bytes
	}
	return e, nil
}

// chooseVictims takes the oldest of the lowest class first until the newcomer fits, none of a class above its own.
func (p *overflowPlan) chooseVictims(e *entrant, of tenantQueue, class, size int, b store.Overflow, own *depth) bool {
	backlog := p.m.backlogs[of]
	if backlog == nil {
		return false
	}
	jobs, bytes := own.jobs, own.bytes
	var chosen []*modelJob
	for _, j := range backlog.old.Head(mostDrops) {
		if p.dropped[j] {
			continue
		}
		if j.Class < class || len(p.dropped)+len(chosen) == mostDrops {
			return false
		}
		chosen = append(chosen, j)
		jobs, bytes = jobs-1, bytes-j.size
		if fits(b, jobs+1, bytes+size) {
			e.victims = chosen
			return true
		}
	}
	return false
}

// spillReturn brings spilled jobs back that have room, and reports whether one waits in a lane now.
func (m *model) spillReturn(c *fairqueue.Pass, now int64) (back bool) {
	type freed struct {
		of   tenantQueue
		name string
		on   bool
	}
	names := make([]freed, 0, len(m.depthFreed))
	for of, on := range m.depthFreed {
		names = append(names, freed{of, of.tenant + ":" + of.queue, on})
	}
	clear(m.depthFreed)
	slices.SortFunc(names, func(a, b freed) int { return strings.Compare(a.name, b.name) })
	for _, f := range names {
		if b := m.backlogs[f.of]; b != nil && b.spilled.Len() > 0 && m.spillDrain(c, b, f.on, now) {
			back = true
		}
		m.tidy(f.of)
	}
	return back
}

// spillDrain brings jobs of a backlog back while they fit. What has begun below the low-water mark goes on above it.
func (m *model) spillDrain(c *fairqueue.Pass, b *backlog, goesOn bool, now int64) (back bool) {
	o := m.bound(b.of.tenant, b.of.queue)
	low := float64(o.LowWater) / 100
	if !goesOn && o.Policy != "" && (o.MaxJobs > 0 && float64(b.jobs) > float64(o.MaxJobs)*low || o.MaxBytes > 0 && float64(b.bytes) > float64(o.MaxBytes)*low) {
		return false
	}
	for b.spilled.Len() > 0 {
		j, _ := b.spilled.First()
		if o.Policy != "" && b.jobs > 0 && !fits(o, b.jobs+1, b.bytes+j.size) {
			break
		}
		if c.MovesLeft == 0 {
			m.arm("o"+b.of.tenant+":"+b.of.queue, now+fairqueue.ContinueAfter)
			c.More = true
			break
		}
		c.MovesLeft--
		m.unspill(j)
		switch start := j.at; {
		case j.Dated && j.Score < now:
			m.expire(j, now)
		case start > now:
			m.count(j)
			m.putOff(j, start)
		default:
			m.count(j)
			m.enlane(c, j)
			c.RefillQueue(j.Queue)
			back = true
		}
	}
	return back
}

// spilledLook has jobs that are kept aside, of a tenant or of all, look whether they fit: what bounds them may have changed.
func (m *model) spilledLook(tenant string, now int64) {
	for of, b := range m.backlogs {
		if b.spilled.Len() > 0 && (tenant == "" || of.tenant == tenant) {
			m.arm("o"+of.tenant+":"+of.queue, now)
		}
	}
}

// spill keeps a job aside, which starts at a time of its own or at once, 0.
func (m *model) spill(j *modelJob, start int64) {
	j.where, j.at = inSpill, start
	m.backlogOf(j.Tenant, j.Queue).spilled.Add(j)
	if j.Dated {
		m.arm("x"+j.key, j.Score+1)
	}
}

// unspill takes a job out of those that are kept aside.
func (m *model) unspill(j *modelJob) {
	m.backlogOf(j.Tenant, j.Queue).spilled.Remove(j)
	if j.Dated {
		m.timers.Remove("x" + j.key)
	}
}

// recount counts what entered before it was bounded.
func (m *model) recount() {
	for _, j := range m.live {
		if j.counted || j.where == amongDead || j.where == inSpill || m.bound(j.Tenant, j.Queue).Policy == "" && m.total(j.Tenant).Policy == "" {
			continue
		}
		m.count(j)
		if j.where == inLane {
			m.backlogOf(j.Tenant, j.Queue).old.Add(j)
		}
	}
}

// queueCap is how many jobs of a tenant in a queue workers hold at a time by the tenant's record, which is in force, and by the policy, zero for no cap.
type queueCap struct{ own, policy int }

// recapsIn returns the gates of a tenant in queues of which its record says something else from now on, in order.
func (m *model) recapsIn(tenant string, text []byte) (names []string) {
	is := store.RecordQueueCapsOf(text)
	for name := range m.capsIn {
		if kind, of := store.GateName(name).Split(); kind == store.KindTenantQueue && strings.HasPrefix(of, tenant+":") && is[of[len(tenant)+1:]] == 0 {
			names = append(names, name)
		}
	}
	for queue, limit := range is {
		if name := string(store.TenantQueueGate(tenant, queue)); m.capsIn[name].own != limit {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// recappedIn puts the caps of a record in force at those gates, or the policy's where it says nothing any more.
func (m *model) recappedIn(c *fairqueue.Pass, names []string, text []byte) {
	is := store.RecordQueueCapsOf(text)
	for _, name := range names {
		was := m.capsIn[name]
		of := queueCap{is[queueOf(name)], was.policy}
		if standing := m.capStanding(name); standing != was.own {
			of.policy = standing // Somebody has set it.
		}
		limit := of.own
		if delete(m.capsIn, name); limit == 0 {
			limit = of.policy
		} else {
			if m.capsIn == nil {
				m.capsIn = map[string]queueCap{}
			}
			m.capsIn[name] = of
		}
		m.setCap(name, limit, limit > 0)
		c.Freed(name)
	}
}

// queueOf returns the queue of the gate of a tenant in it.
func queueOf(name string) string { return name[strings.LastIndexByte(name, ':')+1:] }

// capStanding is the limit that a gate has of its own, under a pause and for a time that which is to follow; zero for none.
func (m *model) capStanding(name string) int {
	limit, own := m.ownLimit(name)
	if note := m.gateNotes[name]; own && (limit == 0 || note.until != 0) {
		return max(0, note.then)
	}
	return limit
}

// asideIn notes what the policy says of a cap of a tenant in a queue where a record says something else, and returns what is to be in force.
func (m *model) asideIn(name string, wanted bound, ok bool) (bound, bool) {
	of, said := m.capsIn[name]
	if !said {
		return wanted, ok
	}
	m.capsIn[name] = queueCap{of.own, wanted.limit}
	return bound{limit: of.own}, true
}

// standingIn puts what the policy says of caps in queues in the place of what records say: nothing where the gate is not what its record says, so that an edit puts it right.
func (m *model) standingIn(all map[string]bound) {
	for name, of := range m.capsIn {
		switch {
		case all[name].limit != of.own:
			all[name] = bound{}
		case of.policy > 0:
			all[name] = bound{limit: of.policy}
		default:
			delete(all, name)
		}
	}
}
