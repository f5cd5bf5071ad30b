package redisstore

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// tieredPolicy is one by which tier gold has three times the weight of everybody else, and may have 4 jobs where others may have 2.
func tieredPolicy(version int64, weights ...store.TenantWeight) store.PolicyUpdate {
	reject := func(jobs int) store.Overflow { return store.Overflow{Policy: store.Reject, MaxJobs: jobs} }
	return store.PolicyUpdate{
		Expected: version - 1, Version: version, Text: fmt.Appendf(nil, "%d", version), Window: time.Minute, Weights: weights,
		TierWeights: []store.TierWeight{{Class: admission.Medium, Tier: "gold", Weight: 3}},
		Queues: []store.QueueSettings{{
			Queue: "small", Classes: admission.DefaultClasses(), Horizon: time.Hour, Overflow: reject(2), Tiers: map[string]store.Overflow{"gold": reject(4)},
		}},
	}
}

// give puts a record in the place of any.
func (y *yard) give(version int64, tenant, text string) {
	y.tb.Helper()
	_, err := y.store.PutRecord(y.tb.Context(), store.RecordEdit{Tenant: tenant, Policy: version, Text: []byte(text), Bounded: true, LongestFill: time.Minute, Changes: []byte("[]")})
	check(y.tb, err)
	check(y.tb, y.store.SpreadPolicy(y.tb.Context()))
}

// TestTenantsShareByTheWeightsOfTheirRecords: a record's own weight goes first, then that which the policy has for the tenant alone, then that of the record's
// tier, then what the policy has by the tenant's tier. A weight counts from the next dispatch on, and goes with its record.
func TestTenantsShareByTheWeightsOfTheirRecords(t *testing.T) {
	t.Parallel()
	medium := func(tenant string, weight admission.Weight, byTier bool) store.TenantWeight {
		return store.TenantWeight{Class: admission.Medium, Tenant: tenant, Weight: weight, ByTier: byTier}
	}
	for what, row := range map[string]struct {
		record  string
		weights []store.TenantWeight
		ann     int // of 8 that are served
	}{
		"a tier":                          {`{"tier":"gold"}`, nil, 6},
		"a tier, and a weight of its own": {`{"tier":"gold","priority_weights":{"high":9,"medium":1},"limit":{"tokens":5}}`, nil, 4},
		"a weight alone":                  {`{"priority_weights":{"medium":7},"limit":{"tokens":5}}`, nil, 7},
		"a weight of another class":       {`{"priority_weights":{"high":7}}`, nil, 4},
		"a tier that is none":             {`{"tier":"gol"}`, nil, 4},
		"a tier of everybody's weight":    {`{"tier":"standard"}`, []store.TenantWeight{medium("ann", 7, true)}, 4},
		"limits alone":                    {`{"limit":{"tokens":5}}`, []store.TenantWeight{medium("ann", 7, true)}, 7},
		"the policy's by its tier":        {`{"tier":"gold"}`, []store.TenantWeight{medium("ann", 7, true)}, 6},
		"the policy's own":                {`{"tier":"gold"}`, []store.TenantWeight{medium("ann", 7, false)}, 7},
		"a queue of an odd name":          {`{"queues":{"priority_weights":{"limit":{"tokens":5,"medium":9}}}}`, nil, 4},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			y := newTurns(t)
			check(t, y.store.PutPolicy(t.Context(), tieredPolicy(1, row.weights...)))
			y.give(1, "ann", row.record)
			for range 40 {
				y.admitAt(1, mail("ann", fmt.Sprint("a", y.jobs)), mail("bob", fmt.Sprint("b", y.jobs)))
				y.jobs++
			}
			y.register(1)
			served := func(n int) (ann int) {
				for range n {
					leases := y.read(1)
					if leases[0].Job.Tenant == "ann" {
						ann++
					}
					_, _, err := y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{leases[0].Finish(store.Complete)})
					check(t, err)
				}
				return ann
			}
			served(2) // Whom the first two go to is a matter of who came first.
			if got := served(8); got != row.ann {
				t.Errorf("ann had %d of 8, want %d", got, row.ann)
			}
			check(t, y.store.PutPolicy(t.Context(), tieredPolicy(2, append(row.weights, medium("zed", 5, false))...)))
			served(1)
			if got := served(8); got != row.ann {
				t.Errorf("after an edit of another tenant's weight ann had %d of 8, want %d", got, row.ann)
			}
			check(t, y.store.PutPolicy(t.Context(), tieredPolicy(3)))
			y.give(3, "ann", "")
			served(2) // One of them was dispatched before.
			if got := served(8); got != 4 {
				t.Errorf("without a record ann had %d of 8, want 4", got)
			}
		})
	}
}

