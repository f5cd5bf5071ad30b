package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// scaledYard asks for tokens of tenants that have 20 and get one a day.
type scaledYard struct {
	*testing.T

	store   *Partition
	version int64
}

func newScaledYard(t *testing.T) *scaledYard {
	t.Helper()
	s := newYard(t).store
	s.SetTime(timeAt(t, "2027-01-01T12:00:00Z"))
	return &scaledYard{T: t, store: s}
}

func (y *scaledYard) question(tenant string, cost admission.Tokens) store.Question {
	q := ofTenant(tenant, cost)
	q.Limits[admission.LevelTenant] = admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 20}
	return q
}

func (y *scaledYard) ask(tenant string, cost admission.Tokens) admission.Verdict {
	y.Helper()
	_, answers, err := y.store.Check(y.Context(), y.version, false, []store.Question{y.question(tenant, cost)})
	check(y, err)
	return answers[0].Verdict
}

func (y *scaledYard) scale(target store.GateName, part float64, lasts time.Duration) bool {
	y.Helper()
	was, err := y.store.ScaleLimits(y.Context(), target, part, lasts, store.Intervention{Author: "ada", Reason: "fire"})
	check(y, err)
	return was
}

func (y *scaledYard) want(what string, v admission.Verdict, burst admission.Tokens, detail string) {
	y.Helper()
	if v.Decision != admission.Refused || v.Reason != admission.ReasonLimited || v.Burst != burst || v.Detail != detail {
		y.Errorf("%s: %+v, want a refusal by a burst of %d, %q", what, v, burst, detail)
	}
}

func (y *scaledYard) admits(what string, v admission.Verdict) {
	y.Helper()
	if v.Decision != admission.Admitted {
		y.Errorf("%s: %+v", what, v)
	}
}

// TestScaledLimitsEndByThemselves: a part is in force from the next call on, and the policy's limits are when its time is over, though nobody has
// come meanwhile; a step of the clock back does not bring it again.
func TestScaledLimitsEndByThemselves(t *testing.T) {
	t.Parallel()
	y := newScaledYard(t)
	y.scale(store.ScaleAll, 0.5, time.Minute)
	const told = "scaled to 0.5 until 2027-01-01T12:01:00Z"
	y.want("11 of 20, scaled to 10", y.ask("a", 11), 10, told)
	if wait := y.ask("a", 11).RetryAfter; wait < time.Minute || wait > time.Minute+24*time.Hour+time.Second {
		t.Errorf("11 wait %s, which the scale's end lets pass a day later", wait)
	}
	y.admits("10 of 10", y.ask("a", 10))
	y.want("1 more", y.ask("a", 1), 10, told)
	if v := y.ask("a", 21); v.Reason != admission.ReasonTooCostly || v.Burst != 20 {
		t.Errorf("21 of the policy's 20: %+v", v)
	}
	y.store.SetTime(timeAt(t, "2027-01-01T12:00:59Z"))
	y.want("a second before its end", y.ask("b", 11), 10, told)
	y.store.SetTime(timeAt(t, "2027-01-01T12:01:00Z"))
	y.admits("20 of 20 at its end", y.ask("b", 20))
	y.want("what was taken stays taken", y.ask("a", 11), 20, "")
	half := func() bool {
		state := redisconn.ReadState(t.Context(), redisconn.Client(y.store.conn), y.store.conn.Partition, "pat")
		check(t, state.Err())
		return strings.Contains(redisconn.TextAt(state.Val(), 0), ".")
	}
	if half() {
		t.Error("every call still asks whether limits are scaled")
	}
	y.store.SetTime(timeAt(t, "2027-01-01T11:00:00Z"))
	y.admits("20 of 20 after a step back", y.ask("c", 20))
	if all, err := y.store.Scales(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
	if y.scale(store.ScaleAll, 0, 0) || half() {
		t.Error("there was something to end")
	}
}

// TestTheScaleThatLeavesLessCounts, of those for all, for the global limit and for a tenant.
func TestTheScaleThatLeavesLessCounts(t *testing.T) {
	t.Parallel()
	y := newScaledYard(t)
	y.scale(store.ScaleGlobal, 0.01, time.Minute)
	y.admits("a tenant's, while the global one is scaled", y.ask("a", 20))
	y.scale(store.TenantGate("b"), 0.25, time.Hour)
	y.scale(store.ScaleAll, 0.5, time.Minute)
	y.want("6 of 5", y.ask("b", 6), 5, "scaled to 0.25 until 2027-01-01T13:00:00Z")
	y.want("11 of 10", y.ask("c", 11), 10, "scaled to 0.5 until 2027-01-01T12:01:00Z")
	if !y.scale(store.TenantGate("b"), 0, 0) {
		t.Error("a tenant's scale was not there")
	}
	y.admits("10 of 10", y.ask("b", 10))
	all, err := y.store.Scales(t.Context())
	check(t, err)
	if len(all) != 2 || all[0].Target != store.ScaleAll || all[0].Author != "ada" || all[0].Reason != "fire" || !all[0].Until.Equal(timeAt(t, "2027-01-01T12:01:00Z")) || !all[0].Since.Equal(timeAt(t, "2027-01-01T12:00:00Z")) {
		t.Errorf("%+v", all)
	}
}

// TestAnEditOfThePolicyLeavesAScale: the switch is not the policy's.
func TestAnEditOfThePolicyLeavesAScale(t *testing.T) {
	t.Parallel()
	y := newScaledYard(t)
	y.scale(store.ScaleAll, 0.5, time.Minute)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute}))
	y.version = 1
	y.want("11 of 10", y.ask("a", 11), 10, "scaled to 0.5 until 2027-01-01T12:01:00Z")
}

