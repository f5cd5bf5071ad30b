package fairness

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// spellsOf reads a log, a letter a dispatch, as spells that last from end to end.
func spellsOf(log []byte) []Spell {
	var all []Spell
	index := map[byte]int{}
	for place, letter := range log {
		if _, ok := index[letter]; !ok {
			index[letter] = len(all)
			all = append(all, NewSpell(string(letter)))
		}
		all[index[letter]].Add(place, 1)
	}
	return all
}

func equalWeight(string) float64 { return 1 }

func TestJainIsBetweenOneOfAllAndOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shares := rapid.SliceOfN(rapid.Float64Range(0.01, 1000), 1, 50).Draw(t, "shares")
		index := Jain(shares)
		if index < 1/float64(len(shares))-1e-9 || index > 1+1e-9 {
			t.Fatalf("%g is out of [1/n, 1]", index)
		}
		scale := rapid.Float64Range(0.1, 10).Draw(t, "scale")
		scaled := make([]float64, len(shares))
		for i, x := range shares {
			scaled[i] = scale * x
		}
		if math.Abs(Jain(scaled)-index) > 1e-9 {
			t.Fatalf("%g of the shares, %g of their multiples", index, Jain(scaled))
		}
	})
}

func TestWeightsDivideService(t *testing.T) {
	t.Parallel()
	var log []byte
	for range 40 {
		log = append(log, 'a', 'a', 'b')
	}
	doubled := Compare(spellsOf(log), func(tenant string) float64 { return map[string]float64{"a": 2, "b": 1}[tenant] })
	if doubled.Compared != 2 || doubled.Jain < 0.999 {
		t.Errorf("a has twice the weight and twice the service: %+v", doubled)
	}
	if even := Compare(spellsOf(log), equalWeight); even.Compared != 2 || math.Abs(even.Jain-0.9) > 0.01 {
		t.Errorf("a has twice the service of b: %+v, want 0.9", even)
	}
}

func TestOnlySpansInWhichAllHadWorkCount(t *testing.T) {
	t.Parallel()
	first, second := NewSpell("a"), NewSpell("b")
	for place := range 100 {
		first.Add(place, 1)
		second.Add(place+100, 1)
	}
	if even := Compare([]Spell{first, second}, equalWeight); even.Compared != 0 || even.Jain != 1 {
		t.Errorf("a was gone before b came: %+v", even)
	}
}
