package load_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/load"
)

// run is one that ended so many seconds after the beginning.
type run struct {
	Queue      string
	After      int
	Wait, Took time.Duration
	Failed     bool
}

func drawRuns(t *rapid.T, name string) []run {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run {
		return run{
			Queue: rapid.SampledFrom([]string{"mail", "hook"}).Draw(t, "queue"), After: rapid.IntRange(0, 200).Draw(t, "after"),
			Wait:   time.Duration(rapid.Int64Range(int64(time.Microsecond), int64(time.Hour)).Draw(t, "wait")),
			Took:   time.Duration(rapid.Int64Range(int64(time.Microsecond), int64(time.Hour)).Draw(t, "took")),
			Failed: rapid.Bool().Draw(t, "failed"),
		}
	}), 0, 80).Draw(t, name)
}

// TestFiguresAreThoseOfAllRunsOfTheLastMinute: whatever ran where, the figures that come of the texts of several workers are what a list
// of all runs says: the counts exactly, the percentile within 5 %.
func TestFiguresAreThoseOfAllRunsOfTheLastMinute(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		begin := time.Unix(1_700_000_000, 0)
		now := begin.Add(200 * time.Second)
		var all []run
		var samples []load.Sample
		for range rapid.IntRange(1, 3).Draw(t, "workers") {
			runs := drawRuns(t, "runs")
			slices.SortFunc(runs, func(a, b run) int { return a.After - b.After })
			var w load.Window
			for _, r := range runs {
				w.Began(begin.Add(time.Duration(r.After)*time.Second), r.Queue, r.Wait) // That of another run, as far as it goes.
				w.Ended(begin.Add(time.Duration(r.After)*time.Second), r.Queue, r.Took, r.Failed)
			}
			all = append(all, runs...)
			s, err := load.Parse(load.Sample{Use: load.Unknown, Queues: w.Sum(now)}.Text())
			if err != nil {
				t.Fatal(err)
			}
			samples = append(samples, s)
		}
		var took, waited []time.Duration
		sum, failed := time.Duration(0), 0
		for _, r := range all {
			if r.Queue != "mail" || r.After <= 200-60+4 { // A slot of 5 s counts as a whole, and 200 begins one.
				continue
			}
			took, waited, sum = append(took, r.Took), append(waited, r.Wait), sum+r.Took
			if r.Failed {
				failed++
			}
		}
		got := load.Of("mail", 7, samples)
		if len(took) == 0 {
			if got.ErrorRate != -1 || got.Average != -1 || got.P95 != -1 || got.WaitP95 != -1 {
				t.Fatalf("nothing ended, and the figures are %+v", got)
			}
			return
		}
		if got.Depth != 7 || math.Abs(got.ErrorRate-float64(failed)/float64(len(took))) > 1e-9 ||
			math.Abs(float64(got.Average-sum/time.Duration(len(took)))) > float64(time.Microsecond)*float64(len(samples)) {
			t.Fatalf("figures %+v of %d runs, %d failed, %v in all", got, len(took), failed, sum)
		}
		for told, all := range map[*time.Duration][]time.Duration{&got.P95: took, &got.WaitP95: waited} {
			slices.Sort(all)
			p95 := all[int(math.Ceil(.95*float64(len(all))))-1]
			if off := math.Abs(float64(*told - p95)); off > .045*float64(p95)+float64(time.Microsecond) { // Times are counted in whole microseconds.
				t.Fatalf("p95 is %v, told as %v: %+v", p95, *told, got)
			}
		}
	})
}

