package ops

import (
	"context"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewStats returns the command headgate stats.
func NewStats() *cobra.Command {
	var o cli.Operator
	c := &cobra.Command{
		Use: "stats", Short: "What the whole fleet uses, and how its jobs went", Args: cli.NoArgs,
		Long: `One look at the whole deployment: who is there, what is used, how jobs went, how many were turned
away. What workers' processes use, and how long jobs run, is told where the policy has a load
(docs/guides/load.md); what is not known is a dash. A server tells the same of itself:
GET /api/v1/stats.`,
		Example: `  headgate stats --redis localhost:6379
  headgate stats --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				v, err := shown.ReadStats(ctx, s)
				if err != nil {
					return err
				}
				return o.Print(c, v, func(to io.Writer) { writeStats(to, &v) })
			})
		},
	}
	o.Add(c)
	return c
}

func writeStats(to io.Writer, v *shown.Stats) {
	t := report.NewTable(to, 1, "what", "figure")
	r, p := &v.Resources, &v.Performance
	redis := fmt.Sprintf("%.1f MB", r.Redis)
	if r.RedisLimit != nil {
		redis += fmt.Sprintf(" of %.1f MB", *r.RedisLimit)
	}
	perSecond := "-"
	if p.PerSecond != nil {
		perSecond = fmt.Sprintf("%.1f", *p.PerSecond)
	}
	for _, row := range []table.Row{
		{"workers", fmt.Sprintf("%d, of which %d tell how busy they are", v.Fleet.Workers, v.Fleet.Telling)},
		{"schedulers", v.Fleet.Schedulers},
		{"partitions", v.Fleet.Partitions},
		{"policy", fmt.Sprintf("version %d", v.Fleet.Policy)},
		{"jobs running", fmt.Sprintf("%d of %d slots", r.Running, r.Slots)},
		{"jobs waiting", r.Depth},
		{"cpu of the busiest worker", percent(r.CPU)},
		{"memory of the fullest worker", percent(r.Memory)},
		{"memory of Redis", redis},
		{"decisions in the last full minute", r.PerMinute},
		{"refused in the last hour", v.Security.Rejected},
		{"jobs that entered", p.Total},
		{"jobs that completed", p.Successful},
		{"jobs that died", p.Failed},
		{"retries", p.Retries},
		{"runs a second, in the last minute", perSecond},
		{"of these failed", percent(p.ErrorRate)},
		{"mean run time", millis(p.Average)},
		{"p95 run time", millis(p.P95)},
		{"p99 run time", millis(p.P99)},
	} {
		t.AppendRow(row)
	}
	t.Render()
}
