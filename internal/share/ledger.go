package share

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/store"
)

// Parts returns what each partition is to get of the pool's slots, 1 in all, or all 0 if nothing waits anywhere. A partition
// of which nothing is known has a nil demand.
func Parts(pool store.Pool, demands []*store.Demand) []float64 {
	parts := make([]float64, len(demands))
	queues := make([]float64, len(pool.Queues)) // weights of those that are runnable anywhere
	all := 0.0
	for q := range pool.Queues {
		if (pool.Strict && all > 0) || !waitsAnywhere(demands, q) {
			continue
		}
		queues[q] = float64(cmp.Or(pool.Queues[q].Weight, 1))
		all += queues[q]
	}
	for q, weight := range queues {
		if weight > 0 {
			addQueue(parts, demands, q, weight/all)
		}
	}
	return parts
}

// waitsAnywhere reports whether anything is runnable in a queue.
func waitsAnywhere(demands []*store.Demand, queue int) bool {
	return slices.ContainsFunc(demands, func(d *store.Demand) bool {
		return d != nil && slices.ContainsFunc(d.Queues[queue], func(c store.ClassDemand) bool { return c.Runnable > 0 })
	})
}

// addQueue shares a queue's part out.
func addQueue(parts []float64, demands []*store.Demand, queue int, part float64) {
	of := make([]store.QueueDemand, len(demands))
	for p, d := range demands {
		if d != nil {
			of[p] = d.Queues[queue]
		}
	}
	for p, own := range store.Parts(of) {
		parts[p] += part * own
	}
}

// Place is a partition as the sharing of slots sees it.
type Place struct {
	// Part is what it is to get of the slots; 0 means that nothing waits there.
	Part float64
	// Used is how many slots it has or uses, the larger number. Lost means that nothing is known of it: it keeps them.
	Used int
	Lost bool
	// Taken is how many jobs run.
	Taken int
}

// Ledger shares out the slots of one worker. What does not come out whole is owed to the next time, so that over time each
// partition gets its part to within a slot, and one that is due less than a slot has one now and then.
type Ledger struct {
	// owed is what each partition is still to get; exact and given are what the last time should have given and gave.
	owed, exact []float64
	given       []int
}

// spareAbove is the number of slots a partition from which on partitions in which nothing waits keep one free, so that a job
// that comes there need not wait until slots are shared out again.
const spareAbove = 4

// Next returns how many slots each partition is to have, all slots in sum unless partitions that are lost have more. What a
// partition uses above that goes to others as its jobs end.
func (s *Ledger) Next(slots int, places []Place) []int {
	s.settle(slots, places)
	targets, free, due := make([]int, len(places)), slots, 0.0
	for p, at := range places {
		switch {
		case at.Lost:
			targets[p] = at.Used
		case at.Part == 0:
			targets[p] = at.Taken
			if slots >= spareAbove*len(places) {
				targets[p]++
			}
		}
		if at.Lost || at.Part == 0 {
			s.owed[p] = 0
			free -= targets[p]
			continue
		}
		due += at.Part
	}
	free = max(free, 0)
	if due == 0 {
		spreadEvenly(targets, free, places)
		return targets
	}
	s.divide(targets, free, due, places)
	return targets
}

// settle takes what was given at the last time into what is owed. Jobs that run on in a partition beyond its slots count as
// given, but one that has held its slots for long is not kept from them for as long.
func (s *Ledger) settle(slots int, places []Place) {
	if s.owed == nil {
		s.owed, s.exact, s.given = make([]float64, len(places)), make([]float64, len(places)), make([]int, len(places))
	}
	most := float64(slots)
	for p := range places {
		got := float64(max(s.given[p], places[p].Taken))
		if s.exact[p] > 0 {
			s.owed[p] = max(-most, min(most, s.owed[p]+s.exact[p]-got))
		}
		s.exact[p], s.given[p] = 0, 0
	}
}

// divide gives free slots to those partitions in which something waits.
func (s *Ledger) divide(targets []int, free int, due float64, places []Place) {
	wanted := make([]float64, len(places))
	var order []int
	left := free
	for p, at := range places {
		if at.Lost || at.Part == 0 {
			continue
		}
		s.exact[p] = float64(free) * at.Part / due
		wanted[p] = max(0, s.exact[p]+s.owed[p])
		targets[p] = min(int(wanted[p]), left)
		left -= targets[p]
		order = append(order, p)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(wanted[b]-float64(targets[b]), wanted[a]-float64(targets[a]))
	})
	for i := 0; left > 0; i, left = i+1, left-1 {
		targets[order[i%len(order)]]++
	}
	copy(s.given, targets)
}

// spreadEvenly gives slots that nobody waits for to those that have the fewest.
func spreadEvenly(targets []int, free int, places []Place) {
	for ; free > 0; free-- {
		least := -1
		for p := range targets {
			if !places[p].Lost && (least < 0 || targets[p] < targets[least]) {
				least = p
			}
		}
		if least < 0 {
			return
		}
		targets[least]++
	}
}
