package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// boundedPolicy is tieredPolicy with bounds of tenants, by TENANT:QUEUE or TENANT.
func boundedPolicy(version int64, own ...store.TenantOverflow) store.PolicyUpdate {
	u := tieredPolicy(version)
	u.Overflows = own
	return u
}

func rejectOver(jobs int) store.Overflow { return store.Overflow{Policy: store.Reject, MaxJobs: jobs} }

// fits offers so many jobs of a tenant in queue small, and returns how many were let in, and why the first of the others was not.
func (y *yard) fits(version int64, tenant, name string, n int) (admitted int, why admission.Verdict) {
	y.tb.Helper()
	for k := range n {
		v := y.offerAt(version, in("small", tenant, fmt.Sprint(name, k)))
		switch {
		case v.Decision == admission.Admitted:
			admitted++
		case v.Reason != admission.ReasonOverflow:
			y.tb.Error(v.Err())
		case why.Reason == "":
			why = v
		}
	}
	return admitted, why
}

// TestTheNearestBoundIsInForce: in a queue, and over all queues, a record's own, then the policy's own of the tenant, then that of the record's tier, then what each has;
// before and after an edit of another tenant's, and without the record that of the policy.
func TestTheNearestBoundIsInForce(t *testing.T) {
	t.Parallel()
	own := func(jobs int) store.TenantOverflow {
		return store.TenantOverflow{Tenant: "ann", Queue: "small", Overflow: rejectOver(jobs)}
	}
	all := func(jobs int) store.TenantOverflow {
		return store.TenantOverflow{Tenant: "ann", Overflow: rejectOver(jobs)}
	}
	const inSmall, three = `{"queues":{"small":{"overflow":%s}}}`, `{"policy":"reject","max_jobs":3}`
	for what, row := range map[string]struct {
		record string
		policy []store.TenantOverflow
		want   int
		scope  admission.Scope
		after  int
	}{
		"a bound alone":                  {fmt.Sprintf(inSmall, three), nil, 3, "ann:small", 2},
		"before the policy's own":        {fmt.Sprintf(inSmall, three), []store.TenantOverflow{own(1)}, 3, "ann:small", 1},
		"below the policy's own":         {fmt.Sprintf(inSmall, three), []store.TenantOverflow{own(7)}, 3, "ann:small", 7},
		"before that of its tier":        {`{"tier":"gold","queues":{"small":{"overflow":` + three + `}}}`, nil, 3, "ann:small", 2},
		"lifted":                         {fmt.Sprintf(inSmall, `{"policy":"none"}`), []store.TenantOverflow{own(1)}, 10, "", 1},
		"over all":                       {`{"overflow":{"policy":"reject","max_jobs":1},"limit":{"tokens":5}}`, nil, 1, "ann", 2},
		"over all before the policy's":   {`{"overflow":{"policy":"reject","max_jobs":4},"queues":{"small":{"overflow":{"policy":"none"}}}}`, []store.TenantOverflow{all(1)}, 4, "ann", 1},
		"over all lifted":                {`{"overflow":{"policy":"none"}}`, []store.TenantOverflow{all(1)}, 2, "ann:small", 1},
		"the policy's own in the queue":  {`{"overflow":{"policy":"reject","max_jobs":9}}`, []store.TenantOverflow{own(1)}, 1, "ann:small", 1},
		"the policy's own before a tier": {`{"tier":"gold"}`, []store.TenantOverflow{own(1)}, 1, "ann:small", 1},
		"that of the record's tier":      {`{"tier":"gold","overflow":{"policy":"reject","max_jobs":9}}`, nil, 4, "ann:small", 2},
		"of another queue":               {`{"queues":{"mail":{"overflow":` + three + `}}}`, nil, 2, "ann:small", 2},
		"a queue of an odd name":         {`{"queues":{"overflow":{"limit":{"tokens":5},"policy":"reject"}}}`, nil, 2, "ann:small", 2},
		"by bytes":                       {fmt.Sprintf(inSmall, `{"policy":"reject","max_bytes":100}`), nil, 2, "ann:small", 2},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			check(t, y.store.PutPolicy(t.Context(), boundedPolicy(1, row.policy...)))
			y.give(1, "ann", row.record)
			got, why := y.fits(1, "ann", "a", 10)
			if got != row.want || why.Scope != row.scope && row.scope != "" && why.Scope != "" {
				t.Errorf("%d jobs were let in, and then refused by %q, want %d and %q", got, why.Scope, row.want, row.scope)
			}
			check(t, y.store.PutPolicy(t.Context(), boundedPolicy(2, append(row.policy, store.TenantOverflow{Tenant: "zed", Overflow: rejectOver(1)})...)))
			if more, _ := y.fits(2, "ann", "b", 1); row.want < 10 && more != 0 {
				t.Error("after an edit of another tenant's bound one more was let in")
			}
			y.give(2, "bob", `{"priority_weights":{"high":3}}`)
			if bob, _ := y.fits(2, "bob", "c", 10); bob != 2 {
				t.Errorf("%d jobs of another tenant were let in, want 2", bob)
			}
			y.give(2, "ann", "")
			if without, _ := y.fits(2, "ann", "d", 10); without != max(0, row.after-got) {
				t.Errorf("without the record %d more jobs were let in, want %d beside the %d that there are", without, max(0, row.after-got), got)
			}
		})
	}
}

