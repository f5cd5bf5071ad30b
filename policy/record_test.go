package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

func compiledWith(t *testing.T, text string) *Compiled {
	t.Helper()
	p, err := Unmarshal([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestARecordComesBeforeThePolicy, at each scope that it says something of, whatever the policy has there.
func TestARecordComesBeforeThePolicy(t *testing.T) {
	t.Parallel()
	const policy = `"tenants": {"acme": {"limit": {"tokens": 7, "per": "1s"}}}, "queue_limits": {"acme:mail": {"tokens": 8, "per": "1s"}}, "queues": {"mail": {"each_tenant": {"limit": {"tokens": 9, "per": "1s"}, "priority_limits": {"low": {"tokens": 2, "per": "1s"}}}}}`
	c := compiledWith(t, `{"tenant_records": true, `+policy+`}`)
	way := func(tenant, queue string, class admission.Priority) string {
		limits, version := c.WayFor(tenant, queue, class)
		return fmt.Sprintf("%d: %d %d %d", version, limits[admission.LevelTenant].Tokens, limits[admission.LevelQueue].Tokens, limits[admission.LevelPriority].Tokens)
	}
	before := way("acme", "mail", "low")
	if before != "1: 7 8 2" {
		t.Errorf("without a record %s", before)
	}
	const text = `{"limit":{"tokens":100,"per":"1m"},"queues":{"mail":{"priority_limits":{"low":{"tokens":1,"per":"1s"}}},"fax":{"limit":{"enabled":false}}}}`
	if err := c.Learn("acme", 5, []byte(text)); err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[[3]string]string{
		{"acme", "mail", "low"}: "5: 100 8 1", {"acme", "mail", "high"}: "5: 100 8 0", {"acme", "fax", "low"}: "5: 100 0 0", {"acme", "", ""}: "5: 100 0 0",
		{"zeta", "mail", "low"}: "1: 200 9 2", {"", "", ""}: "1: 200 0 0",
	} {
		if got := way(asked[0], asked[1], admission.Priority(asked[2])); got != want {
			t.Errorf("%v: %s, want %s", asked, got, want)
		}
	}
	if err := c.Learn("acme", NoRecord, nil); err != nil || way("acme", "mail", "low") != before {
		t.Errorf("a record that is gone: %s, %v", way("acme", "mail", "low"), err)
	}
	without := compiledWith(t, "{"+policy+"}")
	if err := without.Learn("acme", 5, []byte(text)); err != nil || without.HasRecords() {
		t.Errorf("%v", err)
	}
	if limits, version := without.WayFor("acme", "mail", "low"); version != 0 || limits[admission.LevelTenant].Tokens != 7 {
		t.Errorf("a policy without records goes by one: version %d, %v", version, limits)
	}
	if err := c.Learn("acme", 6, []byte(`{"limit":`)); !errors.Is(err, ErrStored) {
		t.Errorf("a broken record: %v", err)
	}
}

// TestARecordIsReadAsItWasWritten, and what is wrong with one is told by its place.
func TestARecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	const text = `{"tier":"premium","priority_weights":{"high":3,"low":2},"limit":{"tokens":100,"per":"1m","burst":2},"queues":{"fax":{"limit":{"enabled":false}},"mail":{"priority_limits":{"low":{"algorithm":"fixed_window","tokens":10,"window":"24h","anchor":"00:00","zone":"Europe/Berlin"}}}}}`
	r, err := UnmarshalRecord([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	written, err := MarshalRecord(r)
	if err != nil || string(written) != text {
		t.Errorf("%s, %v", written, err)
	}
	if r.LongestFill() != 48*time.Hour {
		t.Errorf("buckets are kept for %s", r.LongestFill())
	}
	if written, err := MarshalRecord(OwnLimits{}); err != nil || written != nil {
		t.Errorf("an empty record is %q, %v", written, err)
	}
	for bad, told := range map[string]string{
		`{"limit":{"tokens":0,"per":"1s"}}`:                                        "limit.tokens",
		`{"tier":"no tier"}`:                                                       "tier",
		`{"tiers":"gold"}`:                                                         "tiers",
		`{"priority_weights":{"high":0}}`:                                          "priority_weights.high 0: allowed is 1 to 1000",
		`{"priority_weights":{"no class":5}}`:                                      "priority_weights",
		`{"limit":{"tokens":5,"per":"1s"},"limit":{}}`:                             "limit",
		`{"queues":{"no queue":{"limit":{"tokens":5,"per":"1s"}}}}`:                "no queue",
		`{"queues":{"mail":{"limit":{"tokens":5,"per":"1us"}}}}`:                   "queues.mail.limit.per",
		`{"queues":{"mail":{"priority_limits":{"low":{"tokens":-1,"per":"1s"}}}}}`: "queues.mail.priority_limits.low.tokens",
		`{"limit":{"tokens":5,"per":"1s"}}{}`:                                      "follows",
		`{"limit":{"tokens":"` + strings.Repeat("5", MaxRecordBytes) + `"}}`:       "up to 8192 bytes",
	} {
		if _, err := UnmarshalRecord([]byte(bad)); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), told) {
			t.Errorf("%.60s: %v, want it to tell of %s", bad, err, told)
		}
	}
	c := compiledWith(t, `{"tenant_records": true}`)
	if err := c.CheckRecord(r); err != nil {
		t.Error(err)
	}
	r.Queues["mail"].PriorityLimits["vip"] = *r.Limit
	if err := c.CheckRecord(r); err == nil || !strings.Contains(err.Error(), `a class of queue mail: "high", "medium", "low"`) {
		t.Errorf("a class that the queue has not: %v", err)
	}
	if err := compiledWith(t, `{}`).CheckRecord(OwnLimits{}); !errors.Is(err, ErrNoRecords) {
		t.Errorf("a policy without records: %v", err)
	}
}

// TestALimitOfARecordIsSet, and taken away, and leaves the others and the record that it was made from.
func TestALimitOfARecordIsSet(t *testing.T) {
	t.Parallel()
	five, six := admission.PerSecond(5), admission.PerSecond(6)
	var r OwnLimits
	for _, step := range []struct {
		scope admission.Scope
		limit *admission.Limit
		want  string
	}{
		{"acme:mail:low", &five, `{"queues":{"mail":{"priority_limits":{"low":{"tokens":5,"per":"1s","burst":5}}}}}`},
		{"acme:mail", &six, `{"queues":{"mail":{"limit":{"tokens":6,"per":"1s","burst":6},"priority_limits":{"low":{"tokens":5,"per":"1s","burst":5}}}}}`},
		{"acme", &five, `{"limit":{"tokens":5,"per":"1s","burst":5},"queues":{"mail":{"limit":{"tokens":6,"per":"1s","burst":6},"priority_limits":{"low":{"tokens":5,"per":"1s","burst":5}}}}}`},
		{"acme:mail:low", nil, `{"limit":{"tokens":5,"per":"1s","burst":5},"queues":{"mail":{"limit":{"tokens":6,"per":"1s","burst":6}}}}`},
		{"acme:mail", nil, `{"limit":{"tokens":5,"per":"1s","burst":5}}`},
		{"acme", nil, ``},
	} {
		before, _ := MarshalRecord(r)
		next, err := r.WithLimit(step.scope, step.limit)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := MarshalRecord(next); err != nil || string(text) != step.want {
			t.Errorf("%s: %s, %v", step.scope, text, err)
		}
		if after, _ := MarshalRecord(r); string(after) != string(before) {
			t.Errorf("%s has changed the record that it was made from: %s", step.scope, after)
		}
		r = next
	}
}

// TestRecordsThatAreKnownAreBounded: the last that was heard of is among them.
func TestRecordsThatAreKnownAreBounded(t *testing.T) {
	t.Parallel()
	c := compiledWith(t, `{"tenant_records": true}`)
	for i := range mostRecords + 1000 {
		tenant := fmt.Sprint("t", i)
		if err := c.Learn(tenant, int64(i+2), []byte(`{"limit":{"tokens":5,"per":"1s"}}`)); err != nil {
			t.Fatal(err)
		}
		if c.RecordVersion(tenant) != int64(i+2) {
			t.Fatalf("the record of %s was forgotten at once", tenant)
		}
	}
	if n := c.records.n.Load(); n > mostRecords {
		t.Errorf("%d records are known, want %d at most", n, mostRecords)
	}
}
