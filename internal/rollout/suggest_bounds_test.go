package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// TestASuggestionIsWithinTheBoundsOfTheDocument: of an hour that would make it 450 a minute and 250 at once, and says which bound made it another.
func TestASuggestionIsWithinTheBoundsOfTheDocument(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	const adaptive = `,"adaptive":{"load":{"of":"queue mail","min":50,"max":80}},"queues":{"mail":{"pressure":{"target_wait":"10s"},"each_tenant":{"limit":`
	for what, c := range map[string]struct {
		of            Subject
		document      string
		tokens, burst int64
		cut           []string
	}{
		"nothing bounds it":        {Subject{Tenant: "acme"}, `{}`, 450, 250, nil},
		"the global limit":         {Subject{Tenant: "acme"}, `{"global":{"tokens":5,"per":"1s","burst":300}}`, 300, 300, []string{"tokens a minute 300, not 450: /global is 5 tokens a second and 300 at once", "burst 300, not 400: /global"}},
		"its burst":                {Subject{Tier: "standard"}, `{"global":{"tokens":500,"per":"1s","burst":40}}`, 450, 40, []string{"burst 40, not 250: /global is"}},
		"a window of all":          {Subject{Queue: "mail"}, `{"global":{"algorithm":"fixed_window","tokens":1440,"window":"24h"}}`, 1, 699, []string{"tokens a minute 1, not 450: /global is"}},
		"the most of an adaptive":  {Subject{Queue: "mail"}, `{"global":{"enabled":false}` + adaptive + `{"tokens":500,"per":"1m","burst":100}}}}}`, 400, 80, []string{"tokens a minute 400, not 450: /adaptive/load has the limits of queue mail be 50 to 80% of what they are", "burst 80, not 300: /adaptive/load"}},
		"the least of an adaptive": {Subject{Queue: "mail"}, `{"global":{"enabled":false}` + adaptive + `{"tokens":20,"per":"1s","burst":601}}}}}`, 600, 301, []string{"tokens a minute 600, not 450: /adaptive/load", "burst 301, not 100: /adaptive/load"}},
		"no most of an adaptive":   {Subject{Queue: "mail"}, `{"global":{"enabled":false},"adaptive":{"load":{"of":"queue mail","min":50}},"queues":{"mail":{"pressure":{"target_wait":"10s"},"each_tenant":{"limit":{"tokens":400,"per":"1m","burst":100}}}}}`, 450, 250, nil},
		"an adaptive of another":   {Subject{Tenant: "acme"}, `{"global":{"enabled":false}` + adaptive + `{"tokens":20,"per":"1s","burst":601}}}}}`, 450, 250, nil},
		"the stricter of two":      {Subject{Queue: "mail"}, `{"global":{"tokens":500,"per":"1m","burst":10}` + adaptive + `{"tokens":20,"per":"1s","burst":600}}}}}`, 500, 10, []string{"tokens a minute 600, not 450: /adaptive/load", "tokens a minute 500, not 600: /global", "burst 300, not 200: /adaptive/load", "burst 10, not 300: /global"}},
	} {
		base, err := policy.Unlimited().Merge([]byte(c.document))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		hour := hourOf(now, 60, func(ago int) map[admission.Scope]int64 {
			if ago == 30 {
				return map[admission.Scope]int64{"acme": 700, "acme:mail": 700}
			}
			return map[admission.Scope]int64{"acme": 100, "acme:mail": 100}
		})
		got, err := suggest(hour, now, &Rules{Document: base, Compiled: prepare(t, base)}, c.of, 1.3)
		if err != nil || got.Part == nil {
			t.Errorf("%s: %+v, %v", what, got, err)
			continue
		}
		merged, err := base.Merge(got.Part)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		limit := merged.Queues["mail"].EachTenant.Limit
		switch {
		case c.of.Tenant != "":
			limit = *merged.Tenants["acme"].Limit
		case c.of.Tier != "":
			limit = merged.Tiers["standard"].Limit
		}
		if int64(limit.Tokens) != c.tokens || int64(limit.Burst) != c.burst {
			t.Errorf("%s: %s, want %d and %d at once", what, got.Part, c.tokens, c.burst)
		}
		cut := strings.Join(got.Cut, "\n")
		for _, part := range c.cut {
			if !strings.Contains(cut, part) {
				t.Errorf("%s: it does not say %q: %q", what, part, got.Cut)
			}
		}
		if len(got.Cut) != len(c.cut) {
			t.Errorf("%s: %q", what, got.Cut)
		}
	}
	hour := hourOf(now, 60, func(ago int) map[admission.Scope]int64 {
		return map[admission.Scope]int64{"acme": 1e9 * int64(1+ago/30)}
	})
	base := policy.Unlimited()
	got, err := suggest(hour, now, &Rules{Document: base, Compiled: prepare(t, base)}, Subject{Tenant: "acme"}, 10)
	if err != nil || len(got.Cut) != 2 || !strings.Contains(got.Cut[0], "tokens a minute 1000000000, not ") || !strings.Contains(got.Cut[0], "a limit are 1 to 1000000000") {
		t.Errorf("more than may be: %+v, %v", got, err)
	}
}
