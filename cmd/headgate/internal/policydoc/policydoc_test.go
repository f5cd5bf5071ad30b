package policydoc

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/policy"
)

var update = flag.Bool("update", false, "write docs/POLICY.md anew")

var docs = filepath.Join("..", "..", "..", "..", "docs")

// compiled returns the schema as editors would read it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	var text bytes.Buffer
	if err := Schema(&text); err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(&text)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(schemaID, parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile(schemaID)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// whole documents in which each object of the table stands, with %s for what is in it.
var places = map[string]string{
	"":                `{%s}`,
	"limit":           `{"global": {%s}}`,
	"tier":            `{"tiers": {"standard": {%s}}}`,
	"tenant_queue":    `{"tenants": {"acme": {"queues": {"mail": {%s}}}}}`,
	"tier_queue":      `{"tiers": {"standard": {"limit": {"enabled": false}, "queues": {"mail": {%s}}}}}`,
	"each_tenant":     `{"queues": {"*": {"each_tenant": {%s}}}}`,
	"tenant":          `{"tenants": {"acme": {%s}}}`,
	"queue":           `{"queues": {"mail": {%s}}}`,
	"class":           `{"queues": {"mail": {"classes": [{%s}]}}}`,
	"overflow":        `{"overflows": {"acme:mail": {%s}}}`,
	"downstream":      `{"downstreams": {"smtp": {%s}}}`,
	"breaker":         `{"downstreams": {"smtp": {"breaker": {%s}}}}`,
	"semaphore":       `{"semaphores": {"gpu": {%s}}}`,
	"dimension":       `{"dimensions": {"user": {%s}}}`,
	"usage":           `{"usage": {%s}}`,
	"reservations":    `{"reservations": {%s}}`,
	"adaptive":        `{"load": {}, "global": {"tokens": 9, "per": "1s"}, "queues": {"mail": {"pressure": {"target_wait": "5s"}, "each_tenant": {"limit": {"tokens": 9, "per": "1s"}}}}, "downstreams": {"smtp": {"max_running": 1000000, "dispatch": {"tokens": 1000000, "per": "1s"}}}, "adaptive": {"out": {%s}}}`,
	"protection":      `{"queues": {"mail": {"pressure": {"target_wait": "5s"}, "each_tenant": {"limit": {"tokens": 9, "per": "1s"}}}}, "adaptive": {"in": {"of": "queue mail", "min": 5, "protect": {"standard": {%s}}}}}`,
	"trigger":         `{"load": {}, "global": {"tokens": 9, "per": "1s"}, "queues": {"mail": {"pressure": {"target_wait": "5s"}}}, "shedding": {"order": ["low", "medium", "high"], "at": {"HIGH": ["low"]}}, "downstreams": {"smtp": {"max_running": 9}}, "triggers": {"t": {%s}}}`,
	"trigger_when":    `{"load": {}, "queues": {"mail": {"pressure": {"target_wait": "5s"}}}, "triggers": {"t": {"do": "pause", "of": "downstream smtp", "when": {%s}}}}`,
	"trigger_until":   `{"load": {}, "triggers": {"t": {"do": "pause", "of": "queue mail", "when": {"metric": "error_rate", "above": 0.5}, "until": {%s}}}}`,
	"global_reserved": `{"global": {"tokens": 1000, "per": "1s"}, "global_reserved": {%s}}`,
	"bypass":          `{"global": {"tokens": 1000, "per": "1s"}, "bypass": {%s}}`,
	"reserved":        `{"queues": {"mail": {"reserved": {%s}}}}`,
	"pressure":        `{"load": {}, "queues": {"mail": {"pressure": {%s}}}}`,
	"shedding":        `{"shedding": {%s}}`,
	"load":            `{"load": {%s}}`,
	"anomalies":       `{"anomalies": {%s}}`,
	"rollout":         `{"rollout": {%s}}`,
	"rules":           `{"rollout": {"id": "r", "percent": 5, "rules": {%s}}}`,
}

// beside is what has to stand beside a field for it to be right; what is not here stands alone.
func beside(object, field string) string {
	switch object + "." + field {
	case "limit.window":
		return `"algorithm": "fixed_window", "tokens": 1000`
	case "limit.anchor", "limit.zone":
		return `"algorithm": "fixed_window", "tokens": 1000, "window": "24h"`
	case "limit.tokens":
		return `"per": "1s", "burst": 100`
	case "limit.per":
		return `"tokens": 1000000000, "burst": 100`
	case "limit.burst":
		return `"tokens": 1000000000, "per": "1s"`
	case "limit.rate_per_second":
		return `"burst": 100`
	case "limit.burst_capacity":
		return `"rate_per_second": 1000000000`
	case "class.name":
		return `"weight": 1`
	case "class.weight":
		return `"name": "high"`
	case "overflow.max_jobs":
		return `"policy": "reject", "max_bytes": 5`
	case "overflow.max_bytes":
		return `"policy": "reject", "max_jobs": 5`
	case "overflow.max_spilled", "overflow.low_water_percent":
		return `"policy": "spillover", "max_jobs": 5`
	case "overflow.spill_to":
		return `"policy": "spillover", "max_jobs": 5, "max_spilled": 2`
	case "overflow.max_moved":
		return `"policy": "spillover", "max_jobs": 5, "spill_to": "second"`
	case "breaker.open_base":
		return `"open_max": "24h"`
	case "breaker.open_max":
		return `"open_base": "1ms"`
	case "adaptive.of":
		return `"min": 1`
	case "adaptive.target_run_time":
		return `"of": "downstream smtp", "min": 1, "controller": "pid"`
	case "adaptive.target_pressure", "adaptive.min_change_interval":
		return `"of": "global", "min": 1`
	case "adaptive.signal":
		return `"of": "global", "min": 1, "target": 0.5`
	case "adaptive.target":
		return `"of": "downstream smtp", "min": 1, "signal": "run_p95"`
	case "adaptive.protect":
		return `"of": "queue mail", "min": 1`
	case "adaptive.kp", "adaptive.ki", "adaptive.kd":
		return `"of": "downstream smtp", "min": 1, "controller": "pid", "target_run_time": "1s"`
	case "adaptive.min":
		return `"of": "downstream smtp"`
	case "trigger.priority":
		return `"do": "pause", "of": "queue mail", "when": {"metric": "error_rate", "above": 0.5}`
	case "trigger_when.for":
		return `"metric": "error_rate", "above": 0.5`
	case "global_reserved.classes":
		return `"percent": 20`
	case "global_reserved.percent", "bypass.reserve_percent", "bypass.share_percent":
		return `"classes": ["high"]`
	case "global_reserved.lend":
		return `"classes": ["high"], "percent": 20`
	case "reserved.classes":
		return `"slots": 4`
	case "reserved.slots", "reserved.percent":
		return `"classes": ["high"]`
	case "reserved.lend":
		return `"classes": ["high"], "slots": 4`
	case "pressure.max_depth":
		return `"target_wait": "5s"`
	case "pressure.target_run":
		return `"max_depth": 9, "weights": {"depth": 0.5, "run_p95": 0.5}`
	case "pressure.max_failed":
		return `"max_depth": 9, "weights": {"depth": 0.5, "failed": 0.5}`
	case "pressure.interval":
		return `"max_depth": 9`
	case "rollout.id":
		return `"percent": 5, "rules": {"max_running": {"acme:mail": 3}}`
	case "rollout.percent", "rollout.shadow":
		return `"id": "r", "rules": {"max_running": {"acme:mail": 3}}`
	}
	switch object {
	case "tier":
		return `"limit": {"enabled": false}`
	case "adaptive":
		return `"of": "downstream smtp", "min": 1`
	case "rules":
		return `"max_running": {"acme:mail": 3}`
	}
	return ""
}

// TestTheTableHasTheFieldsThatPolicyReads: each object has the fields that package policy names when it meets another.
func TestTheTableHasTheFieldsThatPolicyReads(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`allowed is one of (.*)$`)
	for _, o := range objects {
		_, err := policy.Unmarshal(fmt.Appendf(nil, places[o.name], `"no such field": 1`))
		if err == nil {
			t.Fatalf("%s: a field that is none was read", o.title)
		}
		match := named.FindStringSubmatch(err.Error())
		if match == nil {
			t.Fatalf("%s: %v", o.title, err)
		}
		read := strings.Split(match[1], ", ")
		described := make([]string, len(o.fields))
		for i, f := range o.fields {
			described[i] = f.name
			if f.doc == "" || f.unset == "" {
				t.Errorf("%s.%s is not described", o.title, f.name)
			}
		}
		slices.Sort(read)
		slices.Sort(described)
		if !slices.Equal(read, described) {
			t.Errorf("%s: policy reads  %v\nthe table has %v", o.title, read, described)
		}
	}
}

