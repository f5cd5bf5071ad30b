package headgate_test

import (
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// own has a tenant have a limit of its own of so many tokens an hour, all at once; none for 0.
func own(t *testing.T, hg *headgate.Client, tenant string, tokens headgate.Tokens) {
	t.Helper()
	check(t, hg.Policy().ChangeRecord(t.Context(), tenant, headgate.Edit{Author: "ada", Reason: "contract"}, func(r *policy.OwnLimits) {
		r.Limit = &headgate.Limit{Tokens: tokens, Per: time.Hour, Burst: tokens}
		if tokens == 0 {
			r.Limit = nil
		}
	}))
}

// TestARecordIsInForceFromTheNextJobOn, for the one tenant, without an edit of the policy, and so is its end.
func TestARecordIsInForceFromTheNextJobOn(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, hg *headgate.Client, _ *headgate.Limiter) {
		t.Helper()
		enqueue := func(tenant string, cost headgate.Tokens) error {
			_, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: tenant, Queue: "llm", Cost: cost, Args: completion{"why"}})
			return err
		}
		before, err := hg.Policy().Current(t.Context())
		check(t, err)
		check(t, enqueue("acme", 90))
		own(t, hg, "acme", 500)
		check(t, enqueue("acme", 10)) // What was taken stays so.
		if err := enqueue("acme", 400); !errors.Is(err, headgate.ErrLimited) {
			t.Errorf("400 of nothing: %v", err)
		}
		own(t, hg, "great", 500)
		check(t, enqueue("great", 400))
		no, refused := errors.AsType[*headgate.Refusal](enqueue("small", 400))
		if !refused || no.Reason != headgate.ReasonTooCostly || no.Burst != 100 {
			t.Errorf("400 of one that has no record: %+v", no)
		}
		results, _ := hg.EnqueueBatch(t.Context(), []headgate.Job{
			{Tenant: "great", Queue: "llm", Cost: 100, Args: completion{"a"}},
			{Tenant: "small", Queue: "llm", Cost: 100, Args: completion{"b"}},
			{Tenant: "great", Queue: "llm", Cost: 1, Args: completion{"c"}},
		})
		if results[0].Err != nil || results[1].Err != nil || !errors.Is(results[2].Err, headgate.ErrLimited) {
			t.Errorf("a batch: %v, %v, %v", results[0].Err, results[1].Err, results[2].Err)
		}
		own(t, hg, "great", 0)
		if no, refused = errors.AsType[*headgate.Refusal](enqueue("great", 400)); !refused || no.Burst != 100 {
			t.Errorf("400 without a record: %+v", no)
		}
		after, err := hg.Policy().Current(t.Context())
		check(t, err)
		if before.Version != after.Version {
			t.Errorf("version %d of the policy became %d", before.Version, after.Version)
		}
		record, err := hg.Policy().Record(t.Context(), "acme")
		check(t, err)
		if record.Limit == nil || record.Limit.Burst != 500 {
			t.Errorf("%+v", record)
		}
	})
}

// TestWhatAChangeOfARecordDoesNotNameStays: tier, weights and cap beside another limit, and the other way round.
func TestWhatAChangeOfARecordDoesNotNameStays(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, hg *headgate.Client, _ *headgate.Limiter) {
		t.Helper()
		all := policy.OwnLimits{Tier: "standard", Weights: policy.Weights{headgate.High: 3}, MaxRunning: 5}
		check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { *r = all }))
		own(t, hg, "acme", 500)
		check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { r.Weights[headgate.Low] = 7 }))
		all.Weights, all.Limit = policy.Weights{headgate.High: 3, headgate.Low: 7}, &headgate.Limit{Tokens: 500, Per: time.Hour, Burst: 500}
		if r, err := hg.Policy().Record(t.Context(), "acme"); err != nil || !reflect.DeepEqual(r, all) {
			t.Errorf("%+v, %v, want %+v", r, err, all)
		}
		check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { r.MaxRunningIn = map[string]int{"mail": 2} }))
		check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { r.MaxRunningIn["fax"] = 4 })) // In place.
		check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { r.MaxRunningIn["mail"] = 3 }))
		all.MaxRunningIn = map[string]int{"mail": 3, "fax": 4}
		rate := headgate.PerSecond(5, 5)
		check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { r.Dispatch = new(rate) }))
		check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { r.Limit.Burst = 300 })) // In place.
		check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { r.Dispatch.Burst = 3 }))
		all.Limit.Burst, rate.Burst = 300, 3
		all.Dispatch = &rate
		if r, err := hg.Policy().Record(t.Context(), "acme"); err != nil || !reflect.DeepEqual(r, all) {
			t.Errorf("%+v, %v, want %+v", r, err, all)
		}
	})
}

