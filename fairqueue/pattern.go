package fairqueue

// Pattern hands out turns to n members by weight: of Σ weights consecutive turns weights[i] are i's, in order, while
// all can run. It is a weighted round robin whose phase is never reset. Not safe for several goroutines.
type Pattern struct {
	weights []int
	// current has left turns; both count what was committed.
	current int
	left    int
}

// NewPattern returns a pattern at the beginning of its first member's turn. Each weight is 1 or more.
func NewPattern(weights []int) *Pattern {
	return &Pattern{weights: weights, left: weights[0]}
}

// Next returns who has the next turn among those that can run, and changes nothing. ok is false when none can.
func (p *Pattern) Next(canRun func(int) bool) (i int, ok bool) {
	if p.left > 0 && canRun(p.current) {
		return p.current, true
	}
	for k := range p.weights {
		i := (p.current + k + 1) % len(p.weights)
		if canRun(i) {
			return i, true
		}
	}
	return 0, false
}

// Commit gives the turn to i, which Next has just returned. Turns left over by others are forfeited.
func (p *Pattern) Commit(i int) {
	if i == p.current && p.left > 0 {
		p.left--
		return
	}
	p.current, p.left = i, p.weights[i]-1
}