// TestABoundOfARecordCountsWhatIsIn, also what entered when nothing was bounded; a higher one leaves room at once, and none is left without one.
func TestABoundOfARecordCountsWhatIsIn(t *testing.T) {
	t.Parallel()
	for what, bound := range map[string]string{"in a queue": `{"queues":{"small":{"overflow":{"policy":"reject","max_jobs":%d}}}}`, "over all": `{"overflow":{"policy":"reject","max_jobs":%d}}`} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			free := tieredPolicy(1)
			free.Queues = nil
			check(t, y.store.PutPolicy(t.Context(), free))
			for step, row := range []struct {
				record string
				want   int
			}{
				{"", 5}, {fmt.Sprintf(bound, 3), 0}, {fmt.Sprintf(bound, 7), 2}, {fmt.Sprintf(bound, 8), 1}, {`{"limit":{"tokens":5}}`, 5}, {fmt.Sprintf(bound, 14), 1}, {"", 5}, {fmt.Sprintf(bound, 20), 1},
			} {
				y.give(1, "ann", row.record)
				if got, _ := y.fits(1, "ann", fmt.Sprint(step, "-"), 5); got != row.want {
					t.Errorf("step %d: %d of 5 were let in by %q, want %d", step, got, row.record, row.want)
				}
			}
			y.give(1, "ann", "")
			state := y.client.HMGet(t.Context(), y.store.conn.Partition.State(), "ro", "pr").Val()
			if state[0] != nil || state[1] != nil {
				t.Errorf("after the last there is left: %v", state)
			}
		})
	}
}

// TestABoundOfARecordIsReadWithIt: an admission asks Redis for no more than by a bound of the policy, and one less, as the record is at hand. An edit is as many commands with
// ten records as with a thousand.
func TestABoundOfARecordIsReadWithIt(t *testing.T) {
	t.Parallel()
	cost := map[string]int64{}
	for what, others := range map[string]int{"policy": 0, "record": 10, "many": 1000} {
		y := newYardOn(t, redistest.Start(t, redistest.Options{}).Client(t), "bounds")
		u := tieredPolicy(1)
		if u.Queues = nil; what == "policy" {
			u.Overflows = []store.TenantOverflow{{Tenant: "ann", Queue: "mail", Overflow: rejectOver(9)}}
		}
		check(t, y.store.PutPolicy(t.Context(), u))
		const bound = `{"queues":{"mail":{"overflow":{"policy":"reject","max_jobs":%d}}}}`
		for n := range others {
			y.give(1, fmt.Sprint("other-", n), fmt.Sprintf(bound, 5))
		}
		text := fmt.Sprintf(bound, 9)
		if what == "policy" {
			text = `{"limit":{"tokens":5}}`
		}
		y.give(1, "ann", text)
		records, err := y.store.Records(t.Context(), "ann", "bob")
		check(t, err)
		enter := func(id string) {
			t.Helper()
			limits, jobs := &[admission.Levels]admission.Limit{}, []admission.Job{mail("ann", id), mail("bob", id)}
			verdicts, err := y.store.Admit(t.Context(), 1, []store.Candidate{
				{Job: &jobs[0], Class: 1, Limits: limits, Record: records[0].Version}, {Job: &jobs[1], Class: 1, Limits: limits, Record: records[1].Version},
			})
			check(t, err)
			for _, v := range verdicts {
				check(t, v.Err())
			}
		}
		enter("first")
		before := commandsOf(t, y.store)
		enter("second")
		cost["an admission by "+what] = commandsOf(t, y.store) - before
		before = commandsOf(t, y.store)
		_, err = y.store.PutRecord(t.Context(), store.RecordEdit{Tenant: "ann", Policy: 1, Text: fmt.Appendf(nil, bound, 8), LongestFill: time.Minute, Changes: []byte("[]")})
		check(t, err)
		cost["an edit by "+what] = commandsOf(t, y.store) - before
	}
	t.Log(cost)
	if cost["an admission by record"] >= cost["an admission by policy"] || cost["an admission by record"] != cost["an admission by many"] || cost["an edit by record"] != cost["an edit by many"] {
		t.Errorf("commands: %v", cost)
	}
}

// TestABoundOfARecordIsWholeInItsPartition: a tenant is in one partition, which has all of its bound, as of one by the policy; an edit of the policy in all partitions leaves it in force.
func TestABoundOfARecordIsWholeInItsPartition(t *testing.T) {
	t.Parallel()
	s, err := openMany(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t), Partitions: 3})
	check(t, err)
	check(t, s.PutPolicy(t.Context(), boundedPolicy(1)))
	const tenants = 12
	for n := range tenants {
		text := `{"overflow":{"policy":"reject","max_jobs":5},"queues":{"small":{"overflow":{"policy":"none"}}}}`
		_, err := s.PutRecord(t.Context(), store.RecordEdit{Tenant: fmt.Sprint("tenant-", n), Policy: 1, Text: []byte(text), LongestFill: time.Minute, Changes: []byte("[]")})
		check(t, err)
	}
	check(t, s.PutPolicy(t.Context(), boundedPolicy(2, store.TenantOverflow{Tenant: store.Every, Overflow: rejectOver(3)}, store.TenantOverflow{Tenant: "tenant-0", Overflow: rejectOver(1)})))
	for n := range tenants + 1 { // The last has no record.
		tenant, admitted, want := fmt.Sprint("tenant-", n), 0, 5
		if n == tenants {
			want = 2
		}
		for k := range 9 {
			job := in("small", tenant, strconv.Itoa(k))
			verdicts, err := s.of(tenant).Admit(t.Context(), 2, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
			check(t, err)
			if verdicts[0].Decision == admission.Admitted {
				admitted++
			}
		}
		if admitted != want {
			t.Errorf("%d jobs of %s were let in, want %d", admitted, tenant, want)
		}
	}
}
