package headgate

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
)

// Edit says who changes the policy, and why: both go into the audit.
type Edit struct {
	Author, Reason string
	// Replace lets Apply drop what the document does not name.
	Replace bool
}

// Policies reads and changes the policy in force.
type Policies struct{ client *Client }

// Policy returns what reads and changes the policy in force.
func (c *Client) Policy() Policies { return Policies{c} }

// Policy is the policy while it is changed. What Tier, TierQueue, Tenant, TenantQueue, Queue and Downstream return is changed in place, and is made where it is
// new. Document is the whole, for what has no method here.
type Policy struct {
	Document     *policy.Policy
	tiers        map[string]*policy.Tier
	tenants      map[string]*policy.Tenant
	queues       map[string]*policy.Queue
	downstreams  map[string]*policy.Downstream
	tierQueues   map[inQueue]*policy.TierQueue
	tenantQueues map[inQueue]*policy.TenantQueue
}

// inQueue names a queue of a tier or a tenant.
type inQueue struct{ of, queue string }

func openPolicy(document *policy.Policy) *Policy {
	return &Policy{
		Document: document, tiers: map[string]*policy.Tier{}, tenants: map[string]*policy.Tenant{}, queues: map[string]*policy.Queue{},
		downstreams: map[string]*policy.Downstream{}, tierQueues: map[inQueue]*policy.TierQueue{}, tenantQueues: map[inQueue]*policy.TenantQueue{},
	}
}

// entry returns the entry of a name that is being changed, which begins as the document has it.
func entry[T any](open map[string]*T, in map[string]T, name string) *T {
	if open[name] == nil {
		value := in[name]
		open[name] = &value
	}
	return open[name]
}

// entryIn is entry of what somebody has in a queue.
func entryIn[T any](open map[inQueue]*T, in map[string]T, of, queue string) *T {
	at := inQueue{of, queue}
	if open[at] == nil {
		value := in[queue]
		open[at] = &value
	}
	return open[at]
}

// put writes what was changed back.
func put[T any](open map[string]*T, into *map[string]T) {
	if *into == nil && len(open) > 0 {
		*into = map[string]T{}
	}
	for name, value := range open {
		(*into)[name] = *value
	}
}

// Tier is a named default for tenants.
func (p *Policy) Tier(name string) *policy.Tier {
	if p.Document.Tiers == nil {
		p.Document.Tiers = policy.Default().Tiers
	}
	return entry(p.tiers, p.Document.Tiers, name)
}

// TierQueue is what each tenant of a tier has in a queue; policy.Every is every queue for which nothing nearer is said. What each tenant has
// in a queue, whatever its tier, is EachTenant of Queue.
func (p *Policy) TierQueue(tier, queue string) *policy.TierQueue {
	return entryIn(p.tierQueues, p.Tier(tier).Queues, tier, queue)
}

// Tenant is what one tenant has of its own.
func (p *Policy) Tenant(name string) *policy.Tenant {
	return entry(p.tenants, p.Document.Tenants, name)
}

// TenantQueue is what one tenant has of its own in a queue, beside the limits of its scopes there.
func (p *Policy) TenantQueue(tenant, queue string) *policy.TenantQueue {
	return entryIn(p.tenantQueues, p.Tenant(tenant).Queues, tenant, queue)
}

// Queue is what one queue has of its own, or policy.Every each queue that the policy does not name.
func (p *Policy) Queue(name string) *policy.Queue { return entry(p.queues, p.Document.Queues, name) }

// Downstream is what one downstream has of its own.
func (p *Policy) Downstream(name string) *policy.Downstream {
	return entry(p.downstreams, p.Document.Downstreams, name)
}

func (p *Policy) close() policy.Policy {
	for at, in := range p.tierQueues {
		put(map[string]*policy.TierQueue{at.queue: in}, &p.Tier(at.of).Queues)
	}
	for at, in := range p.tenantQueues {
		put(map[string]*policy.TenantQueue{at.queue: in}, &p.Tenant(at.of).Queues)
	}
	put(p.tiers, &p.Document.Tiers)
	put(p.tenants, &p.Document.Tenants)
	put(p.queues, &p.Document.Queues)
	put(p.downstreams, &p.Document.Downstreams)
	return *p.Document
}

// copyOf returns a policy that shares no map and no pointer with p, which what becomes of it is compared with: what differs goes into
// the audit, and tells the store which buckets it has to keep for longer.
func copyOf(p policy.Policy) (policy.Policy, error) {
	text, err := policy.Marshal(p)
	if err != nil {
		return policy.Policy{}, err
	}
	return policy.Unmarshal(text)
}

