package share

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/store"
)

// demandOf is a demand in one queue with classes 3:2:1.
func demandOf(high, medium, low float64) *store.Demand {
	return &store.Demand{Queues: []store.QueueDemand{{{Weight: 3, Runnable: high}, {Weight: 2, Runnable: medium}, {Weight: 1, Runnable: low}}}}
}

func TestPartsGoByWeights(t *testing.T) {
	t.Parallel()
	one := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	for name, c := range map[string]struct {
		demands []*store.Demand
		want    []float64
	}{
		"one tenant against a hundred":          {[]*store.Demand{demandOf(0, 1, 0), demandOf(0, 100, 0)}, []float64{1. / 101, 100. / 101}},
		"a class each, by the pattern":          {[]*store.Demand{demandOf(7, 0, 0), demandOf(0, 0, 7)}, []float64{0.75, 0.25}},
		"a class in both and one in the second": {[]*store.Demand{demandOf(1, 0, 0), demandOf(1, 5, 0)}, []float64{0.3, 0.7}},
		"nothing":                               {[]*store.Demand{demandOf(0, 0, 0), nil}, []float64{0, 0}},
		"one that is away":                      {[]*store.Demand{nil, demandOf(0, 2, 0)}, []float64{0, 1}},
	} {
		for p, got := range Parts(one, c.demands) {
			if math.Abs(got-c.want[p]) > 1e-9 {
				t.Errorf("%s: partition %d gets %g, want %g", name, p, got, c.want[p])
			}
		}
	}
	two := []*store.Demand{
		{Queues: []store.QueueDemand{{{Weight: 1, Runnable: 1}}, {{Weight: 1, Runnable: 0}}}},
		{Queues: []store.QueueDemand{{{Weight: 1, Runnable: 0}}, {{Weight: 1, Runnable: 9}}}},
	}
	weighted := store.Pool{Queues: []store.QueueWeight{{Queue: "a", Weight: 3}, {Queue: "b", Weight: 1}}}
	if got := Parts(weighted, two); got[0] != 0.75 || got[1] != 0.25 {
		t.Errorf("queues 3:1 get %v", got)
	}
	weighted.Strict = true
	if got := Parts(weighted, two); got[0] != 1 || got[1] != 0 {
		t.Errorf("strict queues get %v", got)
	}
}

// TestSlotsFollowParts plays workers whose jobs last for some rounds, and asks that nobody ever has more slots than there are
// and that each partition has had its part of them.
func TestSlotsFollowParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(rt, "partitions")
		slots := rapid.IntRange(1, 40).Draw(rt, "slots")
		weights := make([]float64, n)
		sum := 0.0
		for p := range weights {
			weights[p] = float64(rapid.SampledFrom([]int{0, 1, 1, 3, 100}).Draw(rt, "weight"))
			sum += weights[p]
		}
		if sum == 0 {
			return
		}
		const rounds = 2000
		var s Ledger
		had := make([]float64, n)
		given := 0.0
		places := make([]Place, n)
		for range rounds {
			free := slots
			for p := range places {
				places[p].Part = weights[p] / sum
			}
			targets := s.Next(slots, places)
			total := 0
			for p, target := range targets {
				total += target
				places[p].Used = target
				if weights[p] > 0 {
					places[p].Taken = target
					had[p] += float64(target)
				} else {
					free -= target
				}
			}
			given += float64(free)
			if total != slots {
				rt.Fatalf("%v are not %d slots", targets, slots)
			}
		}
		for p := range had {
			want := given * weights[p] / sum
			if math.Abs(had[p]-want) > 2 {
				rt.Errorf("partition %d of weights %v has had %g slots, its part is %g", p, weights, had[p], want)
			}
		}
	})
}

func TestSlotsThatNobodyWaitsForAreSpread(t *testing.T) {
	t.Parallel()
	var s Ledger
	got := s.Next(10, []Place{{Taken: 7, Used: 7}, {}, {}, {Lost: true, Used: 1}})
	for p, want := range []int{7, 1, 1, 1} {
		if got[p] != want {
			t.Errorf("got %v", got)
			break
		}
	}
}
