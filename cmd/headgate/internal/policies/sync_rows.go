package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/database"
	"github.com/headgate/headgate/policy"
)

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