// TestATierOfARecordIsInForceFromTheNextJobOn, for the one tenant, and an edit of the tier is so for it.
func TestATierOfARecordIsInForceFromTheNextJobOn(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, hg *headgate.Client, _ *headgate.Limiter) {
		t.Helper()
		gold := func(burst headgate.Tokens) {
			t.Helper()
			check(t, hg.Policy().Change(t.Context(), headgate.Edit{}, func(p *headgate.Policy) {
				p.Tier("gold").Limit = headgate.Limit{Tokens: 500, Per: time.Hour, Burst: burst}
			}))
		}
		tier := func(name string) {
			t.Helper()
			check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { r.Tier = name }))
		}
		burst := func(tenant string) headgate.Tokens {
			t.Helper()
			_, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: tenant, Queue: "llm", Cost: 10_000, Args: completion{"why"}})
			no, refused := errors.AsType[*headgate.Refusal](err)
			if !refused || no.Reason != headgate.ReasonTooCostly {
				t.Errorf("10,000 of %s: %v", tenant, err)
				return 0
			}
			return no.Burst
		}
		gold(500)
		tier("gold")
		if acme, other := burst("acme"), burst("other"); acme != 500 || other != 100 {
			t.Errorf("bursts of %d and %d, want 500 of tier gold and 100 of standard", acme, other)
		}
		gold(700)
		if acme := burst("acme"); acme != 700 {
			t.Errorf("a burst of %d after an edit of the tier, want 700", acme)
		}
		tier("")
		if acme := burst("acme"); acme != 100 {
			t.Errorf("a burst of %d without a record, want 100", acme)
		}
	})
}

// TestALimiterHearsOfARecordWithinItsLease: checks that are answered on lease or by a denial go by it a second later at most.
func TestALimiterHearsOfARecordWithinItsLease(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, hg *headgate.Client, checks *headgate.Limiter) {
		t.Helper()
		heard := func(want bool) {
			t.Helper()
			for began := time.Now(); ; {
				_, err := checks.Check(t.Context(), headgate.Request{Tenant: "acme", Cost: 101})
				if _, refused := errors.AsType[*headgate.Refusal](err); refused != want {
					return
				} else if !refused {
					check(t, err)
				}
				if time.Since(began) > 10*time.Second {
					t.Fatalf("after 10 s: %v", err)
				}
			}
		}
		heard(false)
		own(t, hg, "acme", 1_000_000)
		heard(true)
		for range 2000 {
			_, err := checks.Check(t.Context(), headgate.Request{Tenant: "acme", Cost: 20})
			check(t, err)
		}
		own(t, hg, "acme", 0)
		heard(false)
	})
}

// TestCostsThatAreToldAfterAChangeOfARecord: more is taken of the limit that is in force then, up to its own burst below zero, and less stays, since
// the bucket may have been another.
func TestCostsThatAreToldAfterAChangeOfARecord(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, hg *headgate.Client, checks *headgate.Limiter) {
		t.Helper()
		reserve := func(tenant string, cost headgate.Tokens) headgate.Reservation {
			t.Helper()
			r, err := checks.Reserve(t.Context(), headgate.Request{Tenant: tenant, Cost: cost})
			check(t, err)
			return r
		}
		more, less := reserve("more", 50), reserve("less", 50)
		own(t, hg, "more", 400)
		own(t, hg, "less", 400)
		if err := less.Commit(t.Context(), 10); !errors.Is(err, limiter.ErrReservationStands) {
			t.Errorf("40 tokens less: %v", err)
		}
		check(t, more.Commit(t.Context(), 10_000))
		_, err := checks.Reserve(t.Context(), headgate.Request{Tenant: "more", Cost: 1})
		no, refused := errors.AsType[*headgate.Refusal](err)
		if want := -headgate.Tokens(400); !refused || no.Remaining != want {
			t.Errorf("after 10,000 of 400: %+v, want %d left", no, want)
		}

		own(t, hg, "acme", 300)
		_, err = hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "llm", Cost: 50, Args: completion{"why"}})
		check(t, err)
		workOff(t, hg, 250)
		reserve("acme", 50)
		if _, err = checks.Reserve(t.Context(), headgate.Request{Tenant: "acme", Cost: 1}); !errors.Is(err, headgate.ErrLimited) {
			t.Errorf("a job that cost 250 of 300, and 50: %v", err)
		}
	})
}

