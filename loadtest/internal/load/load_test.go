package load

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/trace"
)

// traceRows is a short trace: two tenants, one of whose downstreams fails.
const traceRows = `gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length,negative_prompt_length,num_images_per_prompt,num_inference_steps,checkpoint_model_version_id
2024-11-15 10:00:00,TXT:2,SUCCEED,20,G1,10,5,1,30,M1
2024-11-15 10:00:50,IMG,FAILED,10,G2,10,,2,30,M2
2024-11-15 10:01:40,IMG,SUCCEED,10,G1,10,,1,30,M1
`

func readTrace(t rapid.TB) *trace.Trace {
	t.Helper()
	read, err := trace.Read(strings.NewReader(traceRows), trace.Columns{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestAPlanHasItsArrivals(t *testing.T) {
	t.Parallel()
	recipes := slices.DeleteFunc(Scenarios(), func(name string) bool { return name == scenarioTrace })
	rapid.Check(t, func(t *rapid.T) {
		spec := DefaultSpec()
		spec.Rate = rapid.Float64Range(10, 20_000).Draw(t, "rate")
		spec.Duration = time.Duration(rapid.Int64Range(int64(100*time.Millisecond), int64(time.Second)).Draw(t, "duration"))
		spec.Tenants, spec.Queues = rapid.IntRange(1, 300).Draw(t, "tenants"), rapid.IntRange(1, 12).Draw(t, "queues")
		spec.Priorities, spec.Slots = rapid.IntRange(1, 9).Draw(t, "priorities"), rapid.IntRange(1, 100).Draw(t, "slots")
		spec.Seed = rapid.Uint64().Draw(t, "seed")
		scenario := rapid.SampledFrom(recipes).Draw(t, "scenario")
		plan, err := New(scenario, spec)
		if err != nil {
			t.Fatal(err)
		}
		if want := int(math.Round(spec.Rate * spec.Duration.Seconds())); len(plan.Arrivals) != want {
			t.Fatalf("%d arrivals, rate x duration is %d", len(plan.Arrivals), want)
		}
		checkPlan(t, plan)
		again, err := New(scenario, spec)
		if err != nil || !reflect.DeepEqual(plan.Arrivals, again.Arrivals) {
			t.Fatal("the same spec gave another plan")
		}
	})
}

// checkPlan checks what must hold of every plan.
func checkPlan(t rapid.TB, plan *Plan) {
	t.Helper()
	last := time.Duration(0)
	for i, a := range plan.Arrivals {
		if a.At < last || a.At > plan.Duration {
			t.Fatalf("arrival %d is at %s, after one at %s, of %s", i, a.At, last, plan.Duration)
		}
		last = a.At
		if a.Tenant >= len(plan.Tenants) || a.Queue >= len(plan.Queues) || a.Class >= len(plan.Classes) || a.Downstream >= len(plan.Downstreams) {
			t.Fatalf("arrival %d names what is not there: %+v", i, a)
		}
		if a.Work < 0 || a.Cost < 1 {
			t.Fatalf("arrival %d: %+v", i, a)
		}
	}
	if _, err := plan.Policy.Prepare(); err != nil {
		t.Fatalf("the policy is not valid: %v", err)
	}
	for _, incident := range plan.Incidents {
		if incident.At < 0 || incident.At > plan.Duration {
			t.Fatalf("an incident at %s of %s", incident.At, plan.Duration)
		}
	}
}

func TestScenariosAreWhatTheySay(t *testing.T) {
	t.Parallel()
	plans := map[string]*Plan{}
	for _, name := range Scenarios() {
		if name == scenarioTrace {
			continue
		}
		plan, err := New(name, DefaultSpec())
		if err != nil {
			t.Fatal(err)
		}
		plans[name] = plan
	}
	part := func(scenario string, counts func(a *Arrival) bool) float64 {
		n := 0
		for i := range plans[scenario].Arrivals {
			if counts(&plans[scenario].Arrivals[i]) {
				n++
			}
		}
		return float64(n) / float64(len(plans[scenario].Arrivals))
	}
	period := DefaultSpec().Duration / burstPeriods
	for name, row := range map[string]struct{ got, want float64 }{
		"bursts hold four fifths of the jobs":     {part("burst", func(a *Arrival) bool { return float64(a.At%period) < burstTime*float64(period) }), burstJobs},
		"steady has a fifth in a fifth":           {part("steady", func(a *Arrival) bool { return float64(a.At%period) < burstTime*float64(period) }), burstTime},
		"the noisy neighbour has its share":       {part("noisy-neighbour", func(a *Arrival) bool { return a.Tenant == 0 }), noisyShare},
		"sybils have theirs":                      {part("sybil", func(a *Arrival) bool { return a.Tenant >= 100 }), sybilShare},
		"and stay in their queue":                 {part("sybil", func(a *Arrival) bool { return a.Queue == 3 }), sybilShare},
		"the heaviest by Zipf's law with s = 1.1": {part("zipf", func(a *Arrival) bool { return a.Tenant == 0 }), 0.24},
		"two of six downstreams are ill":          {part("dead-downstream", func(a *Arrival) bool { return !plans["dead-downstream"].Bystander()(a) }), 1.0 / 3},
		"the step holds its share": {
			part("overload", func(a *Arrival) bool { o := plans["overload"].Overload; return a.At >= o.From && a.At < o.To }), 2 * 0.4 / 1.1,
		},
		"each class has three times what the one above has": {part("overload", func(a *Arrival) bool { return a.Class == 1 }), 3.0 / 13},
	} {
		if math.Abs(row.got-row.want) > 0.03 {
			t.Errorf("%s: %.3f, want %.3f", name, row.got, row.want)
		}
	}
	if c := plans["sybil"].Caps[sybilQueue]; c != 25 {
		t.Errorf("the sybils' queue is capped at %d", c)
	}
	// Work fits the slots: what comes before the step is half of what can be served.
	o, before := plans["overload"].Overload, time.Duration(0)
	for i := range plans["overload"].Arrivals {
		if a := &plans["overload"].Arrivals[i]; a.At < o.From {
			before += a.Work
		}
	}
	if offered := before.Seconds() / (float64(plans["overload"].Slots) * o.From.Seconds()); math.Abs(offered-overloadBase) > 0.05 {
		t.Errorf("before the step %.3f of what can be served arrives", offered)
	}
	if p, bare := plans["overload"].Policy, plans["overload"].Unshed; p.Shedding == nil || bare.Shedding != nil || bare.Queues["queue-0"].MaxWait != o.MaxWait ||
		bare.Queues["queue-0"].DoomedPercent != 0 || p.Queues["queue-0"].DoomedPercent != 100 {
		t.Errorf("overload with %+v, and without %+v", p.Queues["queue-0"], bare.Queues["queue-0"])
	}
	if plans["steady"].Bystander() != nil || plans["steady"].Levels != admission.Levels {
		t.Error("steady has bystanders, or too few levels of limits")
	}
}

func TestATraceIsReplayedAtTheRateThatWasGiven(t *testing.T) {
	t.Parallel()
	spec := DefaultSpec()
	spec.Trace, spec.Rate = readTrace(t), 6 // 3 rows in half a second, 200 times faster
	plan, err := New(scenarioTrace, spec)
	if err != nil {
		t.Fatal(err)
	}
	checkPlan(t, plan)
	class := func(tenant string) int {
		name := trace.ClassOf(tenant, spec.Seed, plan.Classes)
		return slices.IndexFunc(plan.Classes, func(c admission.Class) bool { return c.Name == name })
	}
	want := []Arrival{
		{At: 0, Tenant: 0, Queue: 0, Class: class("G1"), Downstream: 0, Work: 100 * time.Millisecond, Bytes: 15, Cost: 1},
		{At: 250 * time.Millisecond, Tenant: 1, Queue: 1, Class: class("G2"), Downstream: 1, Work: 50 * time.Millisecond, Bytes: 10, Cost: 2, Fails: true},
		{At: 500 * time.Millisecond, Tenant: 0, Queue: 1, Class: class("G1"), Downstream: 0, Work: 50 * time.Millisecond, Bytes: 10, Cost: 1},
	}
	if !reflect.DeepEqual(plan.Arrivals, want) {
		t.Errorf("got %+v, want %+v", plan.Arrivals, want)
	}
	if !slices.Equal(plan.Queues, []string{"TXT-2", "IMG"}) || plan.Bystander()(&want[1]) || !plan.Bystander()(&want[0]) {
		t.Errorf("queues %v, or the wrong bystanders", plan.Queues)
	}
	spec.Trace = nil
	if _, err := New(scenarioTrace, spec); !errors.Is(err, ErrNoTrace) {
		t.Errorf("without a trace: %v", err)
	}
}

func TestBadSpecsNameFlagValueAndRange(t *testing.T) {
	t.Parallel()
	for flag, bad := range map[string]func(*Spec){
		"-rate 0: allowed is 0.1 to 1e6":                func(s *Spec) { s.Rate = 0 },
		"-duration 1ms: allowed is 100ms to 24h":        func(s *Spec) { s.Duration = time.Millisecond },
		"-tenants 0: allowed is 1 to 100000":            func(s *Spec) { s.Tenants = 0 },
		"-queues 64: allowed is 1 to 63":                func(s *Spec) { s.Queues = 64 },
		"-priorities 101: allowed is 1 to 100":          func(s *Spec) { s.Priorities = 101 },
		"-slots 0: allowed is 1 to 10000":               func(s *Spec) { s.Slots = 0 },
		"-work 2h0m0s: allowed is 0s to 1h":             func(s *Spec) { s.Work = 2 * time.Hour },
		"-overload 0.5: allowed is 1 to 100 times":      func(s *Spec) { s.Overload = 0.5 },
		"-class-ratio 0.5: allowed is 1 to 100 times":   func(s *Spec) { s.ClassRatio = 0.5 },
		"-kept 91: allowed is 0 to 90 percent":          func(s *Spec) { s.Kept = 91 },
		"-payload -1: allowed is 0 to 1048576":          func(s *Spec) { s.Payload = -1 },
		"-tenant-limit -1: allowed is 0":                func(s *Spec) { s.TenantLimit = -1 },
		"-global-limit -1: allowed is 0":                func(s *Spec) { s.GlobalLimit = -1 },
		"-rate x -duration 3600000000: allowed is 1 to": func(s *Spec) { s.Rate, s.Duration = 1e6, time.Hour },
	} {
		spec := DefaultSpec()
		bad(&spec)
		_, err := New("steady", spec)
		if !errors.Is(err, admission.ErrInvalid) || !strings.Contains(fmt.Sprint(err), flag) {
			t.Errorf("error is %v, should say %q", err, flag)
		}
	}
	if _, err := New("storm", DefaultSpec()); err == nil || !strings.Contains(err.Error(), `-scenario "storm": allowed is all, or some of steady, burst`) {
		t.Errorf("an unknown scenario: %v", err)
	}
}

// TestClassesOfAnOverload: -class-ratio says how many more jobs each class has than the one above it, -kept what is kept for the first.
func TestClassesOfAnOverload(t *testing.T) {
	t.Parallel()
	spec := DefaultSpec()
	spec.ClassRatio, spec.Kept = 9, 40
	plan, err := New("overload", spec)
	if err != nil {
		t.Fatal(err)
	}
	var of [3]float64
	for i := range plan.Arrivals {
		of[plan.Arrivals[i].Class] += 1 / float64(len(plan.Arrivals))
	}
	for name, queue := range plan.Policy.Queues {
		if r := queue.Reserved; r.Percent != 40 || r.Lend || len(r.Classes) != 1 || r.Classes[0] != plan.Classes[0].Name {
			t.Errorf("queue %s keeps %+v", name, r)
		}
	}
	for class, want := range []float64{1.0 / 91, 9.0 / 91, 81.0 / 91} {
		if math.Abs(of[class]-want) > 0.02 {
			t.Errorf("class %d has %.3f of the jobs, want %.3f", class, of[class], want)
		}
	}
}

// TestShapesOfAnOverload: of each what arrives and what could be served of it is what its description says, handlers that are slow work as much
// longer, and only callers of retries ask again.
func TestShapesOfAnOverload(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ before, during, after, possible, slower float64 }{
		ShapeStep:    {0.5, 4, 0.5, 1, 1},
		ShapeRamp:    {0.5, 2.25, 0.5, 1 - 1.0/7*0.25, 1}, // It takes a seventh of the time to come to the capacity, in which a quarter is idle.
		ShapeBursts:  {0.5, 1.2, 0.5, 1, 1},
		ShapeSlow:    {0.75, 0.75, 0.75, 1, 4},
		ShapeRetries: {0.5, 4, 0.5, 1, 1},
		ShapeDrain:   {0.5, 4, 0.9, 1, 1},
	} {
		spec := DefaultSpec()
		spec.Rate, spec.Overload, spec.Shape = 4000, 4, name
		plan, err := New("overload", spec)
		if err != nil {
			t.Fatal(err)
		}
		o := plan.Overload
		offered := func(from, to time.Duration) float64 {
			var work time.Duration
			for i := range plan.Arrivals {
				if a := &plan.Arrivals[i]; a.At >= from && a.At < to {
					work += a.Work
				}
			}
			return work.Seconds() / (float64(plan.Slots) * (to - from).Seconds())
		}
		for _, row := range []struct {
			what      string
			got, want float64
		}{
			{"before", offered(0, o.From), want.before},
			{"during", offered(o.From, o.To), want.during},
			{"after", offered(o.To, plan.Duration), want.after},
			{"possible", o.Possible, want.possible},
			{"slower", o.Slower, want.slower},
		} {
			if math.Abs(row.got-row.want) > 0.05*max(1, row.want) {
				t.Errorf("%s, %s: %.3f, want %.3f", name, row.what, row.got, row.want)
			}
		}
		if slows := len(plan.Incidents) > 0; slows != (want.slower > 1) {
			t.Errorf("%s: incidents %+v", name, plan.Incidents)
		}
		if asks := plan.Retries() > 0; asks != (name == ShapeRetries) {
			t.Errorf("%s: callers ask %d times more", name, plan.Retries())
		}
	}
}
