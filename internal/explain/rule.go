package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Rule is a part of the policy in force.
type Rule struct {
	// Path is a JSON pointer into the policy; empty for what is built in.
	Path string `json:"path,omitempty"`
	// Of says whose rule it is, such as "override of tenant acme" or "default of tier standard".
	Of    string          `json:"of"`
	Value json.RawMessage `json:"value,omitempty"`
	// Changed says who changed it last; nil if the audit does not tell.
	Changed *Changed `json:"changed,omitempty"`
}

// Changed is the edit that made a rule what it is.
type Changed struct {
	Version int64     `json:"version"`
	At      time.Time `json:"at"`
	Author  string    `json:"author"`
	Reason  string    `json:"reason,omitempty"`
}

// rules are those in force, and who made them.
type rules struct {
	policy   policy.Policy
	compiled *policy.Compiled
	audit    []store.AuditEntry
	// version reads a version of the policy that was in force.
	version func(int64) (policy.Policy, error)
}

func readRules(ctx context.Context, s store.Deployment) (*rules, error) {
	current, err := rollout.Current(ctx, s)
	if err != nil {
		return nil, err
	}
	compiled, err := current.Prepare()
	if err != nil {
		return nil, err
	}
	page, err := s.Audit(ctx, store.AuditQuery{Limit: store.MaxPage, Action: store.AuditPolicy})
	return &rules{current, compiled, page.Entries, versionsOf(ctx, s)}, err
}

// versionsOf reads versions of the policy, each once.
func versionsOf(ctx context.Context, s store.Deployment) func(int64) (policy.Policy, error) {
	read := map[int64]policy.Policy{0: policy.Default()}
	return func(version int64) (policy.Policy, error) {
		if p, ok := read[version]; ok {
			return p, nil
		}
		text, err := s.PolicyVersion(ctx, version)
		if err != nil {
			return policy.Policy{}, err
		}
		read[version], err = policy.Stored(text)
		return read[version], err
	}
}

// candidate is a place where the policy may have a rule.
type candidate struct {
	of   string
	path []string
}

// first returns the rule that the policy has, of several places of which those before go before those after; else what
// is built in.
func (r *rules) first(builtIn string, candidates ...candidate) (*Rule, error) {
	for _, c := range candidates {
		value, err := r.policy.At(c.path...)
		if err != nil {
			return nil, err
		}
		if value != nil {
			changed, err := r.changed(c.path)
			return &Rule{Path: pointer(c.path), Of: c.of, Value: value, Changed: changed}, err
		}
	}
	return &Rule{Of: builtIn}, nil
}

// inQueue is what the policy says of a queue at a place: of one that it does not name, what it says of each such queue.
func (r *rules) inQueue(queue string, place ...string) candidate {
	if _, named := r.policy.Queues[queue]; !named {
		queue = policy.Every
	}
	return candidate{"queue " + queue, append([]string{"queues", queue}, place...)}
}

var escapeName = strings.NewReplacer("~", "~0", "/", "~1")

// pointer writes a JSON pointer.
func pointer(path []string) string {
	var text strings.Builder
	for _, name := range path {
		text.WriteString("/" + escapeName.Replace(name))
	}
	return text.String()
}

// changed finds the newest edit that touched what is at a path or below; nil where none of those that the audit has did, or an edit of
// which it does not keep every change is of versions that are kept no more.
func (r *rules) changed(path []string) (*Changed, error) {
	for _, entry := range r.audit {
		if entry.Action != store.AuditPolicy {
			continue
		}
		touched, err := r.touched(&entry, path)
		switch {
		case errors.Is(err, store.ErrUnknownVersion):
			return nil, nil //nolint:nilnil // Nobody knows is an answer.
		case err != nil:
			return nil, err
		case touched:
			return &Changed{entry.To, entry.At.UTC(), entry.Author, entry.Reason}, nil
		}
	}
	return nil, nil //nolint:nilnil // So is nobody.
}

// touched reports whether an edit changed what is at a path or below: by the changes that the audit keeps and, where those are not all,
// by the versions before and after.
func (r *rules) touched(entry *store.AuditEntry, path []string) (bool, error) {
	var kept policy.Summary
	if err := json.Unmarshal(entry.Changes, &kept); err != nil {
		return false, fmt.Errorf("read changes of version %d: %w", entry.To, err)
	}
	at := pointer(path)
	for _, c := range kept.Changes {
		if c.Path == at || strings.HasPrefix(c.Path, at+"/") {
			return true, nil
		}
	}
	if kept.Total == len(kept.Changes) {
		return false, nil
	}
	var values [2]json.RawMessage
	for i, version := range []int64{entry.From, entry.To} {
		p, err := r.version(version)
		if err == nil {
			values[i], err = p.At(path...)
		}
		if err != nil {
			return false, err
		}
	}
	return !bytes.Equal(values[0], values[1]), nil
}

// tier names a tenant's tier, by its record as far as that is known.
func (r *rules) tier(tenant string) string { return r.compiled.TierOf(tenant) }

// ofTier returns the rule that gives a tenant its tier.
func (r *rules) ofTier(tenant string) (*Rule, error) {
	if own := r.compiled.RecordOf(tenant); own.Tier != "" {
		return r.recorded(tenant, own, []string{"tier"})
	}
	return r.first("built in: a tenant without a tier of its own is standard", candidate{"override of tenant " + tenant, []string{"tenants", tenant, "tier"}})
}

