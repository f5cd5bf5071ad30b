package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewForecast returns the command headgate forecast.
func NewForecast() *cobra.Command {
	var o cli.Operator
	c := &cobra.Command{
		Use: "forecast [QUEUE]", Short: "What queues will be asked for in the next hour, and how far off that was in the last day", Args: cli.Args(0, 1, "QUEUE"),
		Long: `What a queue is foreseen to be asked for in the next hour, in jobs a minute, admitted and refused: what came
at the same time of yesterday and of a week ago, and a damped trend on what that does not tell. Beside it
stands by how much such forecasts of the last day were away, and those of yesterday's figures alone. It is
kept where the policy has it, as by a file with {"anomalies": {"forecast": true}} and headgate policy
merge FILE, in points of ten minutes for 15 days; two days are needed. Nothing is done about it. Without
QUEUE all queues are told. Exit code 3 says that there is no such queue, or no forecast yet.`,
		Example: `  headgate forecast mail --redis localhost:6379
  headgate forecast --redis localhost:6379
  headgate forecast mail --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if len(args) == 0 {
					all, err := shown.ReadForecasts(ctx, s, store.MaxWatchedQueues)
					if err != nil {
						return err
					}
					return o.Print(c, all, func(to io.Writer) { writeForecasts(to, all) })
				}
				view, err := shown.ReadForecast(ctx, s, args[0])
				if none, ok := errors.AsType[*shown.NoForecastError](err); ok {
					return cli.Nothing("%w", none)
				}
				if err != nil {
					return err
				}
				return o.Print(c, view, func(to io.Writer) { writeForecast(to, view) })
			})
		},
	}
	o.Add(c)
	return c
}

func writeForecasts(to io.Writer, all shown.Forecasts) {
	if len(all.Forecasts) == 0 {
		_, _ = io.WriteString(to, "there is no queue\n")
		return
	}
	t := report.NewTable(to, 1, "queue", "a minute", "next hour at most", "at", "most admitted", "error", "yesterday's", "days")
	for i := range all.Forecasts {
		f := &all.Forecasts[i]
		row := table.Row{report.Tame(f.Queue, cli.ShownText), jobsOf(f.Last), "-", "-", jobsOf(&f.Most), "-", "-", strconv.FormatFloat(f.Days, 'f', 1, 64)}
		if f.PeakAt != nil {
			row[2], row[3] = jobsOf(&f.Peak), f.PeakAt.Format(clockTime)
		}
		if f.Error != nil {
			row[5], row[6] = percent(f.Error.Part), percent(f.Error.NaivePart)
		}
		t.AppendRow(row)
	}
	t.Render()
}

// clockTime is how times of the next hour are written; as those of other tables they are of UTC.
const clockTime = "15:04"

// writeForecast tells of one queue, a line for each ten minutes.
func writeForecast(to io.Writer, f shown.Forecast) {
	t := report.NewTable(to, 1, "from (UTC)", "a minute", "yesterday", "a week ago")
	for _, p := range f.Points {
		t.AppendRow(table.Row{p.At.Format(clockTime), jobsOf(p.Jobs), jobsOf(p.Yesterday), jobsOf(p.Week)})
	}
	t.Render()
	fmt.Fprintf(to, "the last ten minutes had %s a minute", jobsOf(f.Last))
	if f.MostAt != nil {
		fmt.Fprintf(to, "; most admitted in %.1f days were %s, on %s", f.Days, jobsOf(&f.Most), f.MostAt.Format(time.DateOnly+" "+clockTime))
	}
	if e := f.Error; e != nil {
		fmt.Fprintf(to, "\nforecasts of the last day were %s a minute away (%s of what came), yesterday's figures %s (%s)", jobsOf(&e.Mean), percent(e.Part), jobsOf(&e.Naive), percent(e.NaivePart))
	}
	_, _ = io.WriteString(to, "\n")
}

// jobsOf writes jobs a minute.
func jobsOf(n *float64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatFloat(*n, 'f', -1, 64)
}
