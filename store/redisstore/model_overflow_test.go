package redisstore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// modelDepth is what a tenant has in a queue: counted jobs, their bytes, and how many are spilled.
type modelDepth struct{ jobs, bytes, spilled int }

func (m *model) bound(tenant, queue string) store.Overflow {
	o, ok := m.overflows[tenant+":"+queue]
	if !ok {
		if o = m.queues[queue].Overflow; o.Policy == "" {
			o = m.overflows["*:*"]
		}
	}
	if o.Policy == store.NoBound {
		return store.Overflow{}
	}
	return o
}

// total returns what bounds a tenant over all its queues.
func (m *model) total(tenant string) store.Overflow {
	if o, ok := m.overflows[tenant]; ok {
		return o
	}
	return m.overflows["*"]
}

// depthOfAll is what a tenant has over all its queues.
func (m *model) depthOfAll(tenant string) *modelDepth {
	d := &modelDepth{}
	for _, j := range m.live {
		if j.counted && j.Tenant == tenant {
			d.jobs++
			d.bytes += j.size
		}
	}
	return d
}

// uniqueBytes is what a tenant's unique keys count that stay after their jobs, before the call.
func (m *model) uniqueBytes(tenant string) (bytes int) {
	for name := range m.stay {
		if strings.HasPrefix(name, tenant+":") {
			bytes += 300
		}
	}
	return bytes
}

func fits(o store.Overflow, jobs, bytes int) bool {
	return (o.MaxJobs == 0 || jobs <= o.MaxJobs) && (o.MaxBytes == 0 || bytes <= int(o.MaxBytes))
}

func (m *model) depth(name string) *modelDepth {
	d := &modelDepth{spilled: len(m.spilled[name])}
	for _, j := range m.live {
		if j.counted && j.depthName() == name {
			d.jobs++
			d.bytes += j.size
		}
	}
	return d
}

func (j *modelJob) depthName() string { return j.Tenant + ":" + j.Queue }

// uncount takes a job out of the depth of its tenant and queue.
func (m *model) uncount(j *modelJob) {
	if j.counted {
		j.counted = false
		m.depthFreed[j.depthName()] = true
	}
}

// inLane reports whether a job waits in a lane: it is nowhere else.
func (m *model) inLane(j *modelJob) bool {
	key := j.Key()
	if _, later := m.later[key]; later {
		return false
	}
	if _, dead := m.dead[key]; dead || slices.Contains(m.spilled[j.depthName()], key) {
		return false
	}
	for _, p := range m.room.Pools {
		if slices.ContainsFunc(p.Ready, func(e *fairqueue.Entry) bool { return e.Job == &j.Job }) {
			return false
		}
	}
	return true
}

// entrant is what the overflow policy makes of a job that the buckets would take.
type entrant struct {
	size             int
	counted, spilled bool
	victims          []*modelJob
}

// overflowPlan is the depths as one call leaves them.
type overflowPlan struct {
	m      *model
	depths map[string]*modelDepth
	// spared are the jobs that this call drops already, and those that enter with it.
	spared map[string]bool
}

func (p *overflowPlan) decide(c store.Candidate) (e entrant, refusal string) {
	record, large := codec.EncodeRecord(c.Job, c.Class)
	e.size = len(record) + len(large)
	b, most := p.m.bound(c.Job.Tenant, c.Job.Queue), p.m.total(c.Job.Tenant)
	if b.Policy == "" && most.Policy == "" {
		return e, ""
	}
	name := c.Job.Tenant + ":" + c.Job.Queue
	if p.depths[name] == nil {
		p.depths[name] = p.m.depth(name)
	}
	if p.depths[c.Job.Tenant] == nil {
		p.depths[c.Job.Tenant] = p.m.depthOfAll(c.Job.Tenant)
	}
	d, all := p.depths[name], p.depths[c.Job.Tenant]
	for _, of := range []store.Overflow{b, most} {
		if of.MaxBytes > 0 && e.size > int(of.MaxBytes) {
			return e, fmt.Sprintf("too_large %d bytes", e.size)
		}
	}
	jobs, bytes := 1, e.size
	switch {
	case !(b.Policy == store.Spillover && d.spilled > 0) && fits(b, d.jobs+1, d.bytes+e.size):
	case b.Policy == store.Spillover && d.spilled < b.MaxSpilled:
		e.spilled = true
		d.spilled++
		return e, ""
	case b.Policy == store.DropOldest && p.chooseVictims(&e, c, d, func(jobs, bytes int) bool { return fits(b, jobs, bytes) }):
		jobs -= len(e.victims)
		for _, v := range e.victims {
			bytes -= v.size
		}
	default:
		return e, fmt.Sprintf("overflow %d jobs of %d bytes", d.jobs, d.bytes)
	}
	if kept := all.bytes + p.m.uniqueBytes(c.Job.Tenant); most.Policy != "" && !fits(most, all.jobs+jobs, kept+bytes) {
		e.victims = nil
		return e, fmt.Sprintf("overflow of all %d jobs of %d bytes", all.jobs, kept)
	}
	for _, v := range e.victims {
		p.spared[v.Key()] = true
	}
	e.counted = true
	for _, of := range []*modelDepth{d, all} {
		of.jobs, of.bytes = of.jobs+jobs, of.bytes+bytes
	}
	return e, ""
}

