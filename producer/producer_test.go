package producer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

func TestEnqueueGivesAnEmptyIDAUUIDv7(t *testing.T) {
	t.Parallel()
	p := newProducer(t, open(t, redistest.Shared(t).Client(t)), producer.Config{})
	verdict, err := p.Enqueue(t.Context(), job("acme"))
	if err != nil || verdict.Decision != admission.Admitted {
		t.Fatalf("got %+v, %v", verdict, err)
	}
	parsed, err := uuid.Parse(verdict.ID)
	if err != nil || parsed.Version() != 7 {
		t.Fatalf("id %q is no UUIDv7: %v", verdict.ID, err)
	}
	if verdict.Position != 1 || verdict.EstimatedWait >= 0 {
		t.Fatalf("first job of a queue nobody serves: got position %d, wait %s", verdict.Position, verdict.EstimatedWait)
	}
}

func TestTheSameIDIsOneJob(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, store, producer.Config{})
	j := job("acme")
	j.ID = "order-1"
	for i, want := range []admission.Decision{admission.Admitted, admission.Duplicate, admission.Duplicate} {
		verdict, err := p.Enqueue(t.Context(), j)
		if err != nil || verdict.Decision != want {
			t.Fatalf("call %d: got %+v, %v; want %s", i, verdict, err, want)
		}
	}
	if c := census(t, store); c.Accepted != 1 {
		t.Fatalf("accepted %d jobs, want 1", c.Accepted)
	}
}

func TestARefusalSaysWhichKindItIs(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, store, producer.Config{Policy: limited(admission.Limit{Tokens: 1, Per: time.Hour, Burst: 2})})
	for range 2 {
		if _, err := p.Enqueue(t.Context(), job("acme")); err != nil {
			t.Fatal(err)
		}
	}
	verdict, err := p.Enqueue(t.Context(), job("acme"))
	if !errors.Is(err, admission.ErrRefused) || !errors.Is(err, admission.ErrLimited) || errors.Is(err, admission.ErrTooCostly) {
		t.Fatalf("got %v", err)
	}
	refused, ok := errors.AsType[*admission.RefusedError](err)
	if !ok || refused.Verdict != verdict || verdict.Scope != "acme" || verdict.TokensLeft != 0 || verdict.ID == "" {
		t.Fatalf("got %+v", verdict)
	}
	if verdict.RetryAfter <= 59*time.Minute || verdict.RetryAfter > time.Hour || verdict.Permanent() {
		t.Fatalf("got retry after %s", verdict.RetryAfter)
	}
	costly := job("acme")
	costly.Cost = 3
	verdict, err = p.Enqueue(t.Context(), costly)
	if !errors.Is(err, admission.ErrTooCostly) || errors.Is(err, admission.ErrLimited) || !verdict.Permanent() || verdict.Burst != 2 {
		t.Fatalf("got %+v, %v", verdict, err)
	}
	late := job("other")
	late.Deadline = time.Now().Add(-time.Minute)
	verdict, err = p.Enqueue(t.Context(), late)
	if !errors.Is(err, admission.ErrDeadlinePassed) || !verdict.Permanent() {
		t.Fatalf("got %+v, %v", verdict, err)
	}
	if c := census(t, store); c.Accepted != 2 {
		t.Fatalf("accepted %d jobs, want 2", c.Accepted)
	}
}

func TestTheStoredPolicyIsFollowed(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, store, producer.Config{})
	if _, err := p.Enqueue(t.Context(), job("acme")); err != nil {
		t.Fatal(err)
	}
	urgent := job("acme")
	urgent.Priority = admission.Critical
	if _, err := p.Enqueue(t.Context(), urgent); !errors.Is(err, admission.ErrInvalid) {
		t.Fatalf("class that is not there yet: got %v", err)
	}
	changed := *limited(admission.Limit{Tokens: 1, Per: time.Hour, Burst: 1})
	changed.Version = 1
	changed.Queues = map[string]policy.Queue{"urgent": {Classes: policy.PresetCritical()}}
	put(t, store, changed)
	if _, err := p.Enqueue(t.Context(), job("beta")); err != nil {
		t.Fatalf("first call under the new policy: %v", err)
	}
	if _, err := p.Enqueue(t.Context(), job("beta")); !errors.Is(err, admission.ErrLimited) {
		t.Fatalf("second call under the new policy: got %v", err)
	}
	changed.Version = 2
	changed.Queues = map[string]policy.Queue{"urgent": {Classes: policy.PresetCritical()}, "mail": {Classes: append(
		admission.DefaultClasses(), admission.Class{Name: admission.Critical, Weight: 9})}}
	put(t, store, changed)
	urgent.Tenant = "gamma"
	if _, err := p.Enqueue(t.Context(), urgent); err != nil {
		t.Fatalf("class that is new: %v", err)
	}
}

