package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// costBursts are those of the four levels of a rig that newCostRig has made. Tokens come in once a day, or none to speak of.
var costBursts = [admission.Levels]admission.Tokens{1000, 400, 200, 100}

// newCostRig returns a rig with a limit at each level.
func newCostRig(tb testing.TB) *rig {
	tb.Helper()
	r := newRig(tb)
	r.limit(costBursts)
	p, err := producer.New(r.store, producer.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	r.producer = p
	return r
}

// limit puts limits of these bursts into force.
func (r *rig) limit(bursts [admission.Levels]admission.Tokens) {
	r.tb.Helper()
	day := func(level admission.Level) admission.Limit {
		return admission.Limit{Tokens: 1 + bursts[level]/30, Per: 24 * time.Hour, Burst: bursts[level]}
	}
	p := policy.Unlimited()
	p.Global = day(admission.LevelGlobal)
	p.Tenants = map[string]policy.Tenant{"acme": {Tier: policy.StandardTier, Limit: new(day(admission.LevelTenant))}}
	p.QueueLimits = map[admission.Scope]admission.Limit{"acme:mail": day(admission.LevelQueue)}
	p.PriorityLimits = map[admission.Scope]admission.Limit{"acme:mail:medium": day(admission.LevelPriority)}
	if _, err := rollout.Put(r.tb.Context(), r.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		r.tb.Fatal(err)
	}
}

// spent returns what is missing in the bucket of each level, in whole tokens.
func (r *rig) spent() (spent [admission.Levels]admission.Tokens) {
	r.tb.Helper()
	text, err := r.store.Policy(r.tb.Context())
	if err != nil {
		r.tb.Fatal(err)
	}
	now, err := policy.PrepareStored(text)
	if err != nil {
		r.tb.Fatal(err)
	}
	q := store.Question{Tenant: "acme", Queue: "mail", Class: admission.Medium, Cost: 1, Limits: now.LimitsFor("acme", "mail", admission.Medium)}
	_, answers, err := r.store.Check(r.tb.Context(), now.Version(), true, []store.Question{q})
	if err != nil {
		r.tb.Fatal(err)
	}
	for level, left := range answers[0].Left {
		spent[level] = tokensMissing(q.Limits[level].Burst, int64(left))
	}
	return spent
}

// tokensMissing rounds what a bucket lacks up, since a little has come in.
func tokensMissing(burst admission.Tokens, left int64) admission.Tokens {
	missing := int64(burst)*1_000_000 - left
	return admission.Tokens((missing + 999_999) / 1_000_000)
}

func (r *rig) wantSpent(what string, want admission.Tokens) {
	r.tb.Helper()
	all := [admission.Levels]admission.Tokens{want, want, want, want}
	if got := r.spent(); got != all {
		r.tb.Errorf("%s: %v tokens are missing, want %d at every level", what, got, want)
	}
}

func costly(id string, cost admission.Tokens) admission.Job {
	j := job("send", id)
	j.Cost, j.MaxAttempts = cost, 3
	return j
}

// TestACostIsTruedUpAtEveryLevel: less, as much, more; and a handler that says nothing leaves what was reserved.
func TestACostIsTruedUpAtEveryLevel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		costs []admission.Tokens
		want  admission.Tokens
	}{
		"less": {[]admission.Tokens{12}, 12}, "nothing": {[]admission.Tokens{0}, 1}, "as much": {[]admission.Tokens{40}, 40}, "more": {[]admission.Tokens{90}, 90},
		"silent": {nil, 40}, "the last word counts": {[]admission.Tokens{1, 90, 30}, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newCostRig(t)
			r.runWithTimers(r.store, worker.Config{}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
				for _, cost := range c.costs {
					if err := worker.SetCost(ctx, cost); err != nil {
						t.Error(err)
					}
				}
				return nil
			}))
			r.enqueue(costly("a", 40))
			r.idle()
			got := r.spent()
			for level, missing := range got {
				// What came in while the job ran is not owed: less than a token.
				if missing != c.want && (name != "nothing" || missing > c.want) {
					t.Errorf("level %d lacks %d tokens, want %d", level, missing, c.want)
				}
			}
		})
	}
}

