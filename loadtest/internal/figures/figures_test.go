package figures

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
	"github.com/headgate/headgate/store"
)

// TestTheVirtualBucketIsTheBound compares the bucket with what law L1 says, in every window: admitted <= burst + rate x t.
func TestTheVirtualBucketIsTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := admission.PerSecond(admission.Tokens(rapid.Int64Range(1, 2000).Draw(t, "rate"))).WithBurst(admission.Tokens(rapid.Int64Range(1, 50).Draw(t, "burst")))
		at, all := int64(1_700_000_000_000_000), []admitted{}
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			at += rapid.Int64Range(0, 20_000).Draw(t, "gap")
			all = append(all, admitted{at, admission.Tokens(rapid.Int64Range(1, 5).Draw(t, "cost"))})
		}
		worst := math.Inf(-1) // the most that a window admitted, less rate x t
		for i := range all {
			sum := 0.0
			for j := i; j < len(all); j++ {
				sum += float64(all[j].cost)
				worst = max(worst, sum-float64(limit.Rate())*float64(all[j].micros-all[i].micros)/1e6)
			}
		}
		b := check("scope", limit, slices.Clone(all))
		if used := worst / float64(limit.Burst); math.Abs(b.Used-used) > 1e-6 {
			t.Fatalf("used %.6f of the burst, by all windows %.6f", b.Used, used)
		}
		if over := worst > float64(limit.Burst)+2*rounding; over && !b.Exceeded {
			t.Fatalf("a window admitted %.3f above a burst of %d, and %+v", worst, limit.Burst, b)
		}
		if under := worst <= float64(limit.Burst); under && b.Exceeded {
			t.Fatalf("no window admitted more than %.3f of %d, and %+v", worst, limit.Burst, b)
		}
	})
}

func TestOnlyTenantsWithWorkAreCompared(t *testing.T) {
	t.Parallel()
	turns := func(order string, rounds int, runnable func(place int) time.Duration) []begun {
		var log []begun
		for place, letter := range strings.Repeat(order, rounds) {
			log = append(log, begun{int(letter), runnable(place), time.Duration(place+1) * time.Millisecond, 1})
		}
		return log
	}
	atOnce := func(int) time.Duration { return 0 }
	late := func(place int) time.Duration { return time.Duration(place+1)*time.Millisecond - time.Microsecond }
	for name, row := range map[string]struct {
		log      []begun
		spells   int
		dispatch int
	}{
		"all there from the start":        {turns("ab", 40, atOnce), 2, 40},
		"each comes as the one before is": {turns("ab", 40, late), 80, 1},
		"too few":                         {turns("ab", 10, atOnce), 0, 0},
	} {
		got := spells(row.log)
		if len(got) != row.spells || row.spells > 0 && got[0].Len() != row.dispatch {
			t.Errorf("%s: %d spells, want %d", name, len(got), row.spells)
		}
	}
}

// small is a run of four jobs of one tenant: one completed, one refused, one in doubt, one admitted that did not end.
func small(t *testing.T) *Run {
	t.Helper()
	spec := load.DefaultSpec()
	spec.Rate, spec.Duration, spec.Tenants = 40, 100*time.Millisecond, 1
	plan, err := load.New("steady", spec)
	if err != nil {
		t.Fatal(err)
	}
	book := record.NewBook(len(plan.Arrivals), time.Now().Add(-time.Second))
	for number, outcome := range []record.Outcome{record.Admitted, record.Refused, record.Unknown, record.Admitted} {
		book.Send(number)
		book.Answer(number, record.Answer{Outcome: outcome, Reason: map[bool]admission.Reason{true: admission.ReasonLimited}[outcome == record.Refused]})
	}
	book.Begin(0, time.Now())
	book.Complete(0)
	census := store.Census{Accepted: 2, Live: 1, Waiting: 1, Left: map[string]int64{"completed": 1}}
	return &Run{
		Plan: plan, System: "headgate", Book: book, Wall: book.Now(), Peaks: map[string]int{},
		Account: Account{Held: 1, Census: &census, Gated: true},
	}
}

// overload makes a run of so many jobs, none of which is let in.
func overload(t *testing.T, r *Run, jobs int, outcome func(number int) record.Outcome) {
	t.Helper()
	spec := load.DefaultSpec()
	spec.Rate, spec.Duration, spec.Tenants = float64(jobs), time.Second, 1
	var err error
	if r.Plan, err = load.New("steady", spec); err != nil || len(r.Plan.Arrivals) != jobs {
		t.Fatalf("%d jobs, %v", len(r.Plan.Arrivals), err)
	}
	r.Book = record.NewBook(jobs, time.Now().Add(-time.Second))
	for number := range jobs {
		r.Book.Send(number)
		r.Book.Answer(number, record.Answer{Outcome: outcome(number), Reason: admission.ReasonLimited})
	}
	r.Account.Held, *r.Account.Census = 0, store.Census{}
}

