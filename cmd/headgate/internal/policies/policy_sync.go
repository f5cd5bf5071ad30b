package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/database"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// SyncVariable names the environment variable with the address of the database of policies, which may hold a password.
const SyncVariable = "HEADGATE_POLICY_DATABASE"

// syncFlags are those of headgate policy sync.
type syncFlags struct {
	from          database.Source
	table, reason string
	apply, remove bool
}

func newPolicySync(o *cli.Operator) *cobra.Command {
	f := syncFlags{from: database.Source{Variable: SyncVariable, Flag: "database-file", AddressFlag: "from", Usage: cli.Usage, Field: cli.FieldError}}
	c := &cobra.Command{
		Use: "sync (--from ADDRESS | --database-file FILE)", Short: "Take limits from a table of an SQL database", Args: cli.NoArgs,
		Long: `Takes the rows of a table as limits into the policy in force, and tells what would change and
what that would have done to the last hour. --apply puts it in force, unless another version is by
then. All else in the policy stays. Any row that is wrong is an error that names it, and nothing is
changed.

The columns are key, algorithm, capacity, refill_rate and window, or policy_key, type, capacity,
refill_rate and window_seconds; others are not looked at. A key is global, tenant:NAME,
tenant:NAME|queue:NAME or tenant:NAME|queue:NAME|priority:CLASS. The algorithm is token_bucket: it
holds capacity tokens, and refill_rate come back a second; the window says nothing of it.

Limits in force of which there is no row are told, and taken away with --remove alone: they may
have been there before.

An address with a password comes from a file or from ` + SyncVariable + `, never from the
command line. headgate outbox --help has the forms of an address.

Exit codes: 0 done, also where nothing differs, 1 a failure, 2 a wrong command line.`,
		Example: `  headgate policy sync --from postgres://reader@db/limits --redis localhost:6379
  headgate policy sync --database-file /run/secrets/database --table throttlex_policy --apply --reason "new contracts" --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			if !tableName.MatchString(f.table) {
				return cli.FieldError("table", strconv.Quote(f.table), "the name of a table, [SCHEMA.]NAME, of letters, digits and _")
			}
			if f.reason != "" && !f.apply {
				return cli.FieldError("reason", strconv.Quote(f.reason), "with --apply, which stores it")
			}
			return f.from.With(func(db *database.DB) error {
				rows, err := readRows(c.Context(), db, f.table)
				if err != nil {
					return err
				}
				limits, err := limitsOf(rows)
				if err != nil {
					return err
				}
				return o.With(c, func(ctx context.Context, s store.Deployment) error { return f.sync(ctx, o, c, s, limits) })
			})
		},
	}
	c.Flags().StringVar(&f.from.Address, "from", "", "`ADDRESS` of the database, without a password")
	c.Flags().StringVar(&f.from.File, "database-file", "", "`FILE` with the address of the database (by default $"+SyncVariable+" is the address)")
	c.Flags().StringVar(&f.table, "table", "policy", "`NAME` of the table, [SCHEMA.]NAME")
	c.Flags().BoolVar(&f.apply, "apply", false, "put it in force; by default it is only told what would change")
	c.Flags().BoolVar(&f.remove, "remove", false, "take away limits in force of which there is no row")
	cli.ReasonFlag(c, &f.reason)
	return c
}

// sync makes of the policy in force one with the limits of the rows.
func (f *syncFlags) sync(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, limits map[admission.Scope]json.RawMessage) error {
	current, err := rollout.Current(ctx, s)
	if err != nil {
		return err
	}
	document, without, err := f.document(current, limits)
	if err != nil {
		return err
	}
	changes, err := policy.Diff(current, document)
	if err != nil {
		return err
	}
	view := syncView{Rows: len(limits), Without: without, Removed: f.remove}
	edit := cli.EditBy(f.reason)
	edit.Expected = current.Version
	switch {
	case len(changes) == 0:
		view.resultView = resultViewOf(rollout.Result{From: current.Version, To: current.Version}, !f.apply)
		return o.Print(c, view, view.write)
	case f.apply:
		done, err := rollout.Put(ctx, s, document, edit)
		if err != nil {
			return err
		}
		view.resultView = resultViewOf(done, false)
		return o.Print(c, view, view.write)
	}
	would, err := rollout.DryRun(ctx, s, document)
	if err != nil {
		return err
	}
	forecast, err := rollout.Foresee(ctx, s, document)
	if err != nil {
		return err
	}
	view.resultView, view.Forecast = resultViewOf(would, true), &forecast
	return o.Print(c, view, view.write)
}

// document returns the policy with those limits, and the scopes of limits in force of which there is no row.
func (f *syncFlags) document(current policy.Policy, limits map[admission.Scope]json.RawMessage) (document policy.Policy, without []admission.Scope, err error) {
	has, err := limited(current)
	if err != nil {
		return current, nil, err
	}
	var edits []policy.Patch
	add := func(scope admission.Scope, value json.RawMessage) error {
		path, err := policy.LimitPath(scope)
		edits = append(edits, policy.Patch{Path: path, Value: value})
		return err
	}
	for _, scope := range slices.Sorted(maps.Keys(limits)) {
		if err := add(scope, limits[scope]); err != nil {
			return current, nil, err
		}
	}
	for _, scope := range has {
		if limits[scope] != nil {
			continue
		}
		without = append(without, scope)
		if f.remove {
			if err := add(scope, nil); err != nil {
				return current, nil, err
			}
		}
	}
	document, err = current.Edited(edits...)
	return document, without, err
}

// syncView is what a table did to the policy, or would do.
type syncView struct {
	resultView

	Rows int `json:"rows"`
	// Without are limits of which there was no row; Removed says that they are taken away.
	Without  []admission.Scope `json:"without_row"`
	Removed  bool              `json:"removed"`
	Forecast *rollout.Forecast `json:"forecast,omitempty"`
}

func (v syncView) write(to io.Writer) {
	switch {
	case len(v.Changes) == 0:
		fmt.Fprintf(to, "nothing differs: version %d has what %d rows say\n", v.From, v.Rows)
	case v.Forecast != nil:
		dryRunView{v.resultView, *v.Forecast}.write(to)
	default:
		writeChanges(to, v.Changes)
		v.resultView.write(to)
	}
	if len(v.Without) == 0 {
		return
	}
	what := "limits in force of which there is no row, which --remove would take away"
	if v.Removed {
		what = "limits of which there is no row, taken away"
	}
	fmt.Fprintf(to, "%s: %d\n", what, len(v.Without))
	for _, scope := range v.Without[:min(len(v.Without), shownRows)] {
		fmt.Fprintf(to, "  %s\n", scope)
	}
}
