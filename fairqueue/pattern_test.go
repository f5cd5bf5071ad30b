package fairqueue

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPatternIsARotation asserts law L6 on the pattern alone: while all can run, what it gives is a stretch of the
// pattern, whatever happened before.
func TestPatternIsARotation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 6).Draw(rt, "weights")
		p := NewPattern(weights)
		for range rapid.IntRange(0, 30).Draw(rt, "before") {
			up := rapid.SliceOfN(rapid.Bool(), len(weights), len(weights)).Draw(rt, "up")
			if i, ok := p.Next(func(i int) bool { return up[i] }); ok {
				if !up[i] {
					rt.Fatalf("gave a turn to %d, which cannot run", i)
				}
				p.Commit(i)
			} else if slices.Contains(up, true) {
				rt.Fatalf("gave no turn though %v can run", up)
			}
		}
		var round []int
		for i, weight := range weights {
			round = append(round, slices.Repeat([]int{i}, weight)...)
		}
		var got []int
		for range 3 * len(round) {
			i, _ := p.Next(func(int) bool { return true })
			p.Commit(i)
			got = append(got, i)
		}
		if !isStretch(got, round) {
			rt.Fatalf("%v is no stretch of %v", got, round)
		}
	})
}

// isStretch reports whether got is a part of round repeated for ever.
func isStretch(got, round []int) bool {
	for shift := range round {
		same := true
		for i := range got {
			same = same && got[i] == round[(shift+i)%len(round)]
		}
		if same {
			return true
		}
	}
	return false
}

// TestPatternStarvesNobody: between two turns of one that can always run lie at most the weights of all others.
func TestPatternStarvesNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 5), 2, 6).Draw(rt, "weights")
		steady := rapid.IntRange(0, len(weights)-1).Draw(rt, "steady")
		others := -weights[steady]
		for _, weight := range weights {
			others += weight
		}
		p, waited := NewPattern(weights), 0
		for range 100 {
			up := rapid.SliceOfN(rapid.Bool(), len(weights), len(weights)).Draw(rt, "up")
			up[steady] = true
			i, _ := p.Next(func(i int) bool { return up[i] })
			p.Commit(i)
			waited++
			if i == steady {
				waited = 0
			}
			if waited > others {
				rt.Fatalf("%d waited for %d turns, the others weigh %d", steady, waited, others)
			}
		}
	})
}

func ExamplePattern() {
	p := NewPattern([]int{3, 2, 1})
	for range 12 {
		i, _ := p.Next(func(int) bool { return true })
		p.Commit(i)
		fmt.Print("HML"[i : i+1])
	}
	// Output: HHHMMLHHHMML
}
