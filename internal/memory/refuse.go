package memory

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/bank"
	"github.com/headgate/headgate/internal/memory/internal/times"
	"github.com/headgate/headgate/store"
)

const (
	mostQueues    = 4096
	mostMade      = 256
	looksAtQueues = 64
)

// A tenant has at most mostUniques unique keys that stay after their jobs, each counted as uniqueBytes of what it has; and mostLanes lanes
// in a class of a queue, and downstreams of jobs that are put off.
const (
	mostUniques = 1_000_000
	uniqueBytes = 300
	mostLanes   = 4096
)

// extendIn extends a name of those of a tenant.
func extendIn(all map[string]*times.Times, tenant, name string, until, now int64) {
	if all[tenant] == nil {
		all[tenant] = times.New()
	}
	all[tenant].Extend(name, until, now)
}

// queuesFull refuses a job that would make one queue too many.
func (a *admitting) queuesFull(j *admission.Job) *admission.Verdict {
	if a.making[j.Queue] > 0 {
		return nil
	}
	all, own := a.m.room.Used()+a.making[":"], a.m.made.Made(j.Tenant)+a.making[j.Tenant+":"]
	a.crowded = a.crowded || all >= mostQueues/2 || own >= mostMade/2
	switch {
	case all >= mostQueues:
		return refuse(admission.ReasonQueues, store.RefusedRetry, "")
	case own >= mostMade:
		return refuse(admission.ReasonQueues, store.RefusedRetry, "%d queues", own)
	}
	return nil
}

// suspended refuses a job whose queue or tenant admits nothing for a time.
func (a *admitting) suspended(c *store.Candidate, _ int64) *admission.Verdict {
	if len(a.m.suspended) == 0 {
		return nil
	}
	j := c.Job
	for _, name := range []store.GateName{store.QueueGate(j.Queue), store.TenantGate(j.Tenant), store.TenantQueueGate(j.Tenant, j.Queue)} {
		s, ok := a.m.suspended[string(name)]
		switch {
		case ok && s.until == 0:
			return refuse(admission.ReasonPaused, store.RefusedRetry, s.held.reason)
		case ok && s.until > a.now:
			return refuse(admission.ReasonPaused, time.Duration(s.until-a.now)*time.Microsecond, s.held.reason)
		}
	}
	return nil
}

// shed refuses a job of which its queue takes no more at its level.
func (a *admitting) shed(c *store.Candidate, _ int64) *admission.Verdict {
	if c.ShedFrom == 0 {
		return nil
	}
	p := a.m.pressureOf(c.Job.Queue, a.now)
	if p.Level >= c.ShedFrom || c.ShedOverFrom > 0 && p.Level >= c.ShedOverFrom && a.overShare(c) {
		return refuse(admission.ReasonShed, p.RetryAfter, c.Tier)
	}
	return nil
}

// tenantClass is a tenant's jobs of a class in a queue.
type tenantClass struct {
	tenant, queue string
	class         int
}

// overShare reports whether jobs of a job's tenant wait in its class, of this call too, or it has had more service there than those that do.
func (a *admitting) overShare(c *store.Candidate) bool {
	return a.letIn[tenantClass{c.Job.Tenant, c.Job.Queue, c.Class}] || a.m.room.OverShare(c.Job.Tenant, c.Job.Queue, c.Class)
}

// tell adds to a verdict how much the queue is pressed, where that is measured.
func (a *admitting) tell(i int) {
	if c := &a.jobs[i]; c.ShedFrom > 0 {
		a.verdicts[i].Pressure = a.m.pressureOf(c.Job.Queue, a.now)
	}
}

// uniqueHeld refuses a job whose unique key another holds, or whose tenant has as many as it may.
func (a *admitting) uniqueHeld(c *store.Candidate, _ int64) *admission.Verdict {
	j := c.Job
	if j.Unique.Key == "" {
		return nil
	}
	if holder, until := a.m.unique.Holder(j.Tenant+":"+j.Unique.Key, a.now); holder != "" {
		id := holder[len(j.Tenant)+1:]
		return refuse(admission.ReasonUnique, time.Duration((until-a.now+999)/1000)*time.Millisecond, id)
	}
	if j.Unique.Release != admission.ReleaseAtExpiry {
		return nil
	}
	n := a.m.staying[j.Tenant].Count(a.now) + a.staying[j.Tenant]
	if n >= mostUniques {
		return refuseTenant(j.Tenant, store.UniquesRetry, "%d unique keys that stay", n)
	}
	if a.staying == nil {
		a.staying = map[string]int{}
	}
	a.staying[j.Tenant]++
	return nil
}

