package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// TestLookGuessesTheWait: a job that waits for its turn is told for how long, one behind a gate is not.
func TestLookGuessesTheWait(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx, pool := t.Context(), yardPool.ID()
	_, err := y.store.Register(ctx, "w", yardPool, 1, time.Hour)
	check(t, err)
	y.admit(mail("acme", "a"), mail("acme", "b"), mail("acme", "c"), mail("acme", "d"), mail("acme", "e"))
	if g := y.look("e"); g.EstimatedWait >= 0 {
		t.Errorf("before anything was dispatched from the backlog: %s", g.EstimatedWait)
	}
	const pace = 20 * time.Millisecond
	for range 2 {
		leases, err := y.store.Read(ctx, "w", pool, 1, time.Second, false)
		check(t, err)
		<-time.After(pace)
		_, _, err = y.store.Finish(ctx, pool, "w", []store.Finish{leases[0].Finish(store.Complete)})
		check(t, err)
	}
	near, far := y.look("d").EstimatedWait, y.look("e").EstimatedWait
	if near < pace/2 || far <= near {
		t.Errorf("the next waits %s, the one behind it %s, and one starts each %s or more", near, far, pace)
	}
	_, err = y.store.Reclaim(ctx, "w")
	check(t, err)
	if g := y.look("e"); g.EstimatedWait >= 0 || kinds(g) != "workers turn" {
		t.Errorf("with nobody to run it: %s, %s", g.EstimatedWait, kinds(g))
	}
	_, err = y.store.Register(ctx, "w", yardPool, 1, time.Hour)
	check(t, err)
	_, err = y.store.Pause(ctx, store.TenantGate("acme"), 0, store.Intervention{})
	check(t, err)
	if g := y.look("e"); g.EstimatedWait >= 0 {
		t.Errorf("while its tenant is paused: %s", g.EstimatedWait)
	}
}
