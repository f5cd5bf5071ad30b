package laws_test

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// crowdMoves is how often limits are moved in a run, beside edits of the policy.
const crowdMoves = 25

// mover moves the limits of a crowd as loops and operators do, and knows by itself what is in force then: what is asked for, between the bounds
// of the policy, and nothing while an operator has set it otherwise or frozen it.
type mover struct {
	limits map[store.GateName]*movedLimit
	moves  []move
}

// movedLimit is what is in force of limits of admission that a loop moves, in thousandths of the policy's.
type movedLimit struct {
	least, most, limit int
	frozen, overridden bool
	back               int // What is in force again when an override ends.
}

func (l *movedLimit) clamp(limit int) int { return min(max(limit, l.least), l.most) }

// move is a part of limits that is in force from one time to another, in µs by Redis: to the next move of the same gate where it has no end.
type move struct {
	gate       store.GateName
	part       float64
	from, ends int64
}

var movedGates = []store.GateName{store.GlobalLimitGate, store.QueueLimitsGate("mail"), store.QueueLimitsGate("hook")}

// caps draws bounds for all limits that move, which an edit of the policy brings with it.
func (c *crowd) caps() (caps []store.Cap) {
	if c.fixed {
		return nil
	}
	if c.mover.limits == nil {
		_, err := c.store.Partitions()[0].Promote(c.Context(), "mover", time.Hour) // It holds the timer lease, which only the holder moves limits by.
		c.check(err)
		c.mover.limits = map[store.GateName]*movedLimit{}
		for _, gate := range movedGates {
			c.mover.limits[gate] = &movedLimit{limit: store.PartWhole}
		}
	}
	for _, gate := range movedGates {
		l := c.mover.limits[gate]
		l.least, l.most = c.between(10, 100), c.between(500, store.PartWhole)
		if gate == store.GlobalLimitGate { // All go by it.
			l.least += 200
		}
		caps = append(caps, store.Cap{Gate: gate, Limit: store.PartWhole, Least: l.least, Most: l.most, Loop: "crowd"})
	}
	return caps
}

// edited notes what an edit of the policy has brought between its bounds.
func (c *crowd) edited(at int64) {
	for _, gate := range movedGates {
		if l := c.mover.limits[gate]; l != nil {
			c.moved(gate, l, l.clamp(l.limit), at)
		}
	}
}

// moved notes what is in force of a limit from a time on.
func (c *crowd) moved(gate store.GateName, l *movedLimit, limit int, at int64) {
	if l.limit = limit; at > 0 {
		c.mover.moves = append(c.mover.moves, move{gate: gate, part: float64(limit) / store.PartWhole, from: at})
	}
}

// changedAt is when limits were changed last, in µs by Redis.
func (c *crowd) changedAt() (int64, error) {
	at, err := strconv.ParseFloat(redistest.State(c, c.client, redisstore.Keys(c.store).State())["pat"], 64)
	return int64(at), err // A half of a microsecond says that limits are scaled.
}

// move moves a limit, as its loop, its operator or an emergency does.
func (c *crowd) move() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := store.Intervention{Author: "ada"}
	if c.chance(3) {
		target := choose(c.site, store.ScaleAll, store.ScaleGlobal, store.TenantGate("ann"), store.TenantGate("bob"))
		part, lasts := choose(c.site, 0.5, 0.2, 0.7), choose(c.site, 0, time.Second)
		was, err := c.store.ScaleLimits(c.Context(), target, part, lasts, by)
		if err != nil || lasts == 0 && !was {
			return err
		}
		at, err := c.changedAt()
		c.mover.moves = append(c.mover.moves, move{gate: target, part: part, from: at, ends: at + lasts.Microseconds()})
		return err
	}
	gate := choose(c.site, movedGates...)
	l, limit := c.mover.limits[gate], choose(c.site, 1, c.between(1, 2*store.PartWhole))
	var want int
	var err error
	switch kind := c.between(0, 9); {
	case kind == 0:
		l.frozen = !l.frozen && !l.overridden
		if l.overridden {
			return nil
		}
		_, err = c.store.Freeze(c.Context(), gate, l.frozen, by)
		return err
	case l.overridden:
		want, l.overridden = l.clamp(l.back), false
		_, err = c.store.Override(c.Context(), gate, 0, 0, by)
	case kind == 1 && !l.frozen:
		want, l.back, l.overridden = l.clamp(limit), l.limit, true // What an operator asks for is refused beyond the bounds.
		_, err = c.store.Override(c.Context(), gate, want, time.Hour, by)
	default:
		if want = l.clamp(limit); l.frozen {
			want = l.limit
		}
		_, err = c.store.Adapt(c.Context(), store.Adapt{Owner: "mover", Version: c.version, Gate: gate, Limit: limit, Cause: "above_target"})
	}
	if err != nil || want == l.limit {
		return err
	}
	at, err := c.changedAt()
	c.moved(gate, l, want, at)
	return err
}

