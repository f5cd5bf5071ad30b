package store

// claim is what a partition has and uses of a bound that all partitions divide among them.
type claim struct {
	// units is its share, and used how many of them it uses.
	units, used int
	// wanted says, where it wants more, who does.
	wanted QueueDemand
	// lost means that nothing is known of it: it keeps what it has, which is not in total.
	lost bool
}

// divide returns what each partition is to have of total units, at least so many each. A partition that wants no more gives half
// of what it does not use to those that do, so that after some steps nearly all of a bound is where the load is; these divide
// it by who wants it (Parts), whatever the number of their jobs. Where nobody wants more, shares drift back to even ones, by an
// eighth of the surplus that is not used a step: one that has just been used is likely to be used again.
func divide(total, least int, claims []claim) []int {
	targets := make([]int, len(claims))
	wanted := make([]QueueDemand, len(claims))
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
	parts := Parts(wanted)
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

// Parts returns what each partition is to get of something that all of a queue's runnable jobs share, 1 in all, 0 where nothing
// is runnable anywhere: Σ over classes g/Σg · w/Σw, where g is the weight of a class in the queue's pattern, summed over those that are
// runnable anywhere, and w that of the tenants that are runnable in the partition, summed over all partitions below. The number
// of jobs plays no part: it would reward whoever floods. A partition of which nothing is known has a nil demand.
func Parts(demands []QueueDemand) []float64 {
	var pattern, runnable []float64 // of each class: its weight, and its tenants' over all partitions
	for _, d := range demands {
		for c, class := range d {
			if c == len(pattern) {
				pattern, runnable = append(pattern, float64(class.Weight)), append(runnable, 0)
			}
			runnable[c] += class.Runnable
		}
	}
	all := 0.0
	for c := range pattern {
		if runnable[c] > 0 {
			all += pattern[c]
		}
	}
	parts := make([]float64, len(demands))
	for p, d := range demands {
		for c, class := range d {
			if class.Runnable > 0 {
				parts[p] += pattern[c] / all * class.Runnable / runnable[c]
			}
		}
	}
	return parts
}
