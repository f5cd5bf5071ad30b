package fairness

import "slices"

// Rounds is how often each compared tenant must be dispatched in a span.
const Rounds = 20

// Evenness is how evenly tenants were served that competed.
type Evenness struct {
	// Jain is the index, 1 for perfectly even and where nobody is compared.
	Jain float64
	// Compared is the number of tenants compared, Dispatches the length of the span.
	Compared, Dispatches int
}

// Spell is a time in which a tenant was runnable in a class without a break: its dispatches, by their places in the
// class's log, and their costs. NewSpell makes an empty one.
type Spell struct {
	tenant string
	at     []int
	cost   []float64 // cost[i] is the sum of the costs of at[:i]
}

// NewSpell returns a spell of a tenant without a dispatch.
func NewSpell(tenant string) Spell { return Spell{tenant: tenant, cost: []float64{0}} }

// Add adds a dispatch. Places must grow.
func (s *Spell) Add(place int, cost float64) {
	s.at = append(s.at, place)
	s.cost = append(s.cost, s.cost[len(s.cost)-1]+cost)
}

// Len returns the number of dispatches.
func (s *Spell) Len() int { return len(s.at) }

func (s *Spell) start() int { return s.at[0] }
func (s *Spell) end() int   { return s.at[len(s.at)-1] }

// within returns how often the tenant was dispatched from place a to place b, and the cost of that.
func (s *Spell) within(a, b int) (rounds int, cost float64) {
	from, _ := slices.BinarySearch(s.at, a)
	to, _ := slices.BinarySearch(s.at, b+1)
	return to - from, s.cost[to] - s.cost[from]
}

// maxSpells bounds the search for a span, which takes the cube of it.
const maxSpells = 200

// Compare finds the span with the most tenants, then the most dispatches, among the longest spells, and returns the
// evenness there. Spells below Rounds do not count.
func Compare(spells []Spell, weight func(tenant string) float64) Evenness {
	spells = longest(spells)
	best := Evenness{Jain: 1}
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
				best = Evenness{Jain: Jain(shares), Compared: n, Dispatches: b - a + 1}
			}
		}
	}
	return best
}

// longest returns the spells that count, the longest first.
func longest(spells []Spell) []Spell {
	var all []Spell
	for i := range spells {
		if spells[i].Len() >= Rounds {
			all = append(all, spells[i])
		}
	}
	slices.SortFunc(all, func(a, b Spell) int {
		if len(a.at) != len(b.at) {
			return len(b.at) - len(a.at)
		}
		return a.start() - b.start()
	})
	return all[:min(len(all), maxSpells)]
}

// Jain returns (Σx)² / (n·Σx²), 1 of nothing.
func Jain(shares []float64) float64 {
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