// reign is a time in which the same limits are in force: those of a version of the policy, and parts of them.
type reign struct {
	version int64
	from    int64
	parts   map[store.GateName]float64
}

// part is what is in force of limits by all that scales them: the least.
func (r *reign) part(gates ...store.GateName) float64 {
	part := 1.0
	for _, gate := range gates {
		if of, is := r.parts[gate]; is {
			part = min(part, of)
		}
	}
	return part
}

// reigns tells what was in force when, of all edits and moves.
func (c *crowd) reigns() (all []reign) {
	var starts []int64
	for _, e := range c.mu.eras {
		starts = append(starts, e.from)
	}
	for _, m := range c.mover.moves {
		starts = append(starts, m.from, cmp.Or(m.ends, m.from))
	}
	slices.Sort(starts)
	for _, at := range slices.Compact(starts) {
		for version := range c.mu.eras {
			if from := c.mu.eras[version].from; from < at && (version+1 == len(c.mu.eras) || c.mu.eras[version+1].from > at) || from == at {
				all = append(all, reign{version: int64(version), from: at, parts: c.partsAt(at)})
			}
		}
	}
	return all
}

// partsAt tells what is in force of which limits at a time.
func (c *crowd) partsAt(at int64) map[store.GateName]float64 {
	parts := map[store.GateName]float64{}
	for _, m := range c.mover.moves {
		if m.from > at {
			continue
		}
		if delete(parts, m.gate); m.ends == 0 || m.ends > at {
			parts[m.gate] = m.part
		}
	}
	return parts
}

// reignOf is the last of those in which a job can have been admitted.
func reignOf(all []reign, a *entrance) (found int) {
	for i := range all {
		if all[i].from <= a.at && all[i].version == a.version {
			found = i
		}
	}
	return found
}

// inForce is a limit as it is in force.
type inForce struct {
	is    bool
	rate  float64 // tokens a second
	burst float64
}

// limitIn returns the limit at a level on the way of a job, as all that is in force of it leaves it.
func (c *crowd) limitIn(r *reign, level admission.Level, j *admission.Job) inForce {
	compiled := c.mu.eras[r.version].compiled
	limits := compiled.LimitsFor(j.Tenant, j.Queue, j.Priority)
	global, beside := limits[admission.LevelGlobal], 0.0
	var limit admission.Limit
	gates := []store.GateName{store.ScaleAll, store.TenantGate(j.Tenant)}
	switch level {
	case store.LevelOthers:
		limit, _ = global.Others()
		gates = []store.GateName{store.ScaleAll, store.ScaleGlobal, store.GlobalLimitGate}
	case admission.LevelGlobal:
		limit, gates = global, []store.GateName{store.ScaleAll, store.ScaleGlobal, store.GlobalLimitGate}
		beside = float64((global.Burst*admission.Tokens(c.bypass.ReservePercent) + 99) / 100) // L1 of what goes beside limits.
	case levelShare:
		limit, _ = global.Share(&limits[admission.LevelTenant])
	case admission.LevelTenant:
		limit = limits[level]
	case levelType:
		limit = typeLimit(compiled, j.Tenant, j.Queue, j.Type)
		gates = append(gates, store.QueueLimitsGate(j.Queue))
	default:
		limit, gates = limits[level], append(gates, store.QueueLimitsGate(j.Queue))
	}
	if !enabled(limit) {
		return inForce{}
	}
	part, burst := r.part(gates...), float64(limit.Burst)
	return inForce{is: true, rate: float64(limit.Rate()) * part, burst: max(min(burst, 1), burst*part) + beside}
}

// typeLimit returns the limit of jobs of a type, a disabled one for none.
func typeLimit(compiled *policy.Compiled, tenant, queue, jobType string) admission.Limit {
	if limit := compiled.TypeLimit(tenant, queue, jobType); limit != nil {
		return *limit
	}
	return admission.Limit{Disabled: true}
}
