package counts

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/sorted"
	"github.com/headgate/headgate/store"
)

const (
	// HourMinutes is how many minutes are told, the one under way included.
	HourMinutes = int64(store.CountedFor/time.Minute) + 1
)

// Counts is what was counted by minute and scope, of the scopes with the most.
type Counts struct {
	// top is how many these are, and kept how many minutes are, that under way included.
	top  int
	kept int64
	// values are those of dimensions, nil for none.
	values  *Counts
	minutes map[int64]map[admission.Scope]store.Minute
	ranks   map[admission.Scope]float64
	order   *sorted.List[ranked]
	last    int64
	watched map[int64]*watched
	hours   map[int64]map[string]*names
}

// watched is what was decided of queues in a minute, and whether a scope made room for another.
type watched struct {
	queues  map[string]store.Decided
	crowded bool
}

// ranked is a scope by what was counted of it.
type ranked struct {
	n     float64
	scope admission.Scope
}

// New returns empty ones.
func New() Counts {
	c := counting(store.TopScopes, HourMinutes)
	values := counting(store.CountedValues, int64(store.NearbyFor/time.Minute))
	c.values = &values
	return c
}

func counting(top int, kept int64) Counts {
	return Counts{
		top: top, kept: kept, minutes: map[int64]map[admission.Scope]store.Minute{}, watched: map[int64]*watched{}, hours: map[int64]map[string]*names{}, ranks: map[admission.Scope]float64{},
		order: sorted.New(func(a, b ranked) int {
			return cmp.Or(cmp.Compare(a.n, b.n), strings.Compare(string(a.scope), string(b.scope)))
		}),
	}
}

// MinuteAt is the minute of a time in microseconds.
func MinuteAt(now int64) int64 { return int64(math.Floor(float64(now) / 60e6)) }

