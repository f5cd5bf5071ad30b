package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// TestAnOutageIsLearnedOnceByAllAccounts: failing calls for a hundred accounts, one each, open the one breaker of their service, and jobs of accounts
// that never called wait behind it, none burning an attempt.
func TestAnOutageIsLearnedOnceByAllAccounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	called := map[string]bool{}
	handler := func(_ context.Context, j worker.Job[[]byte]) error {
		mu.Lock()
		defer mu.Unlock()
		called[j.Downstream] = true
		return errors.New("503")
	}
	config := worker.Config{Concurrency: 2, Breakers: map[string]breaker.Config{"shopify": {OpenBase: time.Hour, OpenMax: time.Hour}}}
	r.runWithTimers(r.store, config, on("send", handler))
	for i := range 100 {
		r.enqueue(to(fmt.Sprintf("shopify+shop-%d", i), fmt.Sprint("job-", i)))
	}
	r.await("the breaker is open", func() bool {
		all, err := r.store.Breakers(t.Context())
		return err == nil && len(all) == 1 && all[0].Downstream == "shopify" && all[0].State == breaker.Open
	})
	r.enqueue(to("shopify+never", "late"))
	b, err := r.store.Breaker(t.Context(), "shopify+never")
	if err != nil || b.Downstream != "shopify" || b.Waiting == 0 {
		t.Errorf("the breaker of an account is %+v, %v", b, err)
	}
	sight, err := r.store.Look(t.Context(), admission.Key{Tenant: "acme", ID: "late"})
	if err != nil || sight.Place != admission.PlaceWaiting || sight.Record.Attempts != 0 || len(sight.Waits) == 0 || sight.Waits[0].Kind != store.WaitBreaker {
		t.Errorf("the job of an account that never called: %+v, %v", sight, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if called["shopify+never"] || len(called) > 50 {
		t.Errorf("%d accounts were called, want those before the breaker opened", len(called))
	}
}

// TestARefusedAccountIsHeldAlone: a 429 with Retry-After of one account holds back that account for as long as the policy lets it, and neither the
// other accounts nor what the service's dispatch moves by.
func TestARefusedAccountIsHeldAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := policy.Unlimited()
	p.Downstreams = map[string]policy.Downstream{
		"shopify":   {Dispatch: new(admission.PerSecond(1000).WithBurst(20)), MaxRetryAfter: time.Second},
		"shopify+*": {MaxRetryAfter: 30 * time.Minute},
	}
	p.Adaptive = map[string]policy.Adaptive{"rate": {Of: "downstream shopify", Moves: policy.MovesDispatch, Min: 2, Interval: time.Minute}}
	if _, err := rollout.Put(t.Context(), r.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	follows, err := producer.New(r.store, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.producer = follows
	var mu sync.Mutex
	var done []string
	r.runWithTimers(r.store, worker.Config{Concurrency: 1}, on("send", func(_ context.Context, j worker.Job[[]byte]) error {
		if j.ID == "refused" {
			return worker.Throttled(worker.Snooze(time.Hour))
		}
		mu.Lock()
		defer mu.Unlock()
		done = append(done, j.ID)
		return nil
	}))
	r.enqueue(to("shopify+shop-1", "refused"))
	var holds []store.Hold
	r.await("the account is held", func() bool {
		holds, err = r.store.Holds(t.Context())
		return err == nil && len(holds) > 0
	})
	if h := holds[0]; len(holds) != 1 || h.Name != "d:shopify+shop-1" || h.Until.Sub(h.Since) != 30*time.Minute {
		t.Errorf("held is %+v, want the account alone for 30 minutes", holds)
	}
	r.enqueue(to("shopify+shop-1", "waits"), to("shopify+shop-2", "other"), to("shopify", "none"))
	r.await("the others run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(done) == 2
	})
	mu.Lock()
	slices.Sort(done)
	if !slices.Equal(done, []string{"none", "other"}) {
		t.Errorf("done are %q", done)
	}
	mu.Unlock()
	var all []store.Adaptation
	r.await("their calls are counted", func() bool {
		all, err = r.store.Adaptations(t.Context())
		return err == nil && len(all) == 1 && all[0].Calls == 2
	})
	if all[0].Refused != 0 { // It was told before them.
		t.Errorf("the service's dispatch moves by %+v", all[0])
	}
}
