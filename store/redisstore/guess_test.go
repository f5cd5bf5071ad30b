package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
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

// TestAnAdmissionGuessesNoWaitBehindAGate: who enters is told how long he waits, but not where something holds him back.
func TestAnAdmissionGuessesNoWaitBehindAGate(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx, pool := t.Context(), yardPool.ID()
	enter := func(id, tenant, downstream string) time.Duration {
		t.Helper()
		j := mail(tenant, id)
		j.Downstream = downstream
		verdicts, err := y.store.Admit(ctx, 0, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
		check(t, err)
		return verdicts[0].EstimatedWait
	}
	_, err := y.store.Register(ctx, "w", yardPool, 1, time.Hour)
	check(t, err)
	_, err = y.store.ForceBreaker(ctx, "smtp", breaker.Open, time.Hour, store.Intervention{})
	check(t, err)
	for _, id := range []string{"a", "b", "c", "d"} {
		enter(id, "acme", "")
	}
	enter("call", "acme", "smtp")
	enter("lone call", "bolt", "smtp")
	next := func() {
		leases, err := y.store.Read(ctx, "w", pool, 1, time.Second, false)
		check(t, err)
		<-time.After(5 * time.Millisecond)
		_, _, err = y.store.Finish(ctx, pool, "w", []store.Finish{leases[0].Finish(store.Complete)})
		check(t, err)
	}
	for range 4 { // acme's lane behind the breaker is looked at once those before it are gone
		next()
	}
	enter("e", "acme", "")
	enter("f", "acme", "")
	for name, c := range map[string]struct {
		tenant, downstream string
		known              bool
	}{
		"in turn":                     {"acme", "", true},
		"a lane behind a breaker":     {"acme", "smtp", false},
		"a tenant with no other lane": {"bolt", "smtp", false},
		"another downstream's":        {"acme", "sms", true},
	} {
		if wait := enter(name, c.tenant, c.downstream); (wait >= 0) != c.known {
			t.Errorf("%s: %s", name, wait)
		}
	}
	_, err = y.store.Pause(ctx, store.QueueGate("mail"), time.Hour, store.Intervention{})
	check(t, err)
	if wait := enter("paused", "acme", ""); wait >= 0 {
		t.Errorf("in a paused queue: %s", wait)
	}
}
