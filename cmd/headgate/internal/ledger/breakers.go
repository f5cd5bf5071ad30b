package ledger

import (
	"cmp"
	"slices"
)

// Breaker is the story of one downstream's breaker.
type Breaker struct {
	Downstream string
	// Opened is how often it opened, HeldBack how many jobs waited for it.
	Opened, HeldBack int
	// Burnt is the attempts that its jobs lost, Probes the failed runs that cost none.
	Burnt, Probes int
	Periods       []Period
}

// breakers returns the breakers that opened, those that held most back first.
func (p *ledgerPage) breakers() []Breaker {
	found := map[string]*Breaker{}
	for downstream, periods := range p.periods {
		b := &Breaker{Downstream: downstream, Periods: periods}
		for _, period := range periods {
			b.Opened += period.Times
		}
		found[downstream] = b
	}
	for i := range p.records {
		r := &p.records[i]
		b := found[r.Downstream]
		if b == nil || !r.admitted() {
			continue
		}
		b.Burnt += r.burnt
		b.Probes += r.failures - r.burnt
		for _, period := range b.Periods {
			if period.holds(r) {
				b.HeldBack++
				break
			}
		}
	}
	all := make([]Breaker, 0, len(found))
	for _, b := range found {
		all = append(all, *b)
	}
	slices.SortFunc(all, func(a, b Breaker) int {
		return cmp.Or(cmp.Compare(b.HeldBack, a.HeldBack), cmp.Compare(a.Downstream, b.Downstream))
	})
	return all
}

// holds reports whether the job had been asked for and had not started while the breaker was open.
func (p Period) holds(r *record) bool {
	if !p.Closed.IsZero() && r.asked.After(p.Closed) {
		return false
	}
	return !r.hasStarted() || r.started.After(p.Opened)
}
