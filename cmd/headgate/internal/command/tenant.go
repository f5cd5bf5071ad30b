package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

func newTenant() *cobra.Command {
	var o operator
	c := parent("tenant", "Show or change what a tenant has of its own", `A tenant has a tier, which says what its limit and its weights are, and may have a limit, weights, a
number of jobs that run at a time and a rate of dispatches of its own. Each edit is a version of the
whole policy (see headgate policy), and all processes follow it within a second.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 the policy has nothing like that.`,
		`  headgate tenant list --redis localhost:6379
  headgate tenant show acme --redis localhost:6379
  headgate tenant set acme --tier premium --weight high=5,low=1 --reason "new contract" --redis localhost:6379
  headgate tenant set acme --tokens 100 --per 1m --max-running 20 --redis localhost:6379
  headgate tenant unset acme limit weights --redis localhost:6379`)
	o.add(c)
	c.AddCommand(newTenantList(&o), newTenantShow(&o), newTenantSet(&o), newTenantUnset(&o))
	return c
}

func newTenantList(o *operator) *cobra.Command {
	var tier string
	c := &cobra.Command{
		Use: "list", Short: "List the tenants that the policy names", Args: noArgs,
		Long: "Lists the tenants that have something of their own in the policy. All others are of the tier standard.",
		Example: `  headgate tenant list --redis localhost:6379
  headgate tenant list --tier premium --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.with(c, func(ctx context.Context, store *lua.Store) error {
				current, err := rollout.Current(ctx, store)
				if err != nil {
					return err
				}
				view, err := shown.TenantsOf(current, tier)
				if err != nil {
					return err
				}
				if err := o.print(c, view, func(to io.Writer) { writeTenants(to, view) }); err != nil {
					return err
				}
				if len(view.Tenants) == 0 {
					return &nothingError{cause: errors.New("the policy names no tenant like that: all are of the tier " + policy.StandardTier)}
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&tier, "tier", "", "those of `TIER` only")
	return c
}

func newTenantShow(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "show TENANT", Short: "Show a tenant's tier, limit and settings, and what is held back of it", Args: oneArg("TENANT"),
		Example: `  headgate tenant show acme --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.with(c, func(ctx context.Context, store *lua.Store) error { return o.showTenant(ctx, c, store, args[0]) })
		},
	}
}

func (o *operator) showTenant(ctx context.Context, c *cobra.Command, store *lua.Store, tenant string) error {
	current, err := rollout.Current(ctx, store)
	if err != nil {
		return err
	}
	view, err := shown.ReadTenant(ctx, store, current, tenant)
	if err != nil {
		return err
	}
	return o.print(c, view, func(to io.Writer) { writeTenant(to, view) })
}

// tenantSettings are what a tenant may have of its own.
var tenantSettings = []struct {
	word string
	// take takes it away, and reports whether it was there.
	take func(*policy.Tenant) bool
}{
	{"tier", func(t *policy.Tenant) bool {
		was := cmp.Or(t.Tier, policy.StandardTier)
		t.Tier = policy.StandardTier
		return was != policy.StandardTier
	}},
	{"limit", func(t *policy.Tenant) bool { was := t.Limit; t.Limit = nil; return was != nil }},
	{"weights", func(t *policy.Tenant) bool { was := t.Weights; t.Weights = nil; return len(was) > 0 }},
	{"max-running", func(t *policy.Tenant) bool { was := t.MaxRunning; t.MaxRunning = 0; return was != 0 }},
	{"dispatch", func(t *policy.Tenant) bool { was := t.Dispatch; t.Dispatch = nil; return was != nil }},
}

func settingWords() (words []string) {
	for _, s := range tenantSettings {
		words = append(words, s.word)
	}
	return words
}

func newTenantUnset(o *operator) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "unset TENANT [SETTING...]", Short: "Take away what a tenant has of its own",
		Long: `Takes settings of a tenant away: ` + strings.Join(settingWords(), ", ") + `; without any, all of them.
The tier's then apply, and of a tenant without a tier those of standard. Its jobs stay, and limits of
its queues and priorities (headgate limit) too.`,
		Example: `  headgate tenant unset acme limit weights --reason "contract is over" --redis localhost:6379
  headgate tenant unset acme --redis localhost:6379`,
		Args: tenantArgs,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return settingWords(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			return o.with(c, func(ctx context.Context, store *lua.Store) error {
				if err := unsetTenant(ctx, store, args[0], args[1:], reason); err != nil {
					return err
				}
				return o.showTenant(ctx, c, store, args[0])
			})
		},
	}
	reasonFlag(c, &reason)
	return c
}

// tenantArgs takes TENANT and settings.
func tenantArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage(fmt.Errorf("%s takes a TENANT, and perhaps what to take away", c.CommandPath()))
	}
	for _, word := range args[1:] {
		if !slices.Contains(settingWords(), word) {
			return usage(fmt.Errorf("there is no setting %q: there are %s", word, strings.Join(settingWords(), ", ")))
		}
	}
	return nil
}

// errNothingOwn is a tenant of which nothing can be taken away.
var errNothingOwn = errors.New("the tenant has nothing like that of its own")

// unsetTenant stores the policy without settings of a tenant, all of them for no words. A tenant that has nothing left is one
// that the policy does not name.
func unsetTenant(ctx context.Context, store *lua.Store, tenant string, words []string, reason string) error {
	_, err := rollout.Change(ctx, store, editBy(reason), func(current policy.Policy) (policy.Policy, error) {
		rest, named := current.Tenants[tenant]
		found := named && len(words) == 0
		for _, s := range tenantSettings {
			if len(words) == 0 || slices.Contains(words, s.word) {
				found = s.take(&rest) || found
			}
		}
		if !found {
			return current, nothing("%s: %w", tenant, errNothingOwn)
		}
		current.Tenants = maps.Clone(current.Tenants)
		current.Tenants[tenant] = rest
		if rest.Tier == policy.StandardTier && rest.Limit == nil && len(rest.Weights) == 0 && rest.MaxRunning == 0 && rest.Dispatch == nil {
			delete(current.Tenants, tenant)
		}
		return current, nil
	})
	return err
}

func writeTenants(to io.Writer, v shown.Tenants) {
	if len(v.Tenants) == 0 {
		return
	}
	t := report.NewTable(to, 2, "tenant", "tier", "its own")
	for _, tenant := range v.Tenants {
		t.AppendRow(table.Row{tenant.Tenant, tenant.Tier, string(tenant.Own)})
	}
	t.Render()
}

func writeTenant(to io.Writer, v shown.Tenant) {
	limit := "none"
	if v.Limit != nil {
		limit = fmt.Sprintf("%s, at most %d at once", v.Limit.Words(), v.Limit.Burst)
	}
	own := "nothing"
	if v.Own != nil {
		own = string(v.Own)
	}
	t := report.NewTable(to, 2, "field", "value")
	t.AppendRows([]table.Row{{"tenant", v.Tenant}, {"tier", v.Tier}, {"limit in force", limit}, {"its own", own}})
	for _, g := range v.Gates {
		t.AppendRow(table.Row{g.Name.Words(), gateWords(g)})
	}
	for _, s := range v.Suspensions {
		t.AppendRow(table.Row{s.Name.Words(), "enqueueing suspended" + because(s.Reason) + until(s.Until)})
	}
	t.Render()
}
