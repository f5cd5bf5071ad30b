package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

func kinds(g store.Sighting) string {
	var all []string
	for _, w := range g.Waits {
		all = append(all, string(w.Kind))
	}
	return strings.Join(all, " ")
}

func TestLookTellsWhatAJobWaitsFor(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	called := mail("acme", "called")
	called.Downstream = "smtp"
	delayed := mail("acme", "delayed")
	delayed.Delay = time.Hour
	y.admit(mail("acme", "first"), mail("acme", "second"), called, delayed)

	if g := y.look("first"); g.Place != admission.PlaceWaiting || g.Position != 1 || kinds(g) != "workers" ||
		g.Record.Job.Priority != admission.Medium || g.Record.Job.Type != "welcome" || g.PayloadBytes != 5 {
		t.Errorf("without workers: %+v", g)
	}
	if g := y.look("second"); g.Position != 2 || kinds(g) != "workers turn" || !strings.HasPrefix(g.Waits[1].Text, "1 job of tenant acme in class medium of queue mail goes") {
		t.Errorf("second in line: %+v", g)
	}
	g := y.look("delayed")
	if wait := time.Until(g.At); g.Place != admission.PlaceLater || wait < 59*time.Minute || wait > time.Hour || kinds(g) != "time workers" || !g.Waits[0].Until.Equal(g.At) {
		t.Errorf("delayed: %+v", g)
	}

	_, err := y.store.Pause(ctx, store.QueueGate("mail"), time.Minute, store.Intervention{Reason: "maintenance | tonight"})
	check(t, err)
	_, err = y.store.Pause(ctx, store.TenantGate("acme"), 0, store.Intervention{})
	check(t, err)
	_, err = y.store.Pause(ctx, store.DownstreamGate("smtp"), time.Minute, store.Intervention{Reason: "they move house"})
	check(t, err)
	g = y.look("called")
	texts := map[store.WaitKind][]string{}
	for _, w := range g.Waits {
		texts[w.Kind] = append(texts[w.Kind], w.Text)
		if timed := w.Gate == "q:mail" || w.Gate == "d:smtp"; w.Gate != "" && timed == w.Until.IsZero() {
			t.Errorf("end of %+v", w)
		}
	}
	if len(texts[store.WaitPause]) != 3 || texts[store.WaitPause][0] != "downstream smtp is paused: they move house" ||
		!strings.Contains(strings.Join(texts[store.WaitPause], ", "), "queue mail is paused: maintenance | tonight") {
		t.Errorf("behind gates: %v", texts)
	}
	_, _, err = y.store.SetGate(ctx, store.Gate{Name: store.QueueGate("mail"), Limit: 1, Then: store.Unlimited})
	check(t, err)
	was, err := y.store.Unpause(ctx, store.TenantGate("acme"), store.Intervention{})
	check(t, err)
	y.register(5)
	if g := y.look("second"); !was || kinds(g) != "cap" || g.Waits[0].Text != "queue mail runs 1 jobs at a time and has 1" {
		t.Errorf("behind a cap: was %t, %+v", was, g)
	}
}

func TestLookTellsWhyABreakerIsOpenAndUntilWhen(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	called := mail("acme", "called")
	called.Downstream = "smtp"
	y.register(5)
	for i, duration := range []time.Duration{time.Hour, 0} {
		reason := []string{"they move | house", ""}[i]
		_, err := y.store.ForceBreaker(t.Context(), "smtp", breaker.Open, duration, store.Intervention{Reason: reason})
		check(t, err)
		if i == 0 {
			y.admit(called)
		}
		want := "the circuit breaker of downstream smtp is open: forced"
		if reason != "" {
			want += ", " + reason
		}
		g := y.look("called")
		if kinds(g) != "breaker" || g.Waits[0].Text != want || g.EstimatedWait >= 0 {
			t.Fatalf("%+v", g)
		}
		if left := time.Until(g.Waits[0].Until); (duration == 0) != g.Waits[0].Until.IsZero() || duration > 0 && (left > duration || left < duration-time.Minute) {
			t.Errorf("until %s", g.Waits[0].Until)
		}
	}
}

