package command

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/report"
)

// newTable returns a table whose first column holds words, the others numbers.
func newTable(to io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(to)
	t.SetStyle(table.StyleRounded)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	columns := make([]table.ColumnConfig, 0, len(header))
	for i := 2; i <= len(header); i++ {
		columns = append(columns, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

// write prints a scenario's medians and what held.
func (r *result) write(to io.Writer) {
	compared := len(r.systems) == 2
	header := []any{r.scenario}
	for _, name := range r.systems {
		if rounds := len(r.of(name)); rounds > 1 {
			name = fmt.Sprintf("%s, median of %d", name, rounds)
		}
		header = append(header, name)
	}
	if compared {
		header = append(header, "ratio")
	}
	t := newTable(to, header...)
	for _, one := range r.rows() {
		cells := table.Row{one.name}
		for _, value := range one.values {
			cells = append(cells, value)
		}
		if compared {
			cells = append(cells, ratio(one.values))
		}
		t.AppendRow(cells)
	}
	t.Render()
	for _, run := range r.runs {
		writeNotes(to, run)
	}
	fmt.Fprintln(to)
}

// writeNotes prints what a table has no room for.
func writeNotes(to io.Writer, f *figures.Figures) {
	if len(f.Refused) > 0 {
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(f.Refused)) {
			reasons = append(reasons, fmt.Sprintf("%s %d", reason, f.Refused[reason]))
		}
		fmt.Fprintf(to, "%s refused: %s\n", f.System, strings.Join(reasons, ", "))
	}
	if f.Goodput != nil {
		for i := range f.Classes {
			c := &f.Classes[i]
			fmt.Fprintf(to, "%s %s: asked %d, in time %d, refused %d, wait p99 %.0f ms before the overload and %.0f ms of those who came in it\n",
				f.System, c.Name, c.Asked, c.InTime, c.Refused, c.Before.P99, c.During.P99)
		}
	}
	for _, b := range f.Bounds {
		fmt.Fprintf(to, "%s bound of %s: admitted %d, used %.0f %% of burst %d at %.4g/s\n", f.System, b.Scope, b.Admitted, 100*b.Used, b.Burst, b.Rate)
	}
	for _, c := range f.Caps {
		fmt.Fprintf(to, "%s cap of queue %s: %d of %d running at most\n", f.System, c.Queue, c.Most, c.Cap)
	}
	if f.Census != nil && len(f.Broken) == 0 {
		fmt.Fprintf(to, "%s: every promise held: none lost by the census, every bound kept\n", f.System)
	}
	writeBroken(to, f)
}

func writeBroken(to io.Writer, f *figures.Figures) {
	for _, broken := range f.Broken {
		fmt.Fprintf(to, "%s BROKEN: %s\n", f.System, broken)
	}
}

// document is what -json prints.
type document struct {
	Machine   string             `json:"machine"`
	Scenarios []scenarioDocument `json:"scenarios"`
}

type scenarioDocument struct {
	Configuration configuration `json:"configuration"`
	// Medians are by system and metric.
	Medians map[string]map[string]float64 `json:"medians"`
	Runs    []*figures.Figures            `json:"runs"`
}

func writeJSON(to io.Writer, results []result) error {
	d := document{Machine: machine(), Scenarios: []scenarioDocument{}}
	for i := range results {
		r := &results[i]
		one := scenarioDocument{r.configuration, map[string]map[string]float64{}, r.runs}
		for _, name := range r.systems {
			runs := r.of(name)
			if len(runs) == 0 {
				continue
			}
			one.Medians[name] = map[string]float64{}
			for k := range metrics {
				one.Medians[name][metrics[k].key] = metrics[k].median(runs)
			}
		}
		d.Scenarios = append(d.Scenarios, one)
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(d); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// writeRow prints the medians of an overload as a row of the table of docs/perf/load-test.md: each figure of all systems, in their order.
func writeRow(to io.Writer, spec *load.Spec, results []result) error {
	for i := range results {
		r := &results[i]
		cells := []string{fmt.Sprintf("%g times, %s", spec.Overload, spec.Shape)}
		for _, column := range rowColumns {
			m := &metrics[slices.IndexFunc(metrics, func(m metric) bool { return m.key == column.key })]
			var values []string
			for _, name := range r.systems {
				if runs := r.of(name); len(runs) > 0 {
					values = append(values, fmt.Sprintf(column.format, m.median(runs)))
				}
			}
			cells = append(cells, strings.Join(values, ", "))
		}
		if _, err := fmt.Fprintf(to, "| %s |\n", strings.Join(cells, " | ")); err != nil {
			return fmt.Errorf("print a row: %w", err)
		}
	}
	return nil
}

// rowColumns are the metrics of writeRow, and how it writes them.
var rowColumns = []struct{ key, format string }{
	{"overload_goodput", "%.2f"},
	{"overload_first_class_in_time_percent", "%.0f"},
	{"overload_late_percent", "%.0f"},
	{"overload_recovery_s", "%.1f"},
	{"overload_last_turned_away_s", "%.1f"},
	{"overload_last_class_refused_percent", "%.0f"},
}

// machine says where it was measured.
func machine() string {
	return fmt.Sprintf("%s/%s, %d processors shared by the generator, the worker and Redis, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

func writeReport(dir string, results []result) error {
	r := report.Report{When: time.Now().Format("2006-01-02 15:04"), Machine: machine()}
	for i := range results {
		one := &results[i]
		s := report.Section{Scenario: one.scenario, Configuration: one.configuration.load() + "; every law on: " + one.configuration.laws()}
		for _, name := range one.systems {
			if len(one.of(name)) > 0 {
				s.Runs = append(s.Runs, one.typical(name))
			}
		}
		for _, cells := range one.rows() {
			s.Rows = append(s.Rows, report.Row{Name: cells.name, Values: cells.values})
		}
		r.Sections = append(r.Sections, s)
	}
	return report.Write(dir, r)
}
