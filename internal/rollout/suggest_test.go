package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// hourOf is so many minutes up to now in which scopes asked for tokens, one a job; ago is 1 for the minute that is just over.
func hourOf(now time.Time, minutes int, tokens func(ago int) map[admission.Scope]int64) (hour []store.Recorded) {
	for ago := minutes; ago >= 0; ago-- {
		m := store.Recorded{At: now.Truncate(time.Minute).Add(-time.Duration(ago) * time.Minute), Lasted: time.Minute, Scopes: map[admission.Scope]store.Minute{}}
		for scope, n := range tokens(ago) {
			m.Scopes[scope] = store.Minute{Allowed: n, Tokens: admission.Tokens(n)}
		}
		hour = append(hour, m)
	}
	return hour
}

// TestALimitIsSuggestedByTheHour: 1.3 times what 99 of 100 minutes did not exceed, the minute under way apart, and a burst of what the worst had beyond.
func TestALimitIsSuggestedByTheHour(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_030, 0)
	tokens := func(ago int) map[admission.Scope]int64 {
		all := map[admission.Scope]int64{"flat": 100 + int64(ago%2)*20, "calm": 100, "calm:mail": 10, "own": 5000, "own:mail": 5000, "new": 900, admission.Global: 9000}
		switch ago {
		case 0: // It is under way.
			all["calm"] = 100_000
		case 30:
			all["calm"], all["calm:mail"] = 700, 60
		case 20:
			delete(all, "calm")
		}
		return all
	}
	base := policy.Unlimited()
	base.Tiers["small"] = policy.Tier{Limit: admission.PerSecond(1)}
	own := admission.Limit{Disabled: true}
	base.Tenants = map[string]policy.Tenant{"own": {Limit: &own, Tier: "small"}, "calm": {Tier: "small"}}
	for what, c := range map[string]struct {
		of       Subject
		minutes  int
		headroom float64
		part     string
		why      string
	}{
		"a tenant":                 {Subject{Tenant: "calm"}, 60, 1.3, `{"tenants":{"calm":{"limit":{"burst":250,"per":"1m","tokens":450}}}}`, ""},
		"with more headroom":       {Subject{Tenant: "calm"}, 60, 8, `{"tenants":{"calm":{"limit":{"burst":47,"per":"1m","tokens":2768}}}}`, ""},
		"of a tier, but for whose": {Subject{Tier: "small"}, 60, 1.3, `{"tiers":{"small":{"limit":{"burst":250,"per":"1m","tokens":450}}}}`, ""},
		"a flat tenant":            {Subject{Tenant: "flat"}, 60, 1.3, "", "no more than chance"},
		"who is not counted":       {Subject{Tenant: "nobody"}, 60, 1.3, "", "nothing was counted of it"},
		"not an hour":              {Subject{Tenant: "calm"}, 59, 1.3, "", "an hour of counts is needed, and they begin 59 minutes ago"},
		"nothing":                  {Subject{Tenant: "calm"}, 0, 1.3, "", "nothing was counted in the last hour"},
	} {
		got, err := suggest(hourOf(now, c.minutes, tokens), now, &Rules{Document: base, Compiled: prepare(t, base)}, c.of, c.headroom)
		if err != nil || string(got.Part) != c.part || !strings.Contains(got.Why, c.why) || (got.Why == "") != (c.why == "") {
			t.Errorf("%s: %s %q, %v, want %s %q", what, got.Part, got.Why, err, c.part, c.why)
		}
		if got.Part != nil {
			if _, err := base.Merge(got.Part); err != nil {
				t.Errorf("%s: %s is no part of a policy: %v", what, got.Part, err)
			}
		}
	}
}

// TestASuggestionIsALimit whatever the hour was like: it takes the place of one of another form, holds what a job has cost, and is within what is allowed.
func TestASuggestionIsALimit(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	base, err := policy.Unlimited().Merge([]byte(`{"queues":{"mail":{"each_tenant":{"limit":{"algorithm":"fixed_window","tokens":1000,"window":"24h","zone":"Europe/Berlin"}}}},"tenants":{"acme":{"limit":{"enabled":false}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		of     Subject
		usual  store.Minute
		worst  store.Minute
		tokens int64
		burst  int64
	}{
		"no limit before":  {Subject{Tenant: "acme"}, store.Minute{Allowed: 10, Tokens: 10}, store.Minute{Allowed: 40, Tokens: 40}, 29, 11},
		"a window before":  {Subject{Queue: "mail"}, store.Minute{Allowed: 10, Tokens: 10}, store.Minute{Refused: 40, Tokens: 40}, 29, 11},
		"a dear job":       {Subject{Tenant: "acme"}, store.Minute{}, store.Minute{Allowed: 1, Tokens: 500}, 267, 500},
		"more than may be": {Subject{Tenant: "acme"}, store.Minute{Allowed: 1e9, Tokens: 2e9}, store.Minute{Allowed: 1e9, Tokens: 5e9}, 1e9, 1e9},
	} {
		hour := hourOf(now, 60, func(int) map[admission.Scope]int64 { return nil })
		for i := range hour {
			hour[i].Scopes[admission.Global] = store.Minute{Allowed: 1, Tokens: 1}
			if c.usual.Tokens > 0 {
				hour[i].Scopes["acme"], hour[i].Scopes["acme:mail"] = c.usual, c.usual
			}
		}
		hour[7].Scopes["acme"], hour[7].Scopes["acme:mail"] = c.worst, c.worst
		got, err := suggest(hour, now, &Rules{Document: base, Compiled: prepare(t, base)}, c.of, 1.3)
		if err != nil || got.Part == nil {
			t.Errorf("%s: %+v, %v", what, got, err)
			continue
		}
		merged, err := base.Merge(got.Part)
		if err != nil {
			t.Errorf("%s: %s is no part of a policy: %v", what, got.Part, err)
			continue
		}
		limit := merged.Queues["mail"].EachTenant.Limit
		if c.of.Tenant != "" {
			limit = *merged.Tenants["acme"].Limit
		}
		if limit.Disabled || !limit.Window.IsZero() || int64(limit.Tokens) != c.tokens || int64(limit.Burst) != c.burst {
			t.Errorf("%s: %+v, want %d tokens a minute, %d at once", what, limit, c.tokens, c.burst)
		}
	}
}
