package ops

import (
	"context"
	"errors"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewUsage returns the command headgate usage.
func NewUsage() *cobra.Command {
	var o cli.Operator
	var q shown.UsageQuery
	var from, to string
	var asCSV bool
	c := &cobra.Command{
		Use: "usage", Short: "Show what tenants used, by day and queue", Args: cli.NoArgs,
		Long: `Shows jobs, reservations without a job (calls) and their tokens by day (UTC), tenant and queue, where
the policy has usage kept ("usage": {}), for 35 days and the one under way: what was reserved, what it
has cost (committed: what was told, and what was reserved where nothing was told, or not yet), what
came back and what was added. A job counts on the day on which it entered; * stands for what is not
counted by itself (see docs/guides/costs.md). Where nothing is kept it says how to have it kept.`,
		Example: `  headgate usage --redis localhost:6379
  headgate usage --tenant acme --from 2026-11-01 --to 2026-11-30 --csv --redis localhost:6379
  headgate usage --queue llm --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			var first, last error
			q.From, first = shown.ParseDay("from", from)
			q.To, last = shown.ParseDay("to", to)
			if err := errors.Join(first, last); err != nil {
				return cli.Usage(err)
			}
			if asCSV && c.Flags().Changed("json") {
				return cli.FieldError("csv", "with --json", "one of the two")
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				all := shown.Usages{Usage: []shown.Usage{}}
				for u, err := range shown.EachUsage(ctx, s, q) {
					if err != nil {
						return err
					}
					all.Usage = append(all.Usage, shown.UsageOf(&u))
				}
				if asCSV {
					return shown.WriteUsage(c.OutOrStdout(), all.Usage)
				}
				if err := o.Print(c, all, func(to io.Writer) { writeUsage(to, all.Usage) }); err != nil || len(all.Usage) > 0 {
					return err
				}
				return sayNothingKept(ctx, c, s)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&q.Tenant, "tenant", "", "that `TENANT`'s alone")
	flags.StringVar(&q.Queue, "queue", "", "that of one `QUEUE` alone")
	flags.StringVar(&from, "from", "", "first `DAY` (UTC), as in 2026-11-01; the first that is kept unless given")
	flags.StringVar(&to, "to", "", "last `DAY`; today unless given")
	flags.BoolVar(&asCSV, "csv", false, "print CSV")
	o.Add(c)
	return c
}

// sayNothingKept says whether usage is kept at all, and how to have it kept.
func sayNothingKept(ctx context.Context, c *cobra.Command, s store.Deployment) error {
	inForce, err := rollout.Current(ctx, s)
	switch {
	case err != nil:
		return err
	case inForce.Usage == nil:
		cli.None(c, `no usage is kept: a policy with {"usage": {}} has it kept from then on, as by headgate policy merge FILE`)
	default:
		cli.None(c, "usage is kept, and none was like that")
	}
	return nil
}

func writeUsage(to io.Writer, all []shown.Usage) {
	if len(all) == 0 {
		return
	}
	t := report.NewTable(to, 3, "day", "tenant", "queue", "jobs", "calls", "reserved", "committed", "refunded", "added")
	var sum shown.Usage
	for i := range all {
		u := &all[i]
		t.AppendRow(table.Row{u.Day, report.Tame(u.Tenant, cli.ShownText), report.Tame(u.Queue, cli.ShownText), u.Jobs, u.Calls, u.Reserved, u.Committed, u.Refunded, u.Added})
		sum.Jobs, sum.Calls, sum.Reserved = sum.Jobs+u.Jobs, sum.Calls+u.Calls, sum.Reserved+u.Reserved
		sum.Committed, sum.Refunded, sum.Added = sum.Committed+u.Committed, sum.Refunded+u.Refunded, sum.Added+u.Added
	}
	if len(all) > 1 {
		t.AppendRow(table.Row{"all", "", "", sum.Jobs, sum.Calls, sum.Reserved, sum.Committed, sum.Refunded, sum.Added})
	}
	t.Render()
}
