package breaker

import "hash/fnv"

// TenantNumber returns the number under which reports count a tenant's calls, 1 to TenantNumbers-1; 0 for no tenant. Two
// tenants in a thousand pairs share one: a report stays small, however many tenants there are.
func TenantNumber(tenant string) uint16 {
	if tenant == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(tenant)) // It returns no error.
	return uint16(h.Sum32()%(TenantNumbers-1)) + 1
}

// What tells tenants apart.
const (
	// TenantNumbers is how many numbers of tenants there are, TenantGroups how many windows a breaker has for them.
	TenantNumbers = 1024
	TenantGroups  = 32
	// agreement is the part of a rate that the tenants but the worst must reach: leaving that one out lowers the mean of many that
	// fail by chance.
	agreement = 0.8
	// streakShare is more than a third: of many tenants that call as often so many have failed once, before a streak of two
	// workers is long enough.
	streakShare = 0.34
	// tenantPrime is a prime above TenantNumbers.
	tenantPrime = 1031
)

// TenantCounts is one tenant's part of a Report.
type TenantCounts struct {
	// Tenant is its TenantNumber.
	Tenant uint16
	Counts
	// Streak is its failures after its last success.
	Streak uint64
}

// parts returns what each tenant has of a report; a report that names none is that of no tenant.
func (r *Report) parts() []TenantCounts {
	if len(r.Tenants) > 0 {
		return r.Tenants
	}
	return []TenantCounts{{Counts: r.Counts, Streak: r.Streak}}
}

// group is what the tenants of a group counted: the window, in halves, and their failures since any success of theirs.
type group struct {
	window ring
	streak uint64
}

// groupOf returns the place of a tenant in groups. It is another one in another epoch, so that two that share one do not
// for ever.
func (f *Fleet) groupOf(tenant uint16) int {
	factor := f.epoch%(tenantPrime-1) + 1
	return int(uint64(tenant) * factor % tenantPrime % TenantGroups)
}

// half returns the number of the half of a window that a slice belongs to, and how many halves count.
func (c Config) half(index int64) (half int64, kept int) {
	return index / int64((c.Buckets+1)/2), min(2, c.Buckets)
}

func (f *Fleet) countTenants(index int64, r *Report) {
	half, kept := f.config.half(index)
	for _, t := range r.parts() {
		g := &f.groups[f.groupOf(t.Tenant)]
		g.window = g.window.plus(half, kept, t.Counts)
		if t.Successes > 0 {
			g.streak = 0
		}
		g.streak += t.Streak
	}
}

// share returns how far the calls of a group meet a rule, from 0 to 1; false where they say nothing about it. For the third
// rule it is whether the group's last calls failed, as many as are its share of FailureThreshold, or all if they are fewer.
func (c Config) share(rule Cause, own Counts, streak uint64, groups int) (Ratio, bool) {
	if rule == CauseSlowCallRate {
		return own.SlowCallRate(), own.Timed() > 0
	}
	if rule == CauseFailureRate || own.Ended() == 0 {
		return own.FailureRate(), own.Ended() > 0
	}
	if groups == 0 || streak < min(own.Ended(), uint64((c.FailureThreshold+groups-1)/groups)) {
		return 0, true
	}
	return 1, true
}

// least returns what the mean of those shares must reach.
func (c Config) least(rule Cause) Ratio {
	switch rule { //nolint:exhaustive // the others are no rules
	case CauseFailureRate:
		return c.FailureRate * agreement
	case CauseSlowCallRate:
		return c.SlowCallRate * agreement
	}
	return streakShare
}

// shares returns how many groups have called, the mean of how far their calls meet a rule but for the group that does so
// most (of that one, where it is the only one), and that group and how far it does.
func (f *Fleet) shares(index int64, rule Cause) (callers int, others, most Ratio, worst int) {
	half, kept := f.config.half(index)
	for i := range f.groups {
		if _, ok := f.config.share(rule, f.groups[i].window.sum(half, kept), 0, 0); ok {
			callers++
		}
	}
	worst, most = -1, 0
	var sum Ratio
	for i := range f.groups {
		g := &f.groups[i]
		share, ok := f.config.share(rule, g.window.sum(half, kept), g.streak, callers)
		if !ok {
			continue
		}
		sum += share
		if worst < 0 || share > most {
			worst, most = i, share
		}
	}
	if callers > 1 {
		return callers, (sum - most) / Ratio(callers-1), most, worst
	}
	return callers, most, most, worst
}

// tenantsAgree reports whether a rule is met by the tenants without the one that meets it most, each weighing the same, or by the
// only one.
func (f *Fleet) tenantsAgree(index int64, rule Cause) bool {
	callers, others, _, _ := f.shares(index, rule)
	return callers == 0 || others >= f.config.least(rule)
}

// Alone returns those tenants of the last report whose calls meet a rule where the others' do not. If the worker's calls of other tenants do
// not, what it saw is neither the downstream's fault nor its own. nil if the report opened the breaker, was not counted, or has no bad news.
// Whether the worker has seen enough to stop calling is for itself to say: by its own order of outcomes and its own time, not by when it told them.
func (f *Fleet) Alone() []uint16 { return f.aside }

func (f *Fleet) alone(index int64, r *Report) (tenants []uint16) {
	for _, rule := range rules {
		_, others, most, worst := f.shares(index, rule)
		if least := f.config.least(rule); most < least || others >= least {
			continue
		}
		for _, t := range r.parts() {
			if f.groupOf(t.Tenant) == worst {
				tenants = append(tenants, t.Tenant)
			}
		}
		return tenants
	}
	return nil
}

// trial is how the probes of a half-open period ended, by groups: places from 1, 0 for none.
type fleetTrial struct {
	// failer is the group whose probes failed, failed how many did.
	failer int
	failed uint64
	// passers are the first two groups of which one passed.
	passers [2]int
}

// pass notes that a probe of a group passed.
func (t *fleetTrial) pass(group int) {
	switch {
	case t.passers[0] == 0:
		t.passers[0] = group
	case t.passers[0] != group && t.passers[1] == 0:
		t.passers[1] = group
	}
}

// fail notes that probes of a group failed, and reports whether that opens the breaker, and whether only one tenant's did though
// others may have fared better. alone says that one tenant was all that called.
func (t *fleetTrial) fail(group int, failures uint64, alone bool, successThreshold int) (opens, lone bool) {
	if t.failer != 0 && t.failer != group {
		return true, false
	}
	t.failer = group
	t.failed += failures
	passedElsewhere := t.passers[0] != 0 && t.passers[0] != group || t.passers[1] != 0
	most := uint64(2)
	if passedElsewhere {
		most = 2 * uint64(successThreshold)
	}
	return alone || t.failed >= most, !alone
}
