package ops

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
)

// breakerWhy says in a few words what brought the state about.
func breakerWhy(v shown.Breaker) string {
	switch {
	case v.Cause == breaker.CauseNone.String():
		return "from the beginning"
	case v.Reason != "" && (v.Forced || v.Cause == breaker.CauseReset.String()):
		return v.Cause + cli.Because(v.Reason)
	}
	return v.Cause
}

// breakerCalls says in a few words what the window holds.
func breakerCalls(v shown.Breaker) string {
	w := v.Window
	return fmt.Sprintf("%d of %d failed, %d were slow", w.Failures, w.Successes+w.Failures, w.Slow)
}

// breakerLife says what was counted since the beginning.
func breakerLife(l shown.Life) string {
	if l.TotalCalls == 0 {
		return "none"
	}
	text := fmt.Sprintf("%d, %.4g %% well, %.3g ms in the mean", l.TotalCalls, 100*l.SuccessRate, l.AverageRunMS)
	if l.LastFailure != nil {
		text += ", the last failure at " + cli.Clock(*l.LastFailure)
	}
	return text
}

func breakerErrors(all []shown.CallError) string {
	lines := make([]string, len(all))
	for i, e := range all {
		lines[i] = fmt.Sprintf("%s, %d times: %s", cli.Clock(e.At), e.Count, report.Tame(e.Text, 0))
	}
	return strings.Join(lines, "\n")
}

// breakerOrigins says where rules are from.
var breakerOrigins = map[string]string{"default": "the defaults", "worker": "a worker's configuration", "policy": "the policy"}

func breakerRules(r *shown.Rules) string {
	return fmt.Sprintf(`from %s
open on %d failures in a row, or %.4g %% failed or %.4g %% slow of at least %d calls in %s
open for %s at most, doubled with each trip in a row up to %s
close on %d probes that pass, %d at a time, each within %s`,
		breakerOrigins[r.Origin], r.FailureThreshold, 100*r.FailureRate, 100*r.SlowCallRate, r.MinCalls, r.Window, r.OpenBase, r.OpenMax,
		r.SuccessThreshold, r.MaxProbes, r.ProbeTimeout)
}

func breakerDiffers(d *shown.Differs) string {
	if d == nil {
		return ""
	}
	lines := []string{"of " + d.Worker + ", not in force:"}
	for _, field := range slices.Sorted(maps.Keys(d.Fields)) {
		lines = append(lines, field+" "+d.Fields[field])
	}
	return strings.Join(lines, "\n")
}

func breakerTenants(v shown.Breaker) string {
	if v.Tenants < 2 {
		return ""
	}
	return fmt.Sprintf("about %d, of them %d fail", v.Tenants, v.FailingTenants)
}

func writeBreaker(to io.Writer, v shown.Breaker) {
	fmt.Fprintf(to, "Breaker of downstream %s: %s since %s%s, %s\n", v.Downstream, v.State, cli.Clock(v.Since), cli.Until(v.Until), breakerWhy(v))
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
		{"calls", breakerCalls(v)},
		{"pressure", fmt.Sprintf("%s, %.0f %% of what opens it", v.Pressure.Level, 100*v.Pressure.Score)},
		{"failures in a row", strconv.FormatUint(v.Window.FailureStreak, 10)},
		{"probes", probes},
		{"trips", fmt.Sprintf("%d, of them %d in a row", v.Trips, v.TripsInRow)},
		{"last reason", report.Tame(v.Reason, 0)},
		{"calls ever", breakerLife(v.Life)},
		{"last errors", breakerErrors(v.Errors)},
		{"rules", breakerRules(&v.Rules)},
		{"other rules", breakerDiffers(v.Rules.Differs)},
		{"tenants that call", breakerTenants(v)},
		{"workers that call", strings.Join(v.Callers, "\n")},
		{"workers that fail", strings.Join(v.Voters, "\n")},
	} {
		if row.value != "" {
			t.AppendRow(table.Row{row.name, row.value})
		}
	}
	t.Render()
}

func writeBreakers(to io.Writer, v shown.Breakers) {
	if len(v.Breakers) == 0 {
		return
	}
	t := report.NewTable(to, 5, "downstream", "state", "since", "until", "why", "waiting", "calls", "trips")
	for _, b := range v.Breakers {
		t.AppendRow(table.Row{b.Downstream, b.State, cli.Clock(b.Since), cli.At(b.Until), breakerWhy(b), b.Waiting, breakerCalls(b), b.Trips})
	}
	t.Render()
}
