package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Bounds of what a Suggestion is made of.
const (
	// MinHeadroom, DefaultHeadroom and MaxHeadroom are of how much more a suggested rate is than what was asked for.
	MinHeadroom     = 1.0
	DefaultHeadroom = 1.3
	MaxHeadroom     = 10.0
	// SuggestMinutes is how many minutes have to be over of which it is known what was asked for.
	SuggestMinutes = int(store.CountedFor / time.Minute)
	// suggestPart is the part of minutes in which no more was asked for than by what a limit is suggested.
	suggestPart = 0.99
	// chance is how many deviations of chance, square roots of the median, the worst minute of who is flat is above it at most.
	chance = 4
)

// Subject is whose limit is suggested: one of these has a name. A limit of a Tier or of a Queue is of each tenant there.
type Subject struct{ Tier, Tenant, Queue string }

// Suggestion is a limit by what was asked for in the last hour, admitted or refused, in tokens a minute.
type Suggestion struct {
	// Tenants is of how many it is made, Minutes how many of each.
	Tenants int `json:"tenants"`
	Minutes int `json:"minutes"`
	// Median, P99 and Worst are of the minutes, of all of a tier or a queue together those of single tenants.
	Median admission.Tokens `json:"median"`
	P99    admission.Tokens `json:"p99"`
	Worst  admission.Tokens `json:"worst"`
	// Part is a part of a policy with the limit, as Policy.Merge reads it; nil where none is suggested, and then Why says why.
	Part json.RawMessage `json:"part,omitempty"`
	Why  string          `json:"why,omitempty"`
	// Cut says what the hour alone would have made of it where a bound made it another, and which bound.
	Cut []string `json:"cut,omitempty"`
}

// Suggest makes a suggestion of the hour that is kept: a rate of headroom times what 99 of 100 minutes did not exceed, and a burst of what the
// worst minute had beyond that, at least what comes in a second, and what a job has cost. It is within what a limit may be, and within what the policy bounds
// such a limit by: the global one, and of a queue what an adaptive entry has of its limits. It changes nothing.
func Suggest(ctx context.Context, s store.Deployment, of Subject, headroom float64) (Suggestion, error) {
	rules, err := ReadRules(ctx, s)
	if err != nil {
		return Suggestion{}, err
	}
	now, err := s.Time(ctx)
	if err != nil {
		return Suggestion{}, err
	}
	hour, err := s.LastHour(ctx, forecastBudget)
	if err != nil {
		return Suggestion{}, err
	}
	if of.Tier != "" {
		if err := learn(ctx, s, hour, rules.Compiled, rules.Compiled); err != nil {
			return Suggestion{}, err
		}
	}
	return suggest(hour, now, &rules, of, headroom)
}

// suggest looks at the minutes that are over. Of a tenant that was counted for a part of one that minute is left out; one that was not counted had nothing.
func suggest(hour []store.Recorded, now time.Time, rules *Rules, of Subject, headroom float64) (v Suggestion, err error) {
	end := now.Truncate(time.Minute)
	hour = slices.DeleteFunc(slices.Clone(hour), func(m store.Recorded) bool { return !m.At.Before(end) || end.Sub(m.At) > store.CountedFor })
	if len(hour) == 0 {
		v.Why = "nothing was counted in the last hour"
		return v, nil
	}
	if v.Minutes = int(end.Sub(hour[0].At) / time.Minute); v.Minutes < SuggestMinutes {
		v.Why = fmt.Sprintf("an hour of counts is needed, and they begin %d minutes ago", v.Minutes)
		return v, nil
	}
	asked, unsure, cost := map[admission.Scope][]float64{}, map[admission.Scope]int{}, 1.0
	for i := range hour {
		for scope, m := range hour[i].Scopes {
			switch {
			case !of.has(scope, rules):
			case m.Partial:
				unsure[scope]++
			default:
				asked[scope] = append(asked[scope], float64(m.Tokens))
				cost = max(cost, math.Ceil(meanCost(m)))
			}
		}
	}
	v.Tenants = len(asked)
	var all []float64
	for scope, minutes := range asked {
		all = append(all, minutes...)
		all = append(all, make([]float64, max(0, v.Minutes-unsure[scope]-len(minutes)))...)
	}
	if len(all) == 0 {
		v.Why = "nothing was counted of it in the last hour: the scopes with the most are, and those that the policy observes"
		return v, nil
	}
	slices.Sort(all)
	p99, worst, median := quantile(all, suggestPart), all[len(all)-1], quantile(all, 0.5)
	v.Median, v.P99, v.Worst = whole(median), whole(p99), whole(worst)
	if worst <= median+chance*math.Sqrt(median) {
		v.Why = "its minutes differ by no more than chance has them do: nothing of its peaks can be learned from them"
		return v, nil
	}
	bounds := of.bounds(rules)
	rate, cut := within("tokens a minute", headroom*p99, bounds, bound.ofMinute)
	burst, cutToo := within("burst", max(worst-rate, rate/60, cost), bounds, bound.ofBurst)
	v.Cut = append(cut, cutToo...)
	v.Part, err = of.part(&rules.Document, map[string]any{"tokens": int64(rate), "per": "1m", "burst": int64(burst)})
	return v, err
}

// quantile is one of sorted numbers, in between two of them by its distance from each (R. Hyndman, Y. Fan, Sample quantiles in statistical packages, 1996,
// definition 7): of 60 minutes the greatest is not what 99 of 100 have.
func quantile(sorted []float64, part float64) float64 {
	at, rest := math.Modf(part * float64(len(sorted)-1))
	low := sorted[int(at)]
	return low + rest*(sorted[min(int(at)+1, len(sorted)-1)]-low)
}

// has reports whether a scope is one of those whose limit is suggested.
func (of Subject) has(scope admission.Scope, rules *Rules) bool {
	tenant, queue, class, err := scope.Parts()
	switch {
	case err != nil || tenant == "" || class != "":
		return false
	case of.Queue != "":
		return queue == of.Queue
	case of.Tenant != "":
		return queue == "" && tenant == of.Tenant
	}
	if queue != "" || rules.Compiled.TierOf(tenant) != of.Tier {
		return false
	}
	return rules.Document.Tenants[tenant].Limit == nil && rules.Compiled.RecordOf(tenant).Limit == nil // Else the tier's is not its limit.
}

// part is a part of a policy with the limit in its place. What a limit of another form has there is taken away.
func (of Subject) part(current *policy.Policy, limit map[string]any) (json.RawMessage, error) {
	path := []string{"tenants", of.Tenant, "limit"}
	switch {
	case of.Queue != "":
		path = []string{"queues", of.Queue, "each_tenant", "limit"}
	case of.Tier != "":
		path = []string{"tiers", of.Tier, "limit"}
	}
	text, err := policy.Marshal(*current)
	if err != nil {
		return nil, err
	}
	var there any
	if err := json.Unmarshal(text, &there); err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	for _, name := range path {
		members, _ := there.(map[string]any)
		there = members[name]
	}
	members, _ := there.(map[string]any)
	for name := range members {
		if _, said := limit[name]; !said {
			limit[name] = nil
		}
	}
	part := limit
	for _, name := range slices.Backward(path) {
		part = map[string]any{name: part}
	}
	return json.Marshal(part)
}
