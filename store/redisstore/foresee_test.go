package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// foresee checks what Foresee says of the yard's pool: negative, or at most most and not much less.
func (y *yard) foresee(what string, most time.Duration) {
	y.tb.Helper()
	began := time.Now()
	got, err := y.store.Foresee(y.tb.Context(), yardPool.ID())
	check(y.tb, err)
	if most < 0 && got < 0 {
		return
	}
	// What has passed since the gate was shut is part of the test's own minute.
	if got > most || got < most-time.Minute-time.Since(began) {
		y.tb.Errorf("%s: %s, want up to %s", what, got, most)
	}
}

// TestForeseeTellsWhatTimeOpens: of each gate that time opens, the first one behind which jobs of the pool wait counts; where
// nothing waits, or what waits needs but room, nobody can tell.
func TestForeseeTellsWhatTimeOpens(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	y.foresee("a pool that is not there", -1)
	y.register(2)
	y.foresee("an empty queue", -1)
	_, err := y.store.Pause(ctx, store.QueueGate("mail"), 5*time.Hour, store.Intervention{Reason: "maintenance"})
	check(t, err)
	y.foresee("a pause of an empty queue", 5*time.Hour)
	y.admit(mail("acme", "a"))
	y.foresee("a pause", 5*time.Hour)
	_, err = y.store.Pause(ctx, store.QueueGate("report"), 2*time.Hour, store.Intervention{Reason: "another queue"})
	check(t, err)
	y.foresee("a pause of another queue", 5*time.Hour)
	_, err = y.store.Pause(ctx, store.QueueGate("mail"), 0, store.Intervention{Reason: "for good"})
	check(t, err)
	y.foresee("a pause without an end", -1)
	_, err = y.store.Unpause(ctx, store.QueueGate("mail"), store.Intervention{})
	check(t, err)
	y.admit(mail("acme", "b"), mail("acme", "c"))
	y.foresee("a job that waits for room", -1)
	_, err = y.store.ForceBreaker(ctx, "smtp", breaker.Open, 4*time.Hour, store.Intervention{Reason: "to try"})
	check(t, err)
	ill := mail("clinic", "d")
	ill.Downstream = "smtp"
	_, err = y.store.Pause(ctx, store.TenantGate("clinic"), 6*time.Hour, store.Intervention{Reason: "until it parks"})
	check(t, err)
	y.admit(ill)
	y.register(3)
	y.admit(mail("acme", "h"))
	y.foresee("a job that waits for room beside one that a gate holds", -1)
	y.register(5)
	y.foresee("a pause of a tenant and an open breaker", 6*time.Hour)
	_, err = y.store.Unpause(ctx, store.TenantGate("clinic"), store.Intervention{})
	check(t, err)
	y.foresee("an open breaker", 4*time.Hour)
	_, err = y.store.Pause(ctx, store.TenantGate("bakery"), 3*time.Hour, store.Intervention{Reason: "nothing of it waits"})
	check(t, err)
	y.foresee("a tenant's pause behind which nothing waits", 4*time.Hour)
	y.admit(mail("bakery", "e"))
	y.foresee("a tenant's pause", 3*time.Hour)
	soon := mail("acme", "f")
	soon.Delay = 2 * time.Hour
	y.admit(soon)
	y.foresee("a job with a time of its own", 2*time.Hour)
	_, _, err = y.store.SetGate(ctx, store.Gate{Name: store.TenantGate("acme"), Limit: 3, For: time.Hour, Then: store.Unlimited})
	check(t, err)
	y.admit(mail("acme", "g"))
	y.foresee("a cap, which opens when a job ends", 2*time.Hour)
}

func TestForeseeTellsTheNextTokenOfARate(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.register(4)
	once := admission.Limit{Tokens: 1, Per: 2 * time.Hour, Burst: 1}
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Minute, Caps: []store.Cap{{Gate: store.TenantRateGate("acme"), Rate: once}},
	}))
	y.admitAt(1, mail("acme", "a"), mail("acme", "b"))
	y.foresee("a rate", 2*time.Hour)
}

func TestForeseeAsksEveryPartition(t *testing.T) {
	t.Parallel()
	s := openParts(t, 2, 0)
	for _, part := range s.parts {
		_, err := part.Register(t.Context(), "w1", yardPool, 2, time.Minute)
		check(t, err)
	}
	if wait, err := s.Foresee(t.Context(), yardPool.ID()); err != nil || wait >= 0 {
		t.Errorf("empty queues: %s, %v", wait, err)
	}
	// A tenant is paused in its own partition, of which the other knows nothing.
	key := keyOfTenant(0)
	for n := 1; s.PartitionOf(key.Tenant) == 0; n++ {
		key = keyOfTenant(n)
	}
	_, err := s.Pause(t.Context(), store.TenantGate(key.Tenant), 2*time.Hour, store.Intervention{Reason: "maintenance"})
	check(t, err)
	job := mail(key.Tenant, key.ID)
	verdicts, err := s.of(key.Tenant).Admit(t.Context(), 0, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	check(t, err)
	check(t, verdicts[0].Err())
	if wait, err := s.Foresee(t.Context(), yardPool.ID()); err != nil || wait > 2*time.Hour || wait < time.Hour {
		t.Errorf("a tenant's pause in one partition: %s, %v", wait, err)
	}
}
