package worker

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/callback"
)

// guarded returns the config with functions of its user that cannot end the process: what panics is logged, and counts as not there.
func (c Config) guarded(guard *callback.Guard) Config {
	c.Observer = c.Observer.guarded(guard)
	if learn := c.Learn; learn != nil {
		c.Learn = func(tenant, queue, jobType string, actual admission.Tokens) {
			guard.Do("Learn", func() { learn(tenant, queue, jobType, actual) })
		}
	}
	c.Backoff = c.Backoff.guarded(guard, "Backoff")
	for queue, f := range c.QueueBackoff {
		c.QueueBackoff[queue] = f.guarded(guard, "QueueBackoff["+strconv.Quote(queue)+"]")
	}
	for jobType, f := range c.TypeBackoff {
		c.TypeBackoff[jobType] = f.guarded(guard, "TypeBackoff["+strconv.Quote(jobType)+"]")
	}
	c.Breaker = guardRand(c.Breaker, guard, "Breaker.Rand")
	for downstream, config := range c.Breakers {
		c.Breakers[downstream] = guardRand(config, guard, "Breakers["+strconv.Quote(downstream)+"].Rand")
	}
	return c
}

// guarded is f, and the default backoff where f panics.
func (f BackoffFunc) guarded(guard *callback.Guard, name string) BackoffFunc {
	return func(attempt int) (wait time.Duration) {
		if !guard.Do(name, func() { wait = f(attempt) }) {
			return defaultBackoff(attempt)
		}
		return wait
	}
}

// guardRand replaces a jitter that panics by the default one.
func guardRand(config breaker.Config, guard *callback.Guard, name string) breaker.Config {
	given := config.Rand
	if given == nil {
		return config
	}
	config.Rand = func() (jitter float64) {
		if !guard.Do(name, func() { jitter = given() }) {
			return rand.Float64()
		}
		return jitter
	}
	return config
}

// guarded returns the observer without its panics. A Taken that returns no ctx leaves the one it was given.
func (o Observer) guarded(guard *callback.Guard) Observer {
	given := o
	if given.Taken != nil {
		o.Taken = func(ctx context.Context, event Event, headers map[string]string) (context.Context, func(Event)) {
			var own context.Context
			var ended func(Event)
			guard.Do("Observer.Taken", func() { own, ended = given.Taken(ctx, event, headers) }) //nolint:fatcontext // It is the ctx of one job.
			if own == nil {
				own = ctx
			}
			return own, guardEvent(ended, guard, "ended of Observer.Taken")
		}
	}
	o.Started = guardEvent(given.Started, guard, "Observer.Started")
	o.Finished = guardEvent(given.Finished, guard, "Observer.Finished")
	if given.Lonely != nil {
		o.Lonely = func(downstream string, lonely bool) {
			guard.Do("Observer.Lonely", func() { given.Lonely(downstream, lonely) })
		}
	}
	if given.Guarded != nil {
		o.Guarded = func(change GuardChange) { guard.Do("Observer.Guarded", func() { given.Guarded(change) }) }
	}
	return o
}

// guardEvent leaves nil as it is.
func guardEvent(f func(Event), guard *callback.Guard, name string) func(Event) {
	if f == nil {
		return nil
	}
	return func(event Event) { guard.Do(name, func() { f(event) }) }
}
