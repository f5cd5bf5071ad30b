package control_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/control"
)

// TestASwitchTurns: on when a value has been beyond a bound at each look for a time, off likewise. Each look is a second after the one before.
func TestASwitchTurns(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	above := control.Threshold{Bound: 5, For: 2 * time.Second}
	below := control.Threshold{Below: true, Bound: 3, For: time.Second}
	for name, c := range map[string]struct {
		on, off control.Threshold
		active  bool
		values  []float64
		want    string
	}{
		"it turns on after its time":                 {above, below, false, []float64{6, 6, 6, 6}, "__^^"},
		"at the bound it is not beyond":              {above, below, false, []float64{5, 5, 5, 5}, "____"},
		"a look that is not beyond begins anew":      {above, below, false, []float64{6, 6, 4, 6, 6, 6}, "_____^"},
		"what nobody knows begins anew":              {above, below, false, []float64{6, 6, nan, 6, 6, 6}, "_____^"},
		"it turns off after its time":                {above, below, true, []float64{4, 2, 2, 2}, "^^__"},
		"between the bounds it stays":                {above, below, true, []float64{4, 4, 4, 4, 4, 4}, "^^^^^^"},
		"what nobody knows turns it off":             {above, below, true, []float64{nan, nan, nan}, "^__"},
		"one without a time turns at once":           {control.Threshold{Bound: 5}, control.Threshold{Below: true, Bound: 5}, false, []float64{6, 4, 6}, "^_^"},
		"at the bound of both it turns off":          {control.Threshold{Bound: 0}, control.Threshold{Below: true, Bound: 0}, false, []float64{1, 0, 1}, "^_^"},
		"at the bound of both, below, as well":       {control.Threshold{Below: true, Bound: 1}, control.Threshold{Bound: 1, For: time.Second}, false, []float64{0, 1, 1, 1}, "^^__"},
		"below is beyond too":                        {control.Threshold{Below: true, Bound: 1}, control.Threshold{Bound: 1}, false, []float64{1, 0, 2}, "_^_"},
		"it takes as long again after it has turned": {above, below, false, []float64{6, 6, 6, 2, 2, 6, 6, 6}, "__^^___^"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := control.Switch{On: c.on, Off: c.off, Active: c.active}
			var got strings.Builder
			for i, value := range c.values {
				was := s.Active
				if turned := s.Look(value, time.Unix(int64(i), 0)); turned != (s.Active != was) {
					t.Errorf("look %d says that it turned: %v", i, turned)
				}
				got.WriteString(map[bool]string{false: "_", true: "^"}[s.Active])
			}
			if got.String() != c.want {
				t.Errorf("it was %s, want %s", got.String(), c.want)
			}
		})
	}
	gap := control.Switch{On: above, Off: below}
	gap.Look(9, time.Unix(0, 0))
	if gap.Look(9, time.Unix(100, 0)) {
		t.Error("what nobody looked at counted as beyond")
	}
}

// TestTheStrongestCutCounts, alone: by priority, then by size.
func TestTheStrongestCutCounts(t *testing.T) {
	t.Parallel()
	cut := func(name string, priority int, by float64) control.Cut {
		return control.Cut{Name: name, Priority: priority, By: by}
	}
	for name, c := range map[string]struct {
		cuts        []control.Cut
		want        string
		least, most int
		left        int
	}{
		"a fifth of ten":                    {[]control.Cut{cut("a", 1, -.2)}, "a", 1, 10, 8},
		"two do not add up":                 {[]control.Cut{cut("a", 1, -.2), cut("b", 1, -.3)}, "b", 1, 10, 7},
		"priority goes before size":         {[]control.Cut{cut("a", 2, -.1), cut("b", 1, -.9)}, "a", 1, 10, 9},
		"of equal ones the first by name":   {[]control.Cut{cut("b", 1, -.1), cut("a", 1, -.1)}, "a", 1, 10, 9},
		"never below the least":             {[]control.Cut{cut("a", 1, -.9)}, "a", 4, 10, 4},
		"a limit of one stays":              {[]control.Cut{cut("a", 1, -.5)}, "a", 1, 1, 1},
		"three tenths of a thousand is 700": {[]control.Cut{cut("a", 1, -.3)}, "a", 1, 1000, 700},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := control.Strongest(c.cuts)
			if left := got.Of(c.least, c.most); !ok || got.Name != c.want || left != c.left {
				t.Errorf("%s counts and leaves %d, want %s and %d", got.Name, left, c.want, c.left)
			}
		})
	}
	if _, ok := control.Strongest(nil); ok {
		t.Error("one of none counts")
	}
}

