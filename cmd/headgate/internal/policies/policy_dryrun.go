package policies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
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
beside the records that tenants have (headgate record). Nothing is changed. What was asked for is
counted by the minute, of the %d scopes with the most and of those in the policy's "observe", of types
of jobs where these have a limit; the coverage is the part of all of it whose tenants were counted. The
estimate takes it to be spread evenly over its minute, buckets to be full an hour ago, and who is
refused not to come again. Amounts are tokens. The table has the %d scopes for which most would change,
--json all.`, store.TopScopes, forecastRows),
		Args:    cli.OneArg("FILE or default"),
		Example: `  headgate policy dry-run policy.json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			text, document, err := policydoc.ReadDocument(args[0], c.InOrStdin())
			if err != nil {
				return cli.InFile("policy", args[0], err)
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				would, err := rollout.DryRun(ctx, s, document)
				if err != nil {
					return cli.InFile("policy", args[0], err)
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
		t.AppendRow(table.Row{report.Tame(scope, cli.ShownText), tier, f.Demand, f.Before.Refused, f.After.Refused, f.Before.Allowed, f.After.Allowed})
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

func newPolicySuggest(o *cli.Operator) *cobra.Command {
	var of rollout.Subject
	headroom := rollout.DefaultHeadroom
	c := &cobra.Command{
		Use: "suggest (--tier NAME | --tenant NAME | --queue NAME)", Short: "Suggest a limit by what was asked for in the last hour, and change nothing", Args: cli.NoArgs,
		Long: fmt.Sprintf(`Suggests the limit of a tenant, of each tenant of a tier that has none of its own, or of each tenant in a
queue, by the tokens that were asked for in each minute of the last hour, admitted or refused: a rate of
--headroom times what 99 of 100 minutes did not exceed, and a burst of what the worst minute had beyond
that. It is within the global limit, within what any limit may be, and of a queue within what "adaptive"
of the policy leaves of its limits as they are; where one of these cut it, a line says by what. It prints
a part of a policy for headgate policy merge, what that would change, and its dry run, as headgate policy
dry-run does. Nothing is stored. An hour of counts is needed; of whom minutes differ by no
more than chance nothing is suggested. Counted are the %d scopes with the most and those that the policy
observes. Exit code 3 says that there is no suggestion, and why.`, store.TopScopes),
		Example: `  headgate policy suggest --tenant acme --redis localhost:6379
  headgate policy suggest --tier premium --headroom 1.5 --redis localhost:6379
  headgate policy suggest --queue mail --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			named := 0
			for flag, name := range map[string]string{"tier": of.Tier, "tenant": of.Tenant, "queue": of.Queue} {
				if name == "" {
					continue
				}
				named++
				if err := admission.ValidateTenant(name); err != nil {
					return cli.FieldError(flag, strconv.Quote(name), "1 to 128 bytes of A-Za-z0-9._@/-")
				}
			}
			if named != 1 {
				return cli.Usage(errors.New("say whose: one of --tier, --tenant and --queue"))
			}
			if !(headroom >= rollout.MinHeadroom && headroom <= rollout.MaxHeadroom) {
				return cli.FieldError("headroom", strconv.FormatFloat(headroom, 'g', -1, 64), fmt.Sprintf("%g to %g", rollout.MinHeadroom, rollout.MaxHeadroom))
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error { return suggest(ctx, o, c, s, of, headroom) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&of.Tier, "tier", "", "of each tenant of the tier `NAME` without a limit of its own")
	flags.StringVar(&of.Tenant, "tenant", "", "of the tenant `NAME`")
	flags.StringVar(&of.Queue, "queue", "", "of each tenant in the queue `NAME`")
	flags.Float64Var(&headroom, "headroom", headroom, "`TIMES` what was asked for, 1 to 10")
	return c
}

// suggestView is a suggestion with its dry run.
type suggestView struct {
	dryRunView

	Suggestion rollout.Suggestion `json:"suggestion"`
}

func suggest(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, of rollout.Subject, headroom float64) error {
	current, err := rollout.Current(ctx, s)
	if err != nil {
		return err
	}
	if _, there := current.Tiers[of.Tier]; of.Tier != "" && !there {
		return cli.FieldError("tier", strconv.Quote(of.Tier), "one of the policy's: "+strings.Join(slices.Sorted(maps.Keys(current.Tiers)), ", "))
	}
	made, err := rollout.Suggest(ctx, s, of, headroom)
	if err != nil {
		return err
	}
	if made.Part == nil {
		return cli.Nothing("no suggestion: %s", made.Why)
	}
	document, err := current.Merge(made.Part)
	if err != nil {
		return err
	}
	would, err := rollout.DryRun(ctx, s, document)
	if err != nil {
		return err
	}
	forecast, err := rollout.Foresee(ctx, s, document)
	if err != nil {
		return err
	}
	v := suggestView{dryRunView{resultViewOf(would, true), forecast}, made}
	return o.Print(c, v, func(to io.Writer) {
		fmt.Fprintf(to, "in %d minutes of %d tenants the median is %d tokens, 99 of 100 have %d at most, the worst has %d\n%s\n", made.Minutes, made.Tenants, made.Median, made.P99, made.Worst, made.Part)
		for _, cut := range made.Cut {
			fmt.Fprintf(to, "cut: %s\n", report.Tame(cut, 0))
		}
		v.write(to)
	})
}
