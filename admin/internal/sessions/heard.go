package sessions

import "time"

// perSession keeps something of each session that this server hears of, as long as it does. The zero one is empty; its user locks it.
type perSession[T any] struct {
	all map[string]*heard[T]
	// sweepAt is the number of sessions at which those that are to be forgotten are looked for.
	sweepAt int
}

// heard is what is kept of a session, and when a call of it last came.
type heard[T any] struct {
	at time.Time
	of T
}

// forgetAfter is when a session is forgotten of which this server hears nothing: with it goes what partitions are owed.
const forgetAfter = 2 * maxLease

// hear returns what is kept of a session of which a call came, and whether there was nothing before.
func (p *perSession[T]) hear(worker string, now time.Time) (of *T, fresh bool) {
	one, known := p.all[worker]
	if !known {
		if p.all == nil {
			p.all = make(map[string]*heard[T])
		}
		one = &heard[T]{}
		p.all[worker] = one
	}
	one.at = now
	if len(p.all) > p.sweepAt {
		for name, other := range p.all {
			if now.Sub(other.at) > forgetAfter {
				delete(p.all, name)
			}
		}
		p.sweepAt = 2*len(p.all) + 64
	}
	return &one.of, !known
}
