package estimate

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

const acme, llm, completion = "acme", "llm", "completion"

// TestTheFirstGuessIsWithinTheBurst: a floor above it refused each first call elsewhere (BerriAI/litellm#29191).
func TestTheFirstGuessIsWithinTheBurst(t *testing.T) {
	t.Parallel()
	var b Book
	for burst, want := range map[admission.Tokens]admission.Tokens{0: First, 1: 1, 100: 100, First: First, 1_000_000_000: First} {
		if got := b.Guess(acme, llm, completion, burst); got != want {
			t.Errorf("of a burst of %d the first is %d, want %d", burst, got, want)
		}
	}
	b.Learn(acme, llm, completion, 5000)
	if got := b.Guess(acme, llm, completion, 100); got != 100 {
		t.Errorf("of a burst of 100 one after 5000 is %d", got)
	}
}

// TestAGuessIsNeverNothing: an increment of zero passed unchecked elsewhere (BerriAI/litellm#35422).
func TestAGuessIsNeverNothing(t *testing.T) {
	t.Parallel()
	var b Book
	for range Remembered {
		b.Learn(acme, llm, completion, 0)
		if got := b.Guess(acme, llm, completion, 100); got != 1 {
			t.Fatalf("after costs of nothing it is %d", got)
		}
	}
}

// TestAGuessIsTheQuantile, whatever costs come.
func TestAGuessIsTheQuantile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var b Book
		all := rapid.SliceOfN(rapid.Int64Range(0, int64(admission.MaxActualCost)), 1, 3*Remembered).Draw(r, "costs")
		for i, actual := range all {
			b.Learn(acme, llm, completion, admission.Tokens(actual))
			last := slices.Clone(all[max(0, i+1-Remembered) : i+1])
			slices.Sort(last)
			want := admission.Tokens(last[int(math.Ceil(0.9*float64(len(last))))-1])
			if got := b.Guess(acme, llm, completion, 0); got != max(1, min(want, admission.MaxCost)) {
				r.Fatalf("after %v it is %d, want %d", last, got, want)
			}
		}
	})
}

// TestKindsAreApart, and what is not used is forgotten where there are too many.
func TestKindsAreApart(t *testing.T) {
	t.Parallel()
	var b Book
	for _, other := range []kind{{"zeta", llm, completion}, {acme, "mail", completion}, {acme, llm, "embedding"}} {
		b.Learn(other.tenant, other.queue, other.of, 7)
		if got := b.Guess(acme, llm, completion, 0); got != First {
			t.Errorf("after %v it is %d", other, got)
		}
	}
	b.Learn(acme, llm, completion, 40)
	for i := range 3 * MaxKinds {
		b.Learn(strconv.Itoa(i), "", "", 9)
		if got := b.Guess(acme, llm, completion, 0); got != 40 {
			t.Fatalf("after %d others one that is used is %d", i, got)
		}
		if b.Known() > MaxKinds {
			t.Fatalf("%d kinds are known", b.Known())
		}
	}
	if got := b.Guess("0", "", "", 0); got != First {
		t.Errorf("one that was not used for %d others is %d", 3*MaxKinds, got)
	}
}

func BenchmarkGuess(b *testing.B) {
	var book Book
	for i := range Remembered {
		book.Learn(acme, llm, completion, admission.Tokens(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		book.Guess(acme, llm, completion, 100)
	}
}

func BenchmarkLearn(b *testing.B) {
	var book Book
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		book.Learn(acme, llm, completion, admission.Tokens(i*7919%1000))
	}
}