func TestBrokenPromisesAreNamed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(r *Run)
		want   string
	}{
		"nothing": {func(*Run) {}, ""},
		"a lost job": {func(r *Run) {
			r.Account.Held, *r.Account.Census = 0, store.Census{Accepted: 2, Left: map[string]int64{"completed": 2}}
		}, "1 admitted jobs are lost"},
		"a death that its worker did not hear of": {func(r *Run) {
			r.Account.Held, *r.Account.Census = 0, store.Census{Accepted: 2, Live: 1, Dead: 1, Left: map[string]int64{"completed": 1}}
		}, ""},
		"a place too few":          {func(r *Run) { r.Account.Census.Waiting = 0 }, "what Redis accepted is not what it holds"},
		"one accepted too few":     {func(r *Run) { r.Account.Census.Accepted, r.Account.Census.Left = 1, nil }, "Redis accepted 1 jobs, producers were told of 2"},
		"a job that nothing holds": {func(r *Run) { r.Account.Gated = false }, "1 jobs wait and nothing holds them back"},
		"a cap": {func(r *Run) {
			r.Plan.Caps = map[string]int{r.Plan.Queues[0]: 2}
			r.Peaks[r.Plan.Queues[0]] = 3
		}, "3 jobs of queue queue-0 ran at a time, its cap is 2"},
		"a bound": {func(r *Run) {
			r.Plan.Policy.Global = admission.PerSecond(1)
			for number := range 2 {
				r.Book.Begin(number, time.UnixMicro(1_700_000_000_000_000))
			}
		}, "scope global admitted more than burst + rate x time"},
		"no answers": {func(r *Run) {
			overload(t, r, 1000, func(number int) record.Outcome {
				return map[bool]record.Outcome{true: record.Refused, false: record.Unavailable}[number < 900]
			})
		}, "100 of 1000 jobs had no answer (100 were not sent, of 0 it is not known)"},
		"as many as may have none": {func(r *Run) {
			overload(t, r, 1000, func(number int) record.Outcome {
				return map[bool]record.Outcome{true: record.Refused, false: record.Unavailable}[number < 950]
			})
		}, ""},
		"late answers": {func(r *Run) {
			overload(t, r, 1000, func(int) record.Outcome { return record.Refused })
			for number := range r.Book.Entries()[:11] {
				r.Book.Entries()[number].Answered += load.Timeout + grace
			}
		}, "11 of 1000 answers came later than the time-out of 2s"},
	} {
		r := small(t)
		row.change(r)
		f := Of(r)
		if got := strings.Join(f.Broken, "; "); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// TestADeathCountsWhoeverHearsOfIt: a worker that loses the answer takes its last attempt for one of several.
func TestADeathCountsWhoeverHearsOfIt(t *testing.T) {
	t.Parallel()
	r := small(t)
	r.Account.Held, *r.Account.Census = 0, store.Census{Accepted: 2, Live: 1, Dead: 1, Left: map[string]int64{"completed": 1}}
	if f := Of(r); f.Completed != 1 || f.Dead != 1 || f.Held != 0 || f.Lost != 0 {
		t.Errorf("%d completed, %d dead, %d held, %d lost of 2 admitted", f.Completed, f.Dead, f.Held, f.Lost)
	}
	r.Book.Bury(3)
	if f := Of(r); f.Completed != 1 || f.Dead != 1 {
		t.Errorf("%d completed and %d dead, and the worker knows", f.Completed, f.Dead)
	}
}

func TestCountsAddUp(t *testing.T) {
	t.Parallel()
	f := Of(small(t))
	if f.Sent != 4 || f.Admitted != 2 || f.Refused[admission.ReasonLimited] != 1 || f.Unknown != 1 || f.Completed != 1 || f.Lost != 0 {
		t.Errorf("got %+v", f)
	}
	if f.Enqueue.Count != 4 || f.Lateness.Count != 4 || f.Wait.Count != 1 || f.Completion.Count != 1 || f.Light.Count != 1 || f.LightJobs != 4 {
		t.Errorf("histograms: %+v %+v %+v, light %+v of %d", f.Enqueue, f.Wait, f.Completion, f.Light, f.LightJobs)
	}
	// The generator was 0.9 s late with each: that is the jobs' latency, though they were answered at once.
	for name, l := range map[string]Latency{"enqueue": f.Enqueue, "wait": f.Wait, "completion": f.Completion, "light": f.Light} {
		if l.P50 < 850 {
			t.Errorf("%s counts from another time than the intended arrival: %+v", name, l)
		}
	}
}
