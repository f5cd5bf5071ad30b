package control_test

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/control"
)

// plant is a downstream behind a limit, seen once a tick: it does capacity calls a second at most, and a call takes base while none
// queues. By Little's law its best limit is capacity times base.
type plant struct {
	capacity float64 // calls a second
	base     time.Duration
	noise    float64 // by which part of it goodput is off, and apart from that the run time, either way
	offered  float64 // calls a second that come in; 0 for more than it does
	failing  float64 // part of the calls that fail whatever the limit
	random   *rand.Rand
}

func (p *plant) best() float64 { return p.capacity * p.base.Seconds() }

// goodput is calls a second under a limit.
func (p *plant) goodput(limit int) float64 {
	return math.Min(float64(limit)/p.base.Seconds(), p.capacity)
}

// runTime is how long a call takes under a limit.
func (p *plant) runTime(limit int) time.Duration {
	return max(p.base, time.Duration(float64(limit)/p.capacity*float64(time.Second)))
}

// tick is what is seen over an interval under a limit.
func (p *plant) tick(limit int) control.Sample {
	through, bound := p.goodput(limit), true
	if p.offered > 0 && p.offered < through {
		through, bound = p.offered, false
	}
	through *= 1 + p.noise*(2*p.random.Float64()-1)
	calls := math.Round(through * interval.Seconds())
	run := p.runTime(limit)
	if !bound {
		run = p.base
	}
	run = time.Duration(float64(run) * (1 + p.noise*(2*p.random.Float64()-1)))
	return control.Sample{Over: interval, Calls: int64(calls), Failures: int64(math.Round(calls * p.failing)), Ran: time.Duration(calls) * run, Bound: bound}
}
