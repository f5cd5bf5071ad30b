package shown

import (
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestATrialTellsHowOftenATriggerWouldHaveActed: by a point each 10 s, of which some are missing, with a trigger of 10 s each way.
func TestATrialTellsHowOftenATriggerWouldHaveActed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		depths string // of ten jobs each; . is a point that is missing, ? one of which nobody knew it
		want   string
	}{
		"never":                           {"5555", "0 times, 0s, 50 to 50 in 4 points:"},
		"a single point is no ten second": {"5959", "0 times, 0s, 50 to 90 in 4 points:"},
		"twice":                           {"599955995", "2 times, 40s, 50 to 90 in 9 points: 20-50 70-"},
		"it acts still":                   {"9999", "1 times, 20s, 90 to 90 in 4 points: 10-"},
		"what is missing is no cause":     {"9....9", "0 times, 0s, 90 to 90 in 2 points:"},
		"what nobody knows is none":       {"9?9", "0 times, 0s, 90 to 90 in 2 points:"},
		"what nobody knows ends it":       {"999??5", "1 times, 30s, 50 to 90 in 4 points: 10-40"},
		"a look that knows nothing":       {"999?9", "1 times, 30s, 90 to 90 in 4 points: 10-"},
		"two points missed":               {"99..9", "1 times, 30s, 90 to 90 in 3 points: 10-"},
		"nobody looked any more":          {"999.....9", "1 times, 40s, 90 to 90 in 4 points: 10-50"},
		"nobody looks any more":           {"99....", "1 times, 30s, 90 to 90 in 2 points: 10-40"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []triggerPoint
			for i, depth := range c.depths {
				value := float64(depth-'0') * 10
				if depth == '?' {
					value = math.NaN()
				}
				if depth != '.' {
					seen = append(seen, triggerPoint{time.Unix(0, 0).Add(time.Duration(i) * store.LoadStep), value})
				}
			}
			var v TriggerTrial
			v.run(control.Switch{
				On: control.Threshold{Bound: 60, For: 10 * time.Second}, Off: control.Threshold{Below: true, Bound: 60, For: 10 * time.Second},
			}, seen, time.Unix(0, 0).Add(time.Duration(len(c.depths)-1)*store.LoadStep))
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

// TestATrialOfABreakerGoesByItsTransitions, those that are kept: who has none has been in its state for as long as any is.
func TestATrialOfABreakerGoesByItsTransitions(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	s := store.Single(memory.New(memory.Config{Now: func() time.Time { return now }}), io.NopCloser(nil))
	force := func(downstream string, to breaker.State) {
		t.Helper()
		if _, err := s.ForceBreaker(t.Context(), downstream, to, 0, store.Intervention{}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(when, of string, above float64, want string) {
		t.Helper()
		p := policy.Policy{Triggers: map[string]policy.Trigger{"t": {
			Metric: policy.MetricBreaker, MeasuredOf: "downstream " + of, When: policy.TriggerBound{Above: new(above), For: 5 * time.Second}, Do: policy.PauseJobs, Of: "queue mail",
		}}}
		v, err := TryTrigger(t.Context(), s, p.Trigger("t"))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d times, %s, in %d points", v.Fired, time.Duration(v.ActiveMS)*time.Millisecond, v.Points); got != want {
			t.Errorf("%s of %s above %g: %s, want %s", when, of, above, got, want)
		}
	}
	says("nothing is known", "smtp", 0, "0 times, 0s, in 3601 points")
	force("sms", breaker.Open)
	force("smtp", breaker.Open)
	now = now.Add(12 * time.Second)
	force("smtp", breaker.Closed)
	now = now.Add(30 * time.Minute)
	for _, of := range []string{"smtp", "smtp+eu"} { // Of an account it is that of its service.
		says("after half an hour", of, 1, "1 times, 12s, in 3601 points") // It acts from 5 s on, until it has been closed for 5 s.
		says("after half an hour", of, 2, "0 times, 0s, in 3601 points")
	}
	for range 1000 {
		force("other", breaker.Open)
		force("other", breaker.Closed)
	}
	now = now.Add(10 * time.Minute)
	says("of what is left", "smtp", 0, "0 times, 0s, in 601 points")
	says("of what is left", "sms", 0, "1 times, 9m55s, in 601 points")
}
