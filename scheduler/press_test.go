package scheduler_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
)

// TestQueuesArePressedByWhatWaits: the level rises with the depth, admission tells it and sheds by it, another scheduler goes on with it, it
// is over three intervals after the last one died, and an edit that measures no more ends it.
func TestQueuesArePressedByWhatWaits(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	const interval = 200 * time.Millisecond
	const lease = 5 * time.Second // A level ends before the lease of the one who died does, whenever that was renewed last.
	put := func(measured *policy.PressureRules) int64 {
		t.Helper()
		p := policy.Unlimited()
		p.Queues = map[string]policy.Queue{"mail": {Pressure: measured}}
		if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
		version, err := s.PolicyInForce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	version := put(&policy.PressureRules{MaxDepth: 10, Interval: interval})
	n := 0
	admit := func(class int, from admission.PressureLevel) admission.Verdict {
		t.Helper()
		n++
		j := admission.NewJob("acme", "mail", "send", nil)
		j.ID, j.Priority = strconv.Itoa(n), admission.DefaultClasses()[class].Name
		none := admission.Limit{Disabled: true}
		verdicts, err := s.Partitions()[0].Admit(t.Context(), version, []store.Candidate{{
			Job: &j, Class: class, Limits: &[admission.Levels]admission.Limit{none, none, none, none}, ShedFrom: from, Tier: "basic",
		}})
		if err != nil {
			t.Fatal(err)
		}
		return verdicts[0]
	}
	state := func() store.PressureState {
		t.Helper()
		q, err := s.Queue(t.Context(), "mail")
		if err != nil || q.Pressure == nil {
			return store.PressureState{}
		}
		now, err := s.Time(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return q.Pressure.At(now)
	}
	for range 9 {
		if v := admit(0, policy.NeverShed); v.Decision != admission.Admitted || v.Pressure.Level != admission.PressureNone {
			t.Fatalf("before anybody measured: %+v", v)
		}
	}
	var said logs
	stop := run(t, s, scheduler.Config{TimerLease: lease, Logger: said.logger()})
	var p store.PressureState // as it was seen: a scheduler that is held up for long has it be over
	await(t, "nine of ten to be HIGH", func() bool {
		p = state()
		return p.Level == admission.PressureHigh
	})
	if p.Score != 0.9 || p.Parts != "depth 0.9 of weight 1" || p.RetryAfter < 3*interval {
		t.Errorf("it is noted as %+v", p)
	}
	if v := admit(2, admission.PressureHigh); v.Reason != admission.ReasonShed || v.Detail != "basic" || v.RetryAfter < 3*interval || v.Pressure.Level != admission.PressureHigh {
		t.Errorf("a job of a class that is shed: %+v", v)
	}
	stop2 := run(t, s, scheduler.Config{TimerLease: lease, Logger: said.logger()})
	stop()
	await(t, "it to be over with its scheduler gone", func() bool { return state().Level == admission.PressureNone })
	if v := admit(2, admission.PressureHigh); v.Decision != admission.Admitted || v.Pressure.Level != admission.PressureNone {
		t.Errorf("with its scheduler gone: %+v", v)
	}
	await(t, "the other one to go on", func() bool { return state().Level == admission.PressureCritical })
	if v := admit(1, admission.PressureCritical); v.Reason != admission.ReasonShed {
		t.Errorf("at CRITICAL: %+v", v)
	}
	if v := admit(0, policy.NeverShed); v.Decision != admission.Admitted || v.Pressure.Level != admission.PressureCritical || v.Pressure.Score != 1 {
		t.Errorf("who is never shed: %+v", v)
	}
	version = put(nil)
	if v := admit(2, admission.PressureLow); v.Decision != admission.Admitted {
		t.Errorf("when it is not measured any more: %+v", v)
	}
	if p := state(); p.Level != 0 {
		t.Errorf("when it is not measured any more: %+v", p)
	}
	stop2()
	if !strings.Contains(said.String(), "pressure level changed") {
		t.Error("the log tells of no level")
	}
}

// TestASensorThatDiesIsSaid: jobs wait, and nobody has dispatched any, so that how long they will is not known.
func TestASensorThatDiesIsSaid(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	p := policy.Unlimited()
	p.Queues = map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{TargetWait: time.Second, Interval: 200 * time.Millisecond}}}
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	const owner = "before"
	if _, err := s.Partitions()[0].Promote(t.Context(), owner, time.Second); err != nil {
		t.Fatal(err)
	}
	version, err := s.PolicyInForce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	high := store.Press{Owner: owner, Version: version, Queue: "mail", Pressure: admission.Pressure{Level: admission.PressureCritical, Score: 1}, Life: time.Hour}
	if _, err := s.Press(t.Context(), high); err != nil {
		t.Fatal(err)
	}
	gate := store.Gate{Name: store.QueueGate("mail"), Limit: 0, Then: store.Unlimited}
	if _, _, err := s.SetGate(t.Context(), gate); err != nil {
		t.Fatal(err)
	}
	j := admission.NewJob("acme", "mail", "send", nil)
	j.ID = "1"
	none := admission.Limit{Disabled: true}
	if _, err := s.Partitions()[0].Admit(t.Context(), version, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{none, none, none, none}}}); err != nil {
		t.Fatal(err)
	}
	var said logs
	run(t, s, scheduler.Config{TimerLease: time.Second, Logger: said.logger()})
	await(t, "it to fall", func() bool {
		q, err := s.Queue(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		return q.Pressure.Level == admission.PressureNone
	})
	if text := said.String(); !strings.Contains(text, "nothing is known of how much the queue is pressed") || !strings.Contains(text, `"wait"`) {
		t.Errorf("the log says %s", text)
	}
}

