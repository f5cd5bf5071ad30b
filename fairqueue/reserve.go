package fairqueue

import "slices"

// Kept are slots of a queue that only some of its classes may take. Its gate, o:QUEUE, counts the jobs of the others.
type Kept struct {
	// Slots is how many, Percent how many percent of all, rounded up; one of them is zero.
	Slots, Percent int
	// Classes are the places of those who may take them.
	Classes []int
	// Lends lets others take them while nobody of Classes is runnable.
	Lends bool
}

// Left returns how many of a queue's slots are left to the other classes: one at least.
func (k *Kept) Left(slots int) int {
	return max(1, slots-k.Slots-(slots*k.Percent+99)/100)
}

// Has reports whether a class may take them.
func (k *Kept) Has(class int) bool { return slices.Contains(k.Classes, class) }

// reserveOf returns the gate that a job of a class counts against; nil for none.
func (r *Room) reserveOf(queue string, class int) *Gate {
	if !r.gatesAny() {
		return nil
	}
	g := r.Gates[ReserveGate(queue)]
	if g == nil || g.Kept.Has(class) {
		return nil
	}
	return g
}

// ReserveGate names the gate of the slots of a queue that only some classes may take.
func ReserveGate(queue string) string { return "o:" + queue }

// reserveShut reports whether a class may take no slot because the others are kept. Of the slots of all pools that serve the queue, its own cap
// lets it have so many.
func (r *Room) reserveShut(q *queue, class int) bool {
	g := r.reserveOf(q.name, class)
	if g == nil {
		return false
	}
	all := 0
	for _, p := range r.Pools {
		if slices.Contains(p.Queues, q.name) {
			all += p.Slots
		}
	}
	if own := r.Gates["q:"+q.name]; own != nil && own.Limit > 0 {
		all = min(all, own.Limit)
	}
	if g.Held < g.Kept.Left(all) {
		return false
	}
	if !g.Kept.Lends {
		return true
	}
	for _, one := range g.Kept.Classes {
		if one < len(q.classes) && q.classes[one].least() != nil {
			return true
		}
	}
	return false
}

// canRun reports whether a class of a queue has somebody to run, and a slot for him.
func (r *Room) canRun(q *queue, class int) bool {
	return q.classes[class].least() != nil && !r.reserveShut(q, class)
}

// ReserveShut reports whether a class of a queue may take no slot because the others are kept.
func (r *Room) ReserveShut(queue string, class int) bool {
	q := r.queues[queue]
	return q != nil && class < len(q.classes) && r.reserveShut(q, class)
}
