package load

import (
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
)

// None is the downstream of an arrival that calls nobody.
const None = -1

// Arrival is one job that is to be enqueued. Names are places in the lists of the plan.
type Arrival struct {
	// At is when, after the start of the run.
	At                               time.Duration
	Tenant, Queue, Class, Downstream int
	// Work is how long the handler works.
	Work time.Duration
	// Bytes is the length of the payload.
	Bytes int
	Cost  admission.Tokens
	// Fails says that the downstream answers with an error, each time.
	Fails bool
}

// Event is a kind of incident.
type Event int

// The events.
const (
	// DownstreamDies closes the downstream's server.
	DownstreamDies Event = iota
	// DownstreamHangs lets its server accept and never answer.
	DownstreamHangs
	// DownstreamReturns mends it.
	DownstreamReturns
	// HandlersSlow makes handlers work Factor times as long.
	HandlersSlow
	// RedisDies kills the server.
	RedisDies
	// RedisReturns starts it again.
	RedisReturns
)

// Incident is something that happens to the world during a run.
type Incident struct {
	At         time.Duration
	Event      Event
	Downstream int
	Factor     float64
}

// Plan is a whole run. It is not changed once made, so several goroutines may read it.
type Plan struct {
	Scenario string
	// Tenants, Queues and Downstreams are names, Classes those of every queue.
	Tenants, Queues, Downstreams []string
	Classes                      []admission.Class
	// Arrivals are in order of time, within Duration.
	Arrivals []Arrival
	Duration time.Duration
	// Slots is the number of jobs in handlers at a time.
	Slots int
	// Policy has the limits; Default says in words what is on.
	Policy policy.Policy
	// Caps bound the jobs of a queue in handlers at a time.
	Caps map[string]int
	// Serve says that the downstreams are HTTP servers, which handlers call; else they are names.
	Serve   bool
	Breaker breaker.Config
	// MaxAttempts is how often a job runs that fails, BackoffBase and BackoffMost its waits in between.
	MaxAttempts              int
	BackoffBase, BackoffMost time.Duration
	Incidents                []Incident
	// Restarts says that Redis is killed, so it must be private and keep its writes.
	Restarts bool
	// Quiet is for how long no job may end before the run counts as over while some still wait.
	Quiet time.Duration
	// Offenders are the tenants from the first place to below the second, none if both are zero: those who flood.
	Offenders [2]int
	// Overload is when more arrives than can be served; nil where that is not what the scenario is about. Unshed is Policy without what
	// holds it then, Capped that with a limit of what can be served.
	Overload       *Overload
	Unshed, Capped *policy.Policy
	// Levels is how many levels of limits stand on a job's way.
	Levels int
}

// TenantLimit returns the limit of a tenant that nobody configured.
func (p *Plan) TenantLimit() admission.Limit { return p.Policy.Tiers[policy.StandardTier].Limit }

// Bystander returns who has no part in what a scenario is about, and so should not feel it: the jobs of other tenants
// than the offenders, and of downstreams that stay well. It is nil where everybody has a part.
func (p *Plan) Bystander() func(a *Arrival) bool {
	ill := map[int]bool{}
	for _, incident := range p.Incidents {
		if p.Serve {
			ill[incident.Downstream] = true
		}
	}
	for i := range p.Arrivals {
		if p.Arrivals[i].Fails {
			ill[p.Arrivals[i].Downstream] = true
		}
	}
	if len(ill) == 0 && p.Offenders == [2]int{} {
		return nil
	}
	return func(a *Arrival) bool {
		return !ill[a.Downstream] && (a.Tenant < p.Offenders[0] || a.Tenant >= p.Offenders[1])
	}
}

// Retries is how often a caller asks again who was refused.
func (p *Plan) Retries() int {
	if p.Overload == nil {
		return 0
	}
	return p.Overload.Retries
}

// Rate is the mean rate of arrivals a second.
func (p *Plan) Rate() float64 { return float64(len(p.Arrivals)) / p.Duration.Seconds() }

// MedianWork is the median of how long handlers work.
func (p *Plan) MedianWork() time.Duration {
	if len(p.Arrivals) == 0 {
		return 0
	}
	all := make([]time.Duration, len(p.Arrivals))
	for i := range all {
		all[i] = p.Arrivals[i].Work
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// Timeout bounds an enqueue; it is the default of Headgate's producer.
const Timeout = 2 * time.Second

// ErrNoServer means that a plan kills its Redis and there is none that it may kill.
var ErrNoServer = errors.New("redis-restart kills a private redis-server, and none is in PATH: it is left out")