// TestTheWorstWorkerOfAQueueIsTold: of the workers that serve it, and of none that does not.
func TestTheWorstWorkerOfAQueueIsTold(t *testing.T) {
	t.Parallel()
	serving := func(queue string, running int64) map[string]load.Runs {
		return map[string]load.Runs{queue: {Running: running}}
	}
	samples := []load.Sample{
		{Use: load.Use{CPU: .2, Memory: .9}, Queues: serving("mail", 3)},
		{Use: load.Use{CPU: .6, Memory: .1}, Queues: serving("mail", 4)},
		{Use: load.Use{CPU: 1, Memory: 1}, Queues: serving("hook", 5)},
		{Use: load.Unknown, Queues: serving("mail", 1)},
	}
	if got, want := load.Of("mail", 2, samples), (load.Figures{Use: load.Use{CPU: .6, Memory: .9}, Depth: 2, Running: 8, ErrorRate: -1, Average: -1, P95: -1, WaitP95: -1, Wait: -1}); got != want {
		t.Errorf("figures of mail are %+v, want %+v", got, want)
	}
	if got := load.OfAll(2, samples); got.CPU != 1 || got.Running != 13 {
		t.Errorf("figures of all are %+v", got)
	}
	if got := load.Of("fax", 1, samples); got != (load.Figures{Use: load.Unknown, Depth: 1, Running: -1, ErrorRate: -1, Average: -1, P95: -1, WaitP95: -1, Wait: -1}) {
		t.Errorf("figures of a queue that nobody serves are %+v", got)
	}
}

// TestDownstreamsAreToldBesideQueues, by all workers together, and of each worker the ones of which it has most.
func TestDownstreamsAreToldBesideQueues(t *testing.T) {
	t.Parallel()
	var samples []load.Sample
	for worker := range 2 {
		var w load.Window
		for i := range load.MaxDownstreams + 1 {
			for range min(i+1, 3) {
				w.Began(time.Unix(1000, 0), fmt.Sprintf("d%03d", i), time.Duration(worker+1)*10*time.Second)
				w.Ended(time.Unix(1000, 0), fmt.Sprintf("d%03d", i), time.Second, worker == 0)
			}
		}
		s, err := load.Parse(load.Sample{Use: load.Use{CPU: .5, Memory: -1}, Queues: map[string]load.Runs{"d000": {}}, Downstreams: w.Sum(time.Unix(1001, 0))}.Text())
		if err != nil || len(s.Downstreams) != load.MaxDownstreams {
			t.Fatalf("%d downstreams are told, %v", len(s.Downstreams), err)
		}
		samples = append(samples, s)
	}
	if names := load.Downstreams(samples); len(names) != load.MaxDownstreams || names[0] != "d001" {
		t.Errorf("%d downstreams are told, %q first", len(names), names[0])
	}
	got := load.OfDownstream("d200", 7, samples)
	if got.Depth != 7 || got.ErrorRate != .5 || got.Average != time.Second || got.CPU != .5 || got.Metric("run_p95") < .95 || got.Metric("run_p95") > 1.05 || got.Metric("wait_p95") < 19 || got.Metric("wait_p95") > 21 {
		t.Errorf("of a downstream it is told %+v", got)
	}
	if got := load.OfDownstream("d000", 0, samples); got.ErrorRate >= 0 || got.Running >= 0 {
		t.Errorf("of one that is left out it is told %+v", got)
	}
}

