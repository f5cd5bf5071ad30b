package command

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/lua"
)

// breakerView is a breaker as JSON shows it.
type breakerView struct {
	Downstream string    `json:"downstream"`
	State      string    `json:"state"`
	Cause      string    `json:"cause"`
	Since      time.Time `json:"since"`
	// Until is when the state ends by time alone.
	Until *time.Time `json:"until,omitempty"`
	// Forced says that an operator chose the state, Reason is the one that an operator gave last.
	Forced bool   `json:"forced"`
	Reason string `json:"reason,omitempty"`
	// Waiting is how many jobs of the downstream wait, Limit how many may be in workers' hands at a time; absent for any
	// number.
	Waiting int64 `json:"waiting"`
	Limit   *int  `json:"limit,omitempty"`
	// Window is what is counted, or was when the breaker was closed last.
	Window windowView `json:"window"`
	// Callers are the workers that called in that window, Voters those of them whose own calls were bad enough.
	Callers []string   `json:"callers"`
	Voters  []string   `json:"voters"`
	Probes  probesView `json:"probes"`
	// Ramp is the step of the slow start, 0 for none.
	Ramp       int    `json:"ramp"`
	Trips      uint64 `json:"trips"`
	TripsInRow uint64 `json:"trips_in_row"`
}

type windowView struct {
	Successes     uint64  `json:"successes"`
	Failures      uint64  `json:"failures"`
	Slow          uint64  `json:"slow"`
	FailureRate   float64 `json:"failure_rate"`
	SlowCallRate  float64 `json:"slow_call_rate"`
	FailureStreak uint64  `json:"failure_streak"`
}

// probesView counts those of the present half-open period.
type probesView struct {
	Passed uint64 `json:"passed"`
	Slow   uint64 `json:"slow"`
}

func breakerViewOf(b *lua.BreakerState) breakerView {
	v := breakerView{
		Downstream: b.Downstream, State: b.State.String(), Cause: b.Cause.String(), Since: b.Since.UTC(), Until: stamp(b.Until),
		Forced: b.Forced, Reason: b.Reason, Waiting: b.Waiting,
		Window: windowView{
			Successes: b.Window.Successes, Failures: b.Window.Failures, Slow: b.Window.Slow,
			FailureRate: float64(b.Window.FailureRate()), SlowCallRate: float64(b.Window.SlowCallRate()), FailureStreak: b.FailureStreak,
		},
		Callers: append([]string{}, b.Callers...), Voters: append([]string{}, b.Voters...), Probes: probesView{b.ProbesPassed, b.SlowProbes},
		Ramp: b.Ramp, Trips: b.Trips, TripsInRow: b.TripsInRow,
	}
	if b.Limit != lua.Unlimited {
		v.Limit = new(b.Limit)
	}
	return v
}

// why says in a few words what brought the state about.
func (v breakerView) why() string {
	switch {
	case v.Cause == breaker.CauseNone.String():
		return "from the beginning"
	case v.Reason != "" && (v.Forced || v.Cause == breaker.CauseReset.String()):
		return v.Cause + because(v.Reason)
	}
	return v.Cause
}

// calls says in a few words what the window holds.
func (v breakerView) calls() string {
	w := v.Window
	return fmt.Sprintf("%d of %d failed, %d were slow", w.Failures, w.Successes+w.Failures, w.Slow)
}

func (v breakerView) write(to io.Writer) {
	fmt.Fprintf(to, "Breaker of downstream %s: %s since %s%s, %s\n", v.Downstream, v.State, clock(v.Since), until(v.Until), v.why())
	limit := "any number at a time"
	switch {
	case v.Limit != nil && *v.Limit == 0:
		limit = "none more"
	case v.Limit != nil:
		limit = fmt.Sprintf("at most %d at a time", *v.Limit)
	}
	if v.Ramp > 0 {
		limit += ", while it starts slowly"
	}
	probes := ""
	if v.State == breaker.HalfOpen.String() {
		probes = fmt.Sprintf("%d passed, %d were slow", v.Probes.Passed, v.Probes.Slow)
	}
	t := report.NewTable(to, 2, "field", "value")
	for _, row := range []struct{ name, value string }{
		{"jobs that wait", strconv.FormatInt(v.Waiting, 10)},
		{"jobs that start", limit},
		{"calls", v.calls()},
		{"failures in a row", strconv.FormatUint(v.Window.FailureStreak, 10)},
		{"probes", probes},
		{"trips", fmt.Sprintf("%d, of them %d in a row", v.Trips, v.TripsInRow)},
		{"last reason", tame(v.Reason, 0)},
		{"workers that call", strings.Join(v.Callers, "\n")},
		{"workers that fail", strings.Join(v.Voters, "\n")},
	} {
		if row.value != "" {
			t.AppendRow(table.Row{row.name, row.value})
		}
	}
	t.Render()
}

// breakersView is the breakers of all downstreams.
type breakersView struct {
	Breakers []breakerView `json:"breakers"`
}

func (v breakersView) write(to io.Writer) {
	if len(v.Breakers) == 0 {
		return
	}
	t := report.NewTable(to, 5, "downstream", "state", "since", "until", "why", "waiting", "calls", "trips")
	for _, b := range v.Breakers {
		t.AppendRow(table.Row{b.Downstream, b.State, clock(b.Since), at(b.Until), b.why(), b.Waiting, b.calls(), b.Trips})
	}
	t.Render()
}
