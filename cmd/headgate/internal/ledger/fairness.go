package ledger

import (
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/fairness"
)

// Fairness is how evenly tenants of a class were served that competed.
type Fairness struct {
	fairness.Evenness

	Class admission.Priority
}

// fairness returns the least even of the classes.
func (p *ledgerPage) fairness(classes []admission.Class, weight func(string, admission.Priority) admission.Weight) Fairness {
	worst := Fairness{Evenness: fairness.Evenness{Jain: 1}}
	for _, class := range classes {
		even := fairness.Compare(p.spells(class.Name), func(tenant string) float64 { return float64(weight(tenant, class.Name)) })
		if even.Compared > 0 && (worst.Compared == 0 || even.Jain < worst.Jain) {
			worst = Fairness{Evenness: even, Class: class.Name}
		}
	}
	return worst
}

// spells returns the spells of a class.
func (p *ledgerPage) spells(class admission.Priority) []fairness.Spell {
	var places []int // of the class's dispatches in the whole log
	own := map[string][]int{}
	for i, d := range p.log {
		if r := &p.records[d.job]; r.Class == class {
			own[r.Tenant] = append(own[r.Tenant], len(places))
			places = append(places, i)
		}
	}
	var all []fairness.Spell
	for tenant, at := range own {
		if len(at) >= fairness.Rounds {
			all = append(all, p.cut(tenant, at, places)...)
		}
	}
	return all
}

// cut cuts a tenant's dispatches of a class where it may not have been runnable.
func (p *ledgerPage) cut(tenant string, at, places []int) []fairness.Spell {
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
	var all []fairness.Spell
	current := fairness.NewSpell(tenant)
	for i := range at {
		d := p.log[places[at[i]]]
		current.Add(at[i], float64(p.records[d.job].Cost))
		if earliest[i+1] >= d.token.Millis {
			all = append(all, current)
			current = fairness.NewSpell(tenant)
		}
	}
	return all // The last dispatch ends a spell: nothing comes after it.
}
