package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

func TestValidateQuotesEachBadField(t *testing.T) {
	t.Parallel()
	limits := func(scope admission.Scope) map[admission.Scope]admission.Limit {
		return map[admission.Scope]admission.Limit{scope: admission.PerSecond(1)}
	}
	queue := func(q Queue) Policy { return Policy{Queues: map[string]Queue{"mail": q}} }
	tenant := func(name string, tenant Tenant) Policy { return Policy{Tenants: map[string]Tenant{name: tenant}} }
	for _, c := range []struct {
		name   string
		policy Policy
		want   string
	}{
		{"version", Policy{Version: -1}, `invalid version -1: allowed is 0, the built-in policy, or more`},
		{"global limit", Policy{Global: admission.PerSecond(0).WithBurst(5)}, `invalid global.tokens 0: allowed is 1 to 1000000000 tokens`},
		{"dedup window", Policy{DedupWindow: 48 * time.Hour}, `invalid dedup_window 48h: allowed is 1s to 24h`},
		{"no standard tier", Policy{Tiers: map[string]Tier{"gold": {Limit: noLimit}}}, `invalid tiers "gold": allowed is a set with "standard", the tier of a tenant nobody configured: add it`},
		{"no tier at all", Policy{Tiers: map[string]Tier{}}, `invalid tiers none: allowed is a set with "standard", the tier of a tenant nobody configured: add it`},
		{"tier's limit", Policy{Tiers: map[string]Tier{StandardTier: {Limit: admission.PerSecond(1).WithBurst(-1)}}}, `invalid tiers.standard.limit.burst -1: allowed is 1 to 1000000000 tokens`},
		{"tier's name", Policy{Tiers: map[string]Tier{StandardTier: {Limit: noLimit}, "a:b": {Limit: noLimit}}}, `invalid tier "a:b": allowed is 1-128 bytes of [A-Za-z0-9._@/-]`},
		{"unknown tier", tenant("acme", Tenant{Tier: "gold"}), `invalid tenants.acme.tier "gold": allowed is one of "basic", "premium", "standard"`},
		{"tenant's name", tenant("global", Tenant{}), `invalid tenant "global": allowed is any name but "global", which is the outermost scope`},
		{"tenant's limit", tenant("acme", Tenant{Limit: &admission.Limit{Tokens: 1, Per: time.Hour * 24 * 40, Burst: 1}}), `invalid tenants.acme.limit.per 960h0m0s: allowed is 1ms to 744h0m0s`},
		{"weight", tenant("acme", Tenant{Weights: Weights{admission.High: 1001}}), `invalid tenants.acme.priority_weights.high 1001: allowed is 1 to 1000`},
		{"zero weight", tenant("acme", Tenant{Weights: Weights{admission.High: 0}}), `invalid tenants.acme.priority_weights.high 0: allowed is 1 to 1000`},
		{"weight's class", tenant("acme", Tenant{Weights: Weights{"a b": 1}}), `invalid tenants.acme.priority_weights "a b": allowed is 1-128 bytes of [A-Za-z0-9._@/-]`},
		{"queue scope", Policy{QueueLimits: limits("acme")}, `invalid queue_limits "acme": allowed is scopes "tenant:queue"`},
		{"queue scope's tenant", Policy{QueueLimits: limits("global:mail")}, `scope "global:mail": invalid tenant "global": allowed is any name but "global", which is the outermost scope`},
		{"queue scope's queue", Policy{QueueLimits: limits("acme:")}, `scope "acme:": invalid queue "": allowed is 1-128 bytes of [A-Za-z0-9._@/-]`},
		{"queue limit", Policy{QueueLimits: map[admission.Scope]admission.Limit{"acme:mail": admission.PerSecond(1).WithBurst(-2)}}, `invalid queue_limits.acme:mail.burst -2: allowed is 1 to 1000000000 tokens`},
		{"priority scope", Policy{PriorityLimits: limits("acme:mail")}, `invalid priority_limits "acme:mail": allowed is scopes "tenant:queue:priority"`},
		{"priority scope's class", Policy{PriorityLimits: limits("acme:mail:critical")}, `invalid priority_limits "acme:mail:critical": allowed is for a class of queue mail: "high", "medium", "low"`},
		{"queue's name", Policy{Queues: map[string]Queue{"a:b": {}}}, `invalid queue "a:b": allowed is 1-128 bytes of [A-Za-z0-9._@/-]`},
		{"horizon", queue(Queue{Horizon: time.Millisecond}), `invalid queues.mail.horizon 1ms: allowed is 1s to 720h`},
		{"expired policy", queue(Queue{ExpiredPolicy: "keep"}), `invalid queues.mail.expired_policy "keep": allowed is "dead_letter", "drop"`},
		{"longest wait", queue(Queue{MaxWait: 31 * 24 * time.Hour}), `invalid queues.mail.max_wait 744h: allowed is 1ms to 720h`},
		{"negative wait", queue(Queue{MaxWait: -time.Second}), `invalid queues.mail.max_wait -1s: allowed is 1ms to 720h`},
		{"poison limit", queue(Queue{PoisonLimit: 255}), `invalid queues.mail.poison_limit 255: allowed is 1 to 254`},
		{"negative poison limit", queue(Queue{PoisonLimit: -1}), `invalid queues.mail.poison_limit -1: allowed is 1 to 254`},
		{"keeping of dead letters", queue(Queue{KeepDead: time.Millisecond}), `invalid queues.mail.keep_dead 1ms: allowed is 1s to 8784h`},
		{"doomed at once", queue(Queue{DoomedPercent: 9}), `invalid queues.mail.doomed_percent 9: allowed is 10 to 1000`},
		{"doomed never", queue(Queue{DoomedPercent: 1001}), `invalid queues.mail.doomed_percent 1001: allowed is 10 to 1000`},
		{"most attempts", queue(Queue{MostAttempts: 256}), `invalid queues.mail.most_attempts 256: allowed is 1 to 255`},
		{"least backoff", queue(Queue{LeastBackoff: 25 * time.Hour}), `invalid queues.mail.least_backoff 25h: allowed is 1ms to 24h`},
		{"expiry", Policy{Reservations: ReservationRules{ExpireAfter: time.Millisecond}}, `invalid reservations.expire_after 1ms: allowed is 1s to 24h`},
		{"negative expiry", Policy{Reservations: ReservationRules{ExpireAfter: -time.Minute}}, `invalid reservations.expire_after -1m: allowed is 1s to 24h`},
		{"expiry in a queue", queue(Queue{Reservations: ReservationRules{ExpireAfter: 25 * time.Hour}}), `invalid queues.mail.reservations.expire_after 25h: allowed is 1s to 24h`},
		{"number of dead letters", queue(Queue{MaxDead: 100_001}), `invalid queues.mail.max_dead 100001: allowed is 1 to 100000`},
		{"no classes", queue(Queue{Classes: []admission.Class{}}), `invalid queues.mail.classes 0 classes: allowed is 1 to 128 classes`},
		{"class weight", queue(Queue{Classes: []admission.Class{{Name: "only", Weight: 101}}}), `invalid queues.mail.classes[0].weight 101: allowed is 1 to 100`},
		{"class name", queue(Queue{Classes: []admission.Class{{Name: "a:b", Weight: 1}}}), `invalid queues.mail.classes[0].name "a:b": allowed is 1-128 bytes of [A-Za-z0-9._@/-]`},
		{"class twice", queue(Queue{Classes: []admission.Class{{Name: "a", Weight: 1}, {Name: "a", Weight: 1}}}), `invalid queues.mail.classes[1].name "a": allowed is a name no other class of the queue has`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.policy.Validate()
			if err == nil || err.Error() != c.want || !errors.Is(err, admission.ErrInvalid) {
				t.Errorf("Validate = %v\nwant %s", err, c.want)
			}
			if compiled, err := c.policy.Prepare(); err == nil || compiled != nil {
				t.Error("Prepare took an invalid policy")
			}
			if text, err := Marshal(c.policy); err == nil || text != nil {
				t.Error("Marshal took an invalid policy")
			}
		})
	}
}

