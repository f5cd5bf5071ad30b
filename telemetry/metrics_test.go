package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/telemetry"
	"github.com/headgate/headgate/worker"
)

func TestMetricsSayWhatProducersAndWorkersWereTold(t *testing.T) {
	t.Parallel()
	store, registry := openStore(t), prometheus.NewPedanticRegistry()
	shown, err := telemetry.New(telemetry.Config{Registerer: registry})
	must(t, err)
	p := observed(t, store, shown, policy.Policy{Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Tokens: 1, Per: time.Hour, Burst: 2}}}})
	unknown := job("d")
	unknown.Priority = "urgent"
	_, err = p.EnqueueBatch(t.Context(), []admission.Job{job("a"), job("b"), job("a"), job("c"), unknown})
	if !errors.Is(err, admission.ErrLimited) {
		t.Fatal(err)
	}
	work(t, store, shown, 3, func(_ context.Context, job worker.Job[[]byte]) error {
		if job.ID == "a" && job.Attempt == 1 {
			return errors.New("once")
		}
		return nil
	})
	want := `
# HELP headgate_tenant_requests_total Jobs that this process asked to enqueue, admitted (duplicates too) and refused, for its busiest tenants and all others.
# TYPE headgate_tenant_requests_total counter
headgate_tenant_requests_total{result="admitted",tenant="acme"} 3
headgate_tenant_requests_total{result="admitted",tenant="other"} 0
headgate_tenant_requests_total{result="refused",tenant="acme"} 1
headgate_tenant_requests_total{result="refused",tenant="other"} 0
# HELP headgate_worker_jobs_total Jobs that left the hand of this worker, by how.
# TYPE headgate_worker_jobs_total counter
headgate_worker_jobs_total{outcome="completed",queue_id="mail"} 2
headgate_worker_jobs_total{outcome="retried",queue_id="mail"} 1
# HELP throttle_rejected_requests_total Jobs of this process that were refused, by reason.
# TYPE throttle_rejected_requests_total counter
throttle_rejected_requests_total{reason="limited"} 1
# HELP throttle_requests_total Jobs that this process asked to enqueue, by what became of that.
# TYPE throttle_requests_total counter
throttle_requests_total{result="admitted"} 2
throttle_requests_total{result="duplicate"} 1
throttle_requests_total{result="invalid"} 1
throttle_requests_total{result="refused"} 1
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_tenant_requests_total", "headgate_worker_jobs_total",
		"throttle_rejected_requests_total", "throttle_requests_total"))
	families, err := registry.Gather()
	must(t, err)
	counts := map[string]uint64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if h := metric.GetHistogram(); h != nil {
				counts[family.GetName()] += h.GetSampleCount()
				if h.Schema == nil || len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) == 0 {
					t.Errorf("%s is not both native and classic: %s", family.GetName(), h)
				}
			}
		}
	}
	if counts["throttle_queue_wait_time_seconds"] != 3 || counts["headgate_run_time_seconds"] != 3 {
		t.Errorf("got %v", counts)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// TestLabelsAreBounded: by many tenants, classes and kinds of errors.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	shown, err := telemetry.New(telemetry.Config{Registerer: registry, Tenants: 7})
	must(t, err)
	decided, finished := shown.Producer().Decided, shown.Worker(worker.Observer{}).Finished
	const tenants = 20_000
	for n := range tenants {
		decided(admission.Job{Tenant: fmt.Sprintf("tenant-%d", n)}, admission.Verdict{Decision: admission.Admitted}, nil)
	}
	for _, err := range []error{admission.ErrUnavailable, admission.ErrOutcomeUnknown, context.Canceled, &admission.FieldError{Field: "x"}} {
		decided(admission.Job{Tenant: "acme"}, admission.Verdict{}, fmt.Errorf("enqueue: %w", err))
	}
	for n := range admission.MaxClasses {
		finished(worker.Event{Queue: "mail", Class: admission.Priority(fmt.Sprintf("class-%d", n)), RunTime: time.Second, Outcome: worker.Completed, Reason: "free text"})
	}
	families, err := registry.Gather()
	must(t, err)
	series := map[string]int{}
	sum := 0.0
	for _, family := range families {
		series[family.GetName()] = len(family.GetMetric())
		for _, metric := range family.GetMetric() {
			if family.GetName() == "headgate_tenant_requests_total" {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	want := map[string]int{
		"headgate_tenant_requests_total": 2 * 8, "throttle_requests_total": 5, "headgate_worker_jobs_total": 1,
		"throttle_queue_wait_time_seconds": 1, "headgate_run_time_seconds": 1,
	}
	if fmt.Sprint(series) != fmt.Sprint(want) || sum != tenants {
		t.Errorf("%v series, want %v; %g requests of tenants, want %d", series, want, sum, tenants)
	}
}

func TestABadConfigSaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	_, err := telemetry.New(telemetry.Config{Tenants: 1001})
	if err == nil || err.Error() != "configure telemetry: invalid Tenants 1001: allowed is 1 to 1000" {
		t.Error(err)
	}
	registry := prometheus.NewRegistry()
	for range 2 {
		_, err = telemetry.New(telemetry.Config{Registerer: registry})
	}
	if err == nil {
		t.Error("metrics are registered twice")
	}
}

// TestMetricsOfAGuard: a worker's observer and a server's show the same, and the worker's own is told, too.
func TestMetricsOfAGuard(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	shown, err := telemetry.New(telemetry.Config{Registerer: registry})
	must(t, err)
	var told []worker.GuardChange
	observer := shown.Worker(worker.Observer{Guarded: func(c worker.GuardChange) { told = append(told, c) }})
	var memory, rate worker.GuardChange
	memory.Kind, rate.Kind, rate.To = "memory", "requests", worker.GuardWarning
	for _, to := range []guard.State{worker.GuardWarning, worker.GuardViolation, worker.GuardNormal, worker.GuardViolation} {
		memory.From, memory.To = memory.To, to
		observer.Guarded(memory)
	}
	shown.Guarded()(rate)
	const want = `