// TestACostIsTruedUpAtItsTypeToo: the handler says less, and the bucket of its type gets the rest back.
func TestACostIsTruedUpAtItsTypeToo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := policy.Unlimited()
	p.Queues = map[string]policy.Queue{"mail": {EachTenant: policy.EachTenant{TypeLimits: map[string]admission.Limit{"send": {Tokens: 1, Per: 24 * time.Hour, Burst: 50}}}}}
	_, err := rollout.Put(t.Context(), r.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	if err != nil {
		t.Fatal(err)
	}
	if r.producer, err = producer.New(r.store, producer.Config{}); err != nil {
		t.Fatal(err)
	}
	r.runWithTimers(r.store, worker.Config{}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error { return worker.SetCost(ctx, 12) }))
	r.enqueue(costly("a", 40))
	r.idle()
	verdict, err := r.producer.Enqueue(t.Context(), costly("b", 38))
	if err != nil || verdict.TokensLeft != 0 || verdict.Burst != 50 {
		t.Errorf("after a job of 40 that cost 12 of 50 one of 38: %+v, %v", verdict, err)
	}
}

// TestADebtIsAtMostABurstAndPaidBeforeAnythingPasses, and the refusal says to the microsecond when it is.
func TestADebtIsAtMostABurstAndPaidBeforeAnythingPasses(t *testing.T) {
	t.Parallel()
	r := newCostRig(t)
	r.runWithTimers(r.store, worker.Config{}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error { return worker.SetCost(ctx, 5000) }))
	r.enqueue(costly("a", 10))
	r.idle()
	if got := r.spent(); got != [admission.Levels]admission.Tokens{2000, 800, 400, 200} {
		t.Errorf("%v tokens are missing, want twice the burst of each level", got)
	}
	_, err := r.producer.Enqueue(t.Context(), costly("b", 1))
	no, ok := errors.AsType[*admission.RefusedError](err)
	if !ok || no.Verdict.Reason != admission.ReasonLimited || no.Verdict.TokensLeft >= 0 {
		t.Fatalf("in debt: %v", err)
	}
	// Each level lacks its burst and one token, at a thirtieth of it a day and one more: the outermost is longest about it.
	day := 24 * time.Hour
	if want := 1001 * day / 34; no.Verdict.Scope != admission.Global || no.Verdict.RetryAfter > want || no.Verdict.RetryAfter < want-time.Minute {
		t.Errorf("refused by %s for %s, want %s", no.Verdict.Scope, no.Verdict.RetryAfter, want)
	}
}

// TestOnlyTheRunThatEndsAJobCounts: what a run tells that is tried again, or comes back, counts for nothing, and nothing is reserved anew.
func TestOnlyTheRunThatEndsAJobCounts(t *testing.T) {
	t.Parallel()
	r := newCostRig(t)
	r.runWithTimers(r.store, worker.Config{Backoff: quick}, on("send", func(ctx context.Context, job worker.Job[[]byte]) error {
		if err := worker.SetCost(ctx, admission.Tokens(10*job.Attempt)); err != nil {
			t.Error(err)
		}
		switch {
		case job.ID == "discarded":
			return worker.Discard(errDown)
		case job.ID == "dead" || job.Attempt < 2:
			return errDown
		}
		return nil
	}))
	r.enqueue(costly("retried", 25), costly("discarded", 25), costly("dead", 25))
	r.idle()
	r.wantSpent("20 by the second run, 10 by the only one, 30 by the third", 60)
}

// TestAnEndThatIsToldTwiceCountsOnce: its answer was lost.
func TestAnEndThatIsToldTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	r := newCostRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	var cut atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if c.IsScript() && slices.Contains(c.Args, "spent") && cut.Add(1) == 1 {
			return redistest.Action{Cut: redistest.CutAfter}
		}
		return redistest.Action{}
	})
	r.runWithTimers(r.open(proxy.Client(t)), worker.Config{Lease: patience}, on("send", func(ctx context.Context, job worker.Job[[]byte]) error {
		return worker.SetCost(ctx, map[string]admission.Tokens{"less": 5, "more": 30}[job.ID])
	}))
	r.enqueue(costly("less", 20), costly("more", 20))
	r.idle()
	r.await("the second telling", func() bool { return cut.Load() > 1 })
	r.wantSpent("5 and 30", 35)
}

