package memory

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// Inside is what a test sees of a partition beside what store.Partition tells, while nobody else uses it.
type Inside struct{ of *model }

// Inside returns what a test looks at.
func (p *Partition) Inside() *Inside { return &Inside{p.model} }

// Room is the partition's own.
func (in *Inside) Room() *fairqueue.Room { return in.of.room }

// Timers names what is due at some time.
func (in *Inside) Timers() iter.Seq[string] { return in.of.timers.Names() }

// Timer is when that is, in microseconds since 1970.
func (in *Inside) Timer(name string) (at int64, ok bool) { return in.of.timers.Find(name) }

// Last is the time of the last call that had effect.
func (in *Inside) Last() int64 { return in.of.last }

// Leapt says that the clock has stepped and nobody has looked at that yet.
func (in *Inside) Leapt() bool { return in.of.leapt != 0 }

// Dump tells all that decides on jobs, a line for each fact, in no order: what a conformance suite reads of Redis in the same words.
func (p *Partition) Dump() (lines []string) {
	p.read(func(m *model, _ int64) {
		d := &dump{m, m.room.Lines()}
		for _, name := range m.room.QueueNames() {
			v, _ := m.room.QueueView(name)
			d.add("queue %s pace %.9g stamp %d", name, v.Pace, v.Last)
		}
		for queue, r := range m.reserves {
			d.add("reserve %s %s", queue, r)
		}
		for name := range m.timers.Names() {
			d.add("timer %s at %d", name, m.timers.At(name))
		}
		for _, j := range m.live {
			d.job(j)
		}
		d.depths()
		d.breakers()
		d.accountLines(d.add)
		d.limits()
		d.names()
		d.counts()
		lines = d.lines
	})
	return lines
}

type dump struct {
	*model

	lines []string
}

func (d *dump) add(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *dump) job(j *modelJob) {
	d.add("job %s attempts %d lost %d suspect %t timed %t counted %t", j.key, j.attempts, j.lost, j.suspect, j.timed, j.counted)
	switch j.where {
	case inLane:
		if j.counted {
			d.add("old %s:%s %s class %d seq %d", j.Tenant, j.Queue, j.key, j.Class, j.Seq)
		}
	case inLater:
		d.add("later %s at %d", j.key, j.at)
	case inSpill:
		if j.at > 0 {
			d.add("start %s %d", j.key, j.at)
		}
	case inReady:
		if j.entry.Period != 0 {
			d.add("mark %s began %d|%s", j.key, j.began, j.Service())
		}
	case amongDead:
		d.add("dead %s at %d", j.key, j.at)
		d.add("dead %s: %s %d", j.Queue, j.key, j.at)
		d.add("letters %s:%s: %s %d", j.Tenant, j.Queue, j.key, j.at)
	}
	if j.cancelled {
		d.add("cancelled %s", j.key)
	}
	if j.group != "" {
		d.add("suspect %s of %s", j.key, j.group)
	}
	if j.startedBy != "" {
		d.add("started %s by %s", j.key, j.startedBy)
	}
	if j.releases != "" {
		d.add("unique %s released by %s", j.releases, j.key)
	}
}

func (d *dump) depths() {
	for of, b := range d.backlogs {
		name := of.tenant + ":" + of.queue
		if b.jobs > 0 {
			d.add("depth %s %d|%d", name, b.jobs, b.bytes)
		}
		for i, j := range b.spilled.Head(b.spilled.Len()) {
			d.add("spill %s %d %s", name, i, j.key)
		}
	}
	counted := 0
	for tenant, all := range d.totals {
		d.add("depth %s: %d|%d", tenant, all.jobs, all.bytes)
		counted += all.jobs
	}
	if counted > 0 {
		d.add("counted %d", counted)
	}
	d.lines = append(d.lines, d.letters.Lines()...)
}

