package limiter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestReservationsKeepTheBoundOfEachWay: L1 restated with debts, of each way that reservations take. Whatever they reserve and cost, in whatever order it is told and
// told again, each bucket lacks what was committed on its way and not a token else, less where a debt would be above one burst; what nobody tells stands; a refusal takes
// nothing anywhere. So what was committed is never above a burst, what came in, and one burst more.
func TestReservationsKeepTheBoundOfEachWay(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	for on := range stores(t, newVirtual()) {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			v := newVirtual()
			openOne, runs := stores(t, v)[on], 0
			rapid.Check(t, func(rt *rapid.T) {
				runs++
				defer redistest.Clear(t, prefix+on[:1]+strconv.Itoa(runs))
				w := newReserving(t, rt, v, openOne(prefix+on[:1]+strconv.Itoa(runs)))
				for range rapid.IntRange(1, 40).Draw(rt, "operations") {
					w.step()
				}
				w.compare()
			})
		})
	}
}

// reserving is a walk of reservations with dimensions.
type reserving struct {
	t  *testing.T
	rt *rapid.T
	v  *virtual
	l  *Limiter
	// bursts are those of the ways that there are, left what each should hold, and committed what was told of it, what stands included.
	bursts, left, committed map[string]admission.Tokens
	open                    []*reservedWork
}

// reservedWork is a reservation, and which ways it is of.
type reservedWork struct {
	Reservation

	ways          []string
	reserved, now admission.Tokens // what is charged of each way now
	at            int64
	parts, closed bool
	actual        admission.Tokens
}

func newReserving(t *testing.T, rt *rapid.T, v *virtual, s store.Deployment) *reserving {
	t.Helper()
	w := &reserving{t: t, rt: rt, v: v, bursts: map[string]admission.Tokens{}, left: map[string]admission.Tokens{}, committed: map[string]admission.Tokens{}}
	rules := map[string]policy.DimensionRules{}
	for _, name := range besideNames {
		burst := admission.Tokens(rapid.IntRange(1, 60).Draw(rt, "burst of "+name))
		rules[name] = policy.DimensionRules{Limit: daily(burst)}
		for key := range besideKeys {
			w.bursts[fmt.Sprint(name, " k", key+1)] = burst
		}
	}
	w.bursts["acme"] = admission.Tokens(rapid.IntRange(1, 100).Draw(rt, "burst"))
	maps.Copy(w.left, w.bursts)
	p := beside(daily(w.bursts["acme"]), rules)
	p.Reservations.ExpireAfter = rapid.SampledFrom([]time.Duration{0, 20 * time.Second, 90 * time.Second}).Draw(rt, "expire after")
	w.l = start(t, s, Config{Policy: p, Timeout: patient})
	return w
}

func (w *reserving) step() {
	w.v.pass(time.Duration(rapid.IntRange(0, 500).Draw(w.rt, "ms")) * time.Millisecond)
	switch n := rapid.IntRange(0, 9).Draw(w.rt, "operation"); {
	case n < 5 || len(w.open) == 0:
		w.reserve()
	case n == 9 && rapid.IntRange(0, 3).Draw(w.rt, "late") == 0:
		w.late()
	default:
		w.tell(w.open[rapid.IntRange(max(0, len(w.open)-4), len(w.open)-1).Draw(w.rt, "which")])
	}
	for way, burst := range w.bursts {
		if w.committed[way] > 2*burst {
			w.rt.Fatalf("%d were committed of %s, with a burst of %d and as much of debt", w.committed[way], way, burst)
		}
	}
}

func (w *reserving) reserve() {
	r := Request{Tenant: "acme", Cost: admission.Tokens(rapid.IntRange(1, 12).Draw(w.rt, "cost"))}
	ways := []string{"acme"}
	for _, name := range besideNames {
		if key := rapid.IntRange(0, besideKeys).Draw(w.rt, name); key > 0 {
			r.Also = append(r.Also, Dimension{name, fmt.Sprint("k", key)})
			ways = append(ways, fmt.Sprint(name, " k", key))
		}
	}
	fits := !slices.ContainsFunc(ways, func(way string) bool { return w.left[way] < r.Cost })
	made, err := w.l.Reserve(w.t.Context(), r)
	var no *admission.RefusedError
	if err != nil && !errors.As(err, &no) {
		w.rt.Fatal(err)
	}
	if admitted := err == nil; admitted && !fits || !admitted && fits && no.Verdict.RetryAfter > time.Minute { // Less is what rounding leaves.
		w.rt.Fatalf("%+v: %v, left is %v", r, err, w.left)
	}
	if err != nil {
		return
	}
	if len(made.taken.Beside) != len(r.Also) {
		w.rt.Fatalf("%+v has a receipt of %d dimensions", r, len(made.taken.Beside))
	}
	w.open = append(w.open, &reservedWork{Reservation: made, ways: ways, reserved: r.Cost, now: r.Cost, at: w.v.redis.Load()})
	w.charge(w.open[len(w.open)-1], r.Cost)
}

// charge has the ways of some work be charged so much more, or below zero less, as far as a debt may go.
func (w *reserving) charge(work *reservedWork, more admission.Tokens) {
	for _, way := range work.ways {
		before := w.left[way]
		after := before - more
		if more > 0 {
			after = max(after, min(before, -w.bursts[way]))
		}
		w.left[way], w.committed[way] = after, w.committed[way]+before-after
	}
}