# HELP headgate_guard_state How near to its limit the guard of this process has found something: 0 normal, 1 warning, 2 violation.
# TYPE headgate_guard_state gauge
headgate_guard_state{kind="memory"} 2
headgate_guard_state{kind="requests"} 1
# HELP headgate_guard_violations_total How often the guard of this process has found something at its limit that was not before.
# TYPE headgate_guard_violations_total counter
headgate_guard_violations_total{kind="memory"} 2
headgate_guard_violations_total{kind="requests"} 0
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_guard_state", "headgate_guard_violations_total"))
	if len(told) != 4 {
		t.Errorf("%d changes were told, want 4", len(told))
	}
	silent, err := telemetry.New(telemetry.Config{})
	must(t, err)
	if silent.Guarded() != nil || silent.Worker(worker.Observer{}).Guarded != nil {
		t.Error("without metrics somebody is told")
	}
}

// TestShedJobsAreCountedByClassAndTier: a job that is refused because its queue is pressed counts under its class and its tenant's tier.
func TestShedJobsAreCountedByClassAndTier(t *testing.T) {
	t.Parallel()
	s, registry := openStore(t), prometheus.NewPedanticRegistry()
	shown, err := telemetry.New(telemetry.Config{Registerer: registry})
	must(t, err)
	_, err = rollout.Put(t.Context(), s, policy.Policy{
		Tiers:    map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Disabled: true}}},
		Queues:   map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 9}}},
		Shedding: &policy.Shedding{Order: []admission.Priority{"low", "medium"}, Reserve: []admission.Priority{"high"}, At: map[string][]string{"HIGH": {"low"}}},
	}, rollout.Edit{Author: "ada", Expected: rollout.AnyVersion})
	must(t, err)
	p, err := producer.New(s, producer.Config{Observer: shown.Producer()})
	must(t, err)
	_, err = s.Partitions()[0].Promote(t.Context(), "s", time.Minute)
	must(t, err)
	version, err := s.PolicyInForce(t.Context())
	must(t, err)
	_, err = s.Press(t.Context(), store.Press{
		Owner: "s", Version: version, Queue: "mail", Pressure: admission.Pressure{Level: admission.PressureCritical, Score: 1, RetryAfter: time.Second}, Life: time.Hour,
	})
	must(t, err)
	low := job("a")
	low.Priority = admission.Low
	verdict, err := p.Enqueue(t.Context(), low)
	if !errors.Is(err, admission.ErrShed) || verdict.RetryAfter < time.Second || verdict.RetryAfter > 1500*time.Millisecond {
		t.Fatalf("%+v, %v", verdict, err)
	}
	want := `
# HELP headgate_shed_total Jobs of this process that were refused because their queue was pressed, by class and tier.
# TYPE headgate_shed_total counter
headgate_shed_total{priority="low",tier="standard"} 1
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_shed_total"))

	low.ID = ""
	verdict, err = p.Enqueue(t.Context(), low)
	if !errors.Is(err, admission.ErrShed) || !verdict.Local {
		t.Fatalf("a moment later: %+v, %v", verdict, err)
	}
	want = `
