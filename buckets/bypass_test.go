package buckets

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// bypassing is a run of jobs of which some may go beside the limits of their queue and class, by marked.
type bypassing struct {
	set            Set
	now            Instant
	limits, marked [admission.Levels]admission.Limit
	share          Limit
	reserve        Micro
	// took has what was taken by whom who is bounded.
	took map[string][]taking
}

type taking struct {
	at   Instant
	cost Micro
}

func newBypassing(t *rapid.T) *bypassing {
	b := &bypassing{now: someInstant, took: map[string][]taking{}}
	for level := range b.limits {
		b.limits[level] = admission.PerSecond(admission.Tokens(rapid.IntRange(1, 300).Draw(t, "rate"))).WithBurst(admission.Tokens(rapid.IntRange(1, 300).Draw(t, "burst")))
		b.limits[level].Disabled = rapid.IntRange(0, 5).Draw(t, "none") == 0
	}
	b.marked = b.limits
	global, tenant := &b.marked[admission.LevelGlobal], &b.marked[admission.LevelTenant]
	percent, share := rapid.SampledFrom([]int{0, 1, 20, 100}).Draw(t, "reserve"), rapid.SampledFrom([]int{1, 10, 33, 100}).Draw(t, "share")
	*global = global.Bypassing(percent, share)
	b.reserve = MicroOf(global.Burst) * Micro(percent) / 100
	// As the documentation says it, not as the code has it.
	b.share = Limit{Rate: tenant.Rate() * admission.TokensPerSecond(share) / 100, Burst: MicroOf(tenant.Burst * admission.Tokens(share) / 100)}
	return b
}

// take asks for a job as a store does.
func (b *bypassing) take(t *rapid.T, tenant string, critical bool, cost admission.Tokens) {
	limits := b.limits
	if critical {
		limits = b.marked
	}
	way := AppendPath(nil, limits, tenant, "mail", "critical")
	v := b.set.Peek(b.now, 0, way, cost)
	if beside := AppendBypass(nil, &limits, tenant, func(_ admission.Scope, l *admission.Limit) Limit { return LimitOf(*l) }); len(beside) > 0 {
		by, all := b.set.Peek(b.now, 0, beside, cost), v
		if v = Choose(by, all); v.Bypassed {
			way = beside
		} else if v.Decision == admission.Refused {
			b.refused(t, v, way, beside, cost)
		}
	}
	if v.Bypassed && (!critical || b.limits[admission.LevelTenant].Disabled || b.share.Burst == 0) {
		t.Fatalf("it goes beside its limits, critical %t, with a share of %d", critical, b.share.Burst)
	}
	if v.Decision != admission.Admitted {
		return
	}
	b.set.Take(b.now, 0, way, cost)
	levels := []string{"global", tenant, tenant + " in the queue", tenant + " in the class"}
	bounds := make([]Limit, 0, admission.Levels+1)
	for _, l := range b.limits {
		bounds = append(bounds, LimitOf(l))
	}
	if bounds[0].Burst += b.reserve; v.Bypassed {
		levels, bounds = []string{"global", tenant, tenant + " beside"}, []Limit{bounds[0], bounds[1], b.share}
	}
	for i, name := range levels {
		if i < 2 || !v.Bypassed {
			if b.limits[i].Disabled {
				continue
			}
		}
		b.took[name] = append(b.took[name], taking{b.now, MicroOf(cost)})
		within(t, name, b.took[name], bounds[i])
	}
	b.levels(t, tenant, v.Bypassed)
}

// levels asserts that the debt of a job that went beside is in the global bucket alone, and within the reserve.
func (b *bypassing) levels(t *rapid.T, tenant string, bypassed bool) {
	for i, limit := range b.limits {
		least := Micro(0)
		if i == 0 && bypassed {
			least = -b.reserve
		}
		scope := admission.ScopeAt(admission.Level(i), tenant, "mail", "critical")
		if level := b.set.LevelAt(b.now, 0, LevelLimit{scope, LimitOf(limit)}); !limit.Disabled && level < least && (i > 0 || bypassed) {
			t.Fatalf("%s is left with %d micro-tokens, and may be with %d", scope, level, least)
		}
	}
}

// refused asserts that after the wait that was told the job could go one of both ways, and before it neither.
func (b *bypassing) refused(t *rapid.T, v admission.Verdict, all, beside []LevelLimit, cost admission.Tokens) {
	goes := func(at Instant) bool {
		return b.set.Peek(at, 0, all, cost).Decision == admission.Admitted || b.set.Peek(at, 0, beside, cost).Decision == admission.Admitted
	}
	wait := Instant(v.RetryAfter.Microseconds())
	if v.Permanent() {
		if goes(b.now + 3_600_000_000) {
			t.Fatalf("refused for good, and it goes an hour later: %+v", v)
		}
		return
	}
	if !goes(b.now+wait) || goes(b.now+wait-2) {
		t.Fatalf("told to wait for %d µs: %+v; it goes then %t, and before %t", wait, v, goes(b.now+wait), goes(b.now+wait-2))
	}
}

