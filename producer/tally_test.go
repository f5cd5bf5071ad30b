package producer_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/hyperloglog"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// TestEachDecisionIsCountedOnce at every level of the job's way, up to the last before the end; duplicates are none: by a producer that
// runs, by one that does not, which stores by itself, and by one that is told to before that.
func TestEachDecisionIsCountedOnce(t *testing.T) {
	t.Parallel()
	for name, counts := range map[string]func(*testing.T, store.Deployment, *producer.Producer, func()){
		"with Run": func(t *testing.T, s store.Deployment, p *producer.Producer, decide func()) { //nolint:thelper // It is a test.
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				if err := p.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			decide()
			await(t, "the first counts are stored", func() bool { return counted(t, s, "acme") })
			cancel()
			running.Wait()
		},
		"by itself": func(t *testing.T, s store.Deployment, _ *producer.Producer, decide func()) { //nolint:thelper // It is a test.
			decide()
			await(t, "the counts are stored", func() bool { return counted(t, s, "acme") })
		},
		"by Flush": func(t *testing.T, _ store.Deployment, p *producer.Producer, decide func()) { //nolint:thelper // It is a test.
			decide()
			for range 2 {
				if err := p.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := openParts(t)
			own := policy.Default()
			own.Version, own.Tenants = 1, map[string]policy.Tenant{"acme": {Limit: &admission.Limit{Tokens: 1, Per: policy.MaxDedupWindow, Burst: 5}}}
			put(t, s, own)
			p := newProducer(t, s, producer.Config{})
			jobs := make([]admission.Job, 0, 16)
			for n := range 8 {
				j := job("acme")
				j.ID = id("j", n)
				jobs = append(jobs, j, j) // Of the first five the second is a duplicate; of the others both are refused.
			}
			counts(t, s, p, func() { _, _ = p.EnqueueBatch(t.Context(), jobs) })
			for _, scope := range []admission.Scope{"acme", "acme:mail", "acme:mail:medium"} {
				var allowed, refused int64
				minutes, err := s.Minutes(t.Context(), scope)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range minutes {
					allowed, refused = allowed+m.Allowed, refused+m.Refused
				}
				if allowed != 5 || refused != 6 {
					t.Errorf("%s has %d allowed and %d refused, want 5 and 6", scope, allowed, refused)
				}
			}
		})
	}
}

// heardCounts is a store that knows what it was told to count, call by call.
type heardCounts struct {
	store.Deployment

	mu    sync.Mutex
	calls [][]store.ScopeCount
}

func (h *heardCounts) Count(ctx context.Context, counts []store.ScopeCount) (int, error) {
	h.mu.Lock()
	h.calls = append(h.calls, slices.Clone(counts))
	h.mu.Unlock()
	return h.Deployment.Count(ctx, counts)
}

// sums is what was counted of each scope in all calls, and of how many scopes in the call with the most.
func (h *heardCounts) sums() (allowed map[admission.Scope]int64, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	allowed = map[admission.Scope]int64{}
	for _, call := range h.calls {
		most = max(most, len(call))
		for _, c := range call {
			allowed[c.Scope] += c.Allowed
		}
	}
	return allowed, most
}

// TestCountsOfManyScopesAreStoredInParts: a second those of as many as are kept, the next one those that are left, without another decision; all at once by
// Flush and at the end. None is lost, and none is counted twice.
func TestCountsOfManyScopesAreStoredInParts(t *testing.T) {
	t.Parallel()
	const tenants, scopes = 600, 1 + 3*600
	for name, end := range map[string]func(h *heardCounts, p *producer.Producer){
		"by itself": func(h *heardCounts, _ *producer.Producer) {
			await(t, "all are stored", func() bool { sums, _ := h.sums(); return len(sums) == scopes })
			if _, most := h.sums(); most > 1+store.TopScopes {
				t.Errorf("%d scopes are counted in one call", most)
			}
		},
		"by Flush": func(_ *heardCounts, p *producer.Producer) {
			if err := p.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"at the end": func(_ *heardCounts, p *producer.Producer) { p.FlushOrLog() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &heardCounts{Deployment: open(t, redistest.Shared(t).Client(t))}
			p := newProducer(t, h, producer.Config{})
			var jobs []admission.Job
			for n := range 2 * tenants {
				jobs = append(jobs, job(id("tenant", n%tenants)))
			}
			if _, err := p.EnqueueBatch(t.Context(), jobs); err != nil {
				t.Error(err)
			}
			end(h, p)
			sums, _ := h.sums()
			for scope, n := range sums {
				if scope != admission.Global && n != 2 {
					t.Errorf("%s has %d, want 2", scope, n)
				}
			}
			if len(sums) != scopes || sums[admission.Global] != 2*tenants {
				t.Errorf("%d scopes are counted, %d in all; want %d and %d", len(sums), sums[admission.Global], scopes, 2*tenants)
			}
		})
	}
}

