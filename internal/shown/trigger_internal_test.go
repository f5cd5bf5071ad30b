package shown

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/store"
)

// TestATrialTellsHowOftenATriggerWouldHaveActed: by a point each 10 s, of which some are missing, with a trigger of 10 s each way.
func TestATrialTellsHowOftenATriggerWouldHaveActed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		depths string // of ten jobs each; . is a point that is missing
		want   string
	}{
		"never":                           {"5555", "0 times, 0s, 50 to 50 in 4 points:"},
		"a single point is no ten second": {"5959", "0 times, 0s, 50 to 90 in 4 points:"},
		"twice":                           {"599955995", "2 times, 40s, 50 to 90 in 9 points: 20-50 70-"},
		"it acts still":                   {"9999", "1 times, 20s, 90 to 90 in 4 points: 10-"},
		"what is missing is no cause":     {"9....9", "0 times, 0s, 90 to 90 in 2 points:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []triggerPoint
			for i, depth := range c.depths {
				if depth != '.' {
					seen = append(seen, triggerPoint{time.Unix(0, 0).Add(time.Duration(i) * store.LoadStep), float64(depth-'0') * 10})
				}
			}
			var v TriggerTrial
			v.run(control.Switch{
				On: control.Threshold{Bound: 60, For: 10 * time.Second}, Off: control.Threshold{Below: true, Bound: 60, For: 10 * time.Second},
			}, seen)
			var got strings.Builder
			fmt.Fprintf(&got, "%d times, %v, %g to %g in %d points:", v.Fired, time.Duration(v.ActiveMS)*time.Millisecond, *v.Least, *v.Most, v.Points)
			for _, span := range v.Spans {
				fmt.Fprintf(&got, " %d-", span.From.Unix())
				if span.To != nil {
					fmt.Fprint(&got, span.To.Unix())
				}
			}
			if got.String() != c.want {
				t.Errorf("got  %s\nwant %s", got.String(), c.want)
			}
		})
	}
}
