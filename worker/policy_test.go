package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/worker"
)

// TestThePolicySaysByWhichRulesABreakerGoes: a worker hears of them with its next report, without being told to, and its own file is
// in force again once they are gone. A call is cut by the policy's call_timeout.
func TestThePolicySaysByWhichRulesABreakerGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	put := func(rules *policy.BreakerRules) {
		t.Helper()
		p := policy.Unlimited()
		p.Downstreams = map[string]policy.Downstream{"pay": {Breaker: rules}}
		if _, err := rollout.Put(t.Context(), r.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
	}
	put(nil)
	p, err := producer.New(r.store, producer.Config{}) // One that follows the policy.
	if err != nil {
		t.Fatal(err)
	}
	r.producer = p
	config := worker.Config{Concurrency: 2, Backoff: quick, Breaker: breaker.Config{FailureThreshold: 900_000, MinCalls: 900_000}}
	w := r.runWithTimers(r.store, config, on("call", func(ctx context.Context, j worker.Job[[]byte]) error {
		if j.Tenant == "patient" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}))
	sent := 0
	inForce := func(what string, threshold int, origin breaker.Origin, version int64) {
		t.Helper()
		r.await(what, func() bool {
			r.enqueue(ofTenant("acme", sent, 1)...) // Each call is news for the fleet, and the answer is news for the worker.
			sent++
			state, err := r.store.Breaker(t.Context(), "pay")
			return err == nil && state.Rules.FailureThreshold == threshold && state.Rules.Origin == origin && state.Rules.Version == version
		})
	}
	inForce("the rules of its file", 900_000, breaker.OriginWorker, 1)
	put(&policy.BreakerRules{Config: breaker.Config{FailureThreshold: 7}, CallTimeout: 5 * time.Millisecond})
	inForce("the policy's", 7, breaker.OriginPolicy, 2)
	r.enqueue(ofTenant("patient", 0, 1)...)
	r.await("a call that is cut", func() bool {
		state, err := r.store.Breaker(t.Context(), "pay")
		return err == nil && len(state.Errors) > 0 && strings.Contains(state.Errors[0].Text, "cut after 5ms by call_timeout of downstream pay")
	})
	put(nil)
	inForce("its file's again", 900_000, breaker.OriginWorker, 3)
	if !strings.Contains(w.logs.String(), "circuit breaker has other rules") {
		t.Errorf("nothing of it in %s", w.logs.String())
	}
}
