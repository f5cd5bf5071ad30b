package headgatetest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
)

type welcome struct{ To string }

func (welcome) Kind() string { return "welcome" }

type report struct{ Day string }

func (report) Kind() string { return "report" }

var mailQueue = headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}}

func enqueue(t *testing.T, hg *headgatetest.Client, job headgate.Job) {
	t.Helper()
	if job.Queue == "" {
		job.Tenant, job.Queue = "acme", "mail"
	}
	if _, err := hg.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

// TestTimeIsTheBubbles lets jobs fail, wait and be late, for hours.
func TestTimeIsTheBubbles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		runs := map[string]int{}
		headgate.Handle(hg.Worker(mailQueue), func(ctx context.Context, job *headgate.Run[welcome]) error {
			runs[job.Args.To]++
			switch job.Args.To {
			case "fails":
				return headgate.RetryAfter(time.Hour, errors.New("busy"))
			case "sleeps":
				time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
			}
			return nil
		})
		enqueue(t, hg, headgate.Job{Args: welcome{"sleeps"}})
		enqueue(t, hg, headgate.Job{Args: welcome{"fails"}, MaxAttempts: 3})
		enqueue(t, hg, headgate.Job{Args: welcome{"waits"}, Delay: 5 * time.Hour})
		enqueue(t, hg, headgate.Job{Args: report{"monday"}, Tenant: "acme", Queue: "unserved", Deadline: time.Now().Add(time.Hour)})
		hg.Drain()
		if runs["sleeps"] != 1 || runs["fails"] != 1 || runs["waits"] != 0 {
			t.Errorf("after a drain: %v", runs)
		}
		hg.Advance(4 * time.Hour)
		if runs["fails"] != 3 || runs["waits"] != 0 {
			t.Errorf("after four hours: %v", runs)
		}
		hg.Advance(time.Hour)
		if runs["waits"] != 1 {
			t.Errorf("after five: %v", runs)
		}
		dead := map[string]int{}
		for job, err := range hg.Inspect().Jobs(t.Context(), headgate.Filter{Place: headgate.PlaceDead}) {
			if err != nil {
				t.Fatal(err)
			}
			dead[job.Reason]++
		}
		if len(dead) != 2 {
			t.Errorf("dead letters: %v", dead)
		}
	})
}

// TestPeriodicJobsRunInVirtualTime runs one every ten minutes.
func TestPeriodicJobsRunInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		var ran atomic.Int64
		headgate.Handle(hg.Worker(mailQueue), func(context.Context, *headgate.Run[report]) error {
			ran.Add(1)
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			job := headgate.Job{Tenant: "acme", Queue: "mail", Args: report{"today"}}
			if err := hg.RunPeriodic(ctx, headgate.PeriodicJob{Name: "often", Spec: "*/10 * * * *", Job: job}); err != nil {
				t.Error(err)
			}
		}()
		hg.Advance(2*time.Hour + time.Minute)
		if ran.Load() != 12 {
			t.Errorf("it ran %d times in two hours", ran.Load())
		}
	})
}

// TestLimitsAndBreakersHold lets a policy slow jobs down, and a downstream fail.
func TestLimitsAndBreakersHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		down := true
		ran := 0
		headgate.Handle(hg.Worker(mailQueue), func(context.Context, *headgate.Run[welcome]) error {
			if ran++; down {
				return errors.New("refused")
			}
			return nil
		})
		for i := range 40 {
			enqueue(t, hg, headgate.Job{Args: welcome{strconv.Itoa(i)}, Downstream: "smtp", MaxAttempts: 25})
		}
		hg.Breaker("smtp").State(t.Context()) // It is followed from now on.
		hg.Advance(5 * time.Second)
		if state, rest := hg.Breaker("smtp").State(t.Context()); state != "open" || rest <= 0 || ran > 40 {
			t.Errorf("%s for %s after %d calls", state, rest, ran)
		}
		down = false
		hg.Advance(time.Hour)
		if n := count(t, hg); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
	})
}

// TestAPolicyIsFollowed changes one, and asks a limiter.
func TestAPolicyIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		err := hg.Policy().Change(t.Context(), headgate.Edit{Author: "ada"}, func(p *headgate.Policy) {
			p.Tier("free").Limit = headgate.Limit{Tokens: 2, Per: time.Minute, Burst: 2}
			p.Tenant("acme").Tier = "free"
		})
		if err != nil {
			t.Fatal(err)
		}
		hg.Advance(time.Second)
		job := headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{"ada"}}
		var no *headgate.Refusal
		for i := range 3 {
			if _, err = hg.Enqueue(t.Context(), job); (i < 2) != (err == nil) {
				t.Errorf("job %d: %v", i, err)
			}
		}
		if !errors.As(err, &no) || no.RetryAfter <= 0 || no.RetryAfter > time.Minute {
			t.Fatalf("%v", err)
		}
		hg.Advance(no.RetryAfter)
		if _, err = hg.Enqueue(t.Context(), job); err != nil {
			t.Error(err)
		}
	})
}