// within fails where the last of some takings, with those before it, is more than a limit lets through in the time that they took.
func within(t *rapid.T, whose string, takings []taking, limit Limit) {
	last, sum := takings[len(takings)-1], Micro(0)
	for _, taken := range slices.Backward(takings) {
		sum += taken.cost
		if bound := float64(limit.Burst) + float64(limit.Rate)*float64(last.at-taken.at); float64(sum) > bound+1 {
			t.Fatalf("%s took %d micro-tokens in %d µs, bound %.0f", whose, sum, last.at-taken.at, bound)
		}
	}
}

// TestABypassIsBounded: whatever jobs come, all together have no more of the global limit than its burst, what came in, and the reserve; a tenant has no more of
// its own than its limit, nor beside its queue and class than its share of that; who goes the way of all has no more at a queue and a class than their limits, and leaves
// nothing below zero. Who is told to wait can go one of both ways then, and neither before.
func TestABypassIsBounded(t *testing.T) {
	t.Parallel()
	reached := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		b := newBypassing(t)
		for range rapid.IntRange(10, 80).Draw(t, "operations") {
			if rapid.Bool().Draw(t, "time passes") {
				b.now += Instant(rapid.SampledFrom([]Span{1, 999, 10_000, 100_000, 500_000, 3_000_000}).Draw(t, "passed"))
			}
			tenant, critical := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"), rapid.IntRange(0, 2).Draw(t, "critical") > 0
			b.take(t, tenant, critical, admission.Tokens(rapid.SampledFrom([]int{1, 1, 3, 10, 40, 200}).Draw(t, "cost")))
		}
		reached[len(b.took["a beside"]) > 0]++
		if level := b.set.LevelAt(b.now, 0, LevelLimit{admission.Global, LimitOf(b.limits[0])}); level < 0 {
			reached[true]++
		}
	})
	if reached[true] == 0 {
		t.Error("nobody went beside a limit")
	}
}

// TestTheWayBesideIsTakenFirst: a critical job leaves what its queue has to others, and goes where they cannot; with its share spent it is one of them, and is told
// how soon there is enough of that again where its queue would never let it go.
func TestTheWayBesideIsTakenFirst(t *testing.T) {
	t.Parallel()
	limits := [admission.Levels]admission.Limit{
		admission.PerSecond(10).WithBurst(10).Bypassing(50, 10), admission.PerSecond(100).WithBurst(100), admission.PerHour(1).WithBurst(4), {Disabled: true},
	}
	all := AppendPath(nil, limits, "a", "mail", "critical")
	beside := AppendBypass(nil, &limits, "a", func(_ admission.Scope, l *admission.Limit) Limit { return LimitOf(*l) })
	var set Set
	for i, step := range []struct {
		cost         admission.Tokens
		other        bool
		bypassed, in bool
	}{{2, false, true, true}, {6, false, true, true}, {2, true, false, true}, {3, false, false, false}, {2, false, true, true}, {1, false, false, false}} {
		v := set.Peek(someInstant, 0, all, step.cost)
		if !step.other {
			v = Choose(set.Peek(someInstant, 0, beside, step.cost), v)
		}
		if v.Bypassed != step.bypassed || (v.Decision == admission.Admitted) != step.in {
			t.Errorf("%d: %+v", i, v)
		}
		if way := all; step.in {
			if v.Bypassed {
				way = beside
			}
			set.Take(someInstant, 0, way, step.cost)
		}
	}
	if global, queue := set.LevelAt(someInstant, 0, all[0]), set.LevelAt(someInstant, 0, all[2]); global != -2*MicroPerToken || queue != 2*MicroPerToken {
		t.Errorf("%d micro-tokens are left of the global limit and %d of the queue's", global, queue)
	}
	// Of the share a tenth of 100 a second comes in, and the global bucket is nearer to what it has to be above its reserve.
	v := Choose(set.Peek(someInstant, 0, beside, 5), set.Peek(someInstant, 0, all, 5))
	if v.Reason != admission.ReasonLimited || v.Scope != ShareOf("a") || Named(v.Scope) != "a" || v.RetryAfter.Milliseconds() != 500 || v.Burst != 10 {
		t.Errorf("a job for which the share comes in first is told %+v", v)
	}
	if v = Choose(set.Peek(someInstant, 0, beside, 11), set.Peek(someInstant, 0, all, 11)); !v.Permanent() {
		t.Errorf("a job beyond the bursts of both ways is told %+v", v)
	}
}
