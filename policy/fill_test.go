package policy

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

func TestLongestFill(t *testing.T) {
	t.Parallel()
	day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 3}
	for name, c := range map[string]struct {
		policy Policy
		want   time.Duration
	}{
		"nothing limited": {Unlimited(), 0},
		"the default":     {Default(), 250 * time.Millisecond},
		"global":          {Policy{Global: day}, 72 * time.Hour},
		"a tenant's own":  {Policy{Tenants: map[string]Tenant{"acme": {Limit: &day}}}, 72 * time.Hour},
		"a queue's":       {Policy{QueueLimits: map[admission.Scope]admission.Limit{"acme:mail": day}}, 72 * time.Hour},
		"a class's":       {Policy{PriorityLimits: map[admission.Scope]admission.Limit{"acme:mail:low": day}}, 72 * time.Hour},
	} {
		if got := c.policy.LongestFill().Truncate(time.Microsecond); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