// trial is a value of a field, and whether it is right.
type trial struct {
	value string
	right bool
	// text says that a schema cannot know.
	text bool
}

// trialsOf are values at the ends of a field's range and beyond.
func trialsOf(k kind) (all []trial) {
	switch k := k.(type) {
	case whole:
		all = []trial{{strconv.FormatInt(k.low, 10), true, false}, {strconv.FormatInt(k.high, 10), true, false}, {"1.5", false, false}, {`"1"`, false, false}, {"-1", false, false}}
		if k.high < 1<<53-1 {
			all = append(all, trial{strconv.FormatInt(k.high+1, 10), false, false})
		}
		if k.low == 1 {
			all = append(all, trial{"0", k.zero, false})
		}
	case share:
		all = []trial{{"0.001", true, false}, {"1", true, false}, {"1.01", false, false}, {"-0.5", false, false}, {`"1"`, false, false}}
	case span:
		quoted := func(d time.Duration) string { return `"` + d.String() + `"` }
		all = []trial{{quoted(k.low), true, false}, {quoted(k.high), true, false}, {quoted(k.low - 1), false, true}, {quoted(k.high + 1), false, true}, {`"soon"`, false, false}, {"30", false, false}, {`"-1s"`, false, false}}
	case choice:
		all = []trial{{`"neither"`, false, false}, {"true", false, false}}
	case toggle:
		all = []trial{{"1", false, false}}
	case text:
		all = []trial{{"1", false, false}, {`"./policy.schema.json"`, true, false}}
	case name:
		all = []trial{{`"a b"`, false, false}, {`""`, false, false}}
	}
	return all
}

