package scheduler_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
)

// metricsBench is a deployment on a Redis of its own, with a trigger for each metric, named after it, and what moves these.
type metricsBench struct {
	*triggerBench

	server *redistest.Server
}

// metricTriggers are triggers that look at one metric each.
func metricTriggers() map[string]policy.Trigger {
	all := map[string]policy.Trigger{}
	for metric, above := range map[string]float64{
		policy.MetricCPU: .8, policy.MetricMemory: .8, policy.MetricRunP95: 5, policy.MetricWait: 1, policy.MetricErrors: .5,
		policy.MetricPressure: 1, policy.MetricRedis: .5, policy.MetricBreaker: 1,
	} {
		t := policy.Trigger{Metric: metric, MeasuredOf: "queue mail", When: policy.TriggerBound{Above: new(above), For: time.Second}, Do: policy.PauseJobs, Of: "queue fax"}
		switch metric {
		case policy.MetricPressure:
			t.MeasuredOf = "queue hook"
		case policy.MetricRedis:
			t.MeasuredOf = "global"
		case policy.MetricBreaker:
			t.MeasuredOf = "downstream smtp"
		}
		all[metric] = t
	}
	return all
}

func newMetricsBench(t *testing.T, triggers map[string]policy.Trigger, measured time.Duration) *metricsBench {
	t.Helper()
	b := &metricsBench{server: redistest.Start(t, redistest.Options{})}
	b.triggerBench = &triggerBench{t: t, store: open(t, b.server.Client(t))}
	b.begin(triggers, measured)
	return b
}

// begin puts triggers in force, has a worker of queue mail, and queue hook measured so often.
func (b *metricsBench) begin(triggers map[string]policy.Trigger, measured time.Duration) {
	b.t.Helper()
	p := policy.Unlimited()
	p.Load, p.Triggers = &policy.LoadRules{}, triggers
	p.Queues = map[string]policy.Queue{"hook": {Pressure: &policy.PressureRules{MaxDepth: 3, Interval: measured}}}
	p.Shedding = &policy.Shedding{Order: []admission.Priority{"low", "medium"}, Reserve: []admission.Priority{"high"}, At: map[string][]string{"HIGH": {"low"}}}
	_, err := rollout.Put(b.t.Context(), b.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	b.check(err)
	_, err = b.store.Partitions()[0].Register(b.t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 1, time.Hour)
	b.check(err)
}

func (b *metricsBench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// tell is a heartbeat of the worker of queue mail: how much of its process it uses, and how long runs take and whether they fail.
func (b *metricsBench) tell(cpu, memory float64, ran time.Duration, failed bool) {
	b.t.Helper()
	var w load.Window
	for range 20 {
		w.Ended(time.Now(), "mail", ran, failed)
	}
	told := load.Sample{Use: load.Use{CPU: cpu, Memory: memory}, Queues: w.Sum(time.Now())}
	_, err := b.store.Partitions()[0].Heartbeat(b.t.Context(), "w", time.Minute, told.Text())
	b.check(err)
}

// wait has jobs wait in a queue, or none.
func (b *metricsBench) wait(queue string, waits bool) {
	b.t.Helper()
	part := b.store.Partitions()[0]
	if !waits {
		_, _, err := part.ClearTenant(b.t.Context(), "acme", queue, store.Intervention{})
		b.check(err)
		return
	}
	version, err := b.store.PolicyInForce(b.t.Context())
	b.check(err)
	for n := range 3 {
		j := admission.NewJob("acme", queue, "send", nil)
		j.ID = queue + strconv.Itoa(n)
		none := admission.Limit{Disabled: true}
		_, err := part.Admit(b.t.Context(), version, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{none, none, none, none}}})
		b.check(err)
	}
}

// fill has Redis use two thirds of the memory that it may, or hardly any of it.
func (b *metricsBench) fill(full bool) {
	b.t.Helper()
	vitals, err := b.store.Vitals(b.t.Context())
	b.check(err)
	most := 100 * vitals.Memory
	if full {
		most = vitals.Memory * 3 / 2
	}
	b.check(b.server.Client(b.t).ConfigSet(b.t.Context(), "maxmemory", strconv.FormatInt(most, 10)).Err())
}

func (b *metricsBench) trip(open bool) {
	b.t.Helper()
	var err error
	if open {
		_, err = b.store.ForceBreaker(b.t.Context(), "smtp", breaker.Open, 0, store.Intervention{})
	} else {
		_, err = b.store.ResetBreaker(b.t.Context(), "smtp", store.Intervention{})
		if errors.Is(err, store.ErrNoBreaker) { // It was never open.
			err = nil
		}
	}
	b.check(err)
}

// TestATriggerLooksAtItsMetric, at nothing else: half of all metrics are beyond their bounds, then the other half, then none.
func TestATriggerLooksAtItsMetric(t *testing.T) {
	t.Parallel()
	b := newMetricsBench(t, metricTriggers(), 200*time.Millisecond)
	run(t, b.store, scheduler.Config{TimerLease: time.Second})
	every := slices.Sorted(maps.Keys(metricTriggers()))
	first := []string{policy.MetricPressure, policy.MetricCPU, policy.MetricRedis, policy.MetricRunP95}
	slices.Sort(first)
	second := slices.DeleteFunc(slices.Clone(every), func(name string) bool { return slices.Contains(first, name) })
	for _, row := range []struct {
		what          string
		first, second bool
		act           []string
	}{{"half of them", true, false, first}, {"the other half", false, true, second}, {"none", false, false, nil}} {
		cpu, memory, ran := .1, .1, time.Second
		if row.first {
			cpu, ran = .9, time.Minute
		}
		if row.second {
			memory = .9
		}
		b.tell(cpu, memory, ran, row.second)
		b.wait("hook", row.first)
		b.fill(row.first)
		b.wait("mail", row.second)
		b.trip(row.second)
		var act []string
		await(t, row.what+" to act", func() bool {
			act, _ = b.acting()
			slices.Sort(act)
			return slices.Equal(act, row.act)
		})
	}
	if begun, ended := b.told(store.AuditTrigger), b.told(store.AuditTriggerEnd); begun != len(every) || ended != len(every) {
		t.Errorf("%d began and %d ended, want %d of each", begun, ended, len(every))
	}
}

// TestAMetricThatCannotBeReadStopsNoOtherTrigger: its own trigger ends, as of what nobody knows.
func TestAMetricThatCannotBeReadStopsNoOtherTrigger(t *testing.T) {
	t.Parallel()
	b := newMetricsBench(t, metricTriggers(), 200*time.Millisecond)
	run(t, b.store, scheduler.Config{TimerLease: time.Second})
	acts := func(what string, want ...string) {
		t.Helper()
		await(t, what, func() bool {
			act, _ := b.acting()
			return slices.Equal(act, want)
		})
	}
	b.fill(true)
	acts("a full Redis", policy.MetricRedis)
	b.check(b.server.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	b.trip(true)
	acts("an open breaker", policy.MetricBreaker)
}
