package shown

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/policy"
)

// Section is a part of the policy that has settings by name.
type Section string

// The sections.
const (
	Tiers       Section = "tiers"
	TenantsOwn  Section = "tenants"
	QueuesOwn   Section = "queues"
	Downstreams Section = "downstreams"
)

// Every is the name of the settings of all downstreams that have none of their own.
const Every = "*"

// Path is where the JSON of a policy has what a name has of its own.
func (s Section) Path(name string) []string {
	if s == Downstreams && name == Every {
		return []string{"any_downstream"}
	}
	return []string{string(s), name}
}

// Part is what a name has of its own, as it is put; nothing where Own is nil.
type Part struct {
	Name string          `json:"name"`
	Own  json.RawMessage `json:"own,omitempty"`
}

// Parts are the names of a section, in their order.
type Parts struct {
	Parts []Part `json:"parts"`
	// Cursor continues the list; empty where it ends.
	Cursor string `json:"cursor,omitempty"`
}

// PartsOf shows the names of a section that follow a cursor, most of them; all if most is 0.
func PartsOf(current policy.Policy, section Section, cursor string, most int) (Parts, error) {
	v := Parts{Parts: []Part{}}
	own := map[string]json.RawMessage{}
	text, err := current.At(string(section))
	if err != nil {
		return v, err
	}
	if text != nil {
		if err := json.Unmarshal(text, &own); err != nil {
			return v, fmt.Errorf("read policy: %w", err)
		}
	}
	if section == Downstreams {
		if text, err = current.At(Downstreams.Path(Every)...); err != nil {
			return v, err
		}
		if text != nil {
			own[Every] = text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if name <= cursor {
			continue
		}
		if most > 0 && len(v.Parts) == most {
			v.Cursor = v.Parts[most-1].Name
			break
		}
		v.Parts = append(v.Parts, Part{name, own[name]})
	}
	return v, nil
}
