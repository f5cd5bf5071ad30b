package redisstore

import "github.com/headgate/headgate/store"

// claim is what a partition has and uses of a bound that all partitions divide among them.
type claim struct {
	// units is its share, and used how many of them it uses.
	units, used int
	// wanted says, where it wants more, who does.
	wanted store.QueueDemand
	// lost means that nothing is known of it: it keeps what it has, which is not in total.
	lost bool
}

// divide returns what each partition is to have of total units, at least so many each. A partition that wants no more gives half
// of what it does not use to those that do, so that after some steps nearly all of a bound is where the load is; these divide
// it by who wants it (Parts), whatever the number of their jobs. Where nobody wants more, shares drift back to even ones, by an
// eighth of the surplus that is not used a step: one that has just been used is likely to be used again.
func divide(total, least int, claims []claim) []int {
	targets := make([]int, len(claims))
	wanted := make([]store.QueueDemand, len(claims))
	hungry, known, left := 0, 0, total
	for p, c := range claims {
		switch {
		case c.lost:
			continue
		case c.wanted != nil:
			wanted[p] = c.wanted
			hungry++
		default:
			idle := max(0, c.units-c.used)
			targets[p] = max(least, c.units-(idle+1)/2)
			left -= targets[p]
		}
		known++
	}
	if hungry == 0 {
		return drift(total/max(1, known), claims)
	}
	spare := max(0, left-hungry*least)
	rest := spare
	parts := store.Parts(wanted)
	for p := range claims {
		if wanted[p] != nil {
			more := int(float64(spare) * parts[p])
			targets[p], rest = least+more, rest-more
		}
	}
	for p := 0; p < len(claims) && rest > 0; p++ {
		if wanted[p] != nil {
			targets[p]++
			rest--
		}
	}
	return targets
}

// drift returns shares that are a step nearer to even ones.
func drift(even int, claims []claim) []int {
	targets := make([]int, len(claims))
	for p, c := range claims {
		if surplus := c.units - max(even, c.used); surplus > 0 {
			targets[p] = c.units - (surplus+7)/8
		} else {
			targets[p] = max(even, c.units)
		}
	}
	return targets
}
