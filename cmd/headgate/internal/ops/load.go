package ops

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

const (
	// sparkWidth is how many bars a line of history has at most, and sparkQueues how many queues of a list have one.
	sparkWidth  = 60
	sparkQueues = 50
	// watchEvery is how often --watch looks.
	watchEvery = 2 * time.Second
)

// loadCommand is what headgate load was asked.
type loadCommand struct {
	cli.Operator

	history    time.Duration
	watch      bool
	downstream string
}

var errBoth = errors.New("load of a QUEUE, or of --downstream, not of both")

// NewLoad returns the command headgate load.
func NewLoad() *cobra.Command {
	var o loadCommand
	c := &cobra.Command{
		Use: "load [QUEUE]", Short: "How busy queues and downstreams are, and were", Args: cli.Args(0, 1, "QUEUE"),
		Long: `How busy each queue is, and each downstream: what its workers' processes use, how many of its jobs
wait and run, and how runs of the last minute ended. Workers tell it where the policy has a load
(docs/guides/load.md); what is not known is a dash. Queues with the most to do come first, the first
50 with what waited lately, a bar for 10 s or more. Exit code 3 says that there is no such queue, or
that no worker has told of such a downstream within an hour.`,
		Example: `  headgate load --redis localhost:6379
  headgate load mail --history 1h --redis localhost:6379
  headgate load --downstream smtp --redis localhost:6379
  headgate load --watch --redis localhost:6379
  headgate load --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			if o.history != 0 && (o.history < shown.LeastLoadHistory || o.history > shown.MostLoadHistory) {
				return cli.FieldError("history", o.history.String(), "10s to 1h, or 0 for none")
			}
			if o.downstream != "" && len(args) > 0 {
				return cli.Usage(errBoth)
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if o.watch {
					return o.watching(ctx, c, s, args)
				}
				return o.look(ctx, c, s, args)
			})
		},
	}
	o.Add(c)
	c.Flags().DurationVar(&o.history, "history", 10*time.Minute, "`TIME` to look back, 10s to 1h; 0 is not at all")
	c.Flags().StringVar(&o.downstream, "downstream", "", "`NAME` of a downstream to look at instead of a queue")
	c.Flags().BoolVar(&o.watch, "watch", false, "look again every two seconds, until it is interrupted")
	return c
}

// watching looks again and again. On a terminal it paints over what it wrote.
func (o *loadCommand) watching(ctx context.Context, c *cobra.Command, s store.Deployment, args []string) error {
	out := c.OutOrStdout()
	painter := report.NewPainter(out)
	ticks := time.NewTicker(watchEvery)
	defer ticks.Stop()
	for {
		var text bytes.Buffer
		c.SetOut(&text)
		err := o.look(ctx, c, s, args)
		c.SetOut(out)
		switch {
		case ctx.Err() != nil:
			return nil // It was interrupted.
		case err != nil:
			return err
		}
		painter.Paint(text.String(), text.String())
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (o *loadCommand) look(ctx context.Context, c *cobra.Command, s store.Deployment, args []string) error {
	if one := append(args, o.downstream); one[0] != "" {
		read := shown.ReadLoad
		if o.downstream != "" {
			read = shown.ReadDownstreamLoad
		}
		v, err := read(ctx, s, one[0], o.history)
		if err != nil {
			return err
		}
		return o.Print(c, v, func(to io.Writer) { writeLoad(to, v) })
	}
	all, err := shown.ReadLoads(ctx, s)
	if err != nil {
		return err
	}
	for _, loads := range [][]shown.Load{all.Loads, all.Downstreams} {
		slices.SortStableFunc(loads, func(a, b shown.Load) int { return cmp.Compare(toDo(b), toDo(a)) })
	}
	lines := map[string]string{}
	for _, l := range all.Loads[:min(len(all.Loads), sparkQueues)] {
		if o.history == 0 || o.AsJSON() {
			break
		}
		v, err := shown.ReadLoad(ctx, s, l.Service, o.history)
		if err != nil {
			return err
		}
		lines[l.Service] = report.Spark(report.Squeeze(depths(v.History), sparkWidth), 0)
	}
	return o.Print(c, all, func(to io.Writer) { writeLoads(to, all, lines) })
}

func toDo(l shown.Load) int64 {
	if l.Running == nil {
		return l.Depth
	}
	return l.Depth + *l.Running
}

func writeLoads(to io.Writer, all shown.Loads, lines map[string]string) {
	if len(all.Loads) == 0 {
		_, _ = io.WriteString(to, "there is no queue\n")
		return
	}
	writeLoadsOf(to, "queue", all.Loads, lines)
	if len(all.Downstreams) > 0 {
		writeLoadsOf(to, "downstream", all.Downstreams, nil)
	}
	if all.Workers == 0 {
		_, _ = io.WriteString(to, "no worker tells how busy it is: a policy with {\"load\": {}} has them do so, as by headgate policy merge FILE\n")
	}
}

// writeLoadsOf tells of queues, with a line of what waited of each, or of downstreams.
func writeLoadsOf(to io.Writer, what string, loads []shown.Load, lines map[string]string) {
	columns := []any{what, "waiting", "running", "cpu", "memory", "errors", "mean", "p95", "wait p95"}
	if lines != nil {
		columns = append(columns, "waited")
	}
	t := report.NewTable(to, 1, columns...)
	for _, l := range loads {
		row := table.Row{
			report.Tame(l.Service, cli.ShownText), l.Depth, countOf(l.Running), percent(l.CPU), percent(l.Memory), percent(l.ErrorRate), millis(l.Average), millis(l.P95), millis(l.WaitP95),
		}
		if lines != nil {
			row = append(row, lines[l.Service])
		}
		t.AppendRow(row)
	}
	t.Render()
}

// writeLoad tells of one, a line for each figure with its history.
func writeLoad(to io.Writer, v shown.LoadHistory) {
	t := report.NewTable(to, 1, "of "+report.Tame(v.Service, cli.ShownText), "now", "most", "from "+from(v))
	row := func(name string, of func(l *shown.Load) *float64, show func(*float64) string, scale float64) {
		values, most := make([]float64, len(v.History)), of(&v.Load)
		for i := range v.History {
			values[i] = -1
			if x := of(&v.History[i]); x != nil {
				values[i] = *x
				if most == nil || *x > *most {
					most = x
				}
			}
		}
		t.AppendRow(table.Row{name, show(of(&v.Load)), show(most), report.Spark(report.Squeeze(values, sparkWidth), scale)})
	}
	whole := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return strconv.FormatFloat(*x, 'f', 0, 64)
	}
	row("waiting", func(l *shown.Load) *float64 { return new(float64(l.Depth)) }, whole, 0)
	row("running", func(l *shown.Load) *float64 {
		if l.Running == nil {
			return nil
		}
		return new(float64(*l.Running))
	}, whole, 0)
	row("cpu", func(l *shown.Load) *float64 { return l.CPU }, percent, 1)
	row("memory", func(l *shown.Load) *float64 { return l.Memory }, percent, 1)
	row("errors", func(l *shown.Load) *float64 { return l.ErrorRate }, percent, 1)
	row("mean", func(l *shown.Load) *float64 { return l.Average }, millis, 0)
	row("p95", func(l *shown.Load) *float64 { return l.P95 }, millis, 0)
	row("wait p95", func(l *shown.Load) *float64 { return l.WaitP95 }, millis, 0)
	if v.Level != nil { // It is a queue.
		row("wait", func(l *shown.Load) *float64 { return l.Wait }, millis, 0)
		row("level", func(l *shown.Load) *float64 {
			if l.Level == nil {
				return nil
			}
			return new(float64(*l.Level))
		}, level, float64(admission.PressureCritical))
	}
	t.Render()
}

// from is when a history begins.
func from(v shown.LoadHistory) string {
	if len(v.History) == 0 {
		return "now"
	}
	return v.History[0].At.Format(time.TimeOnly)
}

func depths(history []shown.Load) []float64 {
	all := make([]float64, len(history))
	for i := range history {
		all[i] = float64(history[i].Depth)
	}
	return all
}

func countOf(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func percent(part *float64) string {
	if part == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", *part*100)
}

func level(x *float64) string {
	if x == nil {
		return "-"
	}
	return admission.PressureLevel(*x).String()
}

func millis(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return time.Duration(*ms * float64(time.Millisecond)).Round(time.Millisecond / 10).String()
}
