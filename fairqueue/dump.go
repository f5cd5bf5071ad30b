package fairqueue

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Dump returns the Lines, sorted: what a failing test prints.
func (r *Room) Dump() string {
	return strings.Join(slices.Sorted(slices.Values(r.Lines())), "\n")
}

// Lines returns everything that decides the order, a line a thing, in no order: what the conformance tests compare
// with Redis.
func (r *Room) Lines() []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, q := range r.queues {
		if !q.used {
			continue
		}
		add("queue %s turn %d left %d", q.name, q.pattern.current, q.pattern.left)
		for _, c := range q.classes {
			c.dump(add)
		}
	}
	for name, g := range r.Gates {
		switch {
		case g.Kept != nil:
			add("gate %s held %d", name, g.Held)
		case g.Default:
			limit, _ := r.LimitOf(name)
			add("gate %s limit %d held %d", name, limit, g.Held)
		case g.Rate == nil:
			add("gate %s limit %d held %d", name, g.Limit, g.Held)
		default:
			add("gate %s rate %v", name, g.Rate)
		}
	}
	for name, limit := range r.Defaults {
		add("gate %s limit %d held 0", name, limit)
	}
	for gate, line := range r.wakes {
		add("wake %s from %s", gate, line)
	}
	for gate, parked := range r.parked {
		for line, waiting := range parked {
			for member, tag := range waiting.tags {
				add("parked %s line %s %s tag %.17g", gate, line, member, float64(tag))
			}
		}
	}
	for id, p := range r.Pools {
		add("pool %s slots %d turn %d left %d ready %d", id, p.Slots, p.pattern.current, p.pattern.left, len(p.Ready))
		for downstream, n := range p.held {
			add("hold %s:%s %d", id, downstream, n)
		}
		for i, e := range p.Ready {
			add("ready %s %03d %s", id, i, e.Job.Key())
			if e.Period != 0 {
				add("mark %s period %d", e.Job.Key(), e.Period)
			}
		}
	}
	add("seq %d", r.seq)
	for name, at := range r.Timers {
		add("timer %s at %d", name, at)
	}
	for downstream, n := range r.WaitingFor() {
		add("waiting for %s: %d", downstream, n)
	}
	return lines
}

// WaitingFor counts the jobs in lanes by service.
func (r *Room) WaitingFor() map[string]int { return maps.Clone(r.waits) }

// WaitingOn counts the jobs in lanes for one service.
func (r *Room) WaitingOn(service string) int { return r.waits[service] }

// AccountsWaiting yields the accounts at whose own gates somebody waits, in no order.
func (r *Room) AccountsWaiting() iter.Seq[string] {
	return func(yield func(string) bool) {
		for gate := range r.parked {
			kind, account := gate[:1], gate[2:]
			if kind != "s" && kind != "d" || !strings.Contains(account, accountSign) || kind == "d" && r.parked["s:"+account] != nil {
				continue
			}
			if !yield(account) {
				return
			}
		}
	}
}

func (c *class) dump(add func(string, ...any)) {
	for _, t := range c.tenants {
		if t.mode == runnable {
			add("class %s tenant %s runnable tag %.17g entry %d", c.line(), t.name, float64(t.tag), t.entry)
		} else {
			add("class %s tenant %s mode %c", c.line(), t.name, t.mode)
		}
		for _, name := range slices.Sorted(maps.Keys(t.lanes)) {
			l := t.lanes[name]
			var jobs []string
			for j := range l.jobs.All() {
				jobs = append(jobs, fmt.Sprintf("%s@%d#%d$%d", j.ID, j.Score, j.Seq, j.Cost))
			}
			add("class %s tenant %s lane %s blocked %t: %s", c.line(), t.name, name, l.blocked, strings.Join(jobs, " "))
		}
	}
	for name, tag := range c.idle {
		if tag > c.v {
			add("class %s tenant %s keeps tag %.17g", c.line(), name, float64(tag))
		}
	}
	for downstream, n := range c.alone {
		add("class %s runs %d of %s alone", c.line(), n, downstream)
	}
	if c.v != 0 || c.waiting != 0 {
		add("class %s V %.17g waiting %d", c.line(), float64(c.v), c.waiting)
	}
}

// Runnable returns the runnable tenants of each class, named with the order of their entering, so that one which left
// and came back has another name.
func (r *Room) Runnable() map[string][]string {
	all := map[string][]string{}
	for _, q := range r.queues {
		for _, c := range q.classes {
			for _, t := range c.tenants {
				if t.mode == runnable {
					all[c.line()] = append(all[c.line()], fmt.Sprintf("%s#%d", t.name, t.entry))
				}
			}
			slices.Sort(all[c.line()])
		}
	}
	return all
}

// Share returns a job's cost over its tenant's weight, 0 of a class that is gone.
func (r *Room) Share(j *Job) float64 {
	names := r.queue(j.Queue).names
	if j.Class >= len(names) {
		return 0
	}
	return float64(j.Cost) / float64(r.Weight(names[j.Class], j.Tenant))
}
