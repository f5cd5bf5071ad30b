package producer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// perTenant is the burst of each tenant of the test below: the largest that one token a day may fill.
const perTenant = 366

// TestEveryIDEntersOnceWhateverIsLost is law L3: connections end before commands and before their replies, the
// producer resends by itself, and in the end each id is one job that was charged once.
func TestEveryIDEntersOnceWhateverIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server.Addr())
	prefix := redistest.Prefix(t)
	store, direct := openAs(t, proxy.Client(t), prefix), openAs(t, server.Client(t), prefix)
	const tenants, each = 40, 250
	limits := limited(admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: perTenant})
	// The burst of all jobs can only be had with 60 tokens a day: 0.01 tokens while the test runs.
	limits.Global = admission.Limit{Tokens: 60, Per: 24 * time.Hour, Burst: 20_000}
	config := producer.Config{Policy: limits, Timeout: 14 * time.Second}
	if _, err := newProducer(t, direct, config).Enqueue(t.Context(), job("warm")); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	before, after := 0, 0
	proxy.Decide(func(redistest.Command) redistest.Action {
		switch dice.IntN(5) {
		case 0:
			before++
			return redistest.Action{Cut: redistest.CutBefore}
		case 1:
			after++
			return redistest.Action{Cut: redistest.CutAfter}
		}
		return redistest.Action{}
	})
	p := newProducer(t, store, config)
	var duplicates atomic.Int64
	entered := func(verdict admission.Verdict, err error) {
		switch {
		case err != nil:
			t.Error(err)
		case verdict.Decision == admission.Duplicate:
			duplicates.Add(1)
		}
	}
	var running sync.WaitGroup
	for n := range tenants {
		tenant := id("tenant", n)
		running.Go(func() {
			if n%2 == 0 { // one by one, sharing calls with the other tenants
				for i := range each {
					j := job(tenant)
					j.ID = id("job", i)
					entered(p.Enqueue(t.Context(), j))
				}
				return
			}
			for from := 0; from < each; from += 50 {
				jobs := make([]admission.Job, 50)
				for i := range jobs {
					jobs[i] = job(tenant)
					jobs[i].ID = id("job", from+i)
				}
				results, err := p.EnqueueBatch(t.Context(), jobs)
				if err != nil {
					t.Error(err)
				}
				for _, r := range results {
					entered(r.Verdict, r.Err)
				}
			}
		})
	}
	running.Wait()
	proxy.Decide(nil)
	t.Logf("%d cuts before commands, %d before replies, %d verdicts of duplicates", before, after, duplicates.Load())
	if before < 20 || after < 20 || duplicates.Load() == 0 {
		t.Errorf("too little was lost for a test")
	}
	if c := census(t, direct); c.Accepted != tenants*each+1 || !c.Conserved() {
		t.Errorf("got %+v, want %d accepted", c, tenants*each+1)
	}
	assertLevels(t, newProducer(t, direct, config), tenants, each)
}

// assertLevels reads levels off the refusals of jobs that cost more than is left.
func assertLevels(t *testing.T, p *producer.Producer, tenants, charged int) {
	t.Helper()
	probe := func(scope admission.Scope, tenant string, want admission.Tokens) {
		j := job(tenant)
		j.Cost = want + 1
		verdict, err := p.Enqueue(t.Context(), j)
		if !errors.Is(err, admission.ErrLimited) || verdict.Scope != scope || verdict.TokensLeft != want {
			t.Errorf("scope %s holds %d tokens (%v), want %d exactly", verdict.Scope, verdict.TokensLeft, err, want)
		}
	}
	for n := range tenants {
		probe(admission.Scope(id("tenant", n)), id("tenant", n), admission.Tokens(perTenant-charged))
	}
}