# HELP headgate_shed_local_total Those of headgate_shed_total that this process shed without a call to Redis, by class.
# TYPE headgate_shed_local_total counter
headgate_shed_local_total{priority="low"} 1
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_shed_local_total"))
}

// TestDoomedJobsAreCountedByClass: a job that would start too late counts under its class, and is told to wait for up to a half longer than
// it takes, at random.
func TestDoomedJobsAreCountedByClass(t *testing.T) {
	t.Parallel()
	s, registry := openStore(t), prometheus.NewPedanticRegistry()
	shown, err := telemetry.New(telemetry.Config{Registerer: registry})
	must(t, err)
	document := policy.Unlimited()
	document.Queues = map[string]policy.Queue{"mail": {DoomedPercent: 10, MaxWait: time.Minute}}
	_, err = rollout.Put(t.Context(), s, document, rollout.Edit{Author: "ada", Expected: rollout.AnyVersion})
	must(t, err)
	p, err := producer.New(s, producer.Config{Observer: shown.Producer()})
	must(t, err)
	pool, part := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, s.Partitions()[0]
	_, err = part.Register(t.Context(), "w", pool, 1, time.Minute)
	must(t, err)
	for _, id := range []string{"a", "b", "c", "d"} {
		_, err := p.Enqueue(t.Context(), job(id))
		must(t, err)
	}
	for range 2 {
		leases, err := part.Read(t.Context(), "w", pool.ID(), 1, time.Second, false)
		must(t, err)
		_, _, err = part.Finish(t.Context(), pool.ID(), "w", []store.Finish{leases[0].Finish(store.Complete)})
		must(t, err)
	}
	hasty := job("e")
	hasty.Priority, hasty.Deadline = admission.High, time.Now().Add(time.Hour)
	if _, err := p.Enqueue(t.Context(), hasty); err != nil {
		t.Fatalf("it has six seconds: %v", err)
	}
	hasty.ID, hasty.Deadline = "f", time.Now().Add(2*time.Millisecond) // A tenth of it is less than the way to a handler.
	verdict, err := p.Enqueue(t.Context(), hasty)
	for errors.Is(err, admission.ErrDeadlinePassed) { // The machine is slow.
		hasty.ID, hasty.Deadline = hasty.ID+"f", time.Now().Add(time.Duration(len(hasty.ID))*2*time.Millisecond)
		verdict, err = p.Enqueue(t.Context(), hasty)
	}
	if !errors.Is(err, admission.ErrDoomed) || verdict.EstimatedWait <= 0 || verdict.RetryAfter < time.Millisecond {
		t.Fatalf("%+v, %v", verdict, err)
	}
	want := `
# HELP headgate_doomed_total Jobs of this process that were refused because they would have started too late, by class.
# TYPE headgate_doomed_total counter
headgate_doomed_total{priority="high"} 1
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_doomed_total"))
}

// TestJobsThatWentBesideLimitsAreCounted by class: those of a tenant's share alone, of whatever class it is by the policy.
func TestJobsThatWentBesideLimitsAreCounted(t *testing.T) {
	t.Parallel()
	s, registry := openStore(t), prometheus.NewPedanticRegistry()
	shown, err := telemetry.New(telemetry.Config{Registerer: registry})
	must(t, err)
	day := admission.Limit{Tokens: 10, Per: 24 * time.Hour, Burst: 10}
	document := policy.Policy{
		Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: day}}, Queues: map[string]policy.Queue{"mail": {EachTenant: policy.EachTenant{Limit: day.WithBurst(1)}}},
		Bypass: &policy.Bypass{Classes: []admission.Priority{admission.High}, SharePercent: 20},
	}
	_, err = rollout.Put(t.Context(), s, document, rollout.Edit{Author: "ada", Expected: rollout.AnyVersion})
	must(t, err)
	p, err := producer.New(s, producer.Config{Observer: shown.Producer()})
	must(t, err)
	for i, want := range []struct {
		class    admission.Priority
		bypassed bool
		err      error
	}{{admission.High, true, nil}, {admission.Medium, false, nil}, {admission.Medium, false, admission.ErrLimited}, {admission.High, true, nil}, {admission.High, false, admission.ErrLimited}} {
		j := job("acme")
		j.ID, j.Priority = "", want.class
		if v, err := p.Enqueue(t.Context(), j); !errors.Is(err, want.err) || v.Bypassed != want.bypassed {
			t.Errorf("%d: %+v, %v", i, v, err)
		}
	}
	want := `
# HELP headgate_bypassed_total Jobs of this process that were admitted beside the limits of their queue and class, by class.
# TYPE headgate_bypassed_total counter
headgate_bypassed_total{priority="high"} 2
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_bypassed_total"))
}