// TestTakenSlotsPressAQueue: by the part of its workers' slots that has a job.
func TestTakenSlotsPressAQueue(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	p := policy.Unlimited()
	p.Queues = map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 10, Interval: policy.MinAdaptiveInterval, Weights: map[string]float64{"slots": .99, "depth": .01}}}}
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	part := s.Partitions()[0]
	if _, err := part.Register(t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 4, time.Minute); err != nil {
		t.Fatal(err)
	}
	run(t, s, scheduler.Config{TimerLease: handOver})
	presses := func(parts string, level admission.PressureLevel) {
		t.Helper()
		await(t, parts, func() bool {
			q, err := s.Queue(t.Context(), "mail")
			return err == nil && q.Pressure != nil && q.Pressure.Parts == "depth 0 of weight 0.01, slots "+parts+" of weight 0.99" && q.Pressure.Level == level
		})
	}
	for _, c := range []struct {
		jobs  int
		parts string
		level admission.PressureLevel
	}{{1, "0.25", admission.PressureNone}, {3, "0.75", admission.PressureMedium}, {4, "1", admission.PressureCritical}} {
		fill(t, s, c.jobs) // Those that are there are not admitted again.
		presses(c.parts, c.level)
	}
	for i := range 4 {
		if _, _, err := part.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: strconv.Itoa(i)}, store.Intervention{}); err != nil {
			t.Fatal(err)
		}
	}
	presses("0", admission.PressureNone)
}

// TestAFullRedisPressesAQueue: by which part of its maxmemory Redis uses, where a weight says so. Without a maxmemory nobody knows that, and where
// nobody weighs it nobody asks.
func TestAFullRedisPressesAQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	s := open(t, client)
	put := func(weights map[string]float64) {
		t.Helper()
		p := policy.Unlimited()
		p.Queues = map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 10, Interval: policy.MinAdaptiveInterval, Weights: weights}}}
		if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
	}
	noted := func() store.PressureState {
		t.Helper()
		q, err := s.Queue(t.Context(), "mail")
		if err != nil || q.Pressure == nil {
			return store.PressureState{}
		}
		return *q.Pressure
	}
	may := func(times float64) { // It may use so many times what it uses.
		t.Helper()
		v, err := s.Vitals(t.Context())
		if err == nil {
			err = client.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(int64(times*float64(v.Memory)), 10)).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const ballast = 32 << 20 // Beside it buffers of connections, which come and go, are little.
	if err := client.Set(t.Context(), "ballast", strings.Repeat("x", ballast), 0).Err(); err != nil {
		t.Fatal(err)
	}
	put(map[string]float64{"redis_memory": .99, "depth": .01})
	run(t, s, scheduler.Config{TimerLease: handOver})
	await(t, "nothing to be known without a maxmemory", func() bool {
		return noted().Parts == "depth 0 of weight 0.01, redis_memory unknown of weight 0.99"
	})
	may(1.3)
	await(t, "a Redis that is three quarters full", func() bool {
		p := noted()
		return p.Score > .7 && p.Score < .84 && p.Level == admission.PressureMedium
	})
	may(100)
	await(t, "a Redis with room", func() bool { p := noted(); return p.Score < .02 && p.Level == admission.PressureNone })
	put(map[string]float64{"depth": 1})
	await(t, "nobody to weigh it", func() bool { return noted().Parts == "depth 0 of weight 1" })
	if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	first := noted().Until
	await(t, "three measurements after that", func() bool { return noted().Until.Sub(first) > 3*policy.MinAdaptiveInterval })
	if n := redistest.CommandStats(t, client)["info"].Calls; n > 0 {
		t.Errorf("nobody weighs the memory of Redis, and it is asked for %d times", n)
	}
	put(map[string]float64{"redis_memory": .5, "depth": .5})
	await(t, "its memory to be weighed again", func() bool { return strings.Contains(noted().Parts, "redis_memory 0") })
	if err := client.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "a Redis that does not tell its memory to hide nothing else", func() bool {
		return noted().Parts == "depth 0 of weight 0.5, redis_memory unknown of weight 0.5"
	})
}

// TestALevelLastsWhereAMeasurementFails, each time: Redis does not tell its memory, and answers all else. None of it is held up, so that the level does
// not fall between two measurements.
func TestALevelLastsWhereAMeasurementFails(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	s := open(t, client)
	p := policy.Unlimited()
	weights := map[string]float64{"redis_memory": .5, "depth": .5}
	p.Queues = map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 10, Interval: policy.MinAdaptiveInterval, Weights: weights}}}
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	fill(t, s, 20)
	if err := client.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	run(t, s, scheduler.Config{TimerLease: time.Minute})
	level := func() admission.PressureLevel {
		t.Helper()
		loads, err := s.Loads(t.Context(), []string{"mail"})
		if err != nil {
			t.Fatal(err)
		}
		return loads[0].Level
	}
	await(t, "too many jobs to press", func() bool { return level() == admission.PressureCritical })
	fell := 0
	for range 100 {
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the pace of the test's own looks
		if level() != admission.PressureCritical {
			fell++
		}
	}
	if fell > 10 { // A machine that halts may be late.
		t.Errorf("the level had fallen in %d of 100 looks", fell)
	}
}