// begin returns the counts of the minute under way. As one begins all ranks are halved, so that scopes of long ago do not stay.
func (c *Counts) begin(now, over int64) map[admission.Scope]store.Minute {
	minute := MinuteAt(now)
	if over-c.last >= (c.kept+1)*time.Minute.Microseconds() && over > c.last { // Ranks are kept a minute longer.
		clear(c.ranks)
		c.order = counting(c.top, c.kept).order
	}
	c.last = now
	of := c.minutes[minute]
	if len(of) > 0 {
		return of
	}
	for at := range c.minutes {
		if at < MinuteAt(over)-c.kept {
			delete(c.minutes, at)
			delete(c.watched, at)
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

func (c *Counts) drop(scope admission.Scope) {
	c.order.Remove(ranked{c.ranks[scope], scope})
	delete(c.ranks, scope)
}

func (c *Counts) set(scope admission.Scope, n float64) {
	if before, ok := c.ranks[scope]; ok {
		c.order.Remove(ranked{before, scope})
	}
	c.ranks[scope] = n
	c.order.Add(ranked{n, scope})
}

// newcomer is a scope without a rank before the call, and its rank.
type newcomer struct {
	*store.ScopeCount

	rank float64
}

// rankNewcomers ranks scopes that have no rank (the algorithm Space-Saving: a newcomer takes the place, and the rank, of the last; of two with one
// rank a newcomer stays), and returns those that have kept their places, and whether a scope made room.
func (c *Counts) rankNewcomers(of map[admission.Scope]store.Minute, scopes []*store.ScopeCount) (line []newcomer, crowded bool) {
	for _, s := range scopes {
		below := 0.0
		if len(c.ranks)+len(line) >= c.top {
			crowded = true
			if last, ok := c.order.First(); ok && (len(line) == 0 || line[0].rank >= last.n) {
				below = last.n
				c.drop(last.scope)
				delete(of, last.scope)
			} else {
				below = line[0].rank
				delete(of, line[0].Scope)
				line = line[1:]
			}
		}
		one := newcomer{s, below + decisions(s)}
		at, _ := slices.BinarySearchFunc(line, one, func(a, b newcomer) int { return cmp.Or(cmp.Compare(a.rank, b.rank), -1) })
		line = slices.Insert(line, at, one)
	}
	for _, one := range line {
		c.set(one.Scope, one.rank)
	}
	return line, crowded
}

// decisions is by what a scope is ranked.
func decisions(s *store.ScopeCount) float64 { return float64(cmp.Or(s.OfLimit, s.Allowed+s.Refused)) }

// Add adds to the counts of the minute under way. over is now, or a time before all by which nothing is forgotten.
func (c *Counts) Add(counted []store.ScopeCount, now, over int64) {
	var scopes, values, queues []*store.ScopeCount
	look := false
	for i := range counted {
		s := &counted[i]
		switch look = look || s.Watched; {
		case s.Queue != "":
			queues = append(queues, s)
		case s.OfLimit > 0:
			values = append(values, s)
		default:
			scopes = append(scopes, s)
		}
	}
	c.addNames(counted, now, over)
	if len(values) > 0 {
		c.values.addScopes(values, now, over)
	}
	crowded := len(scopes) > 0 && c.addScopes(scopes, now, over)
	if look {
		c.watch(MinuteAt(now), queues, crowded)
	}
}

// addScopes adds those of scopes, and returns whether one made room for another.
func (c *Counts) addScopes(counted []*store.ScopeCount, now, over int64) (crowded bool) {
	of := c.begin(now, over)
	var newcomers []*store.ScopeCount
	for _, s := range counted {
		before, ranked := c.ranks[s.Scope]
		switch {
		case s.Always:
			add(of, s, now, false)
		case ranked:
			c.set(s.Scope, before+decisions(s))
			add(of, s, now, false)
		default:
			newcomers = append(newcomers, s)
		}
	}
	line, crowded := c.rankNewcomers(of, newcomers)
	for _, one := range line {
		add(of, one.ScopeCount, now, true)
	}
	return crowded
}

// add adds to the counts of a minute. fresh says that the scope had no rank.
func add(of map[admission.Scope]store.Minute, s *store.ScopeCount, now int64, fresh bool) {
	one, known := of[s.Scope]
	if !known {
		one = store.Minute{At: time.Unix(MinuteAt(now)*60, 0), Partial: fresh}
	}
	one.Allowed, one.Refused, one.Tokens = one.Allowed+s.Allowed, one.Refused+s.Refused, one.Tokens+s.Tokens
	of[s.Scope] = one
}

// watch adds those of queues.
func (c *Counts) watch(minute int64, queues []*store.ScopeCount, crowded bool) {
	w := c.watched[minute]
	if w == nil {
		w = &watched{queues: map[string]store.Decided{}}
		c.watched[minute] = w
	}
	w.crowded = w.crowded || crowded
	for _, q := range queues {
		one, known := w.queues[q.Queue]
		if !known && len(w.queues) >= store.MaxWatchedQueues {
			continue
		}
		one.Allowed, one.Refused = one.Allowed+q.Allowed, one.Refused+q.Refused
		w.queues[q.Queue] = one
	}
}

// Rates returns what was decided in a minute.
func (c *Counts) Rates(minute int64) store.Rates {
	r := store.Rates{Tenants: map[string]store.Decided{}, Queues: map[string]store.Decided{}, Scopes: map[admission.Scope]store.Minute{}}
	for scope, one := range c.minutes[minute] {
		r.Scopes[scope] = one
		decided := store.Decided{Allowed: one.Allowed, Refused: one.Refused, Partial: one.Partial}
		switch {
		case scope == admission.Global:
			r.All = decided
		case scope.Level() == admission.LevelTenant:
			r.Tenants[string(scope)] = decided
		}
	}
	if w := c.watched[minute]; w != nil {
		r.Crowded, r.Watched = w.crowded, true
		maps.Copy(r.Queues, w.queues)
	}
	return r
}

// Values returns what was counted of values of dimensions in a minute. It is not to be changed.
func (c *Counts) Values(minute int64) map[admission.Scope]store.Minute {
	return c.values.minutes[minute]
}

// Minute returns what was counted in a minute. It is not to be changed.
func (c *Counts) Minute(minute int64) map[admission.Scope]store.Minute { return c.minutes[minute] }