// TestTextsAreRead, and others are not.
func TestTextsAreRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.OneOf(rapid.Just(-1.0), rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(0, 20_000).Draw(t, "part")) / 1e4 }))
		micros := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "micros")) * time.Microsecond
		})
		f := load.Figures{
			Use: load.Use{CPU: part.Draw(t, "cpu"), Memory: part.Draw(t, "memory")}, Depth: rapid.Int64Range(0, 1e12).Draw(t, "depth"),
			Running: rapid.Int64Range(-1, 1e6).Draw(t, "running"), ErrorRate: part.Draw(t, "errors"), Average: micros.Draw(t, "average"), P95: micros.Draw(t, "p95"), WaitP95: micros.Draw(t, "wait p95"), Wait: -1,
		}
		if rapid.Bool().Draw(t, "of a queue") {
			wait := rapid.Custom(func(t *rapid.T) time.Duration {
				return time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "millis")) * time.Millisecond
			})
			f = f.Seen(rapid.OneOf(wait, rapid.Just(time.Duration(-1))).Draw(t, "wait"), admission.PressureLevel(rapid.IntRange(0, 5).Draw(t, "level")))
		}
		if got, err := load.ParseFigures(f.Text()); err != nil || got != f {
			t.Fatalf("%+v is read as %+v, %v", f, got, err)
		}
	})
	odd := load.Sample{Use: load.Use{CPU: math.NaN(), Memory: math.Inf(1)}, Queues: map[string]load.Runs{}}
	if got, err := load.Parse(odd.Text()); err != nil || !reflect.DeepEqual(got, load.Sample{Use: load.Unknown, Queues: map[string]load.Runs{}}) {
		t.Errorf("what is no number is read as %+v, %v", got, err)
	}
	text := func(text *string) string { return *text }
	if got := load.ParseAll([]string{odd.Text(), "of a release to come", odd.Text()}, text); len(got) != 2 {
		t.Errorf("of three texts with one that cannot be read there are %d", len(got))
	}
	for _, bad := range []string{"", "[]", `{"q":{"mail":[1,2]}}`, `{"q":{"mail":[1,2,3,4,5]}}`, `{"q":{"mail":[1,2,3,-4]}}`, `{"q":{"mail":[1,2,3,4]},"w":{"mail":[1]}}`, `{"q":{"mail":[1,2,3,4]},"w":{"mail":[-1,1]}}`, `{"d":{"smtp":[1,2,3]}}`, `{"d":{"smtp":[1,2,3,4]},"v":{"smtp":[1]}}`} {
		if _, err := load.Parse(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
		if _, err := load.ParseFigures(bad); err == nil {
			t.Errorf("%q is read as figures", bad)
		}
	}
}

