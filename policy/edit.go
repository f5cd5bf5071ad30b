package policy

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/headgate/headgate/admission"
)

// At returns the JSON at a path into the JSON of a policy, as in At("tenants", "acme", "limit"); nil where there is
// none. It reports a policy that is not valid.
func (p Policy) At(path ...string) (json.RawMessage, error) {
	text, err := Marshal(p)
	if err != nil {
		return nil, err
	}
	found := json.RawMessage(text)
	for _, name := range path {
		members, err := membersOf(found)
		if err != nil {
			return nil, err
		}
		if found = members[name]; found == nil {
			return nil, nil
		}
	}
	return found, nil
}

// OwnLimit returns the JSON of the limit that the policy has for a scope itself, nil where it has none: what At returns at LimitPath,
// without writing the whole. That of a type has none. A bad scope is a *headgate.FieldError.
func (p Policy) OwnLimit(scope admission.Scope) (json.RawMessage, error) {
	if _, _, class, err := scope.Parts(); err == nil && class != "" {
		if _, ofType := class.JobType(); ofType {
			return nil, nil
		}
	}
	if _, err := LimitPath(scope); err != nil {
		return nil, err
	}
	var limit admission.Limit
	found := false
	switch level := scope.Level(); {
	case scope.OfDimension():
		limit, found, _ = p.ownDimension(scope)
	case level == admission.LevelGlobal:
		limit, found = p.Global, p.Global != noLimit && p.Global != (admission.Limit{})
	case level == admission.LevelTenant:
		if own := p.Tenants[string(scope)].Limit; own != nil {
			limit, found = *own, true
		}
	case level == admission.LevelQueue:
		limit, found = p.QueueLimits[scope]
	case level == admission.LevelPriority:
		limit, found = p.PriorityLimits[scope]
	}
	if !found {
		return nil, nil
	}
	text, err := json.Marshal(newLimitJSON(limit))
	if err != nil {
		return nil, fmt.Errorf("encode limit: %w", err)
	}
	return text, nil
}

// Patch is other JSON for a place in the JSON of a policy.
type Patch struct {
	// Path leads to the place, as in tenants, acme, limit.
	Path []string
	// Value replaces what is there; nil takes it away.
	Value json.RawMessage
}

// With returns the policy with other JSON at a path, or without what is there where value is nil. It is Edited of one edit.
func (p Policy) With(value json.RawMessage, path ...string) (Policy, error) {
	return p.Edited(Patch{Path: path, Value: value})
}

// Edited returns the policy with all edits made, one after the other; only what comes of all has to be valid. Objects on the
// way are made where there are none, and a tenant that has nothing left is not named any more. The errors are those of Unmarshal.
func (p Policy) Edited(edits ...Patch) (Policy, error) {
	marshaled, err := Marshal(p)
	if err != nil {
		return Policy{}, err
	}
	text := json.RawMessage(marshaled)
	for _, e := range edits {
		if text, err = with(text, e.Value, e.Path); err != nil {
			return Policy{}, err
		}
	}
	next, err := Unmarshal(text)
	for _, e := range edits {
		if err == nil && len(e.Path) > 1 && e.Path[0] == "tenants" && next.Tenants[e.Path[1]].empty() {
			delete(next.Tenants, e.Path[1])
		}
	}
	return next, err
}

// empty reports a tenant that has nothing of its own.
func (t Tenant) empty() bool {
	return cmp.Or(t.Tier, StandardTier) == StandardTier && t.Limit == nil && len(t.Weights) == 0 && t.MaxRunning == 0 && t.Dispatch == nil
}

// Merge returns the policy changed by a merge patch (RFC 7396): members of patch replace those of the policy's JSON, objects
// member by member, and null takes a member away. The errors are those of Unmarshal.
func (p Policy) Merge(patch []byte) (Policy, error) {
	if err := checkSize(patch); err != nil {
		return Policy{}, err
	}
	if err := checkNames(patch); err != nil {
		return Policy{}, err
	}
	text, err := Marshal(p)
	if err != nil {
		return Policy{}, err
	}
	if text, err = merge(text, patch); err != nil {
		return Policy{}, err
	}
	return Unmarshal(text)
}

// merge is MergePatch of RFC 7396.
func merge(text, patch json.RawMessage) (json.RawMessage, error) {
	changes, err := membersOf(patch)
	if err != nil || changes == nil { // No object: it is the value.
		return patch, nil //nolint:nilerr // As above.
	}
	members, err := membersOf(text)
	if err != nil || members == nil {
		members = map[string]json.RawMessage{}
	}
	for name, change := range changes {
		if string(change) == "null" {
			delete(members, name)
			continue
		}
		if members[name], err = merge(members[name], change); err != nil {
			return nil, err
		}
	}
	all, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("%w policy: %w", admission.ErrInvalid, err)
	}
	return all, nil
}

func with(text, value json.RawMessage, path []string) (json.RawMessage, error) {
	if len(path) == 0 || text == nil && value == nil { // What is not there needs no object on the way.
		return value, nil
	}
	members := map[string]json.RawMessage{}
	if text != nil {
		var err error
		if members, err = membersOf(text); err != nil {
			return nil, err
		}
	}
	inner, err := with(members[path[0]], value, path[1:])
	if err != nil {
		return nil, err
	}
	if inner == nil {
		delete(members, path[0])
	} else {
		members[path[0]] = inner
	}
	all, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("%w policy: %w", admission.ErrInvalid, err)
	}
	return all, nil
}

func membersOf(text json.RawMessage) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return members, nil
}
