package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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
// without writing the whole. A bad scope is a *headgate.FieldError.
func (p Policy) OwnLimit(scope admission.Scope) (json.RawMessage, error) {
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
		if limit, found = p.PriorityLimits[scope]; !found {
			tenant, queue, class, _ := LimitParts(scope)
			jobType, _ := class.JobType()
			limit, found = p.Tenants[tenant].Queues[queue].TypeLimits[jobType]
		}
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
		if err == nil && len(e.Path) > 1 && e.Path[0] == "tenants" {
			next.prune(e.Path[1])
		}
	}
	return next, err
}

// prune takes away queues of a tenant of which nothing is said any more, and the tenant where that was all.
func (p Policy) prune(tenant string) {
	own := p.Tenants[tenant]
	maps.DeleteFunc(own.Queues, func(_ string, in TenantQueue) bool { return len(in.TypeLimits) == 0 })
	if own.empty() {
		delete(p.Tenants, tenant)
	}
}

// empty reports a tenant that has nothing of its own.
func (t Tenant) empty() bool {
	return cmp.Or(t.Tier, StandardTier) == StandardTier && t.Limit == nil && len(t.Weights)+len(t.Queues) == 0 && t.MaxRunning == 0 && t.Dispatch == nil
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

// Change is one place in which two policies differ.
type Change struct {
	// Path is a JSON pointer (RFC 6901) into the JSON of a policy, as in /tenants/acme/limit/tokens.
	Path string `json:"path"`
	// Before and After are the JSON there; nil is none, so that a nil Before is an addition and a nil After a removal.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// Kind names the change: added, removed or changed.
func (c Change) Kind() string {
	switch {
	case c.Before == nil:
		return "added"
	case c.After == nil:
		return "removed"
	}
	return "changed"
}

// Diff returns every value that differs between two policies, by path; their versions are not compared. An array is one
// value. It reports a policy that is not valid.
func Diff(before, after Policy) ([]Change, error) {
	old, err := tree(before)
	if err != nil {
		return nil, err
	}
	fresh, err := tree(after)
	if err != nil {
		return nil, err
	}
	var found []Change
	err = diff("", old, fresh, &found)
	slices.SortFunc(found, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return found, err
}

// DiffRecords is Diff of the record of a tenant.
func DiffRecords(before, after OwnLimits) (found []Change, err error) {
	var all [2]map[string]any
	for i, r := range [...]OwnLimits{before, after} {
		text, err := MarshalRecord(r)
		if err != nil {
			return nil, err
		}
		if text != nil {
			if all[i], err = treeOf(text); err != nil {
				return nil, err
			}
		}
	}
	err = diff("", all[0], all[1], &found)
	slices.SortFunc(found, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return found, err
}

// tree returns the JSON of a policy without its version.
func tree(p Policy) (map[string]any, error) {
	p.Version = 0
	text, err := Marshal(p)
	if err != nil {
		return nil, err
	}
	return treeOf(text)
}

func treeOf(text []byte) (map[string]any, error) {
	var all map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return all, nil
}

// escapeName writes a name as a part of a JSON pointer.
var escapeName = strings.NewReplacer("~", "~0", "/", "~1")

// unescapeName reads it.
var unescapeName = strings.NewReplacer("~1", "/", "~0", "~")

// diff adds what differs below a path. A value that is nil is not there.
func diff(path string, before, after any, found *[]Change) error {
	old, wasObject := before.(map[string]any)
	fresh, isObject := after.(map[string]any)
	if (wasObject || before == nil) && (isObject || after == nil) && len(old)+len(fresh) > 0 {
		names := maps.Clone(old)
		if names == nil {
			names = map[string]any{}
		}
		maps.Copy(names, fresh)
		for name := range names {
			if err := diff(path+"/"+escapeName.Replace(name), old[name], fresh[name], found); err != nil {
				return err
			}
		}
		return nil
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	change := Change{Path: path}
	for _, side := range []struct {
		value any
		to    *json.RawMessage
	}{{before, &change.Before}, {after, &change.After}} {
		if side.value == nil {
			continue
		}
		text, err := json.Marshal(side.value)
		if err != nil {
			return fmt.Errorf("write change of %s: %w", path, err)
		}
		*side.to = text
	}
	*found = append(*found, change)
	return nil
}

// Unsaid returns those changes of which a text in JSON says nothing: it has neither a value at the place nor the object that
// would hold it. They come about because the text leaves something out.
func Unsaid(changes []Change, text []byte) []Change {
	var said any
	if err := json.Unmarshal(text, &said); err != nil {
		return changes
	}
	var unsaid []Change
	for _, c := range changes {
		names := strings.Split(c.Path, "/")[1:]
		if c.Before != nil && !says(said, names[:len(names)-1]) || c.After == nil && !says(said, names) {
			unsaid = append(unsaid, c)
		}
	}
	return unsaid
}

// says reports whether a value has something at a place.
func says(value any, names []string) bool {
	for _, name := range names {
		members, ok := value.(map[string]any)
		if !ok {
			return false
		}
		if value, ok = members[unescapeName.Replace(name)]; !ok {
			return false
		}
	}
	return true
}

// Bounds of what the audit keeps of the changes of an edit.
const (
	summaryChanges = 20
	summaryBytes   = 8 << 10
)

// Summary is what the audit tells of the changes of an edit: how many there were, and the first of them.
type Summary struct {
	Total   int      `json:"total"`
	Changes []Change `json:"changes"`
}

// Summarize returns what the audit is to keep of changes, a Summary as JSON of some 8 KiB at most.
func Summarize(changes []Change) ([]byte, error) {
	s := Summary{Total: len(changes), Changes: []Change{}}
	size := 0
	for _, c := range changes[:min(len(changes), summaryChanges)] {
		if size += len(c.Path) + len(c.Before) + len(c.After); size > summaryBytes {
			break
		}
		s.Changes = append(s.Changes, c)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write changes: %w", err)
	}
	return text, nil
}