// TestAnOutageIsAnErrorWithinTheTimeOut is law L13. Time is that of a bubble: it stands still while the machine works, so
// what passes is what the producer itself waits.
func TestAnOutageIsAnErrorWithinTheTimeOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	prefix := redistest.Prefix(t)
	first, err := newProducer(t, openAs(t, server.Client(t), prefix), producer.Config{}).Enqueue(t.Context(), job("acme"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { assertOutage(t, server, prefix) })
	server.Restart(t)
	again := job("acme")
	again.ID = first.ID
	recovered := newProducer(t, openAs(t, server.Client(t), prefix), producer.Config{Timeout: 10 * time.Second})
	if _, err := recovered.Enqueue(t.Context(), again); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

// assertOutage kills a Redis under a producer that has talked to it.
func assertOutage(t *testing.T, server *redistest.Server, prefix string) {
	t.Helper()
	const timeout = time.Second
	p := newProducer(t, openAs(t, server.Client(t), prefix), producer.Config{Timeout: timeout})
	if _, err := p.Enqueue(t.Context(), job("acme")); err != nil {
		t.Fatal(err)
	}
	server.Kill(t)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			began := time.Now()
			verdict, err := p.Enqueue(t.Context(), job("acme"))
			if took := time.Since(began); took > timeout {
				t.Errorf("an answer took %s", took)
			}
			// A connection that ends as a call goes out leaves that call in doubt: one of the two, never both.
			if errors.Is(err, admission.ErrUnavailable) == errors.Is(err, admission.ErrOutcomeUnknown) || verdict.ID == "" {
				t.Errorf("got %+v, %v", verdict, err)
			}
		})
	}
	running.Wait()
	jobs := make([]admission.Job, 300)
	for i := range jobs {
		jobs[i] = job("acme")
	}
	began := time.Now()
	results, err := p.EnqueueBatch(t.Context(), jobs)
	if err == nil || time.Since(began) > timeout {
		t.Errorf("batch: got %v after %s", err, time.Since(began))
	}
	for i, r := range results {
		sent := i < store.MaxBatchJobs
		if r.Err == nil || r.Verdict.ID == "" || !sent && !errors.Is(r.Err, admission.ErrUnavailable) {
			t.Fatalf("batch: jobs[%d] got %+v, %v", i, r.Verdict, r.Err)
		}
	}
}

func TestARedisThatHangsLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client, prefix := server.Client(t), redistest.Prefix(t)
	store := openAs(t, client, prefix)
	const timeout = 500 * time.Millisecond
	p := newProducer(t, store, producer.Config{Timeout: timeout, Uncounted: true}) // The hook below would see counts when the test has ended.
	if _, err := p.Enqueue(t.Context(), job("acme")); err != nil {
		t.Fatal(err)
	}
	server.Pause(t)
	client.AddHook(endsWithin{t, timeout})
	j := job("acme")
	j.ID = "doubtful"
	verdict, err := p.Enqueue(t.Context(), j)
	if !errors.Is(err, admission.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || verdict.ID != j.ID {
		t.Errorf("got %+v, %v", verdict, err)
	}
	server.Resume(t)
	after := openAs(t, server.Client(t), prefix)
	verdict, err = newProducer(t, after, producer.Config{}).Enqueue(t.Context(), j)
	if err != nil || verdict.Decision != admission.Duplicate {
		t.Errorf("the same id after the pause: got %+v, %v; want duplicate", verdict, err)
	}
	if c := census(t, after); c.Accepted != 2 {
		t.Errorf("accepted %d, want 2", c.Accepted)
	}
}

func TestNothingInDoubtIsResentAfterTheDedupWindow(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s := open(t, proxy.Client(t))
	fixed := policy.Unlimited()
	p := newProducer(t, s, producer.Config{Policy: &fixed, Timeout: 5 * time.Second, DedupWindow: 6 * time.Second})
	if _, err := p.Enqueue(t.Context(), job("acme")); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sent []time.Time
	proxy.Decide(func(redistest.Command) redistest.Action {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, time.Now())
		return redistest.Action{Cut: redistest.CutAfter}
	})
	j := job("acme")
	j.ID = "doubtful"
	_, err := p.Enqueue(t.Context(), j)
	if !errors.Is(err, admission.ErrOutcomeUnknown) {
		t.Fatalf("got %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	// It would go on for all of its time-out if it did not look at the window. When a command arrives is the machine's affair.
	if last := sent[len(sent)-1].Sub(sent[0]); len(sent) < 2 || last > 4*time.Second {
		t.Errorf("sent %d times over %s; a resend after a second could arrive after the window", len(sent), last)
	}
	if store.InDoubt(err) && errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("%v says that nothing was sent", err)
	}
}
