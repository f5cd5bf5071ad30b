package policydoc

import (
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// thing is a JSON object.
type thing = map[string]any

func needs(fields ...string) thing { return thing{"required": fields} }

// limitRule: a rate said once, unless the limit is off, and a burst said once, or not at all; of windows how long one is, and neither a rate nor a
// burst, and of those that slide no beginning, and no month.
var limitRule = thing{
	"if": by(policy.FixedWindow, policy.SlidingWindow, policy.SlidingLog), "then": thing{"required": []string{"window"}, "not": thing{"anyOf": []any{needs("per"), needs("burst"), needs("rate_per_second"), needs("burst_capacity")}}},
	"else": thing{"not": thing{"anyOf": []any{needs("window"), needs("anchor"), needs("zone")}}},
	"allOf": []any{
		thing{
			"if":   off,
			"else": thing{"if": by(policy.FixedWindow, policy.SlidingWindow, policy.SlidingLog), "then": needs("tokens"), "else": one(needs("tokens", "per"), needs("rate_per_second"))},
		},
		thing{
			"if":   by(policy.SlidingWindow, policy.SlidingLog),
			"then": thing{"not": thing{"anyOf": []any{needs("anchor"), needs("zone")}}, "properties": thing{"window": thing{"not": thing{"const": admission.WindowMonth}}}},
		},
		thing{"if": by(policy.SlidingLog), "then": thing{"if": off, "else": thing{"properties": thing{"tokens": thing{"maximum": int64(admission.MaxLogTokens)}}}}},
	},
	"dependentSchemas": thing{"rate_per_second": thing{"not": thing{"anyOf": []any{needs("tokens"), needs("per")}}}, "burst_capacity": thing{"not": needs("burst")}},
}

// off is a limit that is none, and by one of some algorithms.
var off = thing{"required": []string{"enabled"}, "properties": thing{"enabled": thing{"const": false}}}

func by(algorithms ...string) thing {
	return thing{"required": []string{"algorithm"}, "properties": thing{"algorithm": thing{"enum": algorithms}}}
}

func one(of ...any) thing { return thing{"oneOf": of} }

// overflowRule: bounds have a policy, a policy has a bound, and what spillover alone knows is beside it alone.
var overflowRule = thing{"allOf": []any{
	thing{
		"if":   thing{"required": []string{"policy"}, "properties": thing{"policy": thing{"not": thing{"const": string(policy.NoBound)}}}},
		"then": thing{"anyOf": []any{aboveZero("max_jobs"), aboveZero("max_bytes")}},
		"else": zero("max_jobs", "max_bytes"),
	},
	thing{
		"if":   thing{"required": []string{"policy"}, "properties": thing{"policy": thing{"const": string(policy.Spillover)}}},
		"else": thing{"allOf": []any{zero("max_spilled", "low_water_percent", "max_moved"), thing{"not": needs("spill_to")}}},
	},
	thing{
		"if":   thing{"required": []string{"spill_to"}, "properties": thing{"spill_to": thing{"const": policy.SecondRedis}}},
		"then": thing{"properties": thing{"max_spilled": thing{"not": thing{"const": 1}}}},
		"else": zero("max_moved"),
	},
}}

func aboveZero(field string) thing {
	return thing{"required": []string{field}, "properties": thing{field: thing{"minimum": 1}}}
}

func zero(fields ...string) thing {
	properties := thing{}
	for _, field := range fields {
		properties[field] = thing{"const": 0}
	}
	return thing{"properties": properties}
}

// typeLimits are limits by type of job.
var typeLimits = field{"type_limits", named{keys: jobType, value: limit}, "as of `limit`, type by type", "Limits of its jobs of one type (`Job.Type`) there, up to 1,000 types; `*` is each type that is not named, and each of them has a bucket of its own. A job pays there beside the queue's limit and that of its class. [Limits by type](guides/limits-and-tiers.md#limits-by-type-of-job) tells how."}

// eachFields are what is said of each tenant in a queue.
var eachFields = []field{
	{"limit", limit, "what is said less nearly ([which one holds](#which-one-holds))", "Limit of the tenant's jobs in the queue. `{\"enabled\": false}` says that there is none."},
	{"priority_limits", named{keys: className, value: limit}, "as of `limit`, class by class", "Limits of its jobs of one class there. A job pays there beside the queue's limit."},
	typeLimits,
}

// ruleFields are what a policy, and a candidate, say of tenants.
func ruleFields(tiers named, noTiers string) []field {
	return []field{
		{"tiers", tiers, noTiers, "Tiers: defaults for the tenants that are in them. `standard` has to be among them: it is the tier of each tenant that names none."},
		{"tenants", named{keys: tenantName, value: of("tenant")}, "every tenant is in tier `standard`", "Tenants that have something of their own."},
		{"queue_limits", named{keys: inQueue, value: limit}, "no limits", "Limits of one tenant's jobs in one queue, each by both names, instead of what `each_tenant` of the queue or `queues` of its tier say. A job pays there beside its tenant's limit. A queue over all tenants has no limit; its `max_running` bounds what it runs at a time."},
		{"priority_limits", named{keys: inClass, value: limit}, "no limits", "Limits of one class of one tenant's jobs in one queue. A job pays there beside the queue's limit."},
		{
			"overflows",
			named{keys: bounded, value: of("overflow")},
			"the `overflow` of queues alone",
			"Bounds of waiting jobs: of one tenant in one queue, instead of its tier's and the queue's; of each tenant in each queue that has none (`*:*`); of a tenant over all its queues, instead of its tier's; of each other tenant whose tier has none (`*`).",
		},
		{"max_running", named{keys: inQueue, value: whole{low: 1, high: policy.MaxMaxRunning}}, "the `max_running_per_tenant` of queues alone", "Most jobs of one tenant in one queue that workers hold at a time, over all workers."},
	}
}
