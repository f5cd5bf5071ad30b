package command

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/headgate/headgate/loadtest/internal/figures"
)

// metric is a figure that is compared: its name in tables and in JSON, and how it is written.
type metric struct {
	// format is of fmt; empty is three digits.
	name, key, format string
	of                func(f *figures.Figures) float64
}

func latencies(name, key string, of func(f *figures.Figures) figures.Latency) []metric {
	return []metric{
		{name + " p50, ms", key + "_p50_ms", "", func(f *figures.Figures) float64 { return of(f).P50 }},
		{name + " p99, ms", key + "_p99_ms", "", func(f *figures.Figures) float64 { return of(f).P99 }},
	}
}

// metrics are in the order of a table.
var metrics = slices.Concat(
	[]metric{
		{"jobs sent", "sent", "%.0f", func(f *figures.Figures) float64 { return float64(f.Sent) }},
		{"admitted", "admitted", "%.0f", func(f *figures.Figures) float64 { return float64(f.Admitted) }},
		{"refused", "refused", "%.0f", refused},
		{"no answer", "no_answer", "%.0f", func(f *figures.Figures) float64 { return float64(f.Unavailable + f.Unknown) }},
		{"completed", "completed", "%.0f", func(f *figures.Figures) float64 { return float64(f.Completed) }},
		{"dead letters", "dead", "%.0f", func(f *figures.Figures) float64 { return float64(f.Dead) }},
		{"  expired", "expired", "%.0f", func(f *figures.Figures) float64 { return float64(f.Expired) }},
		{"held back at the end", "held", "%.0f", func(f *figures.Figures) float64 { return float64(f.Held) }},
		{"lost", "lost", "%.0f", func(f *figures.Figures) float64 { return float64(f.Lost) }},
		{"completed a second", "jobs_per_s", "%.0f", func(f *figures.Figures) float64 { return f.JobsPerS }},
	},
	latencies("Enqueue", "enqueue", func(f *figures.Figures) figures.Latency { return f.Enqueue }),
	latencies("Enqueue to handler", "wait", func(f *figures.Figures) figures.Latency { return f.Wait }),
	latencies("Enqueue to completion", "completion", func(f *figures.Figures) figures.Latency { return f.Completion }),
	latencies("light tenants' wait", "light_wait", func(f *figures.Figures) figures.Latency { return f.Light }),
	latencies("bystanders' wait", "bystander_wait", func(f *figures.Figures) figures.Latency { return f.Bystanders }),
	[]metric{
		{"overload, of capacity in time", "overload_goodput", "%.3f", goodput(func(g *figures.Goodput) float64 { return g.OfCapacity })},
		{"  first class in time, %", "overload_first_class_in_time_percent", "%.2f", goodput(func(g *figures.Goodput) float64 { return percent * g.MostUrgent })},
		{"  last class of refused and late, %", "overload_last_class_refused_percent", "%.1f", goodput(func(g *figures.Goodput) float64 { return percent * g.Last })},
		{"  late of admitted, %", "overload_late_percent", "%.1f", goodput(func(g *figures.Goodput) float64 { return percent * g.Late })},
		{"  until 95 of 100 are in time for good, s", "overload_recovery_s", "%.2f", goodput(func(g *figures.Goodput) float64 { return g.RecoveryS })},
		{"  until none is refused or late, s", "overload_last_turned_away_s", "%.2f", goodput(func(g *figures.Goodput) float64 { return g.LastTurnedAwayS })},
	},
	[]metric{
		{"Jain's index", "jain", "%.4f", func(f *figures.Figures) float64 { return f.Jain.Jain }},
		{"  tenants compared", "jain_compared", "%.0f", func(f *figures.Figures) float64 { return float64(f.Jain.Compared) }},
		{"generator late p99, ms", "lateness_p99_ms", "", func(f *figures.Figures) float64 { return f.Lateness.P99 }},
	},
)

const percent = 100

// goodput returns a figure of an overload, zero of a run without one.
func goodput(of func(g *figures.Goodput) float64) func(f *figures.Figures) float64 {
	return func(f *figures.Figures) float64 {
		if f.Goodput == nil {
			return 0
		}
		return of(f.Goodput)
	}
}

func refused(f *figures.Figures) float64 {
	sum := 0
	for _, n := range f.Refused {
		sum += n
	}
	return float64(sum)
}

// median returns the middle of a metric over runs, the mean of the two middle ones of an even number.
func (m *metric) median(runs []*figures.Figures) float64 {
	values := make([]float64, 0, len(runs))
	for _, run := range runs {
		values = append(values, m.of(run))
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// text writes a value.
func (m *metric) text(value float64) string {
	const threeDigits = 100
	switch {
	case m.format != "":
		return fmt.Sprintf(m.format, value)
	case value >= threeDigits:
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

// empty reports whether a metric is zero for all, so that a table need not say it.
func (m *metric) empty(runs []*figures.Figures) bool {
	return !slices.ContainsFunc(runs, func(f *figures.Figures) bool { return m.of(f) != 0 })
}

// row is a metric of each system as a table shows it.
type row struct {
	name   string
	values []string
}

// rows returns the medians of all metrics that say something.
func (r *result) rows() []row {
	var all []row
	competed := slices.ContainsFunc(r.runs, func(f *figures.Figures) bool { return f.Jain.Compared > 0 })
	for i := range metrics {
		m := &metrics[i]
		if m.empty(r.runs) && m.key != "lost" || m.key == "jain" && !competed {
			continue
		}
		one := row{name: m.name}
		for _, name := range r.systems {
			runs := r.of(name)
			if len(runs) == 0 {
				one.values = append(one.values, "")
				continue
			}
			one.values = append(one.values, m.text(m.median(runs)))
		}
		all = append(all, one)
	}
	return all
}

// ratio returns the first of two values by the second, "" where that says nothing.
func ratio(values []string) string {
	if len(values) != 2 {
		return ""
	}
	a, errA := strconv.ParseFloat(values[0], 64)
	b, errB := strconv.ParseFloat(values[1], 64)
	if errA != nil || errB != nil || a == 0 || b == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g", a/b)
}
