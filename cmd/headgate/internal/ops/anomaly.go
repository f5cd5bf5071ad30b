package ops

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewAnomaly returns the command headgate anomaly, with one that tries it on a trace.
func NewAnomaly(try *cobra.Command) *cobra.Command {
	c := cli.Parent("anomaly", "Rates that are not usual: those that were found, and what would be found in a trace",
		"Rates that are not usual, where the policy has anomalies: they are told of, and no more is done (docs/guides/anomalies.md).",
		"  headgate anomaly list --redis localhost:6379\n  headgate anomaly try requests.csv")
	c.AddCommand(newAnomalyList(), try)
	return c
}

func newAnomalyList() *cobra.Command {
	var o cli.Operator
	var kind string
	var limit int
	kinds := store.AnomalyKinds
	c := &cobra.Command{
		Use: "list", Short: "List rates that were not usual, the newest first", Args: cli.NoArgs,
		Long: `Lists rates that were not usual, the newest first: of the whole deployment, of tenants and of queues, held
against their own hour before (surge, silence, refusal_surge), and of credentials that asked for more
different things that are not there than the policy bears in a minute (scope_scan). Of scopes that used as
much of their limit as the policy's warn_at says (near_limit), values of dimensions as +user:123 among
them, rate is what they used, usual the limit, in tokens, and score the one over the other. One that goes
on is listed once. The last 1,000 are kept. They are found where the policy has anomalies, as by a file with
{"anomalies": {"warn_at": 0.8}} and headgate policy merge FILE, and nothing is done about them.`,
		Example: `  headgate anomaly list --redis localhost:6379
  headgate anomaly list --kind surge --limit 10 --redis localhost:6379
  headgate anomaly list --kind near_limit --redis localhost:6379
  headgate anomaly list --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			if kind != "" && !slices.Contains(kinds, kind) {
				return cli.FieldError("kind", strconv.Quote(kind), strings.Join(kinds, ", "))
			}
			if limit < 1 || limit > store.MaxAnomalies {
				return cli.FieldError("limit", strconv.Itoa(limit), fmt.Sprintf("1 to %d", store.MaxAnomalies))
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				view, err := shown.ReadAnomalies(ctx, s, kind, limit)
				if err != nil {
					return err
				}
				if len(view.Anomalies) == 0 {
					cli.None(c, "no rate like that was found")
				}
				return o.Print(c, view, func(to io.Writer) { writeAnomalies(to, view) })
			})
		},
	}
	o.Add(c)
	c.Flags().StringVar(&kind, "kind", "", "that `KIND` only: "+strings.Join(kinds, ", "))
	c.Flags().IntVar(&limit, "limit", store.DefaultPage, fmt.Sprintf("largest `NUMBER` of them, up to %d", store.MaxAnomalies))
	return c
}

func writeAnomalies(to io.Writer, view shown.Anomalies) {
	if len(view.Anomalies) == 0 {
		return
	}
	t := report.NewTable(to, 4, "minute", "what", "of", "name", "rate", "usual", "score")
	for _, a := range view.Anomalies {
		score := "-"
		if a.Score != 0 {
			score = strconv.FormatFloat(a.Score, 'f', 1, 64)
		}
		t.AppendRow(table.Row{
			cli.At(&a.Minute), a.Kind, a.Of, report.Tame(a.Name, cli.ShownText), strconv.FormatFloat(a.Rate, 'f', -1, 64),
			strconv.FormatFloat(a.Usual, 'f', -1, 64), score,
		})
	}
	t.Render()
}
