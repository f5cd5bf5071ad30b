package policies

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/policydoc"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/store"
)

func newPolicyDryRun(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "dry-run FILE|default", Short: "Tell what a policy would change, and would have done to the last hour",
		Long: fmt.Sprintf(`Makes all checks of set, tells what would change, and replays what was asked for in the last
hour, admitted or refused, through the limits in force and through those of FILE, in both cases
beside the records that tenants have (headgate record). Nothing is changed. What was asked for is counted by the minute, of the %d scopes with the most and of
those in the policy's "observe"; the coverage is the part of all of it whose tenants were
counted. The estimate takes it to be spread evenly over its minute, buckets to be full an hour
ago, and who is refused not to come again. Amounts are tokens. The table has the %d scopes for
which most would change, --json all.`, store.TopScopes, forecastRows),
		Args:    cli.OneArg("FILE or default"),
		Example: `  headgate policy dry-run policy.json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			text, document, err := policydoc.ReadDocument(args[0], c.InOrStdin())
			if err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				would, err := rollout.DryRun(ctx, s, document)
				if err != nil {
					return err
				}
				forecast, err := rollout.Foresee(ctx, s, document)
				if err != nil {
					return err
				}
				view := dryRunView{resultViewOf(would, true), forecast}
				if err := o.Print(c, view, view.write); err != nil || document.Version != 0 {
					return err
				}
				_, drops, err := dropped(ctx, s, text, document)
				if len(drops) > 0 {
					fmt.Fprintf(c.ErrOrStderr(), "headgate: policy set would refuse the file without --replace: settings in force that it does not name: %d; "+
						"headgate policy merge would leave them\n", len(drops))
				}
				return err
			})
		},
	}
}

// forecastRows is how many scopes the table has.
const forecastRows = 20

type dryRunView struct {
	resultView

	Forecast rollout.Forecast `json:"forecast"`
}

func (v dryRunView) write(to io.Writer) {
	v.resultView.write(to)
	writeForecast(to, v.Forecast)
}

func writeForecast(to io.Writer, f rollout.Forecast) {
	if f.Minutes == 0 {
		fmt.Fprintln(to, "nothing was counted in the last hour")
		return
	}
	fmt.Fprintf(to, "in the last hour, %d minutes with demand; the tenants that were counted asked for %.2f %% of it\n", f.Minutes, 100*f.Coverage)
	t := report.NewTable(to, 2, "scope", "tier", "asked for", "refused now", "refused then", "allowed now", "allowed then")
	row := func(scope, tier string, f rollout.Flow) {
		t.AppendRow(table.Row{cli.Tame(scope, cli.ShownText), tier, f.Demand, f.Before.Refused, f.After.Refused, f.Before.Allowed, f.After.Allowed})
	}
	for _, one := range f.Scopes[:min(len(f.Scopes), forecastRows)] {
		row(string(one.Scope), one.Tier, one.Flow)
	}
	t.AppendSeparator()
	for _, tier := range slices.Sorted(maps.Keys(f.Tiers)) {
		row("all of tier", tier, f.Tiers[tier])
	}
	row("all", "", f.All)
	t.Render()
	if more := len(f.Scopes) - forecastRows; more > 0 {
		fmt.Fprintf(to, "%d more scopes with --json\n", more)
	}
}
