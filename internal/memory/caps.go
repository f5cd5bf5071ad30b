package memory

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// isLimits reports whether it is limits of admission that a name is about, not a gate.
func isLimits(name string) bool { return name[0] == store.KindLimits }

func isRate(name string) bool {
	return name[0] == store.KindTenantRate || name[0] == store.KindDownstreamRate
}

// editedGates names the caps and rates that an edit writes, in order: what differs, and where it is not known that gates are what the policy
// before says, also what somebody has set for a time and what only counts for a default.
func (m *model) editedGates(wanted map[string]bound, known bool) []string {
	from := m.caps
	if !known {
		from = m.standing()
	}
	return append(differing(wanted, from), missing(from, wanted)...)
}

// standing returns the caps and rates as they stand, under a pause those that it leaves behind; a zero one is none that a policy says.
func (m *model) standing() map[string]bound {
	all := map[string]bound{}
	for name := range m.adaptive { // Also one whose gate somebody took away.
		all[name] = bound{}
	}
	for name, g := range m.room.Gates {
		switch {
		case name[0] == store.KindBreaker, g.Kept != nil:
		case g.Rate != nil:
			all[name] = bound{rate: g.Rate.(*modelRate).limit} //nolint:forcetypeassert // The model has no others.
			if a := m.adaptive[name]; a != nil {               // Nobody but the policy and its loop sets a rate.
				all[name] = bound{rate: a.rate, limit: a.Own, least: a.Least, most: a.Most, loop: a.Name}
			}
		case g.Default:
			all[name] = bound{}
		default:
			all[name] = m.standingCap(name, g.Limit)
		}
	}
	for name, limit := range m.room.Defaults {
		all[name] = m.standingCap(name, limit)
	}
	for tenant := range m.rated { // What the policy says is aside.
		name := string(store.TenantRateGate(tenant))
		if delete(all, name); m.caps[name].rate.Burst > 0 {
			all[name] = m.caps[name]
		}
	}
	m.standingIn(all)
	return all
}

func (m *model) standingCap(name string, limit int) bound {
	note, noted := m.gateNotes[name]
	switch {
	case limit == 0 && noted:
		limit = max(0, note.then)
	case note.until != 0:
		return bound{}
	}
	if a := m.adaptive[name]; a != nil {
		if a.Limit != limit { // Somebody has set it.
			return bound{}
		}
		return bound{limit: a.Own, least: a.Least, most: a.Most, loop: a.Name}
	}
	return bound{limit: limit, byTier: m.byTier[name]}
}

