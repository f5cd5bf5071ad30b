package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

func TestJSONGoesThereAndBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		text, err := Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Unmarshal(text)
		if err != nil {
			t.Fatalf("Unmarshal of %s: %v", text, err)
		}
		if !reflect.DeepEqual(got, p) {
			t.Fatalf("%s reads as %+v, want %+v", text, got, p)
		}
		again, err := Marshal(got)
		if err != nil || string(again) != string(text) {
			t.Fatalf("the second text is %s, %v, want %s", again, err, text)
		}
		var inside struct{ Policy Policy }
		if err := json.Unmarshal([]byte(`{"Policy":`+string(text)+`}`), &inside); err != nil || !reflect.DeepEqual(inside.Policy, p) {
			t.Fatalf("inside a document it reads as %+v, %v", inside.Policy, err)
		}
	})
}

func TestJSONIsWrittenForPeople(t *testing.T) {
	t.Parallel()
	p := Policy{
		Version:        7,
		Global:         admission.PerSecond(1000).WithBurst(200),
		Tiers:          map[string]Tier{StandardTier: {Limit: admission.PerSecond(200).WithBurst(50), Weights: Weights{admission.High: 2}}},
		Tenants:        map[string]Tenant{"acme": {Limit: &admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 3, Disabled: true}}},
		QueueLimits:    map[admission.Scope]admission.Limit{"acme:mail": {Disabled: true}},
		PriorityLimits: map[admission.Scope]admission.Limit{"acme:mail:high": {Tokens: 5, Per: time.Minute, Burst: 5}},
		Queues: map[string]Queue{
			"mail": {},
			"sms": {
				Classes: []admission.Class{{Name: "all", Weight: 1}}, MaxWait: 90 * time.Minute, DoomedPercent: 150, PoisonLimit: 1, KeepDead: 7 * 24 * time.Hour,
				MaxDead: 500,
			},
		},
	}
	want := `{"version":7,"global":{"tokens":1000,"per":"1s","burst":200},` +
		`"tiers":{"standard":{"limit":{"tokens":200,"per":"1s","burst":50},"priority_weights":{"high":2}}},` +
		`"tenants":{"acme":{"limit":{"tokens":1,"per":"24h","burst":3,"enabled":false}}},` +
		`"queue_limits":{"acme:mail":{"enabled":false}},` +
		`"priority_limits":{"acme:mail:high":{"tokens":5,"per":"1m","burst":5}},` +
		`"queues":{"mail":{"classes":[{"name":"high","weight":3},{"name":"medium","weight":2},{"name":"low","weight":1}],` +
		`"horizon":"1h","expired_policy":"dead_letter","poison_limit":3,"max_dead":100000},` +
		`"sms":{"classes":[{"name":"all","weight":1}],"horizon":"1h","expired_policy":"dead_letter",` +
		`"max_wait":"1h30m","doomed_percent":150,"poison_limit":1,"keep_dead":"168h","max_dead":500}},"dedup_window":"30s"}`
	for name, marshal := range map[string]func(Policy) ([]byte, error){
		"Marshal": Marshal, "json.Marshal": func(p Policy) ([]byte, error) { return json.Marshal(p) },
	} {
		if got, err := marshal(p); string(got) != want || err != nil {
			t.Errorf("%s = %s, %v\nwant %s", name, got, err, want)
		}
	}
}