// TestTheEndOfRunStoresCountsOfAllScopes, not of those with the most alone.
func TestTheEndOfRunStoresCountsOfAllScopes(t *testing.T) {
	t.Parallel()
	h := &heardCounts{Deployment: open(t, redistest.Shared(t).Client(t))}
	p := newProducer(t, h, producer.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	enqueue := func(tenants int) {
		var jobs []admission.Job
		for n := range tenants {
			jobs = append(jobs, job(id("tenant", n)))
		}
		if _, err := p.EnqueueBatch(t.Context(), jobs); err != nil {
			t.Error(err)
		}
	}
	enqueue(1)
	await(t, "it runs and stores", func() bool { sums, _ := h.sums(); return len(sums) > 0 })
	enqueue(600)
	cancel()
	running.Wait()
	if sums, _ := h.sums(); len(sums) != 1+3*600 || sums[admission.Global] != 601 {
		t.Errorf("%d scopes are counted, %d in all", len(sums), sums[admission.Global])
	}
}

// TestAProducerThatIsNotToCountDoesNot: nothing is left to store.
func TestAProducerThatIsNotToCountDoesNot(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	p := newProducer(t, store, producer.Config{Uncounted: true})
	if _, err := p.Enqueue(t.Context(), job("bolt")); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); err != nil || counted(t, store, "bolt") {
		t.Errorf("it has counted; %v", err)
	}
}

func counted(t *testing.T, store store.Deployment, scope admission.Scope) bool {
	t.Helper()
	minutes, err := store.Minutes(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	return len(minutes) > 0
}

// TestDifferentNamesAreCounted: tenants and jobs of a queue in an hour, over several partitions and producers, each once, where the policy has
// rates watched; else none. It is an estimate, exactly that of a sketch of the same names: of 45 ids two may count as one.
func TestDifferentNamesAreCounted(t *testing.T) {
	t.Parallel()
	for _, rules := range []*policy.AnomalyRules{nil, {}} {
		var tenants, names hyperloglog.Sketch
		s, _ := openParts(t)
		own := policy.Unlimited()
		own.Version, own.Anomalies = 1, rules
		put(t, s, own)
		for range 2 {
			p := newProducer(t, s, producer.Config{})
			var jobs []admission.Job
			for n := range 30 {
				j := job(id("tenant", n%3))
				if n%2 == 0 {
					j.ID = id("j", n)
				}
				jobs = append(jobs, j) // The 15 without an id are given one, by each producer another.
			}
			results, err := p.EnqueueBatch(t.Context(), jobs)
			if err != nil {
				t.Fatal(err)
			}
			for n := range results {
				tenants.Add(jobs[n].Tenant)
				names.Add(jobs[n].Tenant + ":" + results[n].Verdict.ID)
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want := store.DistinctNames{}
		if rules != nil {
			want = store.DistinctNames{Tenants: tenants.Count(), Jobs: names.Count()}
		}
		distincts, err := s.Distincts(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		of := distincts["mail"]
		if got := (store.DistinctNames{Tenants: max(of.ThisHour.Tenants, of.LastHour.Tenants), Jobs: of.ThisHour.Jobs + of.LastHour.Jobs}); got != want {
			t.Errorf("%+v: %+v, want %+v", rules, of, want)
		}
	}
}

// TestWhatIsCountedWithoutItsNamesIsNotCountedAgain: the names are told again, and no more.
func TestWhatIsCountedWithoutItsNamesIsNotCountedAgain(t *testing.T) {
	t.Parallel()
	const jobs, refused = 5, 3
	client, left := redistest.Shared(t).Client(t), &atomic.Int64{}
	redistest.OnScript(client, func(script string, run func() error) error {
		if script == "distinct" && left.Add(-1) >= 0 {
			return redistest.ErrNoNames
		}
		return run()
	})
	s := open(t, client)
	left.Store(refused)
	own := policy.Unlimited()
	own.Version, own.Anomalies = 1, &policy.AnomalyRules{}
	put(t, s, own)
	p := newProducer(t, s, producer.Config{})
	for range jobs {
		if _, err := p.Enqueue(t.Context(), job("acme")); err != nil {
			t.Fatal(err)
		}
	}
	for n := range refused + 2 {
		err := p.Flush(t.Context())
		if n == 0 && err == nil {
			t.Error("nobody hears that names were refused")
		}
	}
	minutes, err := s.Minutes(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	allowed := int64(0)
	for _, m := range minutes {
		allowed += m.Allowed
	}
	distincts, err := s.Distincts(t.Context(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	of := distincts["mail"]
	if allowed != jobs || of.ThisHour.Jobs+of.LastHour.Jobs != jobs {
		t.Errorf("%d entered, %d are counted, and of these names: %+v", jobs, allowed, of)
	}
}
