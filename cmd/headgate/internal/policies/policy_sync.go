package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

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

// sqlRow is a limit as a table has it, all as text; an empty field is NULL.
type sqlRow struct{ key, algorithm, capacity, rate string }

// sqlColumns are the names that a column may have. The window is that of other algorithms: of a token bucket it says nothing.
var sqlColumns = [...][]string{{"key", "policy_key"}, {"algorithm", "type"}, {"capacity"}, {"refill_rate"}, {"window", "window_seconds"}}

// mostRows bounds what is read, shownRows how many faults are told.
const (
	mostRows  = 100_000
	shownRows = 20
)

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

// readRows reads a table of limits.
func readRows(ctx context.Context, db *database.DB, name string) (all []sqlRow, err error) {
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+name)
	if err != nil {
		return nil, fmt.Errorf("read the table %s: %w", name, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var at [len(sqlColumns)]int
	for i, names := range sqlColumns {
		at[i] = slices.IndexFunc(columns, func(column string) bool { return slices.Contains(names, strings.ToLower(column)) })
		if at[i] < 0 && i < len(sqlColumns)-1 {
			return nil, &admission.FieldError{
				Field: "table " + name, Value: "without a column " + strings.Join(names, " or "), Allowed: "key, algorithm, capacity, refill_rate, window; or policy_key, type, …, window_seconds",
			}
		}
	}
	values, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		to[i] = &values[i]
	}
	text := func(i int) string {
		switch v := values[at[i]].(type) {
		case nil:
			return ""
		case []byte:
			return strings.TrimSpace(string(v))
		default:
			return strings.TrimSpace(fmt.Sprint(v))
		}
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return nil, fmt.Errorf("read the table %s: %w", name, err)
		}
		if all = append(all, sqlRow{text(0), text(1), text(2), text(3)}); len(all) > mostRows {
			return nil, &admission.FieldError{Field: "table " + name, Value: "with more rows", Allowed: fmt.Sprintf("up to %d rows", mostRows)}
		}
	}
	return all, rows.Err()
}

// limitsOf returns the limits of rows, by scope. The error tells all that is wrong, row by row.
func limitsOf(rows []sqlRow) (map[admission.Scope]json.RawMessage, error) {
	limits, keys, bad := map[admission.Scope]json.RawMessage{}, map[admission.Scope]string{}, []error{}
	for _, row := range rows {
		scope, err := row.scope()
		if err == nil && keys[scope] != "" {
			err = &admission.FieldError{Field: "key", Value: strconv.Quote(row.key), Allowed: "one row of a scope, and there is " + strconv.Quote(keys[scope])}
		}
		limit, wrong := row.limit()
		if err := errors.Join(err, wrong); err != nil {
			bad = append(bad, fmt.Errorf("row %q: %w", row.key[:min(len(row.key), 3*admission.MaxNameLength)], err))
			continue
		}
		limits[scope], keys[scope] = limit, row.key
	}
	if more := len(bad) - shownRows; more > 0 {
		bad = append(bad[:shownRows], fmt.Errorf("and %d more rows", more))
	}
	return limits, errors.Join(bad...)
}

// scope reads a key: global, tenant:NAME, tenant:NAME|queue:NAME or tenant:NAME|queue:NAME|priority:CLASS.
func (r *sqlRow) scope() (admission.Scope, error) {
	bad := &admission.FieldError{Field: "key", Value: strconv.Quote(r.key), Allowed: "global, tenant:NAME, tenant:NAME|queue:NAME or tenant:NAME|queue:NAME|priority:CLASS"}
	if r.key == string(admission.Global) {
		return admission.Global, nil
	}
	parts := strings.Split(r.key, "|")
	words := []string{"tenant:", "queue:", "priority:"}
	if len(parts) > len(words) {
		return "", bad
	}
	for i, part := range parts {
		name, ok := strings.CutPrefix(part, words[i])
		if !ok || name == "" || strings.Contains(name, ":") {
			return "", bad
		}
		parts[i] = name
	}
	if err := admission.ValidateTenant(parts[0]); err != nil {
		return "", err
	}
	scope := admission.Scope(strings.Join(parts, ":"))
	_, _, _, err := scope.Parts()
	return scope, err
}

// limit reads a token bucket: refill_rate tokens a second, up to capacity.
func (r *sqlRow) limit() (json.RawMessage, error) {
	var bad []error
	field := func(name, value, allowed string) {
		bad = append(bad, &admission.FieldError{Field: name, Value: strconv.Quote(value), Allowed: allowed})
	}
	if strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(r.algorithm)) != "tokenbucket" {
		field("algorithm", r.algorithm, "token_bucket, the one that a table says")
	}
	burst, err := strconv.ParseInt(r.capacity, 10, 64)
	if err != nil || burst < 1 || burst > int64(admission.MaxLimitTokens) {
		field("capacity", r.capacity, fmt.Sprintf("a whole number of tokens, 1 to %d", admission.MaxLimitTokens))
	}
	tokens, per, ok := perTime(r.rate)
	if !ok {
		field("refill_rate", r.rate, fmt.Sprintf("tokens a second, 0.000001 to %d, of up to 6 decimals; above 1000 of fewer", admission.MaxLimitTokens))
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	limit := admission.Limit{Tokens: tokens, Per: per, Burst: admission.Tokens(burst)}
	if err := limit.Validate("limit"); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"tokens": limit.Tokens, "per": limit.Per.String(), "burst": limit.Burst})
}

// perTime makes of tokens a second the same in whole tokens, exactly.
func perTime(rate string) (tokens admission.Tokens, per time.Duration, ok bool) {
	exact, good := new(big.Rat).SetString(rate)
	if !good || len(rate) > 40 || exact.Sign() <= 0 {
		return 0, 0, false
	}
	for _, seconds := range []int64{1, 10, 60, 100, 1000, 3600, 10_000, 100_000, 1_000_000} {
		whole := new(big.Rat).Mul(exact, new(big.Rat).SetInt64(seconds))
		if whole.IsInt() && whole.Num().IsInt64() && whole.Num().Int64() <= int64(admission.MaxLimitTokens) {
			return admission.Tokens(whole.Num().Int64()), time.Duration(seconds) * time.Second, true
		}
	}
	return 0, 0, false
}

// limited returns the scopes of which a policy says a limit, sorted.
func limited(p policy.Policy) (scopes []admission.Scope, err error) {
	text, err := policy.Marshal(p)
	if err != nil {
		return nil, err
	}
	var has struct {
		Global  json.RawMessage `json:"global"`
		Tenants map[string]struct {
			Limit json.RawMessage `json:"limit"`
		} `json:"tenants"`
		Queues     map[admission.Scope]json.RawMessage `json:"queue_limits"`
		Priorities map[admission.Scope]json.RawMessage `json:"priority_limits"`
	}
	if err := json.Unmarshal(text, &has); err != nil {
		return nil, err
	}
	if has.Global != nil && !p.Global.Disabled && p.Global != (admission.Limit{}) {
		scopes = append(scopes, admission.Global)
	}
	for name, tenant := range has.Tenants {
		if tenant.Limit != nil {
			scopes = append(scopes, admission.Scope(name))
		}
	}
	scopes = slices.AppendSeq(scopes, maps.Keys(has.Queues))
	scopes = slices.AppendSeq(scopes, maps.Keys(has.Priorities))
	slices.Sort(scopes)
	return scopes, nil
}
