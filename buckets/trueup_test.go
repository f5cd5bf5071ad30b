package buckets

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// reservation is work that has entered, and what became of its cost.
type reservation struct {
	entered, ended int // indexes of moments; ended is 0 while it runs
	at             Instant
	reserved       admission.Tokens
	back, beyond   Micro
}

// ledger is one bucket whose work tells what it cost once it ends.
type ledger struct {
	set     Set
	step    LevelLimit
	moments []Instant
	work    []reservation
}

func (l *ledger) now() Instant { return l.moments[len(l.moments)-1] }

func (l *ledger) enter(cost admission.Tokens) {
	if l.set.Take(l.now(), 0, []LevelLimit{l.step}, cost).Decision == admission.Admitted {
		l.work = append(l.work, reservation{entered: len(l.moments) - 1, at: l.now(), reserved: cost})
	}
}

func (l *ledger) end(w *reservation, actual admission.Tokens) {
	level, stamp := Settle(l.now(), 0, l.set.Bucket(l.step.Scope), l.step.Limit)
	to := TrueUp(level, l.step.Limit, w.reserved, actual, Span(l.now()-w.at), 0)
	l.set.Put(l.step.Scope, NewBucket(to, stamp, l.step.Limit))
	w.ended, w.back, w.beyond = len(l.moments)-1, max(0, to-level), max(0, level-to)
}

// L1 of costs that are known only afterwards: in every window what entered, less what it gave back, and what ended beyond its reservation
// together stay within a burst, the refill, and one debt of a burst at most. What entered stays within a burst and the refill alone.
func TestCommittedCostStaysWithinTheBoundAndOneDebt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &ledger{step: LevelLimit{"acme", drawChoice(t, "limit")}, moments: []Instant{someInstant}}
		for range rapid.IntRange(20, 80).Draw(t, "operations") {
			switch rapid.IntRange(0, 5).Draw(t, "operation") {
			case 0, 1:
				l.moments = append(l.moments, l.now()+Instant(rapid.SampledFrom([]Span{1, 10_000, 1_000_000, 12_345_678, 100_000_000}).Draw(t, "elapsed")))
			case 2, 3:
				l.enter(rapid.SampledFrom([]admission.Tokens{1, 2, 10, 30, 60}).Draw(t, "cost"))
			default:
				if len(l.work) == 0 {
					continue
				}
				w := &l.work[rapid.IntRange(0, len(l.work)-1).Draw(t, "which")]
				if w.ended == 0 && w.entered < len(l.moments)-1 {
					l.end(w, rapid.SampledFrom([]admission.Tokens{0, 1, 5, 20, 59, 100, 10_000}).Draw(t, "actual"))
				}
			}
		}
		for first := range l.moments {
			for last := first; last < len(l.moments); last++ {
				l.checkWindow(t, first, last)
			}
		}
	})
}

func (l *ledger) checkWindow(t *rapid.T, first, last int) {
	var entered, beyond Micro
	for _, w := range l.work {
		if first <= w.entered && w.entered <= last {
			entered += MicroOf(w.reserved) - w.back
		}
		if w.ended > 0 && first <= w.ended && w.ended <= last {
			beyond += w.beyond
		}
	}
	bound := float64(l.step.Limit.Burst) + float64(l.moments[last]-l.moments[first])*float64(l.step.Limit.Rate) + 2
	if float64(entered) > bound {
		t.Fatalf("%d micro-tokens entered in a window bounded by %.0f", entered, bound)
	}
	if debt := float64(l.step.Limit.Burst); float64(entered+beyond) > bound+debt {
		t.Fatalf("%d micro-tokens were committed in a window bounded by %.0f and a debt of %.0f", entered+beyond, bound, debt)
	}
}

func TestTrueUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says             string
		level            Micro
		reserved, actual admission.Tokens
		elapsed          Instant
		want             Micro
	}{
		{"as much as reserved", 5_000_000, 20, 20, second, 5_000_000},
		{"less, at once", 5_000_000, 20, 5, 0, 20_000_000},
		{"less, after a time that brought less than was used", 5_000_000, 20, 12, second, 13_000_000},
		{"less, after a time that brought all but 5", 5_000_000, 20, 0, 3 * second / 2, 9_999_999},
		{"less, after a time that brought all", 5_000_000, 20, 0, 2 * second, 5_000_000},
		{"less, into a bucket with little room", 95_000_000, 20, 0, 0, 100_000_000},
		{"less, by a clock that was set back", 5_000_000, 20, 5, -second, 20_000_000},
		{"more, down to nothing", 5_000_000, 20, 25, second, 0},
		{"more, into debt", 5_000_000, 20, 65, second, -40_000_000},
		{"more than a debt may be", 5_000_000, 20, 10_000_000, second, -100_000_000},
		{"more, under a burst that was lowered", -150_000_000, 20, 21, second, -150_000_000},
	} {
		if got := TrueUp(c.level, limitOf(10, 100), c.reserved, c.actual, Span(c.elapsed), 0); got != c.want {
			t.Errorf("%s: %d, want %d", c.says, got, c.want)
		}
	}
}