// TestALostWorkersReservationStands: the worker that lost its lease tells a cost, too late; that of the run after it counts.
func TestALostWorkersReservationStands(t *testing.T) {
	t.Parallel()
	r := newCostRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	var away, runs atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if away.Load() == 1 {
			return redistest.Action{Cut: redistest.CutBefore}
		}
		return redistest.Action{}
	})
	r.run(r.open(proxy.Client(t)), worker.Config{Lease: time.Second}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		runs.Add(1)
		away.Store(1)
		<-ctx.Done() // The lease ends.
		return worker.SetCost(ctx, 90)
	}))
	r.enqueue(costly("a", 40))
	r.await("the first run", func() bool { return runs.Load() == 1 })
	r.wantSpent("while it runs", 40)
	r.runWithTimers(r.store, worker.Config{Lease: time.Second}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		return worker.SetCost(ctx, 15)
	}))
	r.idle()
	away.Store(0)
	r.wantSpent("by the run after it", 15)
}

// TestACancelledJobsReservationStands, whatever its handler tells.
func TestACancelledJobsReservationStands(t *testing.T) {
	t.Parallel()
	r := newCostRig(t)
	a := r.runWithTimers(r.store, worker.Config{}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		<-ctx.Done()
		if err := worker.SetCost(ctx, 1); err != nil {
			t.Error(err)
		}
		return context.Cause(ctx)
	}))
	r.enqueue(costly("a", 40))
	r.await("it to start", func() bool { return len(a.starts()) == 1 })
	r.cancel("a", "no longer wanted")
	r.idle()
	r.wantSpent("reserved", 40)
}

// TestACostGoesByThePolicyInForce: that has changed while the job ran, which the worker had not heard. What lacks is taken from the limits
// as they are now; what was not needed is not owed by buckets that may have been others.
func TestACostGoesByThePolicyInForce(t *testing.T) {
	t.Parallel()
	for actual, want := range map[admission.Tokens]admission.Tokens{70: 70, 10: 40} {
		r := newCostRig(t)
		r.runWithTimers(r.store, worker.Config{}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
			r.limit([admission.Levels]admission.Tokens{900, 300, 200, 150}) //nolint:contextcheck // the test's own
			return worker.SetCost(ctx, actual)
		}))
		r.enqueue(costly("a", 40))
		r.idle()
		if got := r.spent(); got[admission.LevelQueue] != want {
			t.Errorf("told %d: %v tokens are missing, want %d of the queue's", actual, got, want)
		}
	}
}

// TestAJobThatRunsAgainWithoutLimitsHasNothingToTrueUp: no bucket has its cost.
func TestAJobThatRunsAgainWithoutLimitsHasNothingToTrueUp(t *testing.T) {
	t.Parallel()
	r := newCostRig(t)
	var mended atomic.Bool
	r.runWithTimers(r.store, worker.Config{}, on("send", func(ctx context.Context, job worker.Job[[]byte]) error {
		if len(job.Headers) > 0 {
			t.Errorf("its handler sees %v", job.Headers)
		}
		if !mended.Load() {
			return worker.Discard(errDown)
		}
		return worker.SetCost(ctx, map[string]admission.Tokens{"less": 1, "more": 90}[job.ID])
	}))
	r.enqueue(costly("less", 20), costly("more", 20))
	r.idle()
	r.wantSpent("before", 40)
	mended.Store(true)
	keys := []admission.Key{{Tenant: "acme", ID: "less"}, {Tenant: "acme", ID: "more"}}
	if _, err := r.producer.RedriveWith(t.Context(), admission.RedriveOptions{WithoutLimits: true}, keys...); err != nil {
		t.Fatal(err)
	}
	if c := r.idle(); c.Left["completed"] != 2 {
		t.Errorf("got %+v", c)
	}
	r.wantSpent("after", 40)
}

func TestACostThatIsNone(t *testing.T) {
	t.Parallel()
	if err := worker.SetCost(t.Context(), 1); !errors.Is(err, worker.ErrNoJob) {
		t.Errorf("outside of a handler: %v", err)
	}
	r := newCostRig(t)
	r.runWithTimers(r.store, worker.Config{}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		for _, cost := range []admission.Tokens{-1, admission.MaxActualCost + 1} {
			err := worker.SetCost(ctx, cost)
			if !errors.Is(err, admission.ErrInvalid) || !strings.HasSuffix(err.Error(), "allowed is 0 to 10000000 tokens") {
				t.Errorf("%d: %v", cost, err)
			}
		}
		return nil
	}))
	r.enqueue(costly("a", 40))
	r.idle()
	r.wantSpent("reserved", 40)
}
