package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// StaleError is a document made from another version than the one in force.
type StaleError struct {
	Document, InForce int64
}

// Error says which versions differ and what to do.
func (e *StaleError) Error() string {
	return fmt.Sprintf("the policy was made from version %d, but version %d is in force: get that one and change it, "+
		"or leave \"version\" out of the document to overrule it", e.Document, e.InForce)
}

// Current returns the policy in force; the built-in one, of version 0, where none was stored.
func Current(ctx context.Context, store store.Deployment) (policy.Policy, error) {
	text, err := store.Policy(ctx)
	if err != nil {
		return policy.Policy{}, err
	}
	return policy.Stored(text)
}

// newUpdate returns a policy as the store takes it. text is its JSON.
func newUpdate(expected int64, document policy.Policy, text []byte) (store.PolicyUpdate, error) {
	compiled, err := document.Prepare()
	if err != nil {
		return store.PolicyUpdate{}, err
	}
	update := store.PolicyUpdate{
		Expected: expected, Version: document.Version, Text: text, Window: compiled.DedupWindow(),
		LongestFill: max(document.LongestFill(), time.Millisecond), Usage: compiled.UsageTenants() > 0,
	}
	for _, name := range compiled.QueueNames() {
		q := compiled.QueueOf(name)
		bound, tiers := compiled.BoundsIn(name)
		if name == policy.Every {
			bound, tiers = policy.Overflow{}, nil // among the tenants'
		}
		update.Queues = append(update.Queues, store.QueueSettings{
			Queue: name, Classes: q.Classes, Horizon: q.Horizon, DropExpired: q.ExpiredPolicy == policy.Drop,
			MaxWait: q.MaxWait, PoisonLimit: q.PoisonLimit, KeepDead: q.KeepDead, MaxDead: q.MaxDead,
			Overflow: overflow(bound), Tiers: overflows(tiers),
		})
	}
	for _, p := range compiled.Pressured() {
		update.Pressured = append(update.Pressured, p.Queue)
	}
	update.Load, update.Watched = compiled.LoadEvery(), compiled.Watched()
	each, tiers := compiled.BoundsIn(policy.Every)
	if each != (policy.Overflow{}) || len(tiers) > 0 {
		update.Overflows = append(update.Overflows, store.TenantOverflow{Tenant: store.Every, Queue: store.Every, Overflow: overflow(each), Tiers: overflows(tiers)})
	}
	if over, tiers := compiled.BoundsOverAll(); over != (policy.Overflow{}) || len(tiers) > 0 {
		update.Overflows = append(update.Overflows, store.TenantOverflow{Tenant: store.Every, Overflow: overflow(over), Tiers: overflows(tiers)})
	}
	update.Tiers = compiled.BoundTiers()
	for scope, own := range compiled.Overflows() {
		if scope == policy.Every || scope == policy.Every+":"+policy.Every {
			continue
		}
		tenant, queue, _ := strings.Cut(string(scope), ":")
		update.Overflows = append(update.Overflows, store.TenantOverflow{Tenant: tenant, Queue: queue, Overflow: overflow(own)})
	}
	for _, class := range classNames(document, policy.StandardTier) {
		// No tenant has an empty name, so this is the standard tier's weight.
		update.Weights = append(update.Weights, store.TenantWeight{Class: class, Weight: compiled.WeightOf("", class)})
	}
	for _, class := range classNames(document) {
		for tier, weight := range compiled.TierWeights(class) {
			update.TierWeights = append(update.TierWeights, store.TierWeight{Class: class, Tier: tier, Weight: weight})
		}
	}
	for tier, limit := range compiled.TierCaps() {
		update.TierCaps = append(update.TierCaps, store.TierCap{Tier: tier, Limit: limit})
	}
	for _, r := range compiled.Reserved() {
		update.Reserves = append(update.Reserves, store.Reserve{Queue: r.Queue, Classes: r.Classes, Slots: r.Slots, Percent: r.Percent, Lends: r.Lend})
	}
	update.Caps, update.MaxParked = caps(compiled), map[string]int{}
	for downstream, most := range compiled.MaxParked() {
		update.MaxParked[strings.TrimPrefix(downstream, policy.Every)] = most
	}
	for share, weight := range compiled.ConfiguredWeights() {
		update.Weights = append(update.Weights, store.TenantWeight{Class: share.Class, Tenant: share.Tenant, Weight: weight, ByTier: share.ByTier})
	}
	return update, nil
}

// caps returns caps and rates as the store takes them.
func caps(compiled *policy.Compiled) []store.Cap {
	var all []store.Cap
	for _, c := range compiled.Caps() {
		gate := store.DownstreamGate(c.Downstream)
		switch {
		case c.Tenant != "" && c.Queue != "":
			gate = store.TenantQueueGate(c.Tenant, c.Queue)
		case c.Tenant != "":
			gate = store.TenantGate(c.Tenant)
		case c.Queue != "":
			gate = store.QueueGate(c.Queue)
		}
		all = append(all, store.Cap{Gate: gate, Limit: c.MaxRunning, Least: c.Least, Most: c.Most, Loop: c.Loop, ByTier: c.ByTier})
	}
	for _, r := range compiled.DispatchRates() {
		gate := store.DownstreamRateGate(r.Downstream)
		if r.Tenant != "" {
			gate = store.TenantRateGate(r.Tenant)
		}
		all = append(all, store.Cap{Gate: gate, Rate: r.Limit, Limit: r.Own, Least: r.Least, Most: r.Most, Loop: r.Loop})
	}
	for _, m := range compiled.Moving() {
		if !m.Limits {
			continue
		}
		gate := store.GlobalLimitGate
		if m.Queue != "" {
			gate = store.QueueLimitsGate(m.Queue)
		}
		all = append(all, store.Cap{Gate: gate, Limit: store.PartWhole, Least: m.Part.Min, Most: m.Part.Max, Loop: m.Name})
	}
	return all
}

// overflow returns a bound as the store takes it.
func overflow(o policy.Overflow) store.Overflow {
	return store.Overflow{
		Policy: store.OverflowPolicy(o.Policy), MaxJobs: o.MaxJobs, MaxBytes: o.MaxBytes, MaxSpilled: o.MaxSpilled, MaxMoved: o.MaxMoved, LowWater: o.LowWaterPercent,
	}
}

// overflows returns bounds by tier as the store takes them.
func overflows(tiers map[string]policy.Overflow) map[string]store.Overflow {
	if len(tiers) == 0 {
		return nil
	}
	all := make(map[string]store.Overflow, len(tiers))
	for tier, bound := range tiers {
		all[tier] = overflow(bound)
	}
	return all
}

// classNames returns every class that one of these tiers, without any one of all, gives a weight.
func classNames(document policy.Policy, of ...string) []admission.Priority {
	tiers := document.Tiers
	if tiers == nil {
		tiers = policy.Default().Tiers
	}
	names := map[admission.Priority]bool{}
	for name, tier := range tiers {
		for class := range tier.Weights {
			names[class] = names[class] || len(of) == 0 || slices.Contains(of, name)
		}
	}
	maps.DeleteFunc(names, func(_ admission.Priority, wanted bool) bool { return !wanted })
	return slices.Sorted(maps.Keys(names))
}
