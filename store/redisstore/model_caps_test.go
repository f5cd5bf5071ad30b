package redisstore

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// modelRate is a rate of dispatches.
type modelRate struct {
	model  *model
	limit  buckets.Limit
	stored buckets.Bucket
}

func (r *modelRate) settled() (buckets.Micro, buckets.Instant) {
	return buckets.Settle(buckets.Instant(r.model.filled), 0, r.stored, r.limit)
}

func (r *modelRate) store(level buckets.Micro, stamp buckets.Instant) {
	fill := math.Ceil(float64(r.limit.Burst-level) / float64(r.limit.Rate))
	r.stored = buckets.Bucket{Level: level, Stamp: stamp, Fill: buckets.Span(fill), Rate: r.limit.Rate}
}

// Free implements fairqueue.Meter.
func (r *modelRate) Free() int {
	level, _ := r.settled()
	return int(level / buckets.MicroPerToken)
}

// Take implements fairqueue.Meter.
func (r *modelRate) Take() {
	level, stamp := r.settled()
	r.store(level-buckets.MicroPerToken, stamp)
}

// Wait implements fairqueue.Meter. It looks for the first microsecond at which a token is there.
func (r *modelRate) Wait() int64 {
	level, stamp := r.settled()
	missing := float64(buckets.MicroPerToken - level)
	wait := max(1, int64(stamp)+int64(math.Ceil(missing/float64(r.limit.Rate)))-r.model.filled)
	if math.Floor(float64(wait+r.model.filled-int64(stamp))*float64(r.limit.Rate)) < missing {
		wait++
	}
	return wait
}

func (r *modelRate) String() string {
	text, _ := r.stored.MarshalText()
	return string(text)
}

func isRate(name string) bool {
	return name[0] == store.KindTenantRate || name[0] == store.KindDownstreamRate
}

// putPolicy takes over what a new policy says of gates.
func (m *model) putPolicy(now int64, caps []store.Cap) []fairqueue.Dispatch {
	c := m.begin(now)
	m.setCaps(c, caps)
	m.changed = buckets.Instant(m.filled)
	c.WakeFreed()
	dispatched := m.fill(c, now)
	m.recount()
	return dispatched
}

// setCaps makes the gates what a new policy says, and frees those that the edit writes: what differs, what only counts for a default,
// and what runs under a default that differs. What it leaves as it was waits for its own timers where moves ran out.
func (m *model) setCaps(c *fairqueue.Pass, caps []store.Cap) {
	wanted := map[string]store.Cap{}
	names := map[string]bool{}
	before := maps.Clone(m.room.Defaults)
	clear(m.room.Defaults)
	for _, cp := range caps {
		name := string(cp.Gate)
		if strings.Contains(name, ":*") {
			m.room.Defaults[name] = cp.Limit
			continue
		}
		wanted[name], names[name] = cp, true
	}
	for name := range m.room.Gates {
		if name[0] != store.KindBreaker {
			names[name] = true
		}
	}
	for name := range names {
		cp, ok := wanted[name]
		switch {
		case ok && m.isSet(name, cp):
			continue
		case isRate(name):
			m.setRate(name, cp.Rate, ok)
		default:
			m.setCap(name, cp.Limit, ok)
		}
		c.Freed(name)
	}
	m.cover(c, before)
}

// isSet reports whether a gate is what a policy says, for good and not for a time.
func (m *model) isSet(name string, cp store.Cap) bool {
	g := m.room.Gates[name]
	if g == nil || g.Default {
		return false
	}
	if isRate(name) {
		return g.Rate.(*modelRate).limit == buckets.LimitOf(cp.Rate)
	}
	_, timed := m.gateEnds[name]
	return !timed && g.Limit == cp.Limit
}

func (m *model) setRate(name string, limit admission.Limit, wanted bool) {
	if !wanted {
		delete(m.room.Gates, name)
		return
	}
	r := &modelRate{model: m, limit: buckets.LimitOf(limit)}
	level := r.limit.Burst
	if g := m.room.Gates[name]; g != nil {
		left, _ := g.Rate.(*modelRate).settled()
		level = min(left, level)
	}
	r.store(level, buckets.Instant(m.filled))
	m.room.Gates[name] = &fairqueue.Gate{Rate: r}
}

func (m *model) setCap(name string, limit int, wanted bool) {
	g := m.room.Gates[name]
	if g != nil && !g.Default && g.Limit == 0 { // paused
		if end, ok := m.gateEnds[name]; ok {
			end.then = store.Unlimited
			if wanted {
				end.then = limit
			}
			m.gateEnds[name] = end
		}
		return
	}
	delete(m.gateEnds, name)
	if !wanted {
		m.removeGate(name)
		return
	}
	if g == nil {
		g = &fairqueue.Gate{Held: m.heldUnder(name)}
	}
	g.Limit, g.Default = limit, false
	m.room.Gates[name] = g
}

// removeGate leaves what all have that have no gate of their own.
func (m *model) removeGate(name string) {
	g := m.room.Gates[name]
	if g == nil {
		return
	}
	limit, ok := m.room.Defaults[fairqueue.DefaultOf(name)]
	if !ok || g.Held == 0 {
		delete(m.room.Gates, name)
		return
	}
	g.Limit, g.Default = limit, true
}

// cover frees what runs under a default that differs, and counts what there is before one that is new.
func (m *model) cover(c *fairqueue.Pass, before map[string]int) {
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			for _, name := range capNames(e.Job) {
				defaulted := fairqueue.DefaultOf(name)
				limit, ok := m.room.Defaults[defaulted]
				was, had := before[defaulted]
				if ok == had && limit == was {
					continue
				}
				c.Freed(name)
				if g := m.room.Gates[name]; !had && (g == nil || g.Default) {
					m.room.Gates[name] = &fairqueue.Gate{Limit: limit, Held: m.heldUnder(name), Default: true}
				}
			}
		}
	}
}

func capNames(j *fairqueue.Job) []string {
	names := []string{"q:" + j.Queue, "t:" + j.Tenant, "u:" + j.Tenant + ":" + j.Queue}
	if j.Downstream != "" {
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

// drawCaps draws caps and rates, few of them, so that they go and come.
func (w *walk) drawCaps() []store.Cap {
	var caps []store.Cap
	for _, name := range []store.GateName{
		store.QueueGate("mail"), store.TenantGate("ann"), store.TenantQueueGate("ann", "mail"), store.DownstreamGate("api"),
		store.TenantGate(store.Every), store.TenantQueueGate(store.Every, "hook"), store.DownstreamGate(store.Every),
	} {
		if w.gates == "all" && w.number("capped", 0, 4) == 4 {
			caps = append(caps, store.Cap{Gate: name, Limit: w.number("cap", 1, 3)})
		}
	}
	for _, name := range []store.GateName{store.TenantRateGate("ann"), store.TenantRateGate("bob"), store.DownstreamRateGate("api")} {
		if w.gates == "all" && w.number("rated", 0, 4) == 4 {
			caps = append(caps, store.Cap{Gate: name, Rate: admission.Limit{
				Tokens: admission.Tokens(w.number("rate", 1, 9)), Per: pick(w, "rate per", []time.Duration{time.Second, 7 * time.Second}),
				Burst: admission.Tokens(w.number("rate burst", 1, 3)),
			}})
		}
	}
	return caps
}

var _ fmt.Stringer = (*modelRate)(nil)
