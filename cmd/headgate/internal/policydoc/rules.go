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