// TestWhatTriggersLeaveIsBounded: whatever is measured, with any triggers on one limit, what is left is never above the policy's nor below the
// least, it is exactly the policy's at a look at which none is on, and one that has no cause for as long as it takes is off: by a plain reading of all
// that was seen.
func TestWhatTriggersLeaveIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 1_000_000).Draw(t, "most")
		least := rapid.IntRange(1, most).Draw(t, "least")
		n := rapid.IntRange(1, 4).Draw(t, "triggers")
		switches, cuts, seen := make([]control.Switch, n), make([]control.Cut, n), make([][]float64, n)
		for i := range n {
			bound := rapid.Float64Range(0, 1).Draw(t, "bound")
			off := bound - rapid.OneOf(rapid.Just(0.), rapid.Float64Range(0, 1)).Draw(t, "hysteresis")
			switches[i] = control.Switch{
				On:  control.Threshold{Bound: bound, For: time.Duration(rapid.IntRange(0, 3).Draw(t, "on for")) * time.Second},
				Off: control.Threshold{Below: true, Bound: off, For: time.Duration(rapid.IntRange(0, 3).Draw(t, "off for")) * time.Second},
			}
			cuts[i] = control.Cut{Name: strconv.Itoa(i), Priority: rapid.IntRange(0, 2).Draw(t, "priority"), By: -rapid.Float64Range(.01, .99).Draw(t, "by")}
		}
		anything := rapid.OneOf(rapid.Float64Range(-1, 2), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)), rapid.Just(math.Inf(-1)))
		for look := range rapid.IntRange(1, 30).Draw(t, "looks") {
			var on []control.Cut
			for i := range n {
				value := rapid.OneOf(anything, rapid.SampledFrom([]float64{switches[i].On.Bound, switches[i].Off.Bound}))
				seen[i] = append(seen[i], value.Draw(t, "value"))
				switches[i].Look(seen[i][look], time.Unix(int64(look), 0))
				if want := plain(switches[i].On, switches[i].Off, seen[i]); switches[i].Active != want {
					t.Fatalf("after %v trigger %d is on: %v, want %v", seen[i], i, switches[i].Active, want)
				}
				if switches[i].Active {
					on = append(on, cuts[i])
				}
			}
			left := most
			if c, ok := control.Strongest(on); ok {
				left = c.Of(least, most)
				for _, other := range on {
					if other.Priority == c.Priority && other.Of(least, most) < left {
						t.Fatalf("%v leaves less than %v", other, c)
					}
				}
			}
			if left > most || left < least || len(on) == 0 && left != most {
				t.Fatalf("of %d to %d there are %d left, with %d on", least, most, left, len(on))
			}
		}
	})
}

// plain says whether a trigger is on after what was seen, a look a second, without keeping anything. What turns one that is on off is a value beyond
// the bound of off, one nobody knows, and, where both bounds are the same, one at them.
func plain(on, off control.Threshold, seen []float64) (active bool) {
	from := 0 // from where on it counts
	for i := range seen {
		turns, turning := on, on.Beyond
		if active {
			turns, turning = off, func(value float64) bool {
				return off.Beyond(value) || math.IsNaN(value) || on.Bound == off.Bound && value == on.Bound
			}
		}
		holds := 0
		for j := i; j >= from && turning(seen[j]); j-- {
			holds++
		}
		if holds > 0 && time.Duration(holds-1)*time.Second >= turns.For {
			active, from = !active, i+1
		}
	}
	return active
}