// setCaps makes gates what the policy says: first those of all that have none of their own.
func (m *model) setCaps(c *fairqueue.Pass, names []string, now int64) {
	slices.SortFunc(names, func(a, b string) int {
		if first := ofAll(a); first != ofAll(b) {
			if first {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	defaults := map[string]bool{} // whether there was one
	for _, name := range names {
		wanted, ok := m.caps[name]
		switch {
		case isLimits(name):
			m.limitsMoved(name, func() { m.moved(name, wanted) })
			continue
		case m.asideOf(name):
			continue
		case isRate(name):
			if m.moved(name, wanted); wanted.least > 0 {
				wanted.rate = m.adaptive[name].inForce()
			}
			m.setRate(name, wanted.rate, ok)
			m.accountsLook(name, now)
		default:
			if wanted, ok = m.asideIn(name, wanted, ok); ofAll(name) {
				_, defaults[name] = m.room.Defaults[name]
			}
			m.setCap(name, m.moved(name, wanted), ok)
			m.markTier(name, wanted.byTier)
		}
		c.Freed(name)
	}
	m.cover(c, defaults)
}

func (m *model) setRate(name string, limit buckets.Limit, wanted bool) {
	was := m.room.RateAt(name)
	if !wanted {
		_, own := m.room.Gates[name]
		delete(m.room.Gates, name)
		if each := m.room.RateAt(name); own && each != nil {
			a := each.(*modelRate)                //nolint:forcetypeassert // The model has no others.
			left, _ := was.(*modelRate).settled() //nolint:forcetypeassert // as above
			a.store(min(left, a.limit.Burst), buckets.Instant(m.filled))
			m.keepAccount(a)
		}
		return
	}
	r := &modelRate{model: m, limit: limit}
	level := r.limit.Burst
	if was, is := was.(*modelRate); is {
		if left, _ := was.settled(); was.account == "" || left < was.limit.Burst { // Of each account, full: so is its own.
			level = min(left, level)
		}
	}
	r.store(level, buckets.Instant(m.filled))
	m.room.Gates[name] = &fairqueue.Gate{Rate: r}
}

// setCap makes a cap what the policy says, or takes it away. A pause goes on.
func (m *model) setCap(name string, limit int, wanted bool) {
	if now, own := m.ownLimit(name); own && now == 0 {
		note := m.gateNotes[name]
		note.then = store.Unlimited
		if wanted {
			note.then = limit
		}
		m.gateNotes[name] = note
		return
	}
	if !wanted {
		m.removeGate(name)
		return
	}
	delete(m.gateNotes, name)
	m.setLimit(name, limit)
}

// removeGate leaves what all have that have no gate of their own.
func (m *model) removeGate(name string) {
	delete(m.gateNotes, name)
	delete(m.byTier, name)
	if ofAll(name) {
		delete(m.room.Defaults, name)
		m.followDefault(name)
		return
	}
	g := m.room.Gates[name]
	if g == nil {
		return
	}
	delete(m.room.Gates, name)
	if limit, ok := m.room.LimitOf(name); ok && g.Held > 0 {
		g.Limit, g.Default = limit, true
		m.room.Gates[name] = g
	}
}

// followDefault gives those that have no gate of their own the limit of all, or none.
func (m *model) followDefault(name string) {
	limit, ok := m.room.Defaults[name]
	for covered, g := range m.room.Gates {
		switch {
		case !g.Default || fairqueue.DefaultOf(covered) != name:
		case ok:
			g.Limit = limit
		default:
			if _, capped := m.room.LimitOf(covered); !capped {
				delete(m.room.Gates, covered)
			}
		}
	}
}

// recordedCap is what the record of a tenant makes of its cap, fairqueue.Room.Recorded: neither of a pause nor of a limit for a time.
func (m *model) recordedCap(tenant string, own *fairqueue.Gate) (limit int, said bool) {
	name := string(store.TenantGate(tenant))
	if own != nil && (own.Limit == 0 || m.gateNotes[name].until != 0) {
		return 0, false
	}
	limit, said = m.shares[tenant].Cap(m.tierCaps, own != nil && !m.byTier[name])
	if !said || limit > 0 {
		return limit, said
	}
	if each, is := m.room.Defaults[fairqueue.DefaultOf(name)]; is || own == nil {
		return each, is
	}
	return store.NoCap, true // That of the record's tier, which has none.
}

// recaps reports whether a record may change its tenant's cap.
func (m *model) recaps(tenant string, text []byte) bool {
	was, is := m.shares[tenant], store.RecordSharesOf(text)
	return was.MaxRunning != is.MaxRunning || was.Tier != is.Tier && len(m.tierCaps) > 0
}

// cover frees what runs under defaults that an edit writes, and counts what there is before one that is new.
func (m *model) cover(c *fairqueue.Pass, defaults map[string]bool) {
	if len(defaults) == 0 {
		return
	}
	for name, was := range defaults {
		if _, is := m.room.Defaults[name]; was || is {
			m.freeWaiting(c, name)
		}
	}
	for name, held := range m.entriesUnder() {
		of := fairqueue.DefaultOf(name)
		limit, is := m.room.Defaults[of]
		was, written := defaults[of]
		if !written || !was && !is {
			continue
		}
		c.Freed(name)
		if g := m.room.Gates[name]; !was && (g == nil || g.Default) {
			m.room.Gates[name] = &fairqueue.Gate{Limit: limit, Held: held, Default: true}
		}
	}
}

// entriesUnder counts the entries of all ready streams by cap. Surplus entries of pools that lost all workers count too.
func (m *model) entriesUnder() map[string]int {
	counts := map[string]int{}
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			for _, name := range capNames(e.Job) {
				counts[name]++
			}
		}
	}
	return counts
}

func capNames(j *fairqueue.Job) []string {
	names := []string{"q:" + j.Queue, "t:" + j.Tenant, "u:" + j.Tenant + ":" + j.Queue}
	service := j.Service()
	if service != "" {
		names = append(names, "d:"+service)
	}
	if service != j.Downstream {
		names = append(names, "d:"+j.Downstream)
	}
	return names
}

// heldUnder counts the entries that passed under a cap. Surplus entries of pools that lost all workers count too.
func (m *model) heldUnder(name string) int {
	held := 0
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			if slices.Contains(capNames(e.Job), name) {
				held++
			}
		}
	}
	return held
}

var _ fmt.Stringer = (*modelRate)(nil)

// adaptive is what is kept of a limit that moves by itself.
type adaptive struct {
	store.Adaptation

	// told is what the audit last told, at toldAt; 0 for never.
	told   int
	toldAt int64
	number int64
	// ends is when limits of admission are the policy's again by the buckets' time, 0 for not by themselves.
	ends buckets.Instant
	// rate is the policy's own, of one that is no cap.
	rate buckets.Limit
}

// inForce is what is in force of a rate: of the burst as much less as the rate is.
func (a *adaptive) inForce() buckets.Limit {
	limit := a.InForce()
	burst := math.Floor(float64(a.rate.Burst) * (float64(limit) / float64(a.Own)))
	return buckets.Limit{Rate: admission.TokensPerSecond(float64(limit) / store.RateUnit), Burst: max(buckets.MicroPerToken, buckets.Micro(burst))}
}

// inWords tells a limit to the audit.
func (a *adaptive) inWords(limit int) string {
	switch {
	case a.IsLimits():
		return fmt.Sprintf("%.4g %%", 100*float64(limit)/store.PartWhole)
	case !a.IsRate():
		return strconv.Itoa(limit)
	}
	return fmt.Sprintf("%.4g a second", float64(limit)/store.RateUnit)
}

