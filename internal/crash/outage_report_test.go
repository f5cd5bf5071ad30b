package crash_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

const (
	// roundsVariable is how often each outage is repeated; `make outage` says seven. reportVariable is where the report
	// goes as report.md and report.json; without it only the former is logged.
	roundsVariable = "HEADGATE_OUTAGE_ROUNDS"
	reportVariable = "HEADGATE_OUTAGE_REPORT"
	// orderedJobs and costedJobs are how many jobs of others are measured in each round, without and with the outage, for how they
	// wait and for what they cost.
	orderedJobs = 3000
	costedJobs  = 15000
)

// BenchmarkOutage measures each outage by itself: what reaches the downstream, what is burnt, how soon workers know, and
// what others' jobs cost and wait, in each round without the outage and then with it.
func BenchmarkOutage(b *testing.B) {
	rounds := 1
	if text := os.Getenv(roundsVariable); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		var rows []outageRow
		for _, illness := range []string{died, behaveFailed, behaveHang, behaveSlow, behaveFlap, cut} {
			b.Run(illness, func(b *testing.B) {
				for b.Loop() {
					rows = append(rows, outageRounds(b, illness, rounds))
				}
				b.ReportMetric(0, "ns/op")
			})
		}
		publish(b, rows, rounds)
	}
	b.ReportMetric(0, "ns/op")
}

// outageRow is a line of the report: sums and medians of several rounds.
type outageRow struct {
	Outage string `json:"outage"`
	// CallsWhileOpen are of jobs that were dispatched while the breaker was open, LateCalls of those dispatched before.
	CallsWhileOpen int     `json:"calls_while_open"`
	LateCalls      int     `json:"late_calls"`
	LateMillis     float64 `json:"late_ms_max"`
	Probes         int     `json:"probes"`
	ProbesBurnt    int     `json:"probes_burnt"`
	// Burnt is the most attempts of a round beside its Bound.
	Burnt           int    `json:"burnt_max"`
	Bound           int    `json:"bound"`
	Trips           int    `json:"trips"`
	OpenMillis      spread `json:"open_everywhere_ms"`
	ClosedMillis    spread `json:"closed_after_return_ms"`
	MicrosWithout   spread `json:"redis_us_job_without"`
	MicrosWith      spread `json:"redis_us_job_with"`
	CommandsWithout spread `json:"commands_job_without"`
	CommandsWith    spread `json:"commands_job_with"`
	StepsWithout    spread `json:"steps_without"`
	StepsWith       spread `json:"steps_with"`
	RunWithout      spread `json:"run_ms_without"`
	RunWith         spread `json:"run_ms_with"`
	Lost            int    `json:"lost"`
}

// spread is what rounds have measured.
type spread []float64

func (s spread) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func (s spread) String() string {
	if len(s) == 0 {
		return "-"
	}
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }
	return fmt.Sprintf("%s (%s-%s)", number(s.median()), number(slices.Min(s)), number(slices.Max(s)))
}

// beyond returns by which part measurements are above those of another spread in the same rounds, as the median.
func (s spread) beyond(other spread) float64 {
	var parts spread
	for i := range s {
		parts = append(parts, s[i]/other[i]-1)
	}
	return parts.median()
}

func outageRounds(b *testing.B, illness string, rounds int) outageRow {
	b.Helper()
	o := newOutage(b, illness)
	o.measure(orderedJobs, costedJobs, nil) // Whatever is slow at the first time is.
	row := outageRow{Outage: illness}
	for range rounds {
		o.settle()
		o.exercise()
		without := o.measure(orderedJobs, costedJobs, nil)
		o.strike()
		with := o.measure(orderedJobs, costedJobs, &without.idle)
		o.mend()
		found := o.audit()
		found.assert(b)
		row.add(found[0], without, with)
	}
	for _, a := range o.actors { // The next one has the machine to itself.
		if a.command != nil {
			o.kill(a)
		}
	}
	return row
}

// settle waits for the end of the slow start after the last round.
func (o *outage) settle() {
	o.Helper()
	o.until("the end of the slow start", func() bool {
		all, err := o.store.Breakers(o.Context())
		return err == nil && !slices.ContainsFunc(all, func(s store.BreakerState) bool { return s.Limit != store.Unlimited })
	})
}

func (r *outageRow) add(v verdict, without, with *measurement) {
	millis := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	r.CallsWhileOpen += v.called
	r.LateCalls += v.late
	r.LateMillis = max(r.LateMillis, millis(v.lateFor))
	r.Probes += v.probes
	r.ProbesBurnt += v.probesBurnt
	r.Burnt, r.Bound = max(r.Burnt, v.burnt), max(r.Bound, v.bound)
	r.Trips += v.trips
	r.Lost += v.lost
	if v.trips > 0 {
		r.OpenMillis, r.ClosedMillis = append(r.OpenMillis, millis(v.openly)), append(r.ClosedMillis, millis(v.closedly))
	}
	r.MicrosWithout, r.MicrosWith = append(r.MicrosWithout, without.micros), append(r.MicrosWith, with.micros)
	r.CommandsWithout, r.CommandsWith = append(r.CommandsWithout, without.commands), append(r.CommandsWith, with.commands)
	r.StepsWithout, r.StepsWith = append(r.StepsWithout, without.steps), append(r.StepsWith, with.steps)
	r.RunWithout, r.RunWith = append(r.RunWithout, millis(without.took)), append(r.RunWith, millis(with.took))
}

func (r *outageRow) markdown() string {
	return fmt.Sprintf("| %s | %d | %d, %.0f ms | %d, %d | %d of %d | %s | %s | %s | %s | %+.1f %% | %+.1f %% | %+.2f %% | %s | %s | %d |",
		r.Outage, r.CallsWhileOpen, r.LateCalls, r.LateMillis, r.Probes, r.ProbesBurnt, r.Burnt, r.Bound,
		r.OpenMillis, r.ClosedMillis, r.MicrosWithout, r.MicrosWith, 100*r.MicrosWith.beyond(r.MicrosWithout),
		100*r.CommandsWith.beyond(r.CommandsWithout), 100*r.StepsWith.beyond(r.StepsWithout), r.RunWithout, r.RunWith, r.Lost)
}

// publish writes the report.
func publish(b *testing.B, rows []outageRow, rounds int) {
	b.Helper()
	head := []string{
		"outage", "calls while open", "late calls, the last after", "probes, burnt", "attempts burnt", "ms until open everywhere",
		"ms until closed after return", "Redis µs a job without", "with", "µs", "commands", "steps", fmt.Sprintf("ms for %d jobs without", costedJobs),
		"with", "lost",
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d workers of %d slots, %d tenants, medians of %d rounds (least-most)\n\n| %s |\n|%s\n",
		outageWorkers, callerSlots, offerTenants, rounds, strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	for i := range rows {
		fmt.Fprintln(&text, rows[i].markdown())
	}
	b.Log("\n" + text.String())
	dir := os.Getenv(reportVariable)
	if dir == "" {
		return
	}
	data, err := json.MarshalIndent(map[string]any{"rounds": rounds, "workers": outageWorkers, "slots": callerSlots, "jobs": costedJobs, "outages": rows}, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o750)
	}
	for name, content := range map[string][]byte{"report.md": []byte(text.String()), "report.json": data} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
}