// parkedOut refuses a job whose downstream's breaker is not closed, when as many wait for it as may.
func (a *admitting) parkedOut(c *store.Candidate, start int64) *admission.Verdict {
	m, downstream := a.m, fairqueue.ServiceOf(c.Job.Downstream)
	if downstream == "" || start > 0 || len(m.maxParked) == 0 || m.room.Gates["b:"+downstream] == nil {
		return nil
	}
	most, ok := m.maxParked[downstream]
	if !ok {
		if most, ok = m.maxParked[""]; !ok {
			return nil
		}
	}
	if a.parking == nil {
		a.parking = map[string]int{}
	}
	waiting, counted := a.parking[downstream]
	if !counted {
		waiting = m.room.WaitingOn(downstream)
		a.parking[downstream] = waiting
	}
	if waiting < most {
		return nil
	}
	wait := store.RefusedRetry
	if at, armed := m.timers.Find("b" + downstream); armed {
		wait = time.Duration(max(0, at-a.now)) * time.Microsecond
	}
	return refuse(admission.ReasonBreaker, wait, "downstream "+downstream)
}

// lanesFull refuses a job for which a tenant that has as many lanes as it may would have one more.
func (a *admitting) lanesFull(c *store.Candidate, start int64) *admission.Verdict {
	m, j := a.m, c.Job
	if j.Downstream == "" {
		return nil
	}
	lane := "n" + j.Downstream
	if !j.Deadline.IsZero() || m.settingsOf(j.Queue).MaxWait > 0 {
		lane = "d" + j.Downstream
	}
	if n, has := m.room.LaneCount(j.Queue, c.Class, j.Tenant, lane); n >= mostLanes && !has {
		return refuse(admission.ReasonLanes, store.RefusedRetry, "%d lanes", n)
	}
	if start == 0 {
		return nil
	}
	if e := m.ahead[j.Tenant]; e != nil && e.At(j.Downstream) > 0 || a.ahead[j.Tenant][j.Downstream] {
		return nil
	}
	n := m.ahead[j.Tenant].Count(a.now) + len(a.ahead[j.Tenant])
	if n >= mostLanes {
		return refuse(admission.ReasonLanes, store.RefusedRetry, "%d lanes", n)
	}
	if a.ahead == nil {
		a.ahead = map[string]map[string]bool{}
	}
	if a.ahead[j.Tenant] == nil {
		a.ahead[j.Tenant] = map[string]bool{}
	}
	a.ahead[j.Tenant][j.Downstream] = true
	return nil
}

// doomed refuses a job that would start after it may, by more than its queue allows for.
func (a *admitting) doomed(c *store.Candidate, start int64) *admission.Verdict {
	m, j := a.m, c.Job
	if c.Doomed == 0 || start > 0 {
		return nil
	}
	last := int64(math.MaxInt64)
	if !j.Deadline.IsZero() {
		last = j.Deadline.UnixMicro()
	}
	if most := m.settingsOf(j.Queue).MaxWait.Microseconds(); most > 0 {
		last = min(last, a.now+most)
	}
	if last == math.MaxInt64 || m.room.FreeSlots(j.Queue) > a.into[j.Queue] {
		return nil
	}
	wait := int64(0)
	m.asOf(a.now, func() { // Rates on its way have filled since the last call.
		wait = m.room.Foresee(&fairqueue.Job{Tenant: j.Tenant, Queue: j.Queue, Class: c.Class, Downstream: j.Downstream, Dated: true, Score: last})
	})
	most := int64(math.Floor(float64(last-a.now) * float64(c.Doomed) / 100))
	if wait <= most {
		return nil
	}
	v := store.DoomedVerdict(j.ID, wait, wait-most)
	return &v
}

