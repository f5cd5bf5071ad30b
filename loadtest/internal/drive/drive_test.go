package drive_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/loadtest/internal/drive"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
	"github.com/headgate/headgate/loadtest/internal/system"
)

func TestMain(m *testing.M) {
	logging.Disable() // A restart is tested, which is many failed dials.
	redistest.Main(m)
}

func newPlan(t *testing.T, scenario string, change func(*load.Spec)) *load.Plan {
	t.Helper()
	spec := load.DefaultSpec()
	spec.Rate, spec.Duration, spec.Tenants = 300, time.Second, 10
	if change != nil {
		change(&spec)
	}
	plan, err := load.New(scenario, spec)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// stalled is Headgate whose answers all wait until every job was sent: to a generator that waits for answers it would
// never answer.
type stalled struct {
	drive.System

	book    func() *record.Book
	jobs    int64
	once    sync.Once
	release chan struct{}
}

func (s *stalled) Enqueue(ctx context.Context, number int) record.Answer {
	if s.book().Progress().Sent == s.jobs {
		s.once.Do(func() { close(s.release) })
	}
	select {
	case <-s.release:
	case <-time.After(10 * time.Second):
		s.once.Do(func() { close(s.release) }) // Too few are sent: the answers below are too early.
	}
	return s.System.Enqueue(ctx, number)
}

func TestArrivalsDoNotWaitForAnswers(t *testing.T) {
	t.Parallel()
	redistest.Shared(t) // Fails where there is no server.
	// They all enter at the same time, so the limits are wide.
	plan := newPlan(t, "steady", func(s *load.Spec) { s.TenantLimit, s.GlobalLimit = 1_000_000, 1_000_000 })
	result, err := drive.Run(t.Context(), plan, func(ctx context.Context, config drive.SystemConfig) (drive.System, error) {
		inner, err := system.OpenHeadgate(ctx, config)
		return &stalled{System: inner, book: config.Book, jobs: int64(len(plan.Arrivals)), release: make(chan struct{})}, err
	}, drive.Config{Notes: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	last := plan.Arrivals[len(plan.Arrivals)-1].At
	for i := range result.Book.Entries() {
		e, a := &result.Book.Entries()[i], &plan.Arrivals[i]
		if e.Sent < a.At {
			t.Fatalf("job %d was sent at %s, before its time %s", i, e.Sent, a.At)
		}
		if e.Answer.Outcome != record.Admitted || e.Answered < last {
			t.Fatalf("job %d of %s was answered at %s with %+v: the stall lasted until %s", i, a.At, e.Answered, e.Answer, last)
		}
	}
	if first := result.Book.Entries()[0].Answered; first < result.Book.Entries()[len(plan.Arrivals)-1].Sent {
		t.Errorf("the first answer came at %s, before the last job was sent", first)
	}
	if p := result.Book.Progress(); p.Sent != 300 || p.Ended != 300 || result.Account.Held != 0 || !result.Account.Census.Conserved() {
		t.Errorf("progress %+v, account %+v", p, result.Account)
	}
}

func TestARestartLosesNothing(t *testing.T) {
	t.Parallel()
	redistest.Shared(t)
	// More arrives than can be served, so that many jobs are in when Redis is killed.
	plan := newPlan(t, "redis-restart", func(s *load.Spec) {
		s.Duration, s.Slots, s.Work = 1500*time.Millisecond, 10, 50*time.Millisecond
	})
	result, err := drive.Run(t.Context(), plan, system.OpenHeadgate, drive.Config{Notes: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	doubt := 0
	for i := range result.Book.Entries() {
		e := &result.Book.Entries()[i]
		if e.Answer.Outcome == record.Admitted && !e.Ended() {
			t.Errorf("job %d was admitted and never ended", i)
		}
		if e.Answer.Outcome == record.Unavailable || e.Answer.Outcome == record.Unknown {
			doubt++
		}
	}
	// While Redis is away for 300 ms, 90 jobs ask for it; they may wait for the two seconds that an enqueue may take.
	slowest := time.Duration(0)
	for i := range result.Book.Entries() {
		slowest = max(slowest, result.Book.Entries()[i].Answered-plan.Arrivals[i].At)
	}
	if doubt == 0 && slowest < 100*time.Millisecond {
		t.Errorf("nobody noticed that Redis was away: the slowest answer took %s", slowest)
	}
	if c, p := result.Account.Census, result.Book.Progress(); !c.Conserved() || c.Live != 0 || c.Accepted < p.Admitted {
		t.Errorf("census %+v of %d admitted jobs", *c, p.Admitted)
	}
}

func TestADeadDownstreamIsFencedOffAndComesBack(t *testing.T) {
	t.Parallel()
	redistest.Shared(t)
	plan := newPlan(t, "dead-downstream", func(s *load.Spec) { s.Duration = 5 * time.Second })
	result, err := drive.Run(t.Context(), plan, system.OpenHeadgate, drive.Config{Notes: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, change := range result.Breakers {
		if change.Downstream == plan.Downstreams[0] {
			states = append(states, change.State)
		}
	}
	if len(states) < 3 || states[0] != "closed" || states[1] != "open" || states[len(states)-1] != "closed" {
		t.Errorf("the breaker of the dead downstream was %v", states)
	}
	dead := int(result.Account.Census.Dead)
	if p := result.Book.Progress(); p.Ended != p.Admitted || result.Account.Held != 0 || dead > 20 {
		t.Errorf("progress %+v, %d dead letters, account %+v", p, dead, result.Account)
	}
}

// TestAnOverloadIsShed: ten times of what ten slots can serve arrives. What is refused is refused by the policy, and without it none is; the most
// urgent class is let in by both, and what is late runs nowhere.
func TestAnOverloadIsShed(t *testing.T) {
	t.Parallel()
	redistest.Shared(t)
	plan := newPlan(t, "overload", func(s *load.Spec) { s.Duration, s.Slots, s.Overload, s.Queues = 4*time.Second, 10, 10, 1 })
	counts := map[string]map[record.Outcome]int{}
	for name, open := range map[string]drive.Open{"shed": system.OpenHeadgate, "unshed": system.OpenUnshed} {
		result, err := drive.Run(t.Context(), plan, open, drive.Config{Notes: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		counts[name] = map[record.Outcome]int{}
		for i := range result.Book.Entries() {
			e, a := &result.Book.Entries()[i], &plan.Arrivals[i]
			counts[name][e.Answer.Outcome]++
			if e.Answer.Reason == admission.ReasonShed && a.Class == 0 {
				t.Errorf("%s: job %d of the most urgent class is shed", name, i)
			}
			if wait := e.Started() - e.Answered; e.Runs() > 0 && wait > plan.Overload.MaxWait+time.Second {
				t.Errorf("%s: job %d ran after a wait of %s", name, i, wait)
			}
		}
		if c := result.Account.Census; !c.Conserved() || result.Account.Held != 0 {
			t.Errorf("%s: census %+v", name, *c)
		}
	}
	// How many are refused goes by how soon it is seen, which a busy machine decides: the load test's figures tell it.
	if n := len(plan.Arrivals); counts["shed"][record.Refused] == 0 || counts["unshed"][record.Refused] > 0 {
		t.Errorf("of %d jobs: %v", n, counts)
	}
}

func TestAnInterruptedRunIsBroughtToItsBooks(t *testing.T) {
	t.Parallel()
	redistest.Shared(t)
	plan := newPlan(t, "slow-consumer", func(s *load.Spec) { s.Duration = time.Minute })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result, err := drive.Run(ctx, plan, system.OpenHeadgate, drive.Config{Notes: io.Discard, Progress: func(p record.Progress) {
		if p.Answered >= 50 {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := result.Book.Progress()
	if !result.Interrupted || p.Sent < 50 || p.Sent == int64(len(plan.Arrivals)) || p.Answered != p.Sent {
		t.Errorf("interrupted %t, progress %+v", result.Interrupted, p)
	}
	if c := result.Account.Census; !c.Conserved() || c.Accepted != p.Admitted {
		t.Errorf("census %+v, progress %+v", *c, p)
	}
}
