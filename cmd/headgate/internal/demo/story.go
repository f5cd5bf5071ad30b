package demo

import (
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/worker"
)

// parts is the number of parts of the story; the package comment draws them.
const parts = 20

// The moments of the story, in parts.
const (
	floodBegins = 2
	mailDies    = 5
	mailAlive   = 9
	floodEnds   = 11
	sendingEnds = 18
)

// slots is how many jobs the worker runs at a time: too few for all that is admitted during the flood.
const slots = 6

// queue is the queue of all jobs.
const queue = "demo"

// actor is one tenant and what it sends.
type actor struct {
	tenant, tier string
	class        admission.Priority
	kind         string // the jobs' type
	downstream   string
	cost         admission.Tokens
	runTime      time.Duration
	// deadline is how soon a job must start; zero means whenever.
	deadline time.Duration
	// calm and flood are jobs a second.
	calm, flood float64
}

// The cast.
var (
	clinic = actor{
		tenant: "clinic", tier: "premium", class: admission.High, kind: "alert", downstream: "sms",
		cost: 1, runTime: 20 * time.Millisecond, deadline: 400 * time.Millisecond, calm: 15, flood: 15,
	}
	bakery = actor{
		tenant: "bakery", tier: policy.StandardTier, class: admission.Medium, kind: "receipt", downstream: "mail",
		cost: 1, runTime: 40 * time.Millisecond, calm: 30, flood: 30,
	}
	crawler = actor{
		tenant: "crawler", tier: "basic", class: admission.Medium, kind: "page", downstream: "web",
		cost: 2, runTime: 120 * time.Millisecond, calm: 10, flood: 300,
	}
	cast = []actor{clinic, bakery, crawler}
)

// script is the story at one length.
type script struct {
	part time.Duration
}

func newScript(length time.Duration) script { return script{part: length / parts} }

// at returns the moment of a part.
func (s script) at(part float64) time.Duration { return time.Duration(part * float64(s.part)) }

// due returns how many jobs an actor has sent up to a moment.
func (s script) due(a actor, elapsed time.Duration) int {
	flood := min(max(elapsed-s.at(floodBegins), 0), s.at(floodEnds-floodBegins))
	sent := min(elapsed, s.at(sendingEnds))
	return int((sent-flood).Seconds()*a.calm + flood.Seconds()*a.flood)
}

// mailDead reports whether the bakery's downstream is dead at a moment.
func (s script) mailDead(elapsed time.Duration) bool {
	return elapsed >= s.at(mailDies) && elapsed < s.at(mailAlive)
}

// within reports whether a moment is between two parts.
func (s script) within(elapsed time.Duration, from, to float64) bool {
	return elapsed >= s.at(from) && elapsed < s.at(to)
}

// limits returns the built-in policy with the three tenants in their tiers.
func limits() policy.Policy {
	p := policy.Default()
	p.Tenants = map[string]policy.Tenant{}
	for _, a := range cast {
		p.Tenants[a.tenant] = policy.Tenant{Tier: a.tier}
	}
	return p
}

// breakers returns breakers for the length of the story: they cool down for about a part instead of a minute.
func (s script) breakers() breaker.Config {
	return breaker.Config{
		Window: max(s.at(3), 100*time.Millisecond), MinCalls: 6, FailureThreshold: 6, SuccessThreshold: 2,
		OpenBase: s.part, OpenMax: 2 * s.part,
	}
}

// backoff lets failed jobs come back while the story lasts.
func (s script) backoff() func(int) time.Duration {
	return worker.ExponentialBackoff(s.part/2, 2*s.part)
}
