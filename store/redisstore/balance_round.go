package redisstore

import (
	"slices"

	"github.com/headgate/headgate/store/redisstore/internal/gates"
)

// round is a step of a Balancer: what it knows of some bounds.
type round struct {
	bounds []string
	// at is what each partition has of each bound; nil for a partition that was not seen.
	at [][]gates.Portion
}

// move is what is to become of a bound.
type move struct {
	bound int
	// targets are the units that each partition is to have. nil makes each share even to the last fraction, which changes what is in force
	// nowhere.
	targets []int
	// whole is how many units there are, before how many were in shares, and in force, of the partitions that were seen. complete
	// says that these are all.
	whole, shares, inForce int
	complete               bool
}

// see notes what a partition has of a bound.
func (r *round) see(p, bound int, seen gates.Portion) {
	if r.at[p] == nil {
		r.at[p] = make([]gates.Portion, len(r.bounds))
	}
	r.at[p][bound] = seen
}

func (r *round) indexOf(bound string) int { return slices.Index(r.bounds, bound) }

// plan decides what is to become of each bound. One of which partitions say different things, as while a new policy spreads, is left
// as it is.
func (r *round) plan() []move {
	var moves []move
	for i, name := range r.bounds {
		m := move{bound: i, complete: true}
		claims := make([]claim, len(r.at))
		same, gone, seen := true, true, false
		for p := range r.at {
			if r.at[p] == nil {
				claims[p].lost, m.complete = true, false
				continue
			}
			part := &r.at[p][i]
			gone = gone && part.Whole == 0
			same = same && part.Known && (!seen || part.Whole == m.whole)
			m.whole, seen = part.Whole, true
			if part.Known {
				claims[p] = claim{units: part.Have(), used: part.Used, wanted: part.Wanted}
				m.shares += part.Have()
				m.inForce += part.InForce(gates.OfRate(name))
			}
		}
		switch {
		case gone && m.complete:
			moves = append(moves, m)
		case same && !gone:
			moves = append(moves, r.divide(m, claims))
		}
	}
	return moves
}

// divide completes a move of a bound that there is.
func (r *round) divide(m move, claims []claim) move {
	total, even := m.shares, m.whole/len(claims)
	if m.complete {
		total = m.whole
	}
	least := max(1, even/leastPart)
	m.targets = divide(total, least, claims)
	if m.complete && isEven(even, claims) && !r.isShort(m) {
		m.targets = nil
	}
	return m
}

// isShort reports whether less of a cap is in force somewhere than its share, as after an edit that raised it.
func (r *round) isShort(m move) bool {
	return !gates.OfRate(r.bounds[m.bound]) && slices.ContainsFunc(r.at, func(of []gates.Portion) bool {
		return of != nil && of[m.bound].Known && of[m.bound].Limit < of[m.bound].Have()
	})
}

// leastPart is which part of its even share a partition keeps that uses nothing, so that a first job finds some, at least one
// unit of a cap.
const leastPart = 50

// isEven reports whether all have the even share and nobody wants or uses more.
func isEven(even int, claims []claim) bool {
	return !slices.ContainsFunc(claims, func(c claim) bool { return c.wanted != nil || c.units != even || c.used > even })
}

// lower returns the settings of those that are to have less, and of those that have a fraction that is not whole units.
func (r *round) lower(moves []move) [][]gates.Setting {
	settings := make([][]gates.Setting, len(r.at))
	for _, m := range moves {
		for p := range r.at {
			part := r.of(p, m)
			if part == nil {
				continue
			}
			if m.targets == nil {
				if part.Units*len(r.at) > part.Of {
					settings[p] = append(settings[p], gates.Setting{Bound: r.bounds[m.bound], Units: 1, Of: len(r.at)})
				}
				continue
			}
			have := part.Have()
			units := min(have, m.targets[p])
			if !gates.OfRate(r.bounds[m.bound]) {
				units = min(units, part.Limit) // What an edit has added comes into force with the raise.
			}
			if units < have || part.Of != part.Whole {
				settings[p] = append(settings[p], gates.Setting{Bound: r.bounds[m.bound], Units: units, Of: m.whole})
			}
		}
	}
	return settings
}

// raise returns the settings of those that are to have more, after all that lower returned are in force.
func (r *round) raise(moves []move) [][]gates.Setting {
	settings := make([][]gates.Setting, len(r.at))
	for _, m := range moves {
		shares, inForce := m.free(r)
		for p := range r.at {
			part := r.of(p, m)
			if part == nil {
				continue
			}
			if m.targets == nil {
				if part.Units*len(r.at) < part.Of {
					settings[p] = append(settings[p], gates.Setting{Bound: r.bounds[m.bound], Units: 1, Of: len(r.at)})
				}
				continue
			}
			in := part.InForce(gates.OfRate(r.bounds[m.bound]))
			most := min(m.targets[p], part.Units+shares, in+inForce)
			if inForce < 0 || most <= part.Units {
				continue
			}
			shares -= most - part.Units
			inForce -= max(0, most-in)
			settings[p] = append(settings[p], gates.Setting{Bound: r.bounds[m.bound], Units: most, Of: m.whole})
		}
	}
	return settings
}

// free returns how many units shares may get, and how many more may be in force: of all, or of what those had that were seen.
func (m *move) free(r *round) (shares, inForce int) {
	shares, inForce = m.shares, m.inForce
	if m.complete {
		shares, inForce = m.whole, m.whole
	}
	for p := range r.at {
		if part := r.of(p, *m); part != nil {
			shares -= part.Units
			inForce -= part.InForce(gates.OfRate(r.bounds[m.bound]))
		}
	}
	return shares, inForce
}

// of returns what a partition has of a bound that is moved; nil where that is not known.
func (r *round) of(p int, m move) *gates.Portion {
	if r.at[p] == nil || !r.at[p][m.bound].Known {
		return nil
	}
	return &r.at[p][m.bound]
}
