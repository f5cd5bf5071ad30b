package policy

import (
	"encoding/json"
	"fmt"

	"github.com/headgate/headgate"
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

// With returns the policy with other JSON at a path, or without what is there where value is nil. Objects on the way are
// made where there are none. The errors are those of Unmarshal.
func (p Policy) With(value json.RawMessage, path ...string) (Policy, error) {
	text, err := Marshal(p)
	if err != nil {
		return Policy{}, err
	}
	if text, err = with(text, value, path); err != nil {
		return Policy{}, err
	}
	return Unmarshal(text)
}

func with(text, value json.RawMessage, path []string) (json.RawMessage, error) {
	if len(path) == 0 {
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
		return nil, fmt.Errorf("%w policy: %w", headgate.ErrInvalid, err)
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