func TestANumberStandsForAClass(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	fixed := policy.Unlimited()
	fixed.PriorityLimits = map[admission.Scope]admission.Limit{"acme:mail:low": {Tokens: 1, Per: time.Hour, Burst: 1}}
	p := newProducer(t, store, producer.Config{Policy: &fixed})
	for _, number := range []admission.Priority{"10", "5", "0"} {
		j := job("acme")
		j.Priority = number
		if _, err := p.Enqueue(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	j := job("acme")
	j.Priority = "2"
	verdict, err := p.Enqueue(t.Context(), j)
	if !errors.Is(err, admission.ErrLimited) || verdict.Scope != "acme:mail:low" {
		t.Errorf("got %+v, %v", verdict, err)
	}
}

func TestFixedLimitsDoNotMeetAnotherVersion(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, s, producer.Config{Policy: unlimited()})
	if _, err := p.Enqueue(t.Context(), job("acme")); err != nil {
		t.Fatal(err)
	}
	stored := policy.Default()
	stored.Version = 1
	put(t, s, stored)
	_, err := p.Enqueue(t.Context(), job("acme"))
	if !errors.Is(err, store.ErrStale) || errors.Is(err, admission.ErrOutcomeUnknown) {
		t.Fatalf("got %v", err)
	}
}

func TestEnqueueWait(t *testing.T) {
	t.Parallel()
	config := producer.Config{Policy: limited(admission.Limit{Tokens: 1, Per: 100 * time.Millisecond, Burst: 1})}
	t.Run("waits out the retry-after", func(t *testing.T) {
		t.Parallel()
		p := newProducer(t, open(t, redistest.Shared(t).Client(t)), config)
		began := time.Now()
		for range 4 {
			if _, err := p.EnqueueWait(t.Context(), job("acme")); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 290*time.Millisecond {
			t.Fatalf("four jobs at one per 100 ms and a burst of one took %s", took)
		}
	})
	t.Run("returns the refusal when ctx ends", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		synctest.Test(t, func(t *testing.T) { // The wait passes at once, and the machine may take its time.
			slow := producer.Config{Policy: limited(admission.Limit{Tokens: 1, Per: time.Hour, Burst: 1})}
			p := newProducer(t, open(t, server.Client(t)), slow)
			if _, err := p.EnqueueWait(t.Context(), job("acme")); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			verdict, err := p.EnqueueWait(ctx, job("acme"))
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, admission.ErrLimited) || errors.Is(err, admission.ErrOutcomeUnknown) {
				t.Fatalf("got %v", err)
			}
			if verdict.Scope != "acme" || verdict.ID == "" {
				t.Fatalf("got %+v", verdict)
			}
		})
	})
	t.Run("returns a permanent refusal at once", func(t *testing.T) {
		t.Parallel()
		p := newProducer(t, open(t, redistest.Shared(t).Client(t)), config)
		j := job("acme")
		j.Cost = 2
		if _, err := p.EnqueueWait(t.Context(), j); !errors.Is(err, admission.ErrTooCostly) {
			t.Fatalf("got %v", err)
		}
		j.Cost = 0
		if _, err := p.EnqueueWait(t.Context(), j); !errors.Is(err, admission.ErrInvalid) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestEnqueueBatch(t *testing.T) {
	t.Parallel()
	t.Run("gives each job its own verdict, in order", func(t *testing.T) {
		t.Parallel()
		store := open(t, redistest.Shared(t).Client(t))
		p := newProducer(t, store, producer.Config{Policy: limited(admission.Limit{Tokens: 1, Per: time.Hour, Burst: 3})})
		jobs := []admission.Job{job("a"), job(""), job("a"), job("a"), job("a"), job("b"), job("b"), job("c"), job("a")}
		jobs[0].ID = "same"
		jobs[2].Cost = 2 // a: 0 of 3 left
		jobs[5].Cost = 9 // above the burst
		jobs[7].Priority = "nonsense"
		jobs[8].ID = "same"
		results, err := p.EnqueueBatch(t.Context(), jobs)
		if err == nil || !errors.Is(err, admission.ErrInvalid) {
			t.Fatalf("got %v", err)
		}
		want := []error{nil, admission.ErrInvalid, nil, admission.ErrLimited, admission.ErrLimited, admission.ErrTooCostly, nil, admission.ErrInvalid, nil}
		for i, r := range results {
			if !errors.Is(r.Err, want[i]) {
				t.Errorf("jobs[%d]: got %v, want %v", i, r.Err, want[i])
			}
			if r.Err == nil && r.Verdict.ID == "" || r.Err == nil != (want[i] == nil) {
				t.Errorf("jobs[%d]: got %+v, %v", i, r.Verdict, r.Err)
			}
		}
		if results[8].Verdict.Decision != admission.Duplicate || results[0].Verdict.Decision != admission.Admitted {
			t.Errorf("got %s and %s for the same id", results[0].Verdict.Decision, results[8].Verdict.Decision)
		}
		if c := census(t, store); c.Accepted != 3 {
			t.Errorf("accepted %d, want 3", c.Accepted)
		}
	})
	t.Run("splits by number and by bytes", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, redistest.Shared(t))
		store := open(t, g.proxy.Client(t))
		p := newProducer(t, store, producer.Config{Policy: unlimited()})
		before := g.count()
		jobs := make([]admission.Job, 130) // 64, 64, 2
		for i := range jobs {
			jobs[i] = job("a")
		}
		large := job("a")
		large.Payload = make([]byte, 300<<10) // does not fit beside the 2, alone
		half := job("a")
		half.Payload = make([]byte, 200<<10) // alone, as the next does not fit beside it
		jobs = slices.Concat(jobs, []admission.Job{large, half, half, job("a")})
		results, err := p.EnqueueBatch(t.Context(), jobs)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, r := range results {
			seen[r.Verdict.ID] = r.Verdict.Decision == admission.Admitted
		}
		calls := g.count() - before
		if len(seen) != len(jobs) || calls < 6 || calls > 7 { // One more where the script was not known yet.
			t.Fatalf("%d ids in %d calls", len(seen), calls)
		}
		if c := census(t, store); c.Accepted != int64(len(jobs)) {
			t.Fatalf("accepted %d of %d", c.Accepted, len(jobs))
		}
	})
	t.Run("takes an empty batch for done", func(t *testing.T) {
		t.Parallel()
		p := newProducer(t, open(t, redistest.Shared(t).Client(t)), producer.Config{})
		if results, err := p.EnqueueBatch(t.Context(), nil); err != nil || len(results) != 0 {
			t.Fatalf("got %v, %v", results, err)
		}
	})
}
