package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/headgate/headgate/admission"
)

// WriteTotals writes what became of all jobs.
func (s *Summary) WriteTotals(to io.Writer) {
	t := NewTable(to, 1, "jobs", "number", "")
	t.Left(3)
	t.AppendRow(table.Row{"rows", s.Rows, fmt.Sprintf("of which %d are bad and %d excluded", s.BadRows, s.ExcludedRows)})
	t.AppendRow(table.Row{"submitted", s.Submitted, "= admitted + duplicates + refused"})
	t.AppendRow(table.Row{"admitted", s.Admitted, "= completed + expired + dropped + cancelled + dead + waiting"})
	t.AppendRow(table.Row{"duplicates", s.Duplicates, "the same job again: it runs once"})
	refused := 0
	for _, n := range s.Refused {
		refused += n
	}
	t.AppendRow(table.Row{"refused", refused, reasons(s.Refused)})
	t.AppendSeparator()
	for _, line := range []struct {
		name string
		n    int64
		note string
	}{
		{"completed", s.Completed, "the handler said yes"},
		{"expired", s.Expired, "its deadline passed before it could start"},
		{"dropped", s.Dropped, ""},
		{"cancelled", s.Cancelled, ""},
		{"dead", s.Dead, "out of attempts, kept as dead letters"},
		{"waiting", s.Waiting, "still in Redis: behind an open breaker, for later, or in line"},
	} {
		t.AppendRow(table.Row{line.name, line.n, line.note})
	}
	t.AppendSeparator()
	t.AppendRow(table.Row{"failed attempts", s.FailedAttempts, "runs that failed"})
	t.AppendRow(table.Row{"conserved", yes(s.Conserved), "counted in Redis, not by this program"})
	t.AppendRow(table.Row{"jobs a second", fmt.Sprintf("%.0f", s.JobsPerS), fmt.Sprintf("over %.1f s", s.WallS)})
	t.Render()
}

func reasons(refused map[admission.Reason]int) string {
	parts := make([]string, 0, len(refused))
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		parts = append(parts, fmt.Sprintf("%s: %d", reason, refused[reason]))
	}
	if len(parts) == 0 {
		return "no limit stood in the way"
	}
	return strings.Join(parts, ", ")
}

// WriteClasses writes the waits by class, the classes in the order of the queue.
func (s *Summary) WriteClasses(to io.Writer, classes []admission.Class) {
	t := NewTable(to, 1, "class", "weight", "started", "wait p50", "wait p99", "in dispatches p50", "p99")
	for _, class := range classes {
		c := s.Classes[class.Name]
		t.AppendRow(table.Row{
			class.Name, class.Weight, c.Dispatched, fromMillis(c.WaitP50Ms), fromMillis(c.WaitP99Ms), c.WaitStepsP50, c.WaitStepsP99,
		})
	}
	t.Render()
	if s.OrderHead != "" {
		fmt.Fprintf(to, "Order while every class had work: %s\n", s.OrderHead)
	} else {
		fmt.Fprintln(to, "Order while every class had work: they never all had.")
	}
}

// WriteTenants writes how evenly tenants were served.
func (s *Summary) WriteTenants(to io.Writer) {
	fmt.Fprintf(to, "%d tenants. ", s.Tenants.Count)
	if s.Tenants.JainCompared > 0 {
		fmt.Fprintf(to, "Jain's index of service ÷ weight over %d tenants that competed for 20 rounds or more: %.4f (1 is perfectly even). ",
			s.Tenants.JainCompared, s.Tenants.Jain)
	} else {
		fmt.Fprint(to, "No two of them competed for 20 rounds, so there is no fairness to measure. ")
	}
	fmt.Fprintf(to, "Wait p99 of light tenants: %s.\n", fromMillis(s.Tenants.LightWaitP99Ms))
	if s.EstimateCompared > 0 {
		fmt.Fprintf(to, "%d jobs had to wait and were told how long: median error %.0f %%.\n", s.EstimateCompared, 100*s.EstimateMedianError)
	}
}

// mostDownstreams is how many downstreams a table shows.
const mostDownstreams = 10

// WriteDownstreams writes the busiest downstreams, and all whose breaker opened.
func (s *Summary) WriteDownstreams(to io.Writer) {
	breakers := map[string]Breaker{}
	for _, b := range s.Breakers {
		breakers[b.Downstream] = b
	}
	names := slices.SortedFunc(maps.Keys(s.Downstreams), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Downstreams[b].Dispatched, s.Downstreams[a].Dispatched), cmp.Compare(a, b))
	})
	t := NewTable(to, 1, "downstream", "started", "failed", "wait in dispatches p50", "p99", "breaker", "opened", "held back")
	left := 0
	for i, name := range names {
		b, opened := breakers[name]
		if i >= mostDownstreams && !opened {
			left++
			continue
		}
		d := s.Downstreams[name]
		t.AppendRow(table.Row{
			cmp.Or(name, "(none)"), d.Dispatched, d.FailedAttempts, d.WaitStepsP50, d.WaitStepsP99, cmp.Or(b.State, "closed"), b.Opened, b.HeldBack,
		})
	}
	t.Render()
	if left > 0 {
		fmt.Fprintf(to, "and %d more, whose breakers stayed closed.\n", left)
	}
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "NO"
}

func fromMillis(ms float64) string { return Short(time.Duration(ms * float64(time.Millisecond))) }

// Short writes a duration with three digits at most, for people.
func Short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Short(-d)
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return strconv.FormatFloat(d.Seconds()*1e3, 'f', 2, 64) + " ms"
	case d < 100*time.Millisecond:
		return strconv.FormatFloat(d.Seconds()*1e3, 'f', 1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatFloat(d.Seconds()*1e3, 'f', 0, 64) + " ms"
	case d < 100*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return d.Round(time.Second).String()
}