// moved returns what is in force of a cap that an edit writes: of one that moves by itself what it was, between its bounds.
func (m *model) moved(name string, wanted bound) int {
	if wanted.least == 0 {
		delete(m.adaptive, name)
		return wanted.limit
	}
	a := m.adaptive[name]
	if a == nil {
		a = &adaptive{Adaptation: store.Adaptation{Gate: store.GateName(name), Limit: wanted.limit}, told: wanted.limit}
		m.adaptive[name] = a
	}
	a.Name, a.Own, a.Least, a.Most, a.rate = wanted.loop, wanted.limit, wanted.least, wanted.most, wanted.rate
	if a.Limit == store.PartWhole || a.ends <= buckets.Instant(m.filled) { // Nothing of it is in force: what an edit puts there lasts.
		a.ends = 0
	}
	a.Limit = a.Clamp(a.Limit)
	return a.Limit
}

// Freeze keeps a limit from moving by itself, or lets it go on, as store.Gates.Freeze.
func (p *Partition) Freeze(_ context.Context, gate store.GateName, frozen bool, by store.Intervention) (was bool, err error) {
	if err := by.Validate(); err != nil {
		return false, err
	}
	p.write(func(m *model, now int64) {
		a := m.adaptive[string(gate)]
		if a == nil {
			err = fmt.Errorf("%w: %s", store.ErrNotAdaptive, gate)
			return
		}
		if was = a.Frozen != nil; !was && !frozen {
			return
		}
		m.begin(now)
		action := store.AuditThaw
		a.Frozen, a.Override = nil, nil
		if frozen {
			held := heldSinceNow(by, now)
			action, a.Frozen = store.AuditFreeze, &store.Intervention{Author: held.author, Reason: held.reason, Since: time.UnixMicro(held.since)}
		}
		m.record(now, by, action, string(gate), 0, 0)
	})
	return was, err
}

// Override puts a limit in force instead of that of its loop, or ends that, as store.Partition.Override.
func (p *Partition) Override(_ context.Context, gate store.GateName, limit int, duration time.Duration, by store.Intervention) (number int64, err error) {
	if err := by.Validate(); err != nil {
		return 0, err
	}
	p.write(func(m *model, now int64) { number, err = m.override(now, string(gate), limit, duration, by) })
	return number, err
}

func (m *model) override(now int64, name string, limit int, duration time.Duration, by store.Intervention) (int64, error) {
	a := m.adaptive[name]
	switch {
	case a == nil || !isLimits(name) && (m.room.Gates[name] == nil || m.room.Gates[name].Default):
		return 0, fmt.Errorf("%w: %s", store.ErrNotAdaptive, name)
	case duration == 0 && a.Override == nil:
		return 0, nil
	case duration > 0 && (limit < a.Least || limit > a.Most):
		return 0, a.OutOfRange(limit)
	}
	c := m.begin(now)
	action, cause := store.AuditOverrideEnd, store.CauseOverrideOver
	if duration == 0 {
		limit = a.Clamp(a.Override.Back)
		a.Frozen, a.Override = nil, nil
	} else {
		back := a.Limit
		if a.Override != nil {
			back = a.Override.Back
		}
		held := heldSinceNow(by, now)
		a.Frozen = &store.Intervention{Author: held.author, Reason: held.reason, Since: time.UnixMicro(held.since)}
		a.Override = &store.Override{Until: time.UnixMicro(now).Add(duration.Truncate(time.Microsecond)), Back: back}
		action, cause = store.AuditOverride, store.CauseOverride
	}
	a.number++
	a.Cause, a.At = cause, time.UnixMicro(now)
	if limit != a.Limit {
		a.Before, a.Why, a.Changed = a.Limit, cause, time.UnixMicro(now)
		m.applyMoved(c, name, limit, now, 0)
	} else if a.Back > 0 && a.IsLimits() {
		m.limitsMoved(name, func() { a.lasts(m.filled, 0) })
	}
	m.record(now, by, action, name, m.heldAt(name), duration)
	c.WakeFreed()
	m.fill(c, now)
	return a.number, nil
}

// Adaptations returns every limit that moves by itself, by its gate.
func (p *Partition) Adaptations(context.Context) (all []store.Adaptation, err error) {
	p.read(func(m *model, _ int64) {
		for _, name := range slices.Sorted(maps.Keys(m.adaptive)) {
			one := m.adaptive[name].Adaptation
			if one.Frozen != nil {
				frozen := *one.Frozen
				one.Frozen = &frozen
			}
			if one.Override != nil {
				override := *one.Override
				one.Override = &override
			}
			if g := m.room.Gates[name]; g != nil {
				one.Held, one.Paused = g.Held, g.Rate == nil && !g.Default && g.Limit == 0
			}
			if b := m.breakers[name[len("d:"):]]; b != nil && !isLimits(name) {
				heard, _ := b.HeardAt()
				one.Calls, one.Failures, one.Ran, one.Refused, one.Heard = b.calls, b.failures, b.ran, b.refused, time.UnixMicro(int64(heard)/1000)
			}
			all = append(all, one)
		}
	})
	return all, nil
}