// TestWaitsAreOfDownstreamsToo, by the service of an account; a worker of an older release tells of none, and that is not known.
func TestWaitsAreOfDownstreamsToo(t *testing.T) {
	t.Parallel()
	var c load.Counts
	now := time.Unix(1000, 0)
	c.Began(now, "mail", "smtp+acme", 10*time.Second)
	c.Began(now, "mail", "", time.Second)
	s, err := load.Parse(c.Sample(now, load.Unknown, []string{"mail"}).Text())
	if err != nil {
		t.Fatal(err)
	}
	if got := load.MetricOf("wait_p95", "", "smtp", []load.Sample{s}); !(got > 9.5 && got < 10.5) {
		t.Errorf("jobs of smtp waited %g s", got)
	}
	if got := load.Downstreams([]load.Sample{s}); !slices.Equal(got, []string{"smtp"}) {
		t.Errorf("downstreams are %q", got)
	}
	old, err := load.Parse(`{"c":0.5,"m":0.5,"q":{"mail":[1,2,0,4]},"w":{"mail":[80,1]},"d":{"smtp":[1,2,0,4]}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := load.MetricOf("wait_p95", "", "smtp", []load.Sample{old}); !math.IsNaN(got) {
		t.Errorf("by a worker that does not tell it jobs waited %g s", got)
	}
	if got := load.MetricOf("wait_p95", "", "smtp", []load.Sample{old, s}); !(got > 9.5 && got < 10.5) {
		t.Errorf("by one of two that tells it jobs waited %g s", got)
	}
}

// TestPointsOfOtherReleasesAreRead: what one did not tell is not known, never 0, and what one to come tells beyond is left out.
func TestPointsOfOtherReleasesAreRead(t *testing.T) {
	t.Parallel()
	for text, unknown := range map[string][]string{
		"[0,0,0,0,0,0,0]":                 {"wait_p95", "wait", "backpressure_level"},
		"[0,0,0,0,0,0,0,0]":               {"wait", "backpressure_level"},
		"[0,0,0,0,0,0,0,0,-1,2]":          {"wait"},
		"[0,0,0,0,0,0,0,0,0,1]":           {},
		"[0,0,0,0,0,0,0,0,0,1,0.5,\"x\"]": nil,
		"[0,0,0,0,0,0,0,0,0,1,0.5]":       {},
	} {
		f, err := load.ParseFigures(text)
		if (err != nil) != (unknown == nil) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, metric := range []string{"cpu_utilization", "memory_utilization", "queue_depth", "error_rate", "run_p95", "wait_p95", "wait", "backpressure_level"} {
			if got := f.Metric(metric); err == nil && math.IsNaN(got) != slices.Contains(unknown, metric) {
				t.Errorf("%s of %s is %g", metric, text, got)
			}
		}
	}
	for text, want := range map[string]float64{"[0.25]": .25, "[-1]": -1, "[0.25,3]": .25} {
		if w, err := load.ParseWhole(text); err != nil || w.RedisMemory != want {
			t.Errorf("%s is read as %+v, %v", text, w, err)
		}
	}
	for _, bad := range []string{"", "[]", "{}"} {
		if _, err := load.ParseWhole(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
	if got := (load.Whole{RedisMemory: math.NaN()}).Text(); got != "[-1]" {
		t.Errorf("what is no number is told as %s", got)
	}
}

// TestAPointIsSmall: of a busy queue 64 bytes, up to which Redis keeps few of them without an entry each, and of a downstream no more than its own figures.
func TestAPointIsSmall(t *testing.T) {
	t.Parallel()
	busy := load.Figures{
		Use: load.Use{CPU: .1234, Memory: .1234}, Depth: 1234, Running: 100, ErrorRate: .0123, Average: 123 * time.Millisecond, P95: time.Second, WaitP95: 12 * time.Second,
	}
	if queue := busy.Seen(12*time.Second, 3).Text(); len(queue) > 64 || !strings.HasSuffix(queue, ",12000,3]") {
		t.Errorf("a point takes %d bytes: %s", len(queue), queue)
	}
	if queue := busy.Seen(time.Microsecond, 0).Text(); !strings.HasSuffix(queue, ",1,1]") {
		t.Errorf("a short wait is told as none: %s", queue)
	}
	busy.Wait = -1
	if text := busy.Text(); strings.Count(text, ",") != 7 {
		t.Errorf("of a downstream a point is %s", text)
	}
}

// TestMetricsAreOfWhoIsNamed: a queue, a downstream, or the queue of which most is told; what nobody tells is no number.
func TestMetricsAreOfWhoIsNamed(t *testing.T) {
	t.Parallel()
	runs := func(failed, ended int64) load.Runs { return load.Runs{Failed: failed, Ended: ended} }
	samples := []load.Sample{
		{Use: load.Use{CPU: .2}, Queues: map[string]load.Runs{"mail": runs(1, 10)}, Downstreams: map[string]load.Runs{"smtp": runs(3, 10)}},
		{Use: load.Use{CPU: .6}, Queues: map[string]load.Runs{"hook": runs(5, 10), "mail": runs(1, 10), "idle": {}}},
	}
	for _, c := range []struct {
		metric, queue, downstream string
		want                      float64
	}{
		{"error_rate", "mail", "", .1},
		{"error_rate", "", "smtp", .3},
		{"error_rate", "", "", .5},
		{"cpu_utilization", "", "smtp", .2},
		{"cpu_utilization", "mail", "", .6},
		{"error_rate", "idle", "", math.NaN()},
		{"error_rate", "nobody", "", math.NaN()},
		{"error_rate", "", "nobody", math.NaN()},
		{"cpu_utilization", "", "nobody", math.NaN()},
		{"luck", "mail", "", math.NaN()},
	} {
		if got := load.MetricOf(c.metric, c.queue, c.downstream, samples); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%+v: got %g", c, got)
		}
	}
	if got := load.MetricOf("error_rate", "", "", nil); !math.IsNaN(got) {
		t.Errorf("of nobody it is %g", got)
	}
}
