package config

import (
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
)

// defaultBreaker is what worker.breaker says.
func defaultBreaker(c *Config) *Breaker { return &c.Worker.Breaker }

// breakerOf is what is said of a downstream. It is there once Load has seen its name.
func breakerOf(downstream string) func(*Config) *Breaker {
	return func(c *Config) *Breaker { return c.Worker.Breakers[downstream] }
}

// breakerOptions are those of one circuit breaker. The bounds are those of breaker.Config.
func breakerOptions(path string, at func(*Config) *Breaker) []Option {
	const day = 24 * time.Hour
	all := []Option{
		{
			Path: ".call_timeout", Unset: "as `worker.timeout`", Doc: "Longest time of a run that calls a downstream, of jobs without a time-out of their own; a shorter `worker.timeout` wins.",
			value: duration(time.Millisecond, admission.MaxTimeout, func(c *Config) *time.Duration { return &at(c).CallTimeout }),
		},
		{
			Path: ".window", Default: "10s", Doc: "How long an outcome counts.",
			value: duration(10*time.Millisecond, time.Hour, func(c *Config) *time.Duration { return &at(c).Window }),
		},
		{
			Path: ".buckets", Default: "10", Doc: "Slices in which the window slides.",
			value: count(1, 100, func(c *Config) *int { return &at(c).Buckets }),
		},
		{
			Path: ".min_calls", Default: "10", Doc: "Fewest calls in the window by which a rate is judged.",
			value: count(1, 1_000_000, func(c *Config) *int { return &at(c).MinCalls }),
		},
		{
			Path: ".failure_rate", Default: "0.5", Doc: "Part of the calls whose failure trips.",
			value: ratio(func(c *Config) *breaker.Ratio { return &at(c).FailureRate }),
		},
		{
			Path: ".failure_threshold", Default: "10", Doc: "Failures in a row that trip, whatever the window holds.",
			value: count(1, 1_000_000, func(c *Config) *int { return &at(c).FailureThreshold }),
		},
		{
			Path: ".slow_call_duration", Default: "30s", Doc: "What a call must last to be slow, also while it runs; 24h turns the rule off.",
			value: duration(time.Millisecond, day, func(c *Config) *time.Duration { return &at(c).SlowCallDuration }),
		},
		{
			Path: ".slow_call_rate", Default: "0.8", Doc: "Part of slow calls that trips.",
			value: ratio(func(c *Config) *breaker.Ratio { return &at(c).SlowCallRate }),
		},
		{
			Path: ".success_threshold", Default: "5", Doc: "Probes that must pass to close.",
			value: count(1, 1000, func(c *Config) *int { return &at(c).SuccessThreshold }),
		},
		{
			Path: ".max_probes", Default: "1", Doc: "Probes in flight at a time.",
			value: count(1, 100, func(c *Config) *int { return &at(c).MaxProbes }),
		},
		{
			Path: ".probe_timeout", Default: "30s", Doc: "When a probe that has not ended counts as failed.",
			value: duration(time.Millisecond, time.Hour, func(c *Config) *time.Duration { return &at(c).ProbeTimeout }),
		},
		{
			Path: ".open_base", Default: "1m0s", Doc: "First cooldown before jitter; each further trip in a row doubles it.",
			value: duration(time.Millisecond, day, func(c *Config) *time.Duration { return &at(c).OpenBase }),
		},
		{
			Path: ".open_max", Unset: "10m, or `open_base` if that is longer", Doc: "Largest cooldown before jitter, at least `open_base`.",
			value: duration(time.Millisecond, day, func(c *Config) *time.Duration { return &at(c).OpenMax }),
		},
		{
			Path: ".reset_after", Default: "10m0s", Doc: "How long it must stay closed for the next cooldown to be `open_base` again.",
			value: duration(time.Millisecond, day, func(c *Config) *time.Duration { return &at(c).ResetAfter }),
		},
	}
	for i := range all {
		all[i].Path = path + all[i].Path
		if path != "worker.breaker" {
			all[i].Default, all[i].Unset = "", "as in `worker.breaker`"
		}
	}
	return all
}
