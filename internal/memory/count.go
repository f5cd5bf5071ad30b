package memory

import (
	"cmp"
	"context"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/sorted"
	"github.com/headgate/headgate/store"
)

const (
	// hourMinutes is how many minutes are told, the one under way included; ranks are kept for a little longer after the last count.
	hourMinutes = int64(store.CountedFor/time.Minute) + 1
	ranksKept   = store.CountedFor + 2*time.Minute
)

// counts is what was counted by minute and scope, of the scopes with the most.
type counts struct {
	minutes map[int64]map[admission.Scope]store.Minute
	ranks   map[admission.Scope]float64
	order   *sorted.List[ranked]
	last    int64
}

// ranked is a scope by what was counted of it.
type ranked struct {
	n     float64
	scope admission.Scope
}

func newCounts() counts {
	return counts{
		minutes: map[int64]map[admission.Scope]store.Minute{}, ranks: map[admission.Scope]float64{},
		order: sorted.New(func(a, b ranked) int {
			return cmp.Or(cmp.Compare(a.n, b.n), strings.Compare(string(a.scope), string(b.scope)))
		}),
	}
}

// minuteAt is the minute of a time in microseconds.
func minuteAt(now int64) int64 { return int64(math.Floor(float64(now) / 60e6)) }

// begin returns the counts of the minute under way. As one begins all ranks are halved, so that scopes of long ago do not stay.
func (c *counts) begin(now, over int64) map[admission.Scope]store.Minute {
	minute := minuteAt(now)
	if over-c.last >= ranksKept.Microseconds() && over > c.last {
		clear(c.ranks)
		c.order = newCounts().order
	}
	c.last = now
	of := c.minutes[minute]
	if len(of) > 0 {
		return of
	}
	for at := range c.minutes {
		if at < minute-hourMinutes {
			delete(c.minutes, at)
		}
	}
	for scope, n := range maps.Clone(c.ranks) {
		c.set(scope, n/2)
		if n/2 < 1 {
			c.drop(scope)
		}
	}
	of = map[admission.Scope]store.Minute{}
	c.minutes[minute] = of
	return of
}

func (c *counts) drop(scope admission.Scope) {
	c.order.Remove(ranked{c.ranks[scope], scope})
	delete(c.ranks, scope)
}

func (c *counts) set(scope admission.Scope, n float64) {
	if before, ok := c.ranks[scope]; ok {
		c.order.Remove(ranked{before, scope})
	}
	c.ranks[scope] = n
	c.order.Add(ranked{n, scope})
}

// rank counts n for a scope (the algorithm Space-Saving: a newcomer takes the place, and the rank, of the last), and returns whether it is
// new.
func (c *counts) rank(of map[admission.Scope]store.Minute, scope admission.Scope, n float64) (fresh bool) {
	before, known := c.ranks[scope]
	if last, ok := c.order.First(); ok && !known && len(c.ranks) >= store.TopScopes {
		before = last.n
		c.drop(last.scope)
		delete(of, last.scope)
	}
	c.set(scope, before+n)
	return !known
}

// Count adds to the counts of this minute, as store.Partition.Count.
func (p *Partition) Count(_ context.Context, scopes []store.ScopeCount) (done int, err error) {
	if len(scopes) == 0 {
		return 0, nil
	}
	p.write(func(m *model, now int64) {
		of := m.counts.begin(now, m.over(now))
		for i := range scopes {
			s := &scopes[i]
			fresh := !s.Always && m.counts.rank(of, s.Scope, float64(s.Allowed+s.Refused))
			one, counted := of[s.Scope]
			if !counted {
				one = store.Minute{At: time.Unix(minuteAt(now)*60, 0), Partial: fresh}
			}
			one.Allowed, one.Refused, one.Tokens = one.Allowed+s.Allowed, one.Refused+s.Refused, one.Tokens+s.Tokens
			of[s.Scope] = one
		}
	})
	return len(scopes), nil
}

// Minutes returns what was counted of a scope in the last hour, as store.Partition.Minutes.
func (p *Partition) Minutes(_ context.Context, scope admission.Scope) (all []store.Minute, err error) {
	all = []store.Minute{}
	p.read(func(m *model, now int64) {
		last := minuteAt(now)
		for minute := last - hourMinutes + 1; minute <= last; minute++ {
			if one, ok := m.counts.minutes[minute][scope]; ok {
				all = append(all, one)
			}
		}
	})
	return all, nil
}

// LastHour is LastMinutes of the hour that is kept.
func (p *Partition) LastHour(ctx context.Context, budget time.Duration) ([]store.Recorded, error) {
	return p.LastMinutes(ctx, int(hourMinutes), budget)
}

// LastMinutes returns those of the last minutes in which something was counted, as store.Partition.LastMinutes.
func (p *Partition) LastMinutes(_ context.Context, minutes int, budget time.Duration) (all []store.Recorded, err error) {
	if budget <= 0 {
		return nil, nil
	}
	p.read(func(m *model, now int64) {
		last := minuteAt(now)
		for minute := max(last-int64(minutes), last-hourMinutes) + 1; minute <= last; minute++ {
			if of := m.counts.minutes[minute]; len(of) > 0 {
				at := time.Unix(minute*60, 0)
				lasted := max(min(time.UnixMicro(now).Sub(at), time.Minute), time.Microsecond)
				all = append(all, store.Recorded{At: at, Lasted: lasted, Scopes: maps.Clone(of)})
			}
		}
	})
	return all, nil
}

// CountedScopes returns of how many scopes something was counted in the last full minute.
func (p *Partition) CountedScopes(context.Context) (n int64, err error) {
	p.read(func(m *model, now int64) { n = int64(len(m.counts.minutes[minuteAt(now)-1])) })
	return n, nil
}