func count(t *testing.T, hg *headgatetest.Client) (n int) {
	t.Helper()
	for _, err := range hg.Inspect().Jobs(t.Context(), headgate.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestItWorksInRealTime does without a bubble, and takes no longer than a handler.
func TestItWorksInRealTime(t *testing.T) {
	t.Parallel()
	hg := headgatetest.New(t)
	var ran atomic.Bool
	headgate.Handle(hg.Worker(mailQueue), func(context.Context, *headgate.Run[welcome]) error {
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // Drain waits for it.
		ran.Store(true)
		return nil
	})
	hg.Drain()
	enqueue(t, hg, headgate.Job{Args: welcome{"ada"}})
	hg.Drain()
	if !ran.Load() {
		t.Error("it did not run")
	}
}

func TestJobsRunOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		var order []string
		headgate.Handle(hg.Worker(mailQueue), func(_ context.Context, job *headgate.Run[welcome]) error {
			order = append(order, job.Args.To)
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
			order = append(order, job.Args.To)
			return nil
		})
		for _, to := range []string{"a", "b", "c"} {
			enqueue(t, hg, headgate.Job{Args: welcome{to}})
		}
		hg.Drain()
		if got := strings.Join(order, ""); got != "aabbcc" {
			t.Errorf("they ran as %s", got)
		}
	})
}

// failing is a test that is to fail: Fatalf ends its goroutine.
type failing struct {
	testing.TB

	said string
}

func (*failing) Helper() {}

func (f *failing) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(f)
}

// fails returns what a test says that fails.
func fails(t *testing.T, test func(tb testing.TB)) (said string) {
	t.Helper()
	f := &failing{TB: t}
	defer func() {
		if said = f.said; recover() == nil || said == "" {
			t.Error("it does not fail")
		}
	}()
	test(f)
	return said
}

func TestWhatWasEnqueuedIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		headgate.Handle(hg.Worker(mailQueue), func(context.Context, *headgate.Run[welcome]) error { return nil })
		headgatetest.RequireNoneEnqueued[welcome](t, hg)
		enqueue(t, hg, headgate.Job{Args: welcome{"ada"}, ID: "1", Headers: map[string]string{"a": "b"}})
		enqueue(t, hg, headgate.Job{Args: welcome{"ada"}, ID: "1"}) // The same.
		enqueue(t, hg, headgate.Job{Args: welcome{"bea"}})
		enqueue(t, hg, headgate.Job{Args: welcome{"bea"}})
		hg.Drain()
		if job := headgatetest.RequireEnqueued(t, hg, welcome{"ada"}); job.ID != "1" || job.Headers["a"] != "b" || job.Queue != "mail" {
			t.Errorf("%+v", job)
		}
		headgatetest.RequireNoneEnqueued[report](t, hg)
		if all := headgatetest.Enqueued[headgate.Raw](t, hg); len(all) != 3 || string(all[0].Args.(headgate.Raw).Payload) != `{"To":"ada"}` {
			t.Errorf("%+v", all)
		}
		for want, test := range map[string]func(tb testing.TB){
			"0 jobs of the kind welcome with {To:cid}": func(tb testing.TB) { headgatetest.RequireEnqueued(tb, hg, welcome{"cid"}) }, //nolint:thelper // It is one line.
			"2 jobs of the kind welcome with {To:bea}": func(tb testing.TB) { headgatetest.RequireEnqueued(tb, hg, welcome{"bea"}) }, //nolint:thelper // It is one line.
			"3 jobs were enqueued, want none":          func(tb testing.TB) { headgatetest.RequireNoneEnqueued[welcome](tb, hg) },    //nolint:thelper // It is one line.
		} {
			if said := fails(t, test); !strings.HasPrefix(said, want) || !strings.Contains(said, `acme mail welcome {"To":"ada"}`) {
				t.Errorf("it says %q, want %q", said, want)
			}
		}
	})
}

func TestOnlyABubbleAdvances(t *testing.T) {
	t.Parallel()
	said := fails(t, func(tb testing.TB) { headgatetest.New(tb).Advance(time.Second) }) //nolint:thelper // It is one line.
	if !strings.Contains(said, "synctest.Test") {
		t.Error(said)
	}
}