func TestValidateReportsEveryBadFieldInOneOrder(t *testing.T) {
	t.Parallel()
	p := Policy{Version: -1, Tenants: map[string]Tenant{}, Queues: map[string]Queue{"mail": {Horizon: -1}}}
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("t%02d", i)
		p.Tenants[name] = Tenant{Tier: "none"}
		want = append(want, fmt.Sprintf(`invalid tenants.%s.tier "none": allowed is one of "basic", "premium", "standard"`, name))
	}
	want = append([]string{"invalid version -1: allowed is 0, the built-in policy, or more"}, want...)
	want = append(want, "invalid queues.mail.horizon -1ns: allowed is 1s to 720h")
	if got := p.Validate().Error(); got != strings.Join(want, "\n") {
		t.Errorf("Validate = %s\nwant %s", got, strings.Join(want, "\n"))
	}
}

func TestADisabledLimitNeedsNoFigures(t *testing.T) {
	t.Parallel()
	p := Policy{Tenants: map[string]Tenant{"acme": {Limit: &admission.Limit{Disabled: true}}}}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	if err := (Policy{}).Validate(); err != nil {
		t.Errorf("the zero policy is not valid: %v", err)
	}
}

// TestUsageIsKeptOfSoManyTenants: of none unless the policy says so, of DefaultUsageTenants unless it says of how many.
func TestUsageIsKeptOfSoManyTenants(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{`{}`: 0, `{"usage":{}}`: DefaultUsageTenants, `{"usage":{"tenants":7}}`: 7} {
		p, err := Unmarshal([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if c := prepare(t, p); c.UsageTenants() != want {
			t.Errorf("%s: usage is kept of %d tenants, want %d", text, c.UsageTenants(), want)
		}
	}
	for _, tenants := range []string{"-1", "1000001"} {
		_, err := Unmarshal([]byte(`{"usage":{"tenants":` + tenants + `}}`))
		if want := "invalid usage.tenants " + tenants + ": allowed is 1 to 1000000"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestReservationsExpireByTheirQueue: else by what is said of all, else after a minute; and a policy that says nothing is not a byte longer.
func TestReservationsExpireByTheirQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text           string
		llm, web, none time.Duration
	}{
		{`{}`, time.Minute, time.Minute, time.Minute},
		{`{"reservations":{}}`, time.Minute, time.Minute, time.Minute},
		{`{"reservations":{"expire_after":"90s"}}`, 90 * time.Second, 90 * time.Second, 90 * time.Second},
		{`{"queues":{"llm":{"reservations":{"expire_after":"10m"}}}}`, 10 * time.Minute, time.Minute, time.Minute},
		{`{"reservations":{"expire_after":"1s"},"queues":{"llm":{},"*":{"reservations":{"expire_after":"24h"}}}}`, time.Second, 24 * time.Hour, time.Second},
	} {
		p, err := Unmarshal([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		compiled := prepare(t, p)
		if llm, web, none := compiled.ExpireAfter("llm"), compiled.ExpireAfter("web"), compiled.ExpireAfter(""); llm != c.llm || web != c.web || none != c.none {
			t.Errorf("%s: %s, %s and %s", c.text, llm, web, none)
		}
		if text, err := Marshal(p); err != nil || strings.Contains(string(text), "reservations") != strings.Contains(c.text, "expire_after") {
			t.Errorf("%s becomes %s: %v", c.text, text, err)
		}
	}
	for text, want := range map[string]string{
		`{"reservations":{"expire_after":"soon"}}`:                    `invalid reservations.expire_after "soon": allowed is a duration such as "500ms", "30s" or "24h"`,
		`{"reservations":{"expire_after":"0s"}}`:                      `invalid reservations.expire_after "0s": allowed is a duration such as "500ms", "30s" or "24h"`,
		`{"reservations":{"expire_after":"999ms"}}`:                   `invalid reservations.expire_after 999ms: allowed is 1s to 24h`,
		`{"queues":{"llm":{"reservations":{"expire_after":"-1s"}}}}`:  `invalid queues.llm.reservations.expire_after -1s: allowed is 1s to 24h`,
		`{"queues":{"llm":{"reservations":{"expires_after":"10m"}}}}`: `invalid queues.llm.reservations.expires_after (unknown): allowed is one of expire_after`,
	} {
		if _, err := Unmarshal([]byte(text)); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestObservedScopesAreNamesAndFew(t *testing.T) {
	t.Parallel()
	p := Policy{Observe: []admission.Scope{"acme:mail"}}
	if c := prepare(t, p); !c.Observes("acme:mail") || c.Observes("acme") {
		t.Error("not the scopes that were named are observed")
	}
	if err := (Policy{Observe: []admission.Scope{"a:b:c:d"}}).Validate(); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("a scope that is none: %v", err)
	}
	p.Observe = make([]admission.Scope, MaxObserved+1)
	for i := range p.Observe {
		p.Observe[i] = "acme"
	}
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "invalid observe 1001 scopes: allowed is up to 1000") {
		t.Errorf("too many: %v", err)
	}
}