// TestRecordsNeedThePolicysWord, which stays while there are any.
func TestRecordsNeedThePolicysWord(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	give := func(*policy.OwnLimits) {}
	if err := hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, give); !errors.Is(err, policy.ErrNoRecords) {
		t.Errorf("a policy without: %v", err)
	}
	records := func(on bool) error {
		return hg.Policy().Change(t.Context(), headgate.Edit{}, func(p *headgate.Policy) { p.Document.TenantRecords = on })
	}
	check(t, records(true))
	own(t, hg, "acme", 5)
	if err := records(false); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("while one tenant has a record: %v", err)
	}
	own(t, hg, "acme", 0)
	check(t, records(false))
	err := hg.Policy().ChangeRecord(t.Context(), "a:b", headgate.Edit{}, give)
	if !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("no name of a tenant: %v", err)
	}
}

// TestSemaphoresOfARecordAreInForce for whoever acquires from the edit on, in both stores: also a lower limit, by which nobody is cut off and nobody is let in, one that lets nobody in, and none
// any more.
func TestSemaphoresOfARecordAreInForce(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, hg *headgate.Client, all *headgate.Limiter) {
		t.Helper()
		check(t, hg.Policy().Change(t.Context(), headgate.Edit{}, func(p *headgate.Policy) {
			p.Document.Semaphores = map[string]policy.SemaphoreRules{"acme:gpu": {Max: 3}, "gpu": {Max: 1}}
		}))
		limited := func(when string, most int) {
			t.Helper()
			var held []*headgate.Permits
			for range most {
				p, err := all.Semaphore("acme:gpu").TryAcquire(t.Context(), 1)
				check(t, err)
				held = append(held, p)
			}
			_, err := all.Semaphore("acme:gpu").TryAcquire(t.Context(), 1)
			if no, refused := errors.AsType[*limiter.NoPermitsError](err); !refused || no.Limit != most {
				t.Errorf("%s: %v, want a limit of %d", when, err, most)
			}
			for _, p := range held {
				check(t, p.Release(t.Context()))
			}
		}
		limit := func(most ...int) {
			t.Helper()
			check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) {
				if r.Semaphores = nil; len(most) > 0 {
					r.Semaphores = map[string]policy.SemaphoreRules{"gpu": {Max: most[0]}}
				}
			}))
		}
		limited("without a record", 3)
		limit(5)
		limited("raised", 5)
		limit(2)
		limited("lowered", 2)
		limit(0)
		limited("with none", 0)
		check(t, hg.Policy().ChangeRecord(t.Context(), "acme", headgate.Edit{}, func(r *policy.OwnLimits) { r.Semaphores["gpu"] = policy.SemaphoreRules{Max: 4} })) // In place.
		limited("changed in place", 4)
		limit()
		limited("without one", 3)
		limit(3)
		one, err := all.Semaphore("acme:gpu").TryAcquire(t.Context(), 3)
		check(t, err)
		waits := make(chan error, 1)
		go func() {
			p, err := all.Semaphore("acme:gpu").Acquire(t.Context(), 2)
			if err == nil {
				err = p.Release(t.Context())
			}
			waits <- err
		}()
		for waiting := 0; waiting == 0; {
			runtime.Gosched()
			_, err := all.Semaphore("acme:gpu").TryAcquire(t.Context(), 1)
			if no, refused := errors.AsType[*limiter.NoPermitsError](err); refused {
				waiting = no.Ahead
			}
		}
		limit(5) // Who waits for two runs beside three.
		check(t, <-waits)
		check(t, one.Release(t.Context()))
	})
}