// TestTheRangesAreThoseOfPolicy: package policy takes the ends of each range and refuses what is beyond, and so does the schema, as far as
// it can know.
func TestTheRangesAreThoseOfPolicy(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	tried := 0
	for _, o := range objects {
		for _, f := range o.fields {
			for _, try := range trialsOf(f.kind) {
				inside := beside(o.name, f.name)
				if inside != "" {
					inside += ", "
				}
				if o.name == "tenant" && f.name == "tier" && !try.right {
					continue // A tier that there is not is refused whatever its name.
				}
				tried++
				text := fmt.Sprintf(places[o.name], inside+`"`+f.name+`": `+try.value)
				_, err := policy.Unmarshal([]byte(text))
				if (err == nil) != try.right {
					t.Errorf("%s: the table says %v, policy %v", text, try.right, err)
				}
				if err := validate(t, schema, text); (err == nil) != (try.right || try.text) {
					t.Errorf("%s: the table says %v, the schema %v", text, try.right, err)
				}
			}
		}
	}
	if tried < 200 {
		t.Errorf("%d values were tried", tried)
	}
}

func validate(t *testing.T, schema *jsonschema.Schema, text string) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return schema.Validate(value)
}

// TestPolicyAndSchemaAgree: what binds several fields, names and whole policies.
func TestPolicyAndSchemaAgree(t *testing.T) {
	t.Parallel()
	agree(t, map[string]bool{
		`{}`: true,
		`{"version": 7, "global": {"tokens": 5000, "per": "1s", "burst": 500}}`:                                               true,
		`{"global": {"tokens": 5, "burst": 5}}`:                                                                               false,
		`{"global": {"tokens": 5, "per": "1s"}}`:                                                                              true,
		`{"global": {"rate_per_second": 5}}`:                                                                                  true,
		`{"global": {"burst": 5}}`:                                                                                            false,
		`{"global": {"rate_per_second": 5, "burst_capacity": 5}}`:                                                             true,
		`{"global": {"rate_per_second": 5, "tokens": 5, "burst": 5}}`:                                                         false,
		`{"global": {"rate_per_second": 5, "burst": 5, "burst_capacity": 5}}`:                                                 false,
		`{"global": {"enabled": false}}`:                                                                                      true,
		`{"global": {"enabled": false, "tokens": 5, "per": "1s", "burst": 5}}`:                                                true,
		`{"global": {"algorithm": "fixed_window", "tokens": 5, "window": "24h", "anchor": "06:00", "zone": "Europe/Berlin"}}`: true,
		`{"global": {"algorithm": "fixed_window", "tokens": 5, "window": "month"}}`:                                           true,
		`{"global": {"algorithm": "sliding_window", "tokens": 5000, "window": "24h"}}`:                                        true,
		`{"global": {"algorithm": "leaky_bucket", "tokens": 5, "per": "1s"}}`:                                                 true,
		`{"global": {"algorithm": "leaky_bucket", "tokens": 5, "window": "24h"}}`:                                             false,
		`{"global": {"algorithm": "sliding_log", "tokens": 1000, "window": "24h"}}`:                                           true,
		`{"global": {"algorithm": "sliding_log", "tokens": 1001, "window": "24h"}}`:                                           false,
		`{"global": {"algorithm": "sliding_log", "tokens": 1001, "window": "24h", "enabled": false}}`:                         true,
		`{"global": {"algorithm": "sliding_window", "tokens": 5, "window": "month"}}`:                                         false,
		`{"global": {"algorithm": "sliding_window", "tokens": 5, "window": "24h", "anchor": "06:00"}}`:                        false,
		`{"global": {"algorithm": "sliding_log", "tokens": 5, "window": "24h", "zone": "UTC"}}`:                               false,
		`{"global": {"algorithm": "sliding_log", "tokens": 5, "window": "24h", "burst": 5}}`:                                  false,
		`{"global": {"algorithm": "sliding_window", "tokens": 5, "per": "24h"}}`:                                              false,
		`{"global": {"algorithm": "fixed_window", "tokens": 5}}`:                                                              false,
		`{"global": {"algorithm": "fixed_window", "window": "24h"}}`:                                                          false,
		`{"global": {"algorithm": "fixed_window", "window": "24h", "enabled": false}}`:                                        true,
		`{"global": {"algorithm": "fixed_window", "tokens": 5, "window": "24h", "burst": 5}}`:                                 false,
		`{"global": {"algorithm": "fixed_window", "tokens": 5, "per": "24h"}}`:                                                false,
		`{"global": {"algorithm": "token_bucket", "tokens": 5, "per": "24h"}}`:                                                true,
		`{"global": {"tokens": 5, "per": "24h", "anchor": "06:00"}}`:                                                          false,
		`{"tenants": {"acme": {"dispatch": {"algorithm": "fixed_window", "tokens": 5, "window": "24h"}}}}`:                    false,
		`{"downstreams": {"smtp": {"dispatch": {"algorithm": "fixed_window", "tokens": 5, "window": "24h"}}}}`:                false,
		`{"limits": {}}`: false,
		`{"tiers": {}}`:  false,
		`{"tiers": {"gold": {"limit": {"enabled": false}}}}`:                                                                     false,
		`{"tiers": {"standard": {"limit": {"enabled": false}}, "gold": {"limit": {"enabled": false}}}}`:                          true,
		`{"tiers": {"standard": {"max_running": 4}}}`:                                                                            false,
		`{"tenants": {"global": {"max_running": 4}}}`:                                                                            false,
		`{"tenants": {"globally": {"max_running": 4, "priority_weights": {"high": 4}}}}`:                                         true,
		`{"tenants": {"a b": {"max_running": 4}}}`:                                                                               false,
		`{"tenants": {"acme": {"priority_weights": {"high": 0}}}}`:                                                               false,
		`{"tenants": {"acme": {"priority_weights": {"high": 1001}}}}`:                                                            false,
		`{"queue_limits": {"acme:mail": {"tokens": 300, "per": "1m", "burst": 75}}}`:                                             true,
		`{"queue_limits": {"acme": {"tokens": 300, "per": "1m", "burst": 75}}}`:                                                  false,
		`{"priority_limits": {"acme:mail:high": {"tokens": 300, "per": "1m", "burst": 75}}}`:                                     true,
		`{"priority_limits": {"acme:mail": {"tokens": 300, "per": "1m", "burst": 75}}}`:                                          false,
		`{"max_running": {"acme:mail": 0}}`:                                                                                      false,
		`{"overflows": {"*": {"policy": "reject", "max_jobs": 5}, "*:*": {"policy": "reject", "max_jobs": 5}}}`:                  true,
		`{"overflows": {"*:mail": {"policy": "reject", "max_jobs": 5}}}`:                                                         false,
		`{"overflows": {"acme:mail": {"policy": "reject"}}}`:                                                                     false,
		`{"overflows": {"acme:mail": {"max_jobs": 5}}}`:                                                                          false,
		`{"overflows": {"acme:mail": {"policy": "reject", "max_bytes": 5, "max_spilled": 5}}}`:                                   false,
		`{"overflows": {"acme:mail": {"policy": "spillover", "max_jobs": 5, "spill_to": "second", "max_spilled": 1}}}`:           false,
		`{"overflows": {"acme:mail": {"policy": "spillover", "max_jobs": 5, "spill_to": "second", "max_spilled": 2}}}`:           true,
		`{"overflows": {"acme:mail": {"policy": "spillover", "max_jobs": 5, "max_moved": 2}}}`:                                   false,
		`{"overflows": {"acme:mail": {"policy": "reject", "max_jobs": 5, "spill_to": "second"}}}`:                                false,
		`{"overflows": {"acme:mail": {"policy": "none"}}}`:                                                                       true,
		`{"any_downstream": {"dispatch": {"tokens": 5, "per": "1s", "burst": 5}}}`:                                               false,
		`{"downstreams": {"smtp": {"dispatch": {"tokens": 5, "per": "1s", "burst": 5}, "max_parked": 5}}}`:                       true,
		`{"observe": ["global", "acme", "acme:mail", "acme:mail:high"]}`:                                                         true,
		`{"observe": ["acme:mail:high:1"]}`:                                                                                      false,
		`{"queues": {"mail": {"classes": []}}}`:                                                                                  false,
		`{"queues": {"mail": {"classes": [{"name": "high", "weight": 3}]}}}`:                                                     true,
		`{"downstreams": {"smtp": {"max_running": 9}}, "adaptive": {"out": {"of": "downstream smtp", "min": 2}}}`:                true,
		`{"downstreams": {"smtp": {"max_running": 9}}, "adaptive": {"out": {"of": "downstream smtp", "min": 2, "ki": 11}}}`:      false,
		`{"adaptive": {"out": {"of": "tenant acme", "min": 2}}}`:                                                                 false,
		`{"adaptive": {"out": {"of": "downstream smtp"}}}`:                                                                       false,
		`{"queues": {"mail": {"pressure": {"target_wait": "5s", "weights": {"slots": 0.5, "wait": 0.2, "redis_memory": 0.3}}}}}`: true,
		`{"queues": {"mail": {"pressure": {"target_wait": "5s", "weights": {"luck": 1}}}}}`:                                      false,
		`{"shedding": {"order": ["low"], "at": {"HIGH": ["low"]}}}`:                                                              true,
		`{"shedding": {"order": ["low"], "at": {"NONE": ["low"]}}}`:                                                              false,
		`{"shedding": {"order": [], "at": {"HIGH": []}}}`:                                                                        false,
		`{"queues": {"mail": {"reserved": {"classes": ["high"], "percent": 25, "lend": true}}}}`:                                 true,
		`{"queues": {"mail": {"reserved": {"classes": ["high"], "percent": 100}}}}`:                                              false,
		`{"queues": {"mail": {"reserved": {"slots": 4}}}}`:                                                                       false,
		`{"shedding": {"order": ["low"]}}`:                                                                                       false,
		`{"queues": {"mail": {"each_tenant": {"limit": {"tokens": 5}}}}}`:                                                        false,
		`{"queues": {"**": {"max_wait": "5m"}}}`:                                                                                 false,
		`{"tiers": {"standard": {"limit": {"enabled": false}, "queues": {"*": {"max_wait": "5m"}}}}}`:                            false,
		`{"rollout": {"id": "r", "percent": 5}}`:                                                                                 false,

		`{"queues": {"mail": {"each_tenant": {"limit": {"tokens": 5, "per": "1s", "burst": 5}}}, "*": {"each_tenant": {"priority_limits": {"high": {"enabled": false}}}}}}`: true,
		`{"tiers": {"standard": {"limit": {"enabled": false}, "queues": {"*": {"overflow": {"policy": "reject", "max_jobs": 5}}, "mail": {"limit": {"enabled": false}}}}}}`: true,
	})
	schema := compiled(t)
	for _, p := range []policy.Policy{policy.Default(), policy.Unlimited()} {
		text, err := policy.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, schema, string(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestThePoliciesOfTheDocsAreRight: each block of JSON or indented text in a page that is a policy is read by policy and by the schema, one that is a tenant's record by policy.
func TestThePoliciesOfTheDocsAreRight(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	var pages []string
	for _, pattern := range []string{filepath.Join(docs, "*.md"), filepath.Join(docs, "*", "*.md"), filepath.Join(docs, "..", "README.md")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	fields := map[string]bool{}
	for _, f := range objects[0].fields {
		fields[f.name] = true
	}
	fenced, indented := regexp.MustCompile("(?ms)^```json\n(.*?)^```"), regexp.MustCompile(`(?m)((?:^    .*\n)+)`)
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range slices.Concat(fenced.FindAllSubmatch(text, -1), indented.FindAllSubmatch(text, -1)) {
			var members map[string]any
			if json.Unmarshal(match[1], &members) != nil || !slices.ContainsFunc(slices.Collect(maps.Keys(members)), func(name string) bool { return fields[name] }) {
				continue
			}
			found++
			if _, record := members["limit"]; record {
				if _, err := policy.UnmarshalRecord(match[1]); err != nil {
					t.Errorf("%s: %v in\n%s", page, err, match[1])
				}
				continue
			}
			if _, err := policy.Unmarshal(match[1]); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, match[1])
			}
			if err := validate(t, schema, string(match[1])); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, match[1])
			}
		}
	}
	if found < 2 {
		t.Errorf("%d policies were found", found)
	}
}

func TestTheReferenceIsInTheDocs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Reference(&out); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(docs, "POLICY.md")
	if *update {
		if err := os.WriteFile(page, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, out.Bytes()) {
		t.Errorf("%s is not what the table says: run this test with -update and read the diff", page)
	}
}
