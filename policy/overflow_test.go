package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
)

func TestOverflows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		in   Overflow
		want string // part of the error, empty for none
	}{
		{"no bound", Overflow{}, ""},
		{"lifted", Overflow{Policy: NoBound}, ""},
		{"by count", Overflow{Policy: Reject, MaxJobs: 10}, ""},
		{"by bytes", Overflow{Policy: DropOldest, MaxBytes: 1 << 20}, ""},
		{"spillover with defaults", Overflow{Policy: Spillover, MaxJobs: 10}, ""},
		{"a bound without a policy", Overflow{MaxJobs: 10}, `invalid overflows.acme:mail.policy "none": allowed is "reject", "drop_oldest" or "spillover" beside a bound`},
		{"an unknown policy", Overflow{Policy: "forget", MaxJobs: 1}, `invalid overflows.acme:mail.policy "forget"`},
		{"a policy without a bound", Overflow{Policy: Reject}, `invalid overflows.acme:mail.max_jobs 0: allowed is 1 to 10000000, or a max_bytes`},
		{"too many jobs", Overflow{Policy: Reject, MaxJobs: MaxOverflowJobs + 1}, "max_jobs 10000001: allowed is 0 to 10000000"},
		{"negative bytes", Overflow{Policy: Reject, MaxBytes: -1}, "max_bytes -1"},
		{"low water of what does not spill", Overflow{Policy: Reject, MaxJobs: 1, LowWaterPercent: 10}, `"spillover" beside max_spilled`},
		{"low water above the bound", Overflow{Policy: Spillover, MaxJobs: 1, LowWaterPercent: 101}, "low_water_percent 101: allowed is 1 to 100"},
		{"to the second Redis, with defaults", Overflow{Policy: Spillover, MaxJobs: 1, SpillTo: SecondRedis}, ""},
		{"to an address", Overflow{Policy: Spillover, MaxJobs: 1, SpillTo: "redis://:secret@h"}, `spill_to "redis://:secret@h": allowed is "second"`},
		{"to the second Redis, not spilled", Overflow{Policy: Reject, MaxJobs: 1, SpillTo: SecondRedis}, `"spillover" beside max_spilled, low_water_percent, spill_to or max_moved`},
		{"moved nowhere", Overflow{Policy: Spillover, MaxJobs: 1, MaxMoved: 5}, `spill_to "": allowed is "second" beside max_moved`},
		{"too many moved", Overflow{Policy: Spillover, MaxJobs: 1, SpillTo: SecondRedis, MaxMoved: MaxMaxMoved + 1}, "max_moved 10000001: allowed is 1 to 10000000"},
		{"one alone to be moved", Overflow{Policy: Spillover, MaxJobs: 1, SpillTo: SecondRedis, MaxSpilled: 1}, "max_spilled 1: allowed is 2 to 1000000"},
		{"too many spilled", Overflow{Policy: Spillover, MaxJobs: 1, MaxSpilled: MaxMaxSpilled + 1}, "max_spilled 1000001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := Policy{Overflows: map[admission.Scope]Overflow{"acme:mail": c.in}}.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	const grammar = `allowed is scopes "tenant:queue", "tenant" for all its queues, "*" for each other tenant, or "*:*"`
	for scope, want := range map[admission.Scope]string{
		"acme:mail:high": grammar, "acme:*": grammar, "*:mail": grammar, "global:mail": "tenant", "global": "tenant", "acme": "", "*": "", "*:*": "",
	} {
		err := Policy{Overflows: map[admission.Scope]Overflow{scope: {Policy: Reject, MaxJobs: 1}}}.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("scope %s: got %v, want %q", scope, err, want)
		}
	}
	for _, policy := range []OverflowPolicy{DropOldest, Spillover} {
		err := Policy{Overflows: map[admission.Scope]Overflow{"acme": {Policy: policy, MaxJobs: 1}}}.Validate()
		if want := `invalid overflows.acme.policy "` + string(policy) + `": allowed is "none" or "reject" over all queues`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestABoundOfAllTenantsIsNoCandidates: Redis knows those that nobody configured only together.
func TestABoundOfAllTenantsIsNoCandidates(t *testing.T) {
	t.Parallel()
	for _, scope := range []admission.Scope{"*", "*:*"} {
		p := Policy{
			Overflows: map[admission.Scope]Overflow{scope: {Policy: Reject, MaxJobs: 1}, "acme": {Policy: Reject, MaxJobs: 2}},
			Rollout:   &Rollout{ID: "one", Percent: 100, Rules: Rules{Overflows: map[admission.Scope]Overflow{"acme": {Policy: Reject, MaxJobs: 3}}}},
		}
		c, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Overflows(); got[scope].MaxJobs != 1 || got["acme"].MaxJobs != 3 {
			t.Errorf("%+v", got)
		}
		p.Rollout.Rules.Overflows = map[admission.Scope]Overflow{scope: {Policy: Reject, MaxJobs: 3}}
		if _, err = p.Prepare(); err == nil || !strings.Contains(err.Error(), `invalid rollout.rules.overflows "`+string(scope)+`"`) {
			t.Errorf("a candidate with %s: %v", scope, err)
		}
	}
}

// TestARecordBoundsDepth over all queues and in single ones, with all that is not said filled in, and what is wrong is told by its place.
func TestARecordBoundsDepth(t *testing.T) {
	t.Parallel()
	const text = `{"max_running":5,"overflow":{"policy":"reject","max_jobs":9},"limit":{"tokens":5,"per":"1s","burst":5},"queues":{"fax":{"overflow":{"policy":"none"}},"mail":{"limit":{"enabled":false},"overflow":{"policy":"spillover","max_bytes":70,"max_spilled":10000,"low_water_percent":50}}}}`
	r, err := UnmarshalRecord([]byte(strings.Replace(text, `,"max_spilled":10000,"low_water_percent":50`, "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if written, err := MarshalRecord(r); err != nil || string(written) != text {
		t.Errorf("%s, %v", written, err)
	}
	if len(r.Queues) != 1 || r.OverflowAt("").MaxJobs != 9 || r.OverflowAt("fax").Policy != NoBound || r.OverflowAt("mail").LowWaterPercent != DefaultLowWater || r.OverflowAt("other") != (Overflow{}) {
		t.Errorf("%+v", r)
	}
	own := OwnLimits{}.WithOverflow("mail", Overflow{Policy: Spillover, MaxJobs: 3}).WithOverflow("", Overflow{Policy: Reject, MaxJobs: 4})
	if err := compiledWith(t, `{"tenant_records": true}`).CheckRecord(own); err != nil {
		t.Error(err)
	}
	if none := own.WithOverflow("mail", Overflow{}).WithOverflow("", Overflow{}); !none.Empty() || len(own.Overflows) != 1 {
		t.Errorf("taken out there is left %+v, of %+v", none, own)
	}
	queues := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"q%d":{"overflow":{"policy":"none"}}`, i)
		}
		return `{"queues":{"mail":{"limit":{"enabled":false}},` + strings.Join(all, ",") + "}}"
	}
	if _, err := UnmarshalRecord([]byte(queues(MaxRecordQueues - 1))); err != nil {
		t.Error(err)
	}
	for bad, told := range map[string]string{
		`{"overflow":{"policy":"spillover","max_jobs":5}}`:                                            `overflow.policy "spillover": allowed is "none" or "reject" over all queues`,
		`{"overflow":{"max_jobs":5}}`:                                                                 `overflow.policy "none": allowed is "reject"`,
		`{"overflow":{"policy":"reject"}}`:                                                            "overflow.max_jobs 0: allowed is 1 to 10000000, or a max_bytes",
		`{"queues":{"mail":{"overflow":{"policy":"drop_oldest","max_jobs":-1}}}}`:                     "queues.mail.overflow.max_jobs -1",
		`{"queues":{"mail":{"overflow":{"policy":"reject","max_jobs":1,"low_water_percent":7}}}}`:     "queues.mail.overflow.policy",
		`{"queues":{"no queue":{"overflow":{"policy":"none"}}}}`:                                      "no queue",
		`{"queues":{"mail":{"overflow":{"jobs":1}}}}`:                                                 "jobs",
		`{"queues":{"mail":{"overflow":{"policy":"spillover","max_jobs":1,"spill_to":"elsewhere"}}}}`: "queues.mail.overflow.spill_to",
		queues(MaxRecordQueues):                                                                       "queues 65: allowed is up to 64",
	} {
		if _, err := UnmarshalRecord([]byte(bad)); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), told) {
			t.Errorf("%.90s: %v, want it to tell of %s", bad, err, told)
		}
	}
}
