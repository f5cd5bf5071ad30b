package producer_test

import (
	"context"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
)

// TestEachDecisionIsCountedOnce by a producer that runs, at every level of the job's way, up to the last before its end;
// duplicates are none, and one that does not run counts nothing.
func TestEachDecisionIsCountedOnce(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	own := policy.Default()
	own.Version, own.Tenants = 1, map[string]policy.Tenant{"acme": {Limit: &headgate.Limit{Tokens: 1, Per: policy.MaxDedupWindow, Burst: 5}}}
	put(t, store, own)
	silent := newProducer(t, store, producer.Config{})
	if _, err := silent.Enqueue(t.Context(), job("bolt")); err != nil {
		t.Fatal(err)
	}
	p := newProducer(t, store, producer.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	// Nothing is counted before Run has begun: a job of another scope says when.
	for !counted(t, store, "probe") {
		_, _ = p.Enqueue(t.Context(), job("probe")) // Refused or not, it is counted.
	}
	for n := range 8 {
		j := job("acme")
		j.ID = id("j", n)
		for range 2 {
			_, _ = p.Enqueue(t.Context(), j) // Of the first five the second is a duplicate; of the others both are refused.
		}
	}
	cancel()
	running.Wait()
	for _, scope := range []headgate.Scope{"acme", "acme:mail", "acme:mail:medium"} {
		var allowed, refused int64
		minutes, err := store.Minutes(t.Context(), scope)
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
	if counted(t, store, "bolt") {
		t.Error("a producer that does not run has counted")
	}
}

func counted(t *testing.T, store *lua.Store, scope headgate.Scope) bool {
	t.Helper()
	minutes, err := store.Minutes(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	return len(minutes) > 0
}