// ofWeight returns the rule of a tenant's weight in a class.
func (r *rules) ofWeight(tenant string, class admission.Priority) (*Rule, error) {
	if own := r.compiled.RecordOf(tenant); own.Weights[class] > 0 {
		return r.recorded(tenant, own, []string{"priority_weights", string(class)})
	}
	return r.ofTenant("built in: weight 1", tenant, "priority_weights", string(class))
}

// asOf returns the policy as it is for a tenant with its record, as far as that is known.
func (r *rules) asOf(tenant string) policy.Policy {
	return r.policy.WithRecord(tenant, r.compiled.RecordOf(tenant))
}

// ofTenant returns a rule of a tenant, its own or its tier's.
func (r *rules) ofTenant(builtIn, tenant string, path ...string) (*Rule, error) {
	tier := r.tier(tenant)
	return r.first(builtIn,
		candidate{"override of tenant " + tenant, append([]string{"tenants", tenant}, path...)},
		candidate{"default of tier " + tier, append([]string{"tiers", tier}, path...)})
}

// ofLimit returns the rule of the limit at a level of a scope.
func (r *rules) ofLimit(level admission.Level, tenant, queue string, class admission.Priority) (*Rule, error) {
	none := "built in: no limit"
	if level == admission.LevelGlobal {
		none += " of all"
	}
	own := r.compiled.RecordOf(tenant)
	if _, said := own.LimitAt(level, queue, class); said {
		return r.recorded(tenant, own, own.Path(level, queue, class))
	}
	return r.decided(none, r.asOf(tenant).LimitClause(level, tenant, queue, class))
}

// recordOf says of a rule that it is of a tenant's record.
func recordOf(tenant string) string { return "record of tenant " + tenant }

// recorded returns a part of the record of a tenant as the rule that decides; its path is in that.
func (r *rules) recorded(tenant string, own policy.OwnLimits, path []string) (*Rule, error) {
	changes, err := policy.DiffRecords(policy.OwnLimits{}, own)
	if err != nil {
		return nil, err
	}
	rule, at := &Rule{Of: recordOf(tenant), Path: policy.Clause{Path: path}.Pointer()}, map[string]json.RawMessage{}
	for _, c := range changes {
		if c.Path == rule.Path {
			rule.Value = c.After
			return rule, nil
		}
		if field, below := strings.CutPrefix(c.Path, rule.Path+"/"); below {
			at[field] = c.After
		}
	}
	rule.Value, err = json.Marshal(at)
	return rule, err
}

// decided returns a rule of the policy that decides; else what is built in.
func (r *rules) decided(builtIn string, rule policy.Clause) (*Rule, error) {
	if rule.Path == nil {
		return &Rule{Of: builtIn}, nil
	}
	return r.first(builtIn, candidate{rule.Of, rule.Path})
}

// ofGate returns the rule of a cap or a rate of dispatches, of those that a job of a tenant in a queue that calls a
// downstream may meet.
func (r *rules) ofGate(name store.GateName, tenant, queue, downstream string) (*Rule, error) {
	const none = "built in: no bound"
	if service, account, two := strings.Cut(downstream, admission.AccountSign); two {
		each := service + admission.AccountSign + store.Every
		of := func(field string) (*Rule, error) {
			general := candidate{"default of accounts of downstream " + service, []string{"downstreams", each, field}}
			if account == store.Every {
				return r.first(none, general)
			}
			return r.first(none, candidate{"account " + account + " of downstream " + service, []string{"downstreams", downstream, field}}, general)
		}
		switch name {
		case store.DownstreamGate(downstream), store.DownstreamGate(each):
			return of("max_running")
		case store.DownstreamRateGate(downstream), store.DownstreamRateGate(each):
			return of("dispatch")
		}
		downstream = service
	}
	switch name {
	case store.QueueGate(queue):
		return r.first(none, candidate{"queue " + queue, []string{"queues", queue, "max_running"}})
	case store.TenantGate(tenant):
		if own := r.compiled.RecordOf(tenant); own.MaxRunning > 0 {
			return r.recorded(tenant, own, []string{"max_running"})
		}
		return r.ofTenant(none, tenant, "max_running")
	case store.TenantQueueGate(tenant, queue):
		scope := tenant + ":" + queue
		if own := r.compiled.RecordOf(tenant); own.MaxRunningIn[queue] > 0 {
			return r.recorded(tenant, own, []string{"queues", queue, "max_running"})
		}
		return r.first(none, candidate{"override of " + scope, []string{"max_running", scope}},
			candidate{"default of queue " + queue, []string{"queues", queue, "max_running_per_tenant"}})
	case store.DownstreamGate(downstream):
		return r.first(none, candidate{"downstream " + downstream, []string{"downstreams", downstream, "max_running"}},
			candidate{"default of downstreams", []string{"any_downstream", "max_running"}})
	case store.TenantRateGate(tenant):
		if own := r.compiled.RecordOf(tenant); own.Dispatch != nil {
			return r.recorded(tenant, own, []string{"dispatch"})
		}
		return r.first(none, candidate{"tenant " + tenant, []string{"tenants", tenant, "dispatch"}})
	case store.DownstreamRateGate(downstream):
		return r.first(none, candidate{"downstream " + downstream, []string{"downstreams", downstream, "dispatch"}})
	}
	return nil, nil //nolint:nilnil // It is no rule's.
}