// TestATierByARecordHasItsBound, also for jobs that were in before, and an edit of the policy does not take it away.
func TestATierByARecordHasItsBound(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), tieredPolicy(1)))
	fill := func(version int64, tenant string) (admitted int) {
		t.Helper()
		for n := range 10 {
			switch v := y.offerAt(version, in("small", tenant, fmt.Sprint(version, tenant, n))); {
			case v.Decision == admission.Admitted:
				admitted++
			case v.Reason != admission.ReasonOverflow:
				t.Error(v.Err())
			}
		}
		return admitted
	}
	y.give(1, "ann", `{"tier":"gold"}`)
	if ann, bob := fill(1, "ann"), fill(1, "bob"); ann != 4 || bob != 2 {
		t.Errorf("%d jobs of ann and %d of bob were admitted, want 4 and 2", ann, bob)
	}
	next := tieredPolicy(2)
	next.Tiers, next.Queues[0].Tiers["gold"] = map[string]string{"ann": "standard"}, store.Overflow{Policy: store.Reject, MaxJobs: 5}
	check(t, y.store.PutPolicy(t.Context(), next))
	if ann := fill(2, "ann"); ann != 1 {
		t.Errorf("%d more jobs of ann were admitted, want 1", ann)
	}
	next = tieredPolicy(3)
	next.Queues[0].Overflow = store.Overflow{Policy: store.NoBound}
	check(t, y.store.PutPolicy(t.Context(), next))
	if eve := fill(3, "eve"); eve != 10 {
		t.Errorf("%d jobs of eve were admitted, want 10", eve)
	}
	y.give(3, "eve", `{"tier":"gold"}`)
	if more := y.offerAt(3, in("small", "eve", "more")); more.Decision == admission.Admitted {
		t.Error("beside ten that were in before her tier was bounded by 4 a job of eve was admitted")
	}
}

// TestRecordsAreCountedByTheirTiers, whatever one is replaced by, over all partitions, and a refused edit counts for nothing.
func TestRecordsAreCountedByTheirTiers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), tieredPolicy(1)))
	want := func(tiers map[string]int64) {
		t.Helper()
		got, err := y.store.RecordTiers(t.Context())
		check(t, err)
		if !maps.Equal(got, tiers) {
			t.Errorf("%v, want %v", got, tiers)
		}
	}
	want(map[string]int64{})
	y.give(1, "ann", `{"tier":"gold"}`)
	y.give(1, "bob", `{"tier":"gold","priority_weights":{"low":2}}`)
	y.give(1, "eve", `{"priority_weights":{"low":2}}`)
	y.give(1, "kim", `{"limit":{"tokens":2}}`)
	want(map[string]int64{"gold": 2})
	y.give(1, "bob", `{"tier":"tin"}`)
	y.give(1, "bob", `{"tier":"tin"}`)
	want(map[string]int64{"gold": 1, "tin": 1})
	_, err := y.store.PutRecord(t.Context(), store.RecordEdit{Tenant: "ann", Policy: 1, Expected: policy.NoRecord, Text: []byte(`{"tier":"tin"}`)})
	if !errors.Is(err, store.ErrConflict) {
		t.Error(err)
	}
	y.give(1, "ann", `{"limit":{"tokens":2}}`)
	want(map[string]int64{"tin": 1})
	y.give(1, "bob", "")
	y.give(1, "eve", "")
	want(map[string]int64{})
	y.give(1, "bob", `{"tier":"tin"}`)
	want(map[string]int64{"tin": 1})
}

// TestTiersOfRecordsCostNothingWhereThereAreNone: a job takes as many commands beside records that say nothing of tiers as without any, one more beside one
// that does, for records, and another where its own tenant's does, for the weights of tiers.
func TestTiersOfRecordsCostNothingWhereThereAreNone(t *testing.T) {
	t.Parallel()
	y := &turnsYard{yard: newYardOn(t, redistest.Start(t, redistest.Options{}).Client(t), "")}
	check(t, y.store.PutPolicy(t.Context(), tieredPolicy(1, store.TenantWeight{Class: admission.Medium, Weight: 2})))
	y.register(1)
	y.admitAt(1, mail("ann", "first")) // Those that come after it wait.
	round := func() int64 {
		least := int64(1000)
		for range 5 {
			y.jobs++
			before := commandsOf(t, y.store)
			y.admitAt(1, mail("ann", fmt.Sprint("a", y.jobs)))
			leases := y.read(1)
			_, _, err := y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{leases[0].Finish(store.Complete)})
			check(t, err)
			least = min(least, commandsOf(t, y.store)-before)
		}
		return least
	}
	round() // The first job of all is dispatched at once.
	none := round()
	y.give(1, "bob", `{"limit":{"tokens":2}}`)
	if with := round(); with != none {
		t.Errorf("a job takes %d commands with a record that says nothing of a tier, %d without", with, none)
	}
	y.give(1, "bob", `{"tier":"gold"}`)
	if with := round(); with != none+1 {
		t.Errorf("a job takes %d commands where another tenant's record has a tier, want 1 more than %d", with, none)
	}
	y.give(1, "ann", `{"tier":"gold"}`)
	if with := round(); with != none+2 {
		t.Errorf("a job takes %d commands where its tenant's record has a tier, want 2 more than %d", with, none)
	}
}