func (d *dump) breakers() {
	for _, e := range d.events {
		e.ID = ""
		d.add("event %+v", e)
	}
	ahead := d.filled - d.last
	for downstream, b := range d.model.breakers {
		s := b.SnapshotAt(d.instant())
		until := int64(0)
		if s.Ends {
			until = int64(s.Until)/1000 - ahead
		}
		limit, gated := b.Gate()
		if !gated {
			limit = store.Unlimited
		}
		d.add("breaker %s %s for %s since %d period %d until %d forced %t %q window %v streak %d callers %d voters %d tenants %d of %d passed %d slow %d ramp %d limit %d trips %d in a row %d",
			downstream, s.State, s.Cause, int64(s.Since)/1000-ahead, s.Period, until, s.Forced, s.Reason, s.Window, s.FailureStreak,
			s.Callers, s.Voters, s.FailingTenants, s.Tenants, s.ProbesPassed, s.SlowProbes, s.Ramp, limit, s.Trips, s.TripsInRow)
	}
}

func (d *dump) limits() {
	for scope, b := range d.bank.All() {
		text, _ := b.MarshalText()
		d.add("bucket %s %s", scope, text)
	}
	for tenant, at := range d.bank.Changes() {
		d.add("limits of %s changed at %d", tenant, at)
	}
	for shard, until := range d.bank.Swept() {
		d.add("%s swept until %d", shard, until)
	}
	for tenant, r := range d.records {
		d.add("record %s %d %s", tenant, r.Version, r.Text)
	}
	if counts := d.sharesCounted(); counts != "" {
		d.add("records by tier %s", counts)
	}
	if d.capped > 0 {
		d.add("records with a cap %d", d.capped)
	}
	if len(d.bounds) > 0 {
		d.add("records with bounds %d", len(d.bounds))
	}
	if len(d.rated) > 0 {
		d.add("records with a dispatch %d", len(d.rated))
	}
	for tenant, of := range d.rated {
		text := func(l buckets.Limit, none string) string {
			if l.Burst == 0 {
				return none
			}
			return fmt.Sprintf("%.17g|%d", float64(l.Rate), l.Burst)
		}
		d.add("dispatch of %s %s;%s", tenant, text(of, "-"), text(d.caps[string(store.TenantRateGate(tenant))].rate, ""))
	}
	d.capsOfQueues()
	for name := range d.byTier {
		d.add("gate %s is of a tier", name)
	}
	d.lines = append(d.lines, d.leases.Lines()...)
}

// sharesCounted counts records that say something of tier or weights by tier, as fragments/weight.lua has it.
func (d *dump) sharesCounted() string {
	counts := map[string]int{}
	for _, of := range d.shares {
		if of.Tier != "" || len(of.Weights) > 0 {
			counts[of.Tier]++
		}
	}
	var all []string
	for _, tier := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s=%d", tier, counts[tier]))
	}
	return strings.Join(all, ";")
}

// names tells what is kept by name, not by job.
func (d *dump) names() {
	for worker, b := range d.begun {
		d.add("begun by %s %d|%s", worker, b.n, b.group)
	}
	for name, s := range d.suspended {
		d.add("suspended %s until %d", name, s.until)
	}
	for name, key := range d.unique.All() {
		d.add("unique %s held by %s", name, key)
	}
	for age := range d.ended {
		for key := range d.ended[age] {
			d.add("ended %d %s", age, key)
		}
	}
}

func (d *dump) counts() {
	if d.accepted > 0 {
		d.add("count accepted %d", d.accepted)
	}
	for kind, counts := range map[string]map[string]int64{"left": d.left, "dead": d.died} {
		for reason, n := range counts {
			d.add("count %s:%s %d", kind, reason, n)
		}
	}
}

// capsOfQueues tells what records say of caps in single queues, and what the policy does.
func (d *dump) capsOfQueues() {
	tenants := map[string]bool{}
	for name, of := range d.capsIn {
		_, tenant := store.GateName(name).Split()
		tenant, _, _ = strings.Cut(tenant, ":")
		tenants[tenant] = true
		d.add("cap of a record at %s %d, of the policy %d", name, of.own, of.policy)
	}
	if len(tenants) > 0 {
		d.add("records with caps in queues %d", len(tenants))
	}
}