// tell tells what some work has cost, a part or the whole, up to three times.
func (w *reserving) tell(work *reservedWork) {
	used, kind := admission.Tokens(rapid.IntRange(0, 40).Draw(w.rt, "used")), rapid.IntRange(0, 3).Draw(w.rt, "kind")
	if work.closed || !work.parts && w.v.redis.Load() > work.at+work.ExpireAfter().Microseconds() {
		return
	}
	if kind == 0 {
		check(w.t, work.CommitPart(w.t.Context(), used))
		work.parts, work.actual = true, max(work.actual, used)
		if work.actual > work.now {
			w.charge(work, work.actual-work.now)
			work.now = work.actual
		}
		return
	}
	for range rapid.IntRange(1, 3).Draw(w.rt, "told") {
		if kind == 1 {
			used = 0
			check(w.t, work.Cancel(w.t.Context()))
		} else {
			check(w.t, work.Commit(w.t.Context(), used))
		}
	}
	work.closed, work.actual = true, max(work.actual, used)
	if work.actual != work.reserved { // As from a process that has not had the answer.
		if done, err := w.l.store.Commit(w.t.Context(), work.id, work.taken, used+7); err != nil || done != store.RefundedBefore {
			w.rt.Fatalf("a commit that comes again: %s, %v", done, err)
		}
	}
	switch {
	case work.actual > work.now:
		w.charge(work, work.actual-work.now)
	default:
		w.charge(work, work.actual-max(work.now, work.reserved))
	}
}

// late has a reservation of which nobody tells anything stand.
func (w *reserving) late() {
	work := w.open[len(w.open)-1]
	if work.closed || work.parts {
		return
	}
	w.v.pass(work.ExpireAfter() + time.Second)
	if err := work.Commit(w.t.Context(), work.reserved-1); !errors.Is(err, ErrReservationStands) {
		w.rt.Fatalf("a commit that was too late: %v", err)
	}
	work.closed = true
	for _, other := range w.open {
		other.closed = true // Their parts, too, would be remembered by the clock of Redis alone.
	}
}

func (w *reserving) compare() {
	for way, want := range w.left {
		if way == "acme" {
			continue
		}
		var name, value string
		_, err := fmt.Sscan(way, &name, &value)
		check(w.t, err)
		if got := leftIn(w.t, w.l, name, value, "acme"); got != want && got != want+1 { // What came in may be up to a token.
			w.rt.Fatalf("%s has %d left of %d, want %d", way, got, w.bursts[way], want)
		}
	}
}

// TestAReservationCostsWhatItsDimensionsAllow: without a cost it is learned, and never above the least burst of all ways; who names what nobody has declared hears so.
func TestAReservationCostsWhatItsDimensionsAllow(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	l := start(t, s, Config{Policy: beside(daily(300), map[string]policy.DimensionRules{"user": {Limit: daily(70)}, "seen": {}}), Timeout: patient})
	r, err := l.Reserve(t.Context(), Request{Tenant: "acme", Also: also("user", "1", "seen", "x")})
	check(t, err)
	if r.Reserved() != 70 || leftIn(t, l, "user", "1", "acme") != 0 {
		t.Errorf("%d are reserved, %d left", r.Reserved(), leftIn(t, l, "user", "1", "acme"))
	}
	check(t, r.Commit(t.Context(), 30))
	if left := leftIn(t, l, "user", "1", "acme"); left != 40 {
		t.Errorf("%d are left after a commit of 30 of 70", left)
	}
	_, err = l.Reserve(t.Context(), Request{Tenant: "acme", Cost: 41, Also: also("user", "1")})
	var no *admission.RefusedError
	if !errors.As(err, &no) || no.Verdict.Scope != "+user:1" || no.Verdict.TokensLeft != 40 || no.Verdict.RetryAfter <= 0 {
		t.Errorf("%v", err)
	}
	for _, bad := range []Request{
		{Tenant: "acme", Also: also("model", "x")},
		{Tenant: "acme", Also: also("user", "")},
		{Tenant: "acme", Also: also("user", "1", "user", "2")},
		{Tenant: "+user", Queue: "1"},
		{Tenant: "acme", Also: make([]Dimension, MaxAlso+1)},
	} {
		var field *admission.FieldError
		if _, err := l.Reserve(t.Context(), bad); !errors.As(err, &field) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestMoreIsTakenOfTheDimensionsThatAreLeft: after an edit of the policy what lacks is taken of the ways that there still are, by their limits now.
func TestMoreIsTakenOfTheDimensionsThatAreLeft(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	s := open(t, v.client(t))
	p := beside(daily(100), map[string]policy.DimensionRules{"user": {Limit: daily(100)}, "route": {Limit: daily(100)}})
	p.Version = 1
	put(t, s, p)
	l := start(t, s, Config{Timeout: patient})
	asked := Request{Tenant: "acme", Cost: 40, Also: also("user", "1", "route", "/a")}
	less, err := l.Reserve(t.Context(), asked)
	check(t, err)
	more, err := l.Reserve(t.Context(), asked)
	check(t, err)
	v.pass(time.Millisecond)
	p.Version, p.Dimensions = 2, map[string]policy.DimensionRules{"user": {Limit: daily(90)}}
	put(t, s, p)
	if err := less.Commit(t.Context(), 10); !errors.Is(err, ErrReservationStands) {
		t.Errorf("less under another policy: %v", err)
	}
	check(t, more.Commit(t.Context(), 45))
	if lacks, left := missing(t, s, p), leftIn(t, l, "user", "1", "acme"); lacks != 85 || left != 15 {
		t.Errorf("%d are missing, %d left; want 85 and 15", lacks, left)
	}
}