func TestUnmarshalReadsThePapersLimits(t *testing.T) {
	t.Parallel()
	got, err := Unmarshal([]byte(`{
		"version": 3,
		"global": {"rate_per_second": 1000, "burst_capacity": 200, "enabled": true},
		"tenants": {"tenant-123": {"tier": "premium", "limit": {"rate_per_second": 500, "burst_capacity": 150},
			"priority_weights": {"high": 4, "medium": 2, "low": 1}}},
		"queue_limits": {"tenant-123:email-queue": {"tokens": 300, "per": "1s", "burst_capacity": 75}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Version = 3
	want.Global = admission.PerSecond(1000).WithBurst(200)
	want.Tenants = map[string]Tenant{"tenant-123": {
		Tier: "premium", Limit: new(admission.PerSecond(500).WithBurst(150)),
		Weights: Weights{admission.High: 4, admission.Medium: 2, admission.Low: 1},
	}}
	want.QueueLimits = map[admission.Scope]admission.Limit{"tenant-123:email-queue": admission.PerSecond(300).WithBurst(75)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Unmarshal = %+v\nwant %+v", got, want)
	}
}

// Wherever a limit stands: in a file, and as a literal in Go. What is stored says its burst, as an older release needs it.
func TestALimitWithoutABurstHoldsWhatComesInASecond(t *testing.T) {
	t.Parallel()
	limits := map[string]admission.Tokens{
		`{"tokens":200,"per":"1s"}`: 200, `{"tokens":500,"per":"1m"}`: 9, `{"tokens":10,"per":"1h"}`: 1, `{"rate_per_second":7}`: 7, `{"tokens":1000000000,"per":"1ms"}`: admission.MaxLimitTokens,
	}
	at := [][]string{
		{"global"},
		{"tiers", "standard", "limit"},
		{"tiers", "standard", "queues", "mail", "limit"},
		{"tiers", "standard", "queues", "mail", "priority_limits", "high"},
		{"tenants", "acme", "limit"},
		{"tenants", "acme", "dispatch"},
		{"queue_limits", "acme:mail"},
		{"priority_limits", "acme:mail:high"},
		{"queues", "mail", "each_tenant", "limit"},
		{"queues", "mail", "each_tenant", "priority_limits", "high"},
		{"downstreams", "smtp", "dispatch"},
	}
	for written, want := range limits {
		for _, path := range at {
			p, err := Default().With(json.RawMessage(written), path...)
			if err != nil {
				t.Fatal(path, err)
			}
			stored, err := p.At(path...)
			if err != nil || !strings.Contains(string(stored), fmt.Sprintf(`"burst":%d`, want)) {
				t.Errorf("%s at %v is stored as %s, %v, want a burst of %d", written, path, stored, err, want)
			}
		}
		text := `{"tiers":{"standard":{"limit":{"enabled":false}}},"rollout":{"id":"a","percent":5,"rules":{"tiers":{"standard":{"limit":` + written + `}},"queue_limits":{"acme:mail":` + written + `}}}}`
		p, err := Unmarshal([]byte(text))
		if err != nil || p.Rollout.Rules.Tiers[StandardTier].Limit.Burst != want || p.Rollout.Rules.QueueLimits["acme:mail"].Burst != want {
			t.Errorf("%s in a roll-out is %+v, %v", written, p.Rollout, err)
		}
	}
	literal := Policy{
		Global: admission.Limit{Tokens: 500, Per: time.Minute}, Tenants: map[string]Tenant{"acme": {Limit: &admission.Limit{Tokens: 3, Per: time.Second}}},
		Tiers: map[string]Tier{StandardTier: {Limit: admission.Limit{Tokens: 3, Per: time.Hour}}},
	}
	c := prepare(t, literal)
	if got := c.LimitsFor("acme", "mail", admission.High); got[admission.LevelGlobal].Burst != 9 || got[admission.LevelTenant].Burst != 3 {
		t.Errorf("literals have %+v", got)
	}
	if literal.Tenants["acme"].Limit.Burst != 0 || literal.LongestFill() < 19*time.Minute {
		t.Errorf("the literal was changed, %+v, or fills in %s", literal.Tenants["acme"].Limit, literal.LongestFill())
	}
}

func TestAnEmptyDocumentIsTheDefault(t *testing.T) {
	t.Parallel()
	got, err := Unmarshal([]byte(" {} \n"))
	if err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("Unmarshal = %+v, %v, want Default", got, err)
	}
}

func TestUnmarshalQuotesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{
			`{"limits":{}}`,
			`read policy: invalid limits (unknown): allowed is one of version, global, global_reserved, bypass, tiers, tenants, queue_limits, priority_limits, overflows, max_running, queues, ` +
				`downstreams, any_downstream, adaptive, shedding, load, anomalies, triggers, semaphores, dimensions, observe, usage, reservations, tenant_records, rollout, dedup_window, $schema`,
		},
		{`{"tenants":{"acme":{"limt":{}}}}`, `read policy: invalid tenants.acme.limt (unknown): allowed is one of tier, limit, priority_weights, max_running, dispatch, queues`},
		{`{"rollout":{"rules":{"tenants":{"a\nb":{"":1}}}}}`, `read policy: invalid rollout.rules.tenants.a\nb. (unknown): allowed is one of tier, limit, priority_weights, max_running, dispatch, queues`},
		{`{"queues":{"mail":{"classes":[{"name":"a","weight":1,"color":"red"}]}}}`, `read policy: invalid queues.mail.classes[].color (unknown): allowed is one of name, weight`},
		{`{"global":{"Tokens":1}}`, `read policy: invalid global.Tokens (unknown): allowed is one of algorithm, tokens, window, anchor, zone, per, burst, rate_per_second, burst_capacity, enabled`},
		{`{"any_downstream":{"Dispatch":{}}}`, `read policy: invalid any_downstream.Dispatch (unknown): allowed is one of max_running, dispatch, max_parked, breaker, max_retry_after`},
		{`{"tenants":{"acme":{},"acme":{}}}`, `invalid policy: tenants holds "acme" twice`},
		{`{"version":1} {"version":2}`, `invalid policy: something follows the policy, at line 1, column 15`},
		{`null`, `invalid policy: null is no policy`},
		{``, `invalid policy: the text ends too soon, at line 1, column 1`},
		{`{"version":`, `invalid policy: the text ends too soon, at line 1, column 12`},
		{`{"version" 1}`, `invalid policy: invalid character '1' after object key, at line 1, column 12`},
		{"{\n  \"version\": 1,\n  bad\n}", `invalid policy: invalid character 'b' looking for beginning of object key string, at line 3, column 3`},
		{`{bad`, `invalid policy: invalid character 'b', at line 1, column 2`},
		{`{"global":{"tokens":0}}`, `invalid global.tokens 0: allowed is 1 to 1000000000; for no limit "enabled": false, or leave "global" out`},
		{`{"global":{}}`, `invalid global.tokens 0: allowed is 1 to 1000000000; for no limit "enabled": false, or leave "global" out`},
		{`{"version":1.5}`, `read policy: invalid version 1.5: allowed is a whole number`},
		{`{"tiers":{"basic":{"limit":{"per":5}}}}`, `read policy: invalid tiers.basic.limit.per 5: allowed is text in quotes`},
		{`[]`, `read policy: invalid policy JSON array: allowed is an object`},
		{`{"queues":{"mail":{"classes":"high"}}}`, `read policy: invalid queues.mail.classes "high": allowed is an array`},
		{`{"global":{"tokens":"10"}}`, `read policy: invalid global.tokens "10": allowed is a whole number, 1 to 1000000000, without quotes`},
		{`{"global":{"tokens":1.5}}`, `read policy: invalid global.tokens 1.5: allowed is a whole number, 1 to 1000000000`},
		{`{"tenants":{"acme":{"priority_weights":{"high":true}}}}`, `read policy: invalid tenants.acme.priority_weights.high true: allowed is a whole number, 1 to 1000`},
		{`{"global":{"enabled":"yes"}}`, `read policy: invalid global.enabled "yes": allowed is true or false, without quotes`},
		{`{"global":{"rate_per_second":"9"}}`, `read policy: invalid global.rate_per_second "9": allowed is a number, without quotes`},
		{`{"queues":{"mail":{"poison_limit":"3"}}}`, `read policy: invalid queues.mail.poison_limit "3": allowed is a whole number, without quotes`},
		{`{"tenants":{"acme":{"max_running":99999999999999999999}}}`, `read policy: invalid tenants.acme.max_running 99999999999999999999: allowed is a whole number`},
		{`{"global":{"rate_per_second":1e999}}`, `read policy: invalid global.rate_per_second 1e999: allowed is a number`},
		{`{"observe":{"acme":true}}`, `read policy: invalid observe JSON object: allowed is an array`},
		{`{"tenants":{"acme":[1]}}`, `read policy: invalid tenants.acme JSON array: allowed is an object`},
		{`{"queues":{"mail":{"max_wait":"0s","keep_dead":"a week"}}}`, `invalid queues.mail.max_wait "0s": allowed is a duration such as "500ms", "30s" or "24h"` + "\n" +
			`invalid queues.mail.keep_dead "a week": allowed is a duration such as "500ms", "30s" or "24h"`},
		{`{"dedup_window":"soon"}`, `invalid dedup_window "soon": allowed is a duration such as "500ms", "30s" or "24h"`},
		{`{"global":{"tokens":1,"per":"0s","burst":1},"queues":{"mail":{"horizon":"1 h"}}}`, `invalid global.per "0s": allowed is a duration such as "500ms", "30s" or "24h"` + "\n" +
			`invalid queues.mail.horizon "1 h": allowed is a duration such as "500ms", "30s" or "24h"`},
		{`{"global":{"tokens":5,"per":"1s","burst":0}}`, `invalid global.burst 0: allowed is 1 to 1000000000 tokens; left out it is what comes in a second`},
		{`{"global":{"rate_per_second":0.5,"burst":1}}`, `invalid global.rate_per_second 0.5: allowed is 1 to 1000000000 whole tokens; for others use "tokens" and "per"`},
		{`{"global":{"rate_per_second":1e300,"burst":1}}`, `invalid global.rate_per_second 1e+300: allowed is 1 to 1000000000 whole tokens; for others use "tokens" and "per"`},
		{`{"global":{"rate_per_second":5,"per":"1m","burst":1,"burst_capacity":2}}`, `invalid global.rate_per_second 5: allowed is only without "tokens" and "per"` + "\n" +
			`invalid global.burst_capacity 2: allowed is only without "burst"`},
		{`{"tenants":{"acme":{"tier":"gold"}}}`, `invalid tenants.acme.tier "gold": allowed is one of "basic", "premium", "standard"`},
		{strings.Repeat("[", 1<<20), `read policy: invalid policy JSON array: allowed is an object`},
		{strings.Repeat(" ", MaxBytes) + "{}", `invalid policy 4194306 bytes: allowed is JSON of up to 4194304 bytes`},
	} {
		p, err := Unmarshal([]byte(c.text))
		if err == nil || err.Error() != c.want || !errors.Is(err, admission.ErrInvalid) || !reflect.DeepEqual(p, Policy{}) {
			t.Errorf("Unmarshal(%.60s) = %v\nwant %s", c.text, err, c.want)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"version":1,"global":{"rate_per_second":5,"burst_capacity":1}}`, `{"tenants":{"acme":{"tier":"basic"}}}`,
		`{"queues":{"mail":{"classes":[{"name":"a","weight":1}],"horizon":"2h","expired_policy":"drop"}}}`, `{"tiers":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Unmarshal(text)
		if err != nil {
			if !errors.Is(err, admission.ErrInvalid) {
				t.Fatalf("%v does not match ErrInvalid", err)
			}
			return
		}
		written, err := Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Unmarshal(written)
		if err != nil {
			t.Fatalf("Unmarshal of %s: %v", written, err)
		}
		if rewritten, err := Marshal(again); err != nil || string(rewritten) != string(written) {
			t.Fatalf("%s is rewritten as %s, %v", written, rewritten, err)
		}
	})
}