// Change reads the policy in force, has it changed, checks it, and stores it as the next version, live everywhere. Where somebody else
// was quicker it does all of that again, so change may be called several times; where both changed the same the error is one of a
// conflict. The error names every fault of the policy at once, and then nothing was stored.
func (p Policies) Change(ctx context.Context, edit Edit, change func(*Policy)) error {
	_, err := rollout.Change(ctx, p.client.store, edit.inner(), func(current policy.Policy) (policy.Policy, error) {
		own, err := copyOf(current)
		if err != nil {
			return own, err
		}
		open := openPolicy(&own)
		change(open)
		return open.close(), nil
	})
	return err
}

// Set stores a whole policy, built in Go, in place of the one in force: what it does not name is dropped. The error names every fault
// at once, and then nothing was stored. What differs from the version in force is in the audit.
//
// Its Tiers must have the tier "standard", that of tenants nobody configured; nil Tiers are those of policy.Default.
func (p Policies) Set(ctx context.Context, document policy.Policy, edit Edit) error {
	_, err := rollout.Change(ctx, p.client.store, edit.inner(), func(current policy.Policy) (policy.Policy, error) {
		document.Version = current.Version
		return document, nil
	})
	return err
}

// Apply stores a document in JSON, as a file of the policy has it, in place of the one in force. What it would drop because it does not
// name it is an error that lists it, unless Edit.Replace is set.
func (p Policies) Apply(ctx context.Context, document []byte, edit Edit) error {
	next, err := policy.Unmarshal(document)
	if err != nil {
		return err
	}
	_, err = rollout.Change(ctx, p.client.store, edit.inner(), func(current policy.Policy) (policy.Policy, error) {
		if !edit.Replace {
			changes, err := policy.Diff(current, next)
			if err != nil {
				return next, err
			}
			if dropped := policy.Unsaid(changes, document); len(dropped) > 0 {
				return next, &DropError{Paths: paths(dropped)}
			}
		}
		next.Version = current.Version
		return next, nil
	})
	return err
}

// Current returns the policy in force.
func (p Policies) Current(ctx context.Context) (policy.Policy, error) {
	text, err := p.client.store.Policy(ctx)
	if err != nil {
		return policy.Policy{}, err
	}
	return policy.Stored(text)
}

func (e Edit) inner() rollout.Edit {
	return rollout.Edit{Author: e.Author, Reason: e.Reason, Expected: rollout.AnyVersion}
}

// DropError is a document that leaves out what is in force: nothing was stored.
type DropError struct {
	// Paths are the places, as in "/tenants/acme".
	Paths []string
}

// Error lists the places.
func (e *DropError) Error() string {
	return fmt.Sprintf("the document does not name what is in force at %s: name it, or set Edit.Replace to drop it", strings.Join(e.Paths, ", "))
}

func paths(changes []policy.Change) []string {
	all := make([]string, len(changes))
	for i, c := range changes {
		all[i] = c.Path
	}
	return all
}

// Record returns what a tenant has of its own beside the policy; the zero Record for nothing.
func (p Policies) Record(ctx context.Context, tenant string) (policy.OwnLimits, error) {
	if err := admission.ValidateTenant(tenant); err != nil {
		return policy.OwnLimits{}, err
	}
	_, r, err := rollout.ReadRecord(ctx, p.client.store, tenant)
	return r, err
}

// ChangeRecord has the record of a tenant changed, checks it, and stores it: what it says holds before the policy,
// everywhere: from the next job on, and in limiters half a second later where they are asked for others too, else a second. It costs the
// same however many tenants have one. The policy has to have TenantRecords, or the error matches policy.ErrNoRecords. Where somebody else was
// quicker change is called again.
func (p Policies) ChangeRecord(ctx context.Context, tenant string, edit Edit, change func(*policy.OwnLimits)) error {
	if err := admission.ValidateTenant(tenant); err != nil {
		return err
	}
	read := func(ctx context.Context) (rollout.Rules, error) { return rollout.ReadRules(ctx, p.client.store) }
	_, err := rollout.EditRecord(ctx, p.client.store, read, tenant, edit.inner(), func(r policy.OwnLimits) (policy.OwnLimits, error) {
		own := r // All of it but what maps have, and limits, is a copy.
		own.Weights, own.Overflows, own.MaxRunningIn, own.Queues = maps.Clone(r.Weights), maps.Clone(r.Overflows), maps.Clone(r.MaxRunningIn), maps.Clone(r.Queues)
		for _, limit := range []**admission.Limit{&own.Limit, &own.Dispatch} {
			if *limit != nil {
				*limit = new(**limit)
			}
		}
		own.Semaphores = maps.Clone(r.Semaphores)
		for name, in := range own.Queues {
			in.PriorityLimits, in.TypeLimits = maps.Clone(in.PriorityLimits), maps.Clone(in.TypeLimits)
			own.Queues[name] = in
		}
		change(&own)
		return own, nil
	})
	return err
}