// forgetQueues looks at some queues that jobs have made, and forgets those that nobody knows and that hold nothing. Each call goes on
// where the last one ended. Those that the call under way is about are left alone.
func (m *model) forgetQueues(about func(queue string) bool, now int64) {
	m.made.Visit(looksAtQueues, func(name string, until int64) bool {
		switch {
		case about(name) || !m.room.Empty(name):
			return false
		case m.knows(name):
			return true
		case until < now && m.letters.InQueue(name).Len() == 0 && m.room.Gates[string(store.QueueGate(name))] == nil && !m.isSuspended(store.QueueGate(name)):
			m.room.Forget(name)
			return true
		}
		return false
	})
}

func (m *model) isSuspended(name store.GateName) bool {
	_, suspended := m.suspended[string(name)]
	return suspended
}

// knows reports whether the policy names a queue or a worker serves it.
func (m *model) knows(queue string) bool {
	if _, named := m.queues[queue]; named {
		return true
	}
	return m.room.Served(queue)
}

// scale is a part of limits that is in force until the buckets' time ends.
type scale struct {
	part float64
	ends buckets.Instant
	held heldBy
}

// scaled returns what limits are scaled to, nil for nothing, and when limits last changed: one that has ended has changed them then.
func (m *model) scaled(now int64) (scales bank.Scales, changed buckets.Instant) {
	changed = m.changed
	at := buckets.Instant(m.bucketTime(now))
	for name, a := range m.adaptive {
		if a.IsLimits() && a.Limit < store.PartWhole && a.ends != 0 && a.ends <= at {
			changed = max(changed, a.ends)
			continue
		}
		if a.IsLimits() && a.Limit < store.PartWhole {
			if scales == nil {
				scales = bank.Scales{}
			}
			lasts := buckets.Instant(store.PartLasts.Microseconds())
			if a.ends != 0 {
				lasts = a.ends - at
			}
			scales[store.GateName(name)] = &buckets.Scaling{Part: float64(a.Limit) / store.PartWhole, Ends: at + lasts, Until: lasts + buckets.Instant(now)}
		}
	}
	for target, s := range m.scales {
		if s.ends <= at {
			changed = max(changed, s.ends)
			continue
		}
		if scales == nil {
			scales = bank.Scales{}
		}
		scales[target] = &buckets.Scaling{Part: s.part, Ends: s.ends, Until: s.ends - at + buckets.Instant(now)}
	}
	return scales, changed
}

// ScaleLimits scales limits for a time, as store.Buckets.ScaleLimits.
func (p *Partition) ScaleLimits(_ context.Context, target store.GateName, part float64, duration time.Duration, by store.Intervention) (was bool, err error) {
	if err := store.ValidateScale(target, part, duration, by); err != nil {
		return false, err
	}
	p.write(func(m *model, now int64) {
		scales, _ := m.scaled(now)
		was = scales[target] != nil
		delete(scales, target)
		switch {
		case duration == 0 && !was:
			return
		case duration > 0 && m.ofOperators(scales) >= store.MaxScales:
			err = store.ErrTooManyScales
			return
		}
		m.advance(now)
		maps.DeleteFunc(m.scales, func(name store.GateName, _ scale) bool { return scales[name] == nil })
		action := store.AuditScaleEnd
		if duration > 0 {
			if m.scales == nil {
				m.scales = map[store.GateName]scale{}
			}
			action, was = store.AuditScale, true
			m.scales[target] = scale{part, buckets.Instant(m.filled + duration.Microseconds()), heldSinceNow(by, now)}
			by.Reason = store.ScaleReason(part, by.Reason)
		}
		m.changed = buckets.Instant(m.filled)
		m.record(now, by, action, string(target), 0, duration)
	})
	return was, err
}

// ofOperators counts the scales that somebody has set.
func (m *model) ofOperators(scales bank.Scales) (n int) {
	for target := range scales {
		if _, own := m.scales[target]; own {
			n++
		}
	}
	return n
}

// Scales returns what limits are scaled to, as store.Buckets.Scales.
func (p *Partition) Scales(context.Context) (all []store.Scale, err error) {
	p.read(func(m *model, now int64) {
		scales, _ := m.scaled(now)
		for _, target := range slices.Sorted(maps.Keys(m.scales)) {
			if scales[target] == nil {
				continue
			}
			s := m.scales[target]
			all = append(all, store.Scale{
				Target: target, Part: s.part, Until: scales[target].Until.Time(), Author: s.held.author, Reason: s.held.reason, Since: microTime(s.held.since),
			})
		}
	})
	return all, nil
}
