package scheduler_test

import (
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// everyMetric are triggers that look at one metric each, at all of them, of all that each may be of: a queue by the metric's name, "global" and "downstream smtp" behind it.
func everyMetric(held time.Duration) map[string]policy.Trigger {
	all := metricTriggers()
	depth, waited := all[policy.MetricWait], all[policy.MetricWait]
	depth.Metric, depth.When.Above = policy.MetricDepth, new(1.0)
	waited.Metric, waited.When.Above = policy.MetricWaitP95, new(30.0)
	all[policy.MetricDepth], all[policy.MetricWaitP95] = depth, waited
	for _, metric := range slices.Collect(maps.Keys(all)) {
		t := all[metric]
		t.When.For = held
		all[metric] = t
		if queue, _ := t.Measured(); queue != "" {
			t.MeasuredOf = "global"
			if metric == policy.MetricDepth {
				t.When.Above = new(4.0) // Two wait in mail and three in hook.
			}
			all[metric+"-global"] = t
		}
		if metric == policy.MetricErrors || metric == policy.MetricRunP95 || metric == policy.MetricWaitP95 {
			t.MeasuredOf = "downstream smtp"
			all[metric+"-smtp"] = t
		}
	}
	return all
}

// beyond has each metric be beyond the bound of its trigger, or on the other side of it.
func (b *metricsBench) beyond(is bool) {
	b.t.Helper()
	use, took := .1, time.Second
	if is {
		use, took = .9, time.Minute
	}
	b.ran(use, use, took, took, is)
	b.wait("hook", is)
	b.wait("mail", is)
	b.trip(is)
}

// ran is a heartbeat of the worker of queue mail, of which 20 jobs that call smtp waited and took so long, or none where they took no time.
func (b *metricsBench) ran(cpu, memory float64, took, waited time.Duration, failed bool) {
	b.t.Helper()
	var w, calls load.Window
	told := load.Sample{Use: load.Use{CPU: cpu, Memory: memory}, Queues: map[string]load.Runs{"mail": {}}}
	for range 20 {
		w.Began(time.Now(), "mail", waited)
		w.Ended(time.Now(), "mail", took, failed)
		calls.Began(time.Now(), "smtp", waited)
		calls.Ended(time.Now(), "smtp", took, failed)
	}
	if took > 0 {
		told.Queues, told.Downstreams = w.Sum(time.Now()), calls.Sum(time.Now())
	}
	_, err := b.store.Partitions()[0].Heartbeat(b.t.Context(), "w", time.Hour, told.Text())
	b.check(err)
}

// tried is what a trigger would have done in the last hour.
func (b *metricsBench) tried(name string, of policy.Trigger) shown.TriggerTrial {
	b.t.Helper()
	v, err := shown.TryTrigger(b.t.Context(), b.store, policy.Policy{Triggers: map[string]policy.Trigger{name: of}}.Trigger(name))
	b.check(err)
	return v
}

// TestATrialOfEachMetricIsWhatItsTriggerDid: on a real Redis each value is beyond its bound, then not, of which each trigger makes one begin and one end, and
// its trial the same.
func TestATrialOfEachMetricIsWhatItsTriggerDid(t *testing.T) {
	t.Parallel()
	triggers := everyMetric(time.Second)
	b := newMetricsBench(t, triggers, 2*time.Second) // A level lasts for three times as long: this machine may be slow
	b.beyond(false)
	b.fill(false)
	run(t, b.store, scheduler.Config{TimerLease: time.Second})
	all := slices.Sorted(maps.Keys(triggers))
	for _, metric := range policy.TriggerMetrics {
		if triggers[metric].Metric != metric {
			t.Errorf("no trigger looks at %s", metric)
		}
	}
	for _, is := range []bool{true, false} {
		b.beyond(is)
		b.fill(is)
		for _, name := range all {
			await(t, name+" to begin, or to end, in its trial", func() bool {
				v := b.tried(name, triggers[name])
				return len(v.Spans) == 1 && (v.Spans[0].To == nil) == is
			})
		}
		act, _ := b.acting()
		if slices.Sort(act); is && !slices.Equal(act, all) || !is && len(act) > 0 {
			t.Errorf("%q act", act)
		}
	}
	if begun, ended := b.told(store.AuditTrigger), b.told(store.AuditTriggerEnd); begun != len(all) || ended != len(all) {
		t.Errorf("%d began and %d ended, want %d of each", begun, ended, len(all))
	}
	for _, name := range all {
		if v := b.tried(name, triggers[name]); v.Fired != 1 || v.ActiveMS < 9000 || v.ActiveMS > 60_000 {
			t.Errorf("the trial of %s says %+v", name, v)
		}
	}
}

// TestAnHourOfTriggersIsTriedAsTheyActed: an hour of courses by chance, in the clock of a bubble and on a deployment in its memory; each trigger acts as often as
// its trial says, from and until within the 20 s that points of 10 s leave open.
func TestAnHourOfTriggersIsTriedAsTheyActed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) { tryAnHour(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

// hourSpan is from when to when a trigger acted, zero for still.
type hourSpan struct{ from, to time.Time }

func tryAnHour(t *testing.T, chance *rand.Rand) {
	t.Helper()
	triggers := everyMetric(20 * time.Second)
	delete(triggers, policy.MetricRedis) // A memory of its own has no bound.
	b := &metricsBench{triggerBench: &triggerBench{t: t, store: store.Single(memory.New(memory.Config{}), io.NopCloser(nil))}}
	b.begin(triggers, time.Second)
	stop := run(t, b.store, scheduler.Config{})
	acted := map[string][]hourSpan{}
	began, is, fired := time.Now(), false, 0
	for time.Since(began) < store.LoadHistoryLife-3*time.Minute {
		if is = !is; is || chance.IntN(3) > 0 {
			b.beyond(is)
		} else { // What nobody knows ends what has begun.
			b.beyond(false)
			b.ran(-1, -1, 0, 0, false)
		}
		for range 60 + chance.IntN(60) {
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
			synctest.Wait()
			act, _ := b.acting()
			for name := range triggers {
				spans := acted[name]
				acts := len(spans) > 0 && spans[len(spans)-1].to.IsZero()
				switch now := slices.Contains(act, name); {
				case now && !acts:
					acted[name] = append(spans, hourSpan{from: time.Now()})
				case !now && acts:
					spans[len(spans)-1].to = time.Now()
				}
			}
		}
	}
	for name, of := range triggers {
		v := b.tried(name, of)
		if fired += v.Fired; v.Fired != len(acted[name]) {
			t.Errorf("%s acted %d times, its trial says %+v", name, len(acted[name]), v)
			continue
		}
		for i, span := range acted[name] {
			if off := v.Spans[i].From.Sub(span.from); math.Abs(off.Seconds()) > 20 {
				t.Errorf("%s: from %v, its trial says %v", name, span.from, v.Spans[i].From)
			}
			switch to := v.Spans[i].To; {
			case (to == nil) != span.to.IsZero():
				t.Errorf("%s: until %v, its trial says %v", name, span.to, to)
			case to != nil && math.Abs(to.Sub(span.to).Seconds()) > 20:
				t.Errorf("%s: until %v, its trial says %v", name, span.to, to)
			}
		}
	}
	if fired < 5*len(triggers) {
		t.Errorf("only %d begins of %d triggers", fired, len(triggers))
	}
	stop()
}

// TestATrialOfABreakerIsOfAllPartitions: of those that differ it is the one that lets the fewest calls through, as a trigger sees it.
func TestATrialOfABreakerIsOfAllPartitions(t *testing.T) {
	t.Parallel()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	b := &metricsBench{triggerBench: &triggerBench{t: t, store: s}}
	of := metricTriggers()[policy.MetricBreaker]
	if v := b.tried("ill", of); v.Points != 3601 || *v.Most != 0 {
		t.Errorf("of a breaker that nobody knows: %+v", v)
	}
	_, err = s.Partitions()[1].ForceBreaker(t.Context(), "smtp", breaker.Open, 0, store.Intervention{})
	b.check(err)
	await(t, "a trial that has seen the breaker", func() bool { return *b.tried("ill", of).Most == 2 })
}
