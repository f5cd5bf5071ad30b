package ledger

import (
	"slices"

	"github.com/headgate/headgate"
)

// Rounds is how often each compared tenant must be dispatched in a span.
const Rounds = 20

// Fairness is how evenly tenants were served that competed.
type Fairness struct {
	// Jain is the index, 1 for perfectly even.
	Jain float64
	// Compared is the number of tenants compared, Class their class, Dispatches the length of the span.
	Compared   int
	Class      headgate.Priority
	Dispatches int
}

// spell is a time in which a tenant was runnable in a class without a break: its dispatches, by their places in the
// class's log, and their costs.
type spell struct {
	tenant string
	at     []int
	cost   []float64 // cost[i] is the sum of the costs of at[:i]
}

func (s *spell) start() int { return s.at[0] }
func (s *spell) end() int   { return s.at[len(s.at)-1] }

// within returns how often the tenant was dispatched from place a to place b, and the cost of that.
func (s *spell) within(a, b int) (rounds int, cost float64) {
	from, _ := slices.BinarySearch(s.at, a)
	to, _ := slices.BinarySearch(s.at, b+1)
	return to - from, s.cost[to] - s.cost[from]
}

// maxSpells bounds the search for a span, which takes the cube of it.
const maxSpells = 200

// fairness returns the least even of the classes.
func (p *ledgerPage) fairness(classes []headgate.Class, weight func(string, headgate.Priority) headgate.Weight) Fairness {
	worst := Fairness{Jain: 1}
	for _, class := range classes {
		f := compare(p.spells(class.Name), func(tenant string) float64 { return float64(weight(tenant, class.Name)) })
		f.Class = class.Name
		if f.Compared > 0 && (worst.Compared == 0 || f.Jain < worst.Jain) {
			worst = f
		}
	}
	return worst
}

// spells returns the spells of a class that are long enough to be compared, the longest first.
func (p *ledgerPage) spells(class headgate.Priority) []spell {
	var places []int // of the class's dispatches in the whole log
	own := map[string][]int{}
	for i, d := range p.log {
		if r := &p.records[d.job]; r.Class == class {
			own[r.Tenant] = append(own[r.Tenant], len(places))
			places = append(places, i)
		}
	}
	var all []spell
	for tenant, at := range own {
		if len(at) >= Rounds {
			all = append(all, p.cut(tenant, at, places)...)
		}
	}
	slices.SortFunc(all, func(a, b spell) int {
		if len(a.at) != len(b.at) {
			return len(b.at) - len(a.at)
		}
		return a.start() - b.start()
	})
	return all[:min(len(all), maxSpells)]
}

// cut cuts a tenant's dispatches of a class where it may not have been runnable.
func (p *ledgerPage) cut(tenant string, at, places []int) []spell {
	// earliest[i] is the earliest known admission among the jobs first dispatched at at[i] or later.
	earliest := make([]int64, len(at)+1)
	earliest[len(at)] = 1 << 62
	for i := len(at) - 1; i >= 0; i-- {
		earliest[i] = earliest[i+1]
		place := places[at[i]]
		if r := &p.records[p.log[place].job]; r.first == place && !p.suspect(r) {
			earliest[i] = min(earliest[i], r.arrival)
		}
	}
	var all []spell
	current := spell{tenant: tenant, cost: []float64{0}}
	for i := range at {
		d := p.log[places[at[i]]]
		current.at = append(current.at, at[i])
		current.cost = append(current.cost, current.cost[len(current.cost)-1]+float64(p.records[d.job].Cost))
		if earliest[i+1] >= d.token.Millis {
			all = keep(all, current)
			current = spell{tenant: tenant, cost: []float64{0}}
		}
	}
	return keep(all, current)
}

func keep(all []spell, s spell) []spell {
	if len(s.at) < Rounds {
		return all
	}
	return append(all, s)
}

// compare finds the span with the most tenants, then the most dispatches, and returns Jain's index there.
func compare(spells []spell, weight func(string) float64) Fairness {
	best := Fairness{Jain: 1}
	for i := range spells {
		for j := range spells {
			a, b := spells[i].start(), spells[j].end()
			if b-a < 2*Rounds-1 {
				continue
			}
			var shares []float64
			for k := range spells {
				if s := &spells[k]; s.start() <= a && s.end() >= b {
					if rounds, cost := s.within(a, b); rounds >= Rounds {
						shares = append(shares, cost/weight(s.tenant))
					}
				}
			}
			n := len(shares)
			if n >= 2 && (n > best.Compared || n == best.Compared && b-a+1 > best.Dispatches) {
				best = Fairness{Jain: jain(shares), Compared: n, Dispatches: b - a + 1}
			}
		}
	}
	return best
}

// jain returns (Σx)² / (n·Σx²).
func jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}
