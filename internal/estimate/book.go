package estimate

import (
	"slices"
	"sync"

	"github.com/headgate/headgate/admission"
)

const (
	// First is the guess where nothing is known, in tokens.
	First admission.Tokens = 1000
	// Remembered is how many costs of a kind of work are.
	Remembered = 32
	// MaxKinds is how many kinds of work a Book knows at most, some 300 B each: of more those are forgotten that were used longest ago, half at a time.
	MaxKinds = 10_000
)

// kind is work whose costs are alike.
type kind struct{ tenant, queue, of string }

// Book knows what kinds of work have cost. The zero Book is ready. Several goroutines may use it.
type Book struct {
	mu struct {
		sync.Mutex
		// recent are those that were used since there were last MaxKinds/2 of them, older those that were before.
		recent, older map[kind]*costs
	}
}

// costs are the last of a kind of work.
type costs struct {
	// last is a ring, next where the next one goes, n how many there are. A cost is at most admission.MaxActualCost, so 32 bits hold it.
	last    [Remembered]uint32
	next, n int
	guess   admission.Tokens
}

// Learn notes what work of a type has cost a tenant in a queue, 0 to admission.MaxActualCost tokens. Any of the names may be empty.
func (b *Book) Learn(tenant, queue, of string, actual admission.Tokens) {
	b.mu.Lock()
	defer b.mu.Unlock()
	work := kind{tenant, queue, of}
	c := b.usedLocked(work)
	if c == nil {
		c = &costs{}
		b.putLocked(work, c)
	}
	c.add(actual)
}

// Guess returns what work of a type will cost, 1 to admission.MaxCost tokens, and not more than burst where that is above zero.
func (b *Book) Guess(tenant, queue, of string, burst admission.Tokens) admission.Tokens {
	b.mu.Lock()
	defer b.mu.Unlock()
	guess := First
	if c := b.usedLocked(kind{tenant, queue, of}); c != nil {
		guess = c.guess
	}
	if burst > 0 {
		guess = min(guess, burst)
	}
	return max(1, min(guess, admission.MaxCost))
}

// Known returns of how many kinds of work costs are known.
func (b *Book) Known() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.recent) + len(b.mu.older)
}

// usedLocked returns the costs of a kind, nil if there are none, as one that is used now.
func (b *Book) usedLocked(work kind) *costs {
	c := b.mu.recent[work]
	if c == nil {
		if c = b.mu.older[work]; c != nil {
			delete(b.mu.older, work)
			b.putLocked(work, c)
		}
	}
	return c
}

// putLocked adds a kind to those that are used.
func (b *Book) putLocked(work kind, c *costs) {
	if len(b.mu.recent) >= MaxKinds/2 {
		b.mu.older, b.mu.recent = b.mu.recent, nil
	}
	if b.mu.recent == nil {
		b.mu.recent = map[kind]*costs{}
	}
	b.mu.recent[work] = c
}

func (c *costs) add(actual admission.Tokens) {
	c.last[c.next] = uint32(min(max(actual, 0), admission.MaxActualCost)) //nolint:gosec // it is within 32 bits
	c.next, c.n = (c.next+1)%Remembered, min(c.n+1, Remembered)
	sorted := c.last
	slices.Sort(sorted[:c.n])
	c.guess = admission.Tokens(sorted[(9*c.n+9)/10-1])
}
