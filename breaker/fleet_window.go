package breaker

import (
	"iter"
	"slices"
	"time"
)

// ring is a sparse window of slices, the oldest first. Slices are numbered from the origin of the clock.
type ring []part

// part is what one slice counted.
type part struct {
	index int64
	Counts
}

// slice returns the number of the slice in force.
func (c Config) slice(now Instant) int64 {
	length := c.Window.Microseconds() / int64(c.Buckets)
	return now.Sub(0).Microseconds() / length
}

// plus returns the ring with more counted in the slice with a number, without those that have left a window of so many.
func (r ring) plus(index int64, buckets int, c Counts) ring {
	for len(r) > 0 && r[0].index <= index-int64(buckets) {
		r = r[1:]
	}
	if n := len(r); n == 0 || r[n-1].index != index {
		r = append(r, part{index: index})
	}
	last := &r[len(r)-1]
	last.Counts = last.Plus(c)
	return r
}

// sum adds up what counts while a slice is in force.
func (r ring) sum(index int64, buckets int) Counts {
	var all Counts
	for _, p := range r {
		if p.index > index-int64(buckets) {
			all = all.Plus(p.Counts)
		}
	}
	return all
}

// reporter is one worker that reports.
type reporter struct {
	sequence uint64
	at       Instant
	// epoch is that of the window, and of streak, the failures since the worker's last success.
	epoch  uint64
	window ring
	streak uint64
}

// reporter returns what is known of a worker. Now and then one that is new makes those go that were not heard of for long.
func (f *Fleet) reporter(now Instant, name string) *reporter {
	if w := f.workers[name]; w != nil {
		return w
	}
	if n := len(f.workers); n > 0 && n%purgeEvery == 0 {
		for other, w := range f.workers {
			if now.Sub(w.at) > max(f.config.Window, keepReporter) {
				delete(f.workers, other)
			}
		}
	}
	w := &reporter{}
	f.workers[name] = w
	return w
}

// caller is a worker that called the downstream in the window.
type caller struct {
	name   string
	own    Counts
	streak uint64
}

// callers are those workers, in no order.
func (f *Fleet) callers(index int64) iter.Seq[caller] {
	return func(yield func(caller) bool) {
		for name, w := range f.workers {
			if w.epoch != f.epoch {
				continue
			}
			own := w.window.sum(index, f.config.Buckets)
			if (own.Ended() > 0 || own.Slow > 0) && !yield(caller{name, own, w.streak}) {
				return
			}
		}
	}
}

// votesFor reports whether a worker's own calls meet one of the rules, however few they are.
func (f *Fleet) votesFor(w caller, rules ...Cause) bool {
	return slices.ContainsFunc(rules, func(rule Cause) bool { return f.config.votes(rule, w.own, w.streak) })
}

// votes counts the workers that called the downstream in the window, and those of them whose own calls meet one of the
// rules.
func (f *Fleet) votes(index int64, rules ...Cause) (callers, voters int) {
	for w := range f.callers(index) {
		callers++
		if f.votesFor(w, rules...) {
			voters++
		}
	}
	return callers, voters
}

// CallersAt returns the workers that FleetSnapshot.Callers and Voters count, by name.
func (f *Fleet) CallersAt(now Instant) (callers, voters []string) {
	for w := range f.callers(f.shownIndex(now)) {
		callers = append(callers, w.name)
		if f.votesFor(w, rules[:]...) {
			voters = append(voters, w.name)
		}
	}
	slices.Sort(callers)
	slices.Sort(voters)
	return callers, voters
}

// shownIndex is the slice in force, or if the breaker is not closed the last one of its window.
func (f *Fleet) shownIndex(now Instant) int64 {
	if f.state != Closed && len(f.window) > 0 {
		return f.lastIndex()
	}
	return f.config.slice(now)
}

// votes reports whether a worker's own calls meet a rule: its rate, or so many failures in a row as the threshold, or
// as there were calls.
func (c Config) votes(rule Cause, own Counts, streak uint64) bool {
	switch rule { //nolint:exhaustive // the others are no rules
	case CauseFailureStreak:
		return own.Ended() > 0 && streak >= min(own.Ended(), uint64(c.FailureThreshold))
	case CauseFailureRate:
		return own.FailureRate() >= c.FailureRate
	case CauseSlowCallRate:
		return own.SlowCallRate() >= c.SlowCallRate
	}
	return false
}

// restart empties all windows.
func (f *Fleet) restart() {
	f.window, f.streak, f.doubt = nil, 0, 0
	f.groups = [TenantGroups]group{}
	f.epoch++
}

// sameRules reports whether two configs, defaults filled in, say the same. What a slow call is, each worker says for its own.
func (c Config) sameRules(d Config) bool {
	return c.Window == d.Window && c.Buckets == d.Buckets && c.MinCalls == d.MinCalls && c.FailureRate == d.FailureRate &&
		c.FailureThreshold == d.FailureThreshold && c.SlowCallRate == d.SlowCallRate &&
		c.SuccessThreshold == d.SuccessThreshold && c.MaxProbes == d.MaxProbes && c.ProbeTimeout == d.ProbeTimeout &&
		c.OpenBase == d.OpenBase && c.OpenMax == d.OpenMax && c.ResetAfter == d.ResetAfter
}

// fleetCooldown is cooldown in whole microseconds.
func (c Config) fleetCooldown(earlier uint64, jitter float64) time.Duration {
	full := c.fullCooldown(earlier).Microseconds()
	half := full / 2
	return time.Duration(half+int64(min(max(jitter, 0), 1)*float64(full-half))) * time.Microsecond
}
