package policy

import (
	"iter"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// Bounds of semaphores.
const (
	// DefaultSemaphoreMax is the limit of a semaphore of which the policy says nothing.
	DefaultSemaphoreMax = 1000
	// MaxSemaphoreMax is the largest limit, MaxSemaphores how many a policy may name.
	MaxSemaphoreMax = 1_000_000
	MaxSemaphores   = 10_000
)

// SemaphoreRules are the limit of what is done at a time outside of jobs.
type SemaphoreRules struct {
	// Max is how many permits are leased at a time, 0 to MaxSemaphoreMax; 0 lets nobody in.
	Max int
}

type semaphoreJSON struct {
	Max int `json:"max"`
}

// SemaphoreMax returns the limit of a semaphore: its own, else that of "TENANT:*" for one of a tenant, else that of Every, else
// DefaultSemaphoreMax.
func (c *Compiled) SemaphoreMax(name string) int {
	if own, named := c.semaphores[name]; named {
		return own.Max
	}
	if tenant, _, bound := strings.Cut(name, ":"); bound {
		if all, named := c.semaphores[tenant+":"+Every]; named {
			return all.Max
		}
	}
	if all, named := c.semaphores[Every]; named {
		return all.Max
	}
	return DefaultSemaphoreMax
}

// Semaphores yields those that the policy names, in order, with their limits.
func (c *Compiled) Semaphores() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, name := range sortedKeys(c.semaphores) {
			if !strings.HasSuffix(name, Every) && !yield(name, c.semaphores[name].Max) {
				return
			}
		}
	}
}

func (p Policy) validateSemaphores(bad *problems) {
	if n := len(p.Semaphores); n > MaxSemaphores {
		bad.field("semaphores", strconv.Itoa(n)+" names", "up to "+strconv.Itoa(MaxSemaphores))
	}
	for _, name := range sortedKeys(p.Semaphores) {
		tenant, own, bound := strings.Cut(name, ":")
		if bound {
			bad.add(admission.ValidateTenant(tenant))
		} else {
			own = name
		}
		if own != Every {
			bad.add(admission.ValidateName("semaphore", own, true))
		}
		bad.integer("semaphores."+name+".max", int64(p.Semaphores[name].Max), 0, MaxSemaphoreMax)
	}
}
