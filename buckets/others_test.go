package buckets

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// TestOthersStayWithinTheirPart: of a limit of which x is kept for some, the others have no more than (1-x)(B + r·t) in any window of random costs, whatever
// those take for whom it is kept, and (1-x)B + r·t where it is lent, of which they leave xB whenever they take; all together have no more than B + r·t; and who
// has the whole of it finds what others cannot take.
func TestOthersStayWithinTheirPart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		percent := rapid.IntRange(1, 99).Draw(t, "percent")
		global := admission.PerSecond(admission.Tokens(rapid.IntRange(1, 1000).Draw(t, "rate"))).WithBurst(admission.Tokens(rapid.IntRange(100, 1000).Draw(t, "burst")))
		kept, lent := global.Keeping(percent), rapid.Bool().Draw(t, "lent")
		if lent {
			kept = kept.Lending()
		}
		path := func(limit admission.Limit) []LevelLimit {
			return AppendPath(nil, [admission.Levels]admission.Limit{limit, {Disabled: true}, {Disabled: true}, {Disabled: true}}, "a", "mail", "low")
		}
		named, others := path(global), path(kept)
		var set Set
		now := someInstant
		type taking struct {
			at   Instant
			cost Micro
		}
		var all, ofOthers []taking
		within := func(takings []taking, burst, rate float64, whose string) {
			last := takings[len(takings)-1]
			sum := Micro(0)
			for _, taking := range slices.Backward(takings) {
				sum += taking.cost
				if bound := burst*float64(MicroOf(global.Burst)) + rate*float64(last.at-taking.at)*float64(global.Rate()); float64(sum) > bound+1 {
					t.Fatalf("%s took %d micro-tokens in %d µs, bound %.0f", whose, sum, last.at-taking.at, bound)
				}
			}
		}
		for range rapid.IntRange(10, 80).Draw(t, "operations") {
			now += Instant(drawSpan(t, "passed"))
			cost, isOther := admission.Tokens(rapid.IntRange(1, 1000).Draw(t, "cost")), rapid.Bool().Draw(t, "other")
			of := named
			if isOther {
				of = others
			}
			before := set.Clone()
			v := set.Take(now, 0, of, cost)
			if v.Decision != admission.Admitted {
				for _, step := range others {
					if set.Bucket(step.Scope) != before.Bucket(step.Scope) {
						t.Fatalf("a refusal changed the bucket of %s", step.Scope)
					}
				}
				continue
			}
			all = append(all, taking{now, MicroOf(cost)})
			within(all, 1, 1, "all")
			if isOther {
				ofOthers = append(ofOthers, taking{now, MicroOf(cost)})
				part, rate := float64(100-percent)/100, 1.0
				if !lent {
					rate = part
				}
				within(ofOthers, part, rate, "others")
				if floor := MicroOf(global.Burst) - others[1].Limit.Burst; lent && set.LevelAt(now, 0, named[0]) < floor {
					t.Fatalf("others left %d micro-tokens of the %d that are kept", set.LevelAt(now, 0, named[0]), floor)
				}
			}
		}
		// Others that ask without end leave what is kept, once it has come in.
		now += Instant(float64(MicroOf(global.Burst))/float64(global.Rate())) + 1
		for set.Take(now, 0, others, 1).Decision == admission.Admitted {
		}
		least := global.Burst * admission.Tokens(percent) / 100
		if v := set.Take(now, 0, named, max(1, least)); least > 0 && v.Decision != admission.Admitted {
			t.Fatalf("of %d tokens %d percent are kept, and others left %+v", global.Burst, percent, v)
		}
	})
}
