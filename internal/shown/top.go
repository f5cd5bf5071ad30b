package shown

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Orders of a list of scopes: by what they have most of.
const (
	ByRequests = "requests"
	ByAllowed  = "allowed"
	ByRefused  = "refused"
	ByTokens   = "tokens"
)

// Orders are all of them, the usual one first.
var Orders = []string{ByRequests, ByAllowed, ByRefused, ByTokens}

// TopScope is what was decided on the jobs and checks of a scope.
type TopScope struct {
	Scope    admission.Scope  `json:"scope"`
	Requests int64            `json:"requests"`
	Allowed  int64            `json:"allowed"`
	Refused  int64            `json:"refused"`
	Tokens   admission.Tokens `json:"tokens"`
}

// Top are the scopes with the most in the last minutes.
type Top struct {
	// Since is when the first minute began in which something was counted; absent if there is none.
	Since  *time.Time `json:"since,omitempty"`
	Scopes []TopScope `json:"scopes"`
}

// TopOf shows the scopes that have most of what order says, most of them, and of equals the earlier by name; those that have none of
// it are left out.
func TopOf(minutes []store.Recorded, order string, most int) Top {
	v := Top{Scopes: []TopScope{}}
	if len(minutes) > 0 {
		v.Since = Stamp(minutes[0].At)
	}
	sums := map[admission.Scope]TopScope{}
	for _, minute := range minutes {
		for scope, m := range minute.Scopes {
			sum := sums[scope]
			sums[scope] = TopScope{scope, sum.Requests + m.Allowed + m.Refused, sum.Allowed + m.Allowed, sum.Refused + m.Refused, sum.Tokens + m.Tokens}
		}
	}
	for _, sum := range sums {
		if sum.of(order) > 0 {
			v.Scopes = append(v.Scopes, sum)
		}
	}
	slices.SortFunc(v.Scopes, func(a, b TopScope) int {
		return cmp.Or(cmp.Compare(b.of(order), a.of(order)), cmp.Compare(a.Scope, b.Scope))
	})
	v.Scopes = v.Scopes[:min(len(v.Scopes), most)]
	return v
}

func (s TopScope) of(order string) int64 {
	switch order {
	case ByAllowed:
		return s.Allowed
	case ByRefused:
		return s.Refused
	case ByTokens:
		return int64(s.Tokens)
	}
	return s.Requests
}