// chooseVictims takes the oldest of the lowest class first until the newcomer fits.
func (p *overflowPlan) chooseVictims(e *entrant, c store.Candidate, d *modelDepth, fits func(jobs, bytes int) bool) bool {
	var waiting []*modelJob
	for _, j := range p.m.live {
		if j.counted && j.Tenant == c.Job.Tenant && j.Queue == c.Job.Queue && !p.spared[j.Key()] && p.m.inLane(j) {
			waiting = append(waiting, j)
		}
	}
	slices.SortFunc(waiting, func(a, b *modelJob) int { return cmp.Or(b.Class-a.Class, cmp.Compare(a.Seq, b.Seq)) })
	jobs, bytes := d.jobs, d.bytes
	for i, j := range waiting {
		if j.Class < c.Class {
			return false
		}
		jobs, bytes = jobs-1, bytes-j.size
		if fits(jobs+1, bytes+e.size) {
			e.victims = waiting[:i+1]
			return true
		}
	}
	return false
}

// spillReturn brings spilled jobs back that have room, and reports whether one waits in a lane now.
func (m *model) spillReturn(c *fairqueue.Pass, now int64) (back bool) {
	names := slices.Sorted(maps.Keys(m.depthFreed))
	clear(m.depthFreed)
	on := maps.Clone(m.spillOn)
	clear(m.spillOn)
	for _, name := range names {
		if len(m.spilled[name]) > 0 && m.spillDrain(c, name, on[name], now) {
			back = true
		}
	}
	return back
}

func (m *model) spillDrain(c *fairqueue.Pass, name string, goesOn bool, now int64) (back bool) {
	first := m.live[m.spilled[name][0]]
	b := m.bound(first.Tenant, first.Queue)
	d := m.depth(name)
	low := float64(b.LowWater) / 100
	if !goesOn && b.Policy != "" && (b.MaxJobs > 0 && float64(d.jobs) > float64(b.MaxJobs)*low || b.MaxBytes > 0 && float64(d.bytes) > float64(b.MaxBytes)*low) {
		return false
	}
	for len(m.spilled[name]) > 0 {
		key := m.spilled[name][0]
		j := m.live[key]
		d := m.depth(name)
		if b.Policy != "" && d.jobs > 0 &&
			(b.MaxJobs > 0 && d.jobs+1 > b.MaxJobs || b.MaxBytes > 0 && d.bytes+j.size > int(b.MaxBytes)) {
			break
		}
		if c.MovesLeft == 0 {
			m.room.Timers["o"+name] = now + fairqueue.ContinueAfter
			c.More = true
			break
		}
		c.MovesLeft--
		m.unspill(j)
		if j.Dated && j.Score < now {
			m.expire(&j.Job, now)
			continue
		}
		j.counted = true
		if j.start > now {
			m.later[key] = j.start
			continue
		}
		c.Place(&j.Job)
		c.RefillQueue(j.Queue)
		back = true
	}
	return back
}

func (m *model) spill(j *modelJob) {
	m.spilled[j.depthName()] = append(m.spilled[j.depthName()], j.Key())
	if j.Dated {
		m.timers["x"+j.Key()] = j.Score + 1
	}
}

// unspill reports whether the job was spilled.
func (m *model) unspill(j *modelJob) bool {
	name := j.depthName()
	at := slices.Index(m.spilled[name], j.Key())
	if at < 0 {
		return false
	}
	m.spilled[name] = slices.Delete(m.spilled[name], at, at+1)
	delete(m.timers, "x"+j.Key())
	return true
}

// recount counts what entered before it was bounded.
func (m *model) recount() {
	for key, j := range m.live {
		if _, dead := m.dead[key]; !dead && (m.bound(j.Tenant, j.Queue).Policy != "" || m.total(j.Tenant).Policy != "") && !slices.Contains(m.spilled[j.depthName()], key) {
			j.counted = true
		}
	}
}

func (m *model) dumpDepths(add func(string, ...any)) {
	names := map[string]bool{}
	for key, j := range m.live {
		names[j.depthName()] = true
		if j.counted && m.inLane(j) {
			add("old %s %s class %d seq %d", j.depthName(), key, j.Class, j.Seq)
		}
	}
	total, tenants := 0, map[string]bool{}
	for name := range names {
		tenants[name[:strings.Index(name, ":")]] = true
		if d := m.depth(name); d.jobs > 0 {
			add("depth %s %d|%d", name, d.jobs, d.bytes)
			total += d.jobs
		}
	}
	for tenant := range tenants {
		if d := m.depthOfAll(tenant); d.jobs > 0 {
			add("depth %s: %d|%d", tenant, d.jobs, d.bytes)
		}
	}
	if total > 0 {
		add("counted %d", total)
	}
	for name, keys := range m.spilled {
		for i, key := range keys {
			add("spill %s %d %s", name, i, key)
			if j := m.live[key]; j.start > 0 {
				add("start %s %d", key, j.start)
			}
		}
	}
}

// depths writes what Redis holds of depths and spilled jobs.
func (d *redisDump) depths() {
	for name, value := range d.hash("depth") {
		d.add("depth %s %s", name, value)
	}
	if n := d.state["nl"]; n != "" && n != "0" {
		d.add("counted %s", n)
	}
	for key, at := range d.hash("starts") {
		d.add("start %s %s", key, at)
	}
	spills := d.set("spills")
	for name := range d.keys {
		if tenantQueue, ok := strings.CutPrefix(name, "spill:"); ok {
			if !slices.Contains(spills, tenantQueue) {
				d.add("BROKEN %s is not among the spills", name)
			}
			for i, z := range d.zset(name) {
				d.add("spill %s %d %s", tenantQueue, i, z.Member)
			}
		}
		if tenantQueue, ok := strings.CutPrefix(name, "old:"); ok {
			for _, z := range d.zset(name) {
				score := int64(z.Score)
				d.add("old %s %s class %d seq %d", tenantQueue, z.Member, 127-score>>45, score&(1<<45-1))
			}
		}
	}
}