func TestWhatAnOperatorSaysOfABreakerIsBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	long := strings.Repeat("x", store.MaxReason+1)
	force := func(name string, to breaker.State, duration time.Duration, reason string) error {
		_, err := y.store.ForceBreaker(t.Context(), name, to, duration, store.Intervention{Reason: reason})
		return err
	}
	_, reset := y.store.ResetBreaker(t.Context(), "smtp", store.Intervention{Reason: long})
	_, unnamed := y.store.ResetBreaker(t.Context(), "smtp", store.Intervention{Author: long[:store.MaxAuthor+1]})
	for want, err := range map[string]error{
		`invalid downstream "a^b"`:                                                     force("a^b", breaker.Open, 0, ""),
		"invalid state half-open: allowed is open or closed":                           force("smtp", breaker.HalfOpen, 0, ""),
		"invalid duration 999ns: allowed is 1ms to 8760h, or 0 until it is reset":      force("smtp", breaker.Open, 999, ""),
		"invalid duration -1s: allowed is 1ms to 8760h, or 0 until it is reset":        force("smtp", breaker.Open, -time.Second, ""),
		"invalid duration 8760h0m0.000000001s: allowed is 1ms to 8760h, or 0 until it": force("smtp", breaker.Open, store.MaxForce+1, ""),
		"invalid reason 1025 bytes: allowed is up to 1024 bytes":                       force("smtp", breaker.Open, 0, long),
		"invalid reason 1025 bytes: allowed is up to 1024 bytes ":                      fmt.Errorf("%w ", reset),
		"invalid author 257 bytes: allowed is up to 256 bytes":                         unnamed,
	} {
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if states, err := y.store.Breakers(t.Context()); err != nil || len(states) != 0 {
		t.Errorf("left %+v, %v", states, err)
	}
	check(t, force("smtp", breaker.Open, store.MaxForce, long[1:]))
	if b, err := y.store.Breaker(t.Context(), "smtp"); err != nil || b.Reason != long[1:] || b.State != breaker.Open {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestLookFollowsAJobToItsEnd(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.register(1)
	y.admit(mail("acme", "a"))
	if g := y.look("a"); g.Place != admission.PlaceReady || g.Pool != yardPool.ID() || kinds(g) != "turn" {
		t.Errorf("ready: %+v", g)
	}
	y.read(1)
	g := y.look("a")
	if since := time.Since(g.Since); g.Place != store.PlaceRunning || g.Worker != "w1" || g.Token != y.tokens["a"] || since < 0 || since > time.Minute || g.Waits != nil {
		t.Errorf("running: %+v", g)
	}
	y.finish("a", store.Finish{Outcome: store.Retry, Delay: 0, Text: "refused | again", Ran: 2 * time.Millisecond})
	if g := y.look("a"); g.Place != admission.PlaceLater || kinds(g) != "time" || g.Record.Attempts != 1 ||
		g.Waits[0].Text != "it comes back after its last delivery, which was failed by worker w1" {
		t.Errorf("later: %+v", g)
	}
	_, err := y.store.Promote(t.Context(), "s", time.Second)
	check(t, err)
	y.read(1)
	if running, _, err := y.store.Cancel(t.Context(), g.Key, store.Intervention{Reason: "ordered twice"}); err != nil || !running {
		t.Errorf("cancel: %t, %v", running, err)
	}
	if g := y.look("a"); !g.Cancelled || g.Reason != "ordered twice" {
		t.Errorf("cancelling: %+v", g)
	}
	y.finish("a", store.Finish{Outcome: store.Complete})
	if g := y.look("a"); g.Place != store.PlaceEnded {
		t.Errorf("ended: %+v", g)
	}

	y.kill("b")
	g = y.look("b")
	if g.Place != store.PlaceDead || g.Reason != "discarded" || g.Text != "bad | address" || time.Since(g.At) > time.Minute || len(g.History) != 1 {
		t.Fatalf("dead: %+v", g)
	}
	if d := g.History[0]; d.Outcome != "failed" || d.Ran != 3*time.Millisecond || d.Worker != "w1" || d.Text != "bad | address" || !d.At.Equal(g.At) {
		t.Errorf("history: %+v", d)
	}
}

func TestLookAtWhatIsNotThere(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	large := mail("acme", "large")
	large.Payload = make([]byte, 10_000)
	y.admit(large)
	if g := y.look("large"); g.PayloadBytes != 10_000 || len(g.Record.Job.Payload) != 0 {
		t.Errorf("large: %d bytes", g.PayloadBytes)
	}
	payload, err := y.store.Payload(t.Context(), admission.Key{Tenant: "acme", ID: "large"})
	if err != nil || len(payload) != 10_000 {
		t.Errorf("payload: %d bytes, %v", len(payload), err)
	}
	for key, want := range map[admission.Key]error{
		{Tenant: "acme", ID: "none"}: admission.ErrUnknownJob,
		{Tenant: "a:b", ID: "x"}:     admission.ErrInvalid,
		{Tenant: "acme"}:             admission.ErrInvalid,
	} {
		if _, err := y.store.Look(t.Context(), key); !errors.Is(err, want) {
			t.Errorf("look at %s: %v", key, err)
		}
		if _, err := y.store.Payload(t.Context(), key); !errors.Is(err, want) {
			t.Errorf("payload of %s: %v", key, err)
		}
	}
}