// TestWhatWasTakenUnderOtherLimitsIsNotRefunded: more than was taken may come back otherwise, and the bucket admit more than its limit.
func TestWhatWasTakenUnderOtherLimitsIsNotRefunded(t *testing.T) {
	t.Parallel()
	y := newScaledYard(t)
	take := func(tenant string, cost admission.Tokens) store.Taken {
		verdict, taken, err := y.store.Take(t.Context(), 0, y.question(tenant, cost))
		check(t, err)
		y.admits("taking", verdict)
		return taken
	}
	refund := func(id string, taken store.Taken) {
		done, err := y.store.Refund(t.Context(), id, taken)
		check(t, err)
		if done != store.Refunded {
			t.Errorf("%s: %s", id, done)
		}
	}
	at := func(second string) { y.store.SetTime(timeAt(t, "2027-01-01T12:00:"+second+"Z")) }
	const told = "scaled to 0.5 until 2027-01-01T12:01:01Z"
	before := take("a", 15)
	at("01")
	y.scale(store.ScaleAll, 0.5, time.Minute)
	refund("before", before)
	y.admits("the 5 that the taking left", y.ask("a", 5))
	y.want("1 of those that came back", y.ask("a", 1), 10, told)
	within := take("b", 10)
	refund("within", within)
	at("02") // A refund leaves a micro-token less, for what may have come in.
	y.admits("the 10 that came back under the same limits", y.ask("b", 10))
	y.want("more than was scaled", y.ask("b", 1), 10, told)
}

func TestNoMoreScalesThanMayBe(t *testing.T) {
	t.Parallel()
	y := newScaledYard(t)
	for i := range store.MaxScales {
		y.scale(store.TenantGate(fmt.Sprint("t", i)), 0.5, time.Minute)
	}
	y.scale(store.TenantGate("t3"), 0.2, time.Hour) // One that is there takes no place.
	if _, err := y.store.ScaleLimits(t.Context(), store.ScaleAll, 0.5, time.Minute, store.Intervention{}); !errors.Is(err, store.ErrTooManyScales) {
		t.Errorf("one more: %v", err)
	}
	y.store.SetTime(timeAt(t, "2027-01-01T12:01:00Z"))
	y.scale(store.ScaleAll, 0.5, time.Minute)
	if all, err := y.store.Scales(t.Context()); len(all) != 2 || err != nil {
		t.Errorf("%+v, %v: want t3 and all", all, err)
	}
}

// TestAScaleSpansPartitions: of the global limit each scales its part, a tenant's is where the tenant is, and the audit has one entry.
func TestAScaleSpansPartitions(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 0)
	ctx, by := t.Context(), store.Intervention{Author: "ada", Reason: "fire"}
	for target, part := range map[store.GateName]float64{store.ScaleAll: 0.5, store.TenantGate("acme"): 0.2} {
		if _, err := s.ScaleLimits(ctx, target, part, time.Hour, by); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if granted, answers, err := s.Check(ctx, 0, false, []store.Question{anybody(5)}); !granted {
			t.Fatalf("5 of a partition's 5: %+v, %v", answers, err)
		}
	}
	if granted, _, err := s.Check(ctx, 0, false, []store.Question{anybody(1)}); granted || err != nil {
		t.Errorf("16 of 30 scaled to a half: %t, %v", granted, err)
	}
	for i, part := range s.Partitions() {
		all, err := part.Scales(ctx)
		check(t, err)
		if want := 1 + map[bool]int{true: 1}[s.PartitionOf("acme") == i]; len(all) != want {
			t.Errorf("partition %d has %+v, want %d", i, all, want)
		}
	}
	all, err := s.Scales(ctx)
	check(t, err)
	if len(all) != 2 || all[0].Target != store.ScaleAll || all[1].Target != store.TenantGate("acme") {
		t.Errorf("%+v", all)
	}
	page, err := s.Audit(ctx, store.AuditQuery{Action: store.AuditScale})
	check(t, err)
	if len(page.Entries) != 2 {
		t.Errorf("%+v", page.Entries)
	}
	for range 2 {
		if _, err := s.ScaleLimits(ctx, store.ScaleAll, 0, 0, by); err != nil {
			t.Fatal(err)
		}
	}
	if all, err = s.Scales(ctx); len(all) != 1 || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
}
