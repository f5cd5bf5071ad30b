package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// NewTenant returns the command headgate tenant.
func NewTenant() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("tenant", "Show or change what a tenant has of its own", `A tenant has a tier, which says what its limit and its weights are, and may have a limit, weights, a
number of jobs that run at a time, a rate of dispatches and limits by type of job of its own. Each edit is
a version of the whole policy (see headgate policy), and all processes follow it within a second.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 the policy has nothing like that.`,
		`  headgate tenant list --redis localhost:6379
  headgate tenant show acme --redis localhost:6379
  headgate tenant set acme --tier premium --weight high=5,low=1 --reason "new contract" --redis localhost:6379
  headgate tenant set acme --tokens 100 --per 1m --max-running 20 --redis localhost:6379
  headgate tenant unset acme limit weights --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(newTenantList(&o), newTenantShow(&o), newTenantSet(&o), newTenantUnset(&o))
	return c
}

func newTenantList(o *cli.Operator) *cobra.Command {
	var q shown.TenantsQuery
	c := &cobra.Command{
		Use: "list", Short: "List the tenants that the policy names, or those of a tier", Args: cli.NoArgs,
		Long: `Lists the tenants that have something of their own in the policy, by name, each with the tier that its
record names or else the policy. With --tier those of that tier, and behind them, in no order, a page of
those whose records alone name it, also where the policy has no such tier. All others are of the tier
standard; headgate record list lists all records. A record that is there all the while is listed once at
least. The last line tells the --cursor of the next page, where there is one.`,
		Example: `  headgate tenant list --redis localhost:6379
  headgate tenant list --tier premium --json --redis localhost:6379
  headgate tenant list --tier premium --limit 100 --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("limit") && (q.Most < 1 || q.Most > store.MaxRecordsPage) {
				return cli.FieldError("limit", strconv.Itoa(q.Most), fmt.Sprintf("1 to %d", store.MaxRecordsPage))
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error { return listTenants(ctx, o, c, s, q) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&q.Tier, "tier", "", "those of `TIER` only, by the policy or by their records")
	flags.IntVar(&q.Most, "limit", 0, fmt.Sprintf("`NUMBER` that make a page, 1 to %d; without it all that the policy names, and %d of records", store.MaxRecordsPage, store.MaxRecordsPage))
	flags.StringVar(&q.Cursor, "cursor", "", "`TEXT` that the page before has told")
	return c
}

func listTenants(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, q shown.TenantsQuery) error {
	current, err := rollout.Current(ctx, s)
	if err != nil {
		return err
	}
	view, err := shown.ReadTenants(ctx, s, current, q)
	for err == nil && len(view.Tenants) == 0 && view.Cursor != "" { // Records that were looked at name other tiers.
		q.Cursor = view.Cursor
		view, err = shown.ReadTenants(ctx, s, current, q)
	}
	if err != nil {
		return err
	}
	if len(view.Tenants) == 0 {
		cli.None(c, "the policy names no tenant like that: all are of the tier "+policy.StandardTier)
	}
	return o.Print(c, view, func(to io.Writer) { writeTenants(to, view) })
}

func newTenantShow(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "show TENANT", Short: "Show a tenant's tier, limit and settings, and what is held back of it", Args: cli.OneArg("TENANT"),
		Example: `  headgate tenant show acme --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error { return showTenant(ctx, o, c, s, args[0], nil) })
		},
	}
}

// showTenant prints a tenant, after an edit of fields that may be overruled by its record.
func showTenant(ctx context.Context, o *cli.Operator, c *cobra.Command, store store.Deployment, tenant string, fields [][]string) error {
	current, err := rollout.Current(ctx, store)
	if err != nil {
		return err
	}
	view, err := shown.ReadTenant(ctx, store, current, tenant, shown.Everything)
	if err != nil {
		return err
	}
	var note string
	if overruled := overruledBy(view.Record, fields); len(overruled) > 0 {
		note = fmt.Sprintf("the record of tenant %s says something of %s, and goes before the policy: headgate record set %s changes it", tenant, strings.Join(overruled, ", "), tenant)
		fmt.Fprintf(c.ErrOrStderr(), "headgate: note: %s\n", note)
	}
	return o.Print(c, tenantEdited{view, note}, func(to io.Writer) { writeTenant(to, view) })
}

// tenantEdited is a tenant after an edit, with what is to be known of that.
type tenantEdited struct {
	shown.Tenant

	Note string `json:"note,omitempty"`
}

// overruledBy returns the fields of which a record says something, which are where the policy has them of its tenant.
func overruledBy(record json.RawMessage, fields [][]string) (all []string) {
	for _, field := range fields {
		said := record
		for _, name := range field {
			var members map[string]json.RawMessage
			_ = json.Unmarshal(said, &members) // What is no object has no members.
			said = members[name]
		}
		if said != nil {
			all = append(all, strings.Join(field, "."))
		}
	}
	return all
}

// tenantPart is what a tenant has of its own.
var tenantPart = part{
	noun: "tenant", path: shown.TenantPath,
	settings: func() []setting {
		limit, ofType := typeSettings()
		return []setting{
			textSetting("tier", "tier", "`TIER` of the policy, such as premium"), limit, weightsSetting(), maxRunningSetting("its "),
			dispatchSetting("headgate tenant unset TENANT dispatch"), ofType,
		}
	},
	lost: "The tier's then apply, and of a tenant without a tier those of standard. Its jobs stay, and limits of\nits queues and priorities (headgate limit) too; queues are its limits by type of job.",
	show: showTenant,
}

func newTenantSet(o *cli.Operator) *cobra.Command {
	return tenantPart.newSet(o, `Changes the settings of a tenant that flags name, and leaves the others as they are. Weights are
changed class by class.`, `  headgate tenant set acme --tier premium --redis localhost:6379
  headgate tenant set acme --tokens 100 --per 1s --burst 50 --weight high=5 --reason "new contract" --redis localhost:6379
  headgate tenant set acme --off --redis localhost:6379
  headgate tenant set acme --queue mail --type report --tokens 5 --redis localhost:6379
  headgate tenant set acme --max-running 20 --dispatch 600 --dispatch-per 1m --redis localhost:6379`)
}

func newTenantUnset(o *cli.Operator) *cobra.Command {
	return tenantPart.newUnset(o, `  headgate tenant unset acme limit weights --reason "contract is over" --redis localhost:6379
  headgate tenant unset acme --redis localhost:6379`)
}

func writeTenants(to io.Writer, v shown.Tenants) {
	if len(v.Tenants) > 0 {
		header := []any{"tenant", "tier", "its own"}
		recorded := slices.ContainsFunc(v.Tenants, func(one shown.TenantSettings) bool { return one.Record != nil })
		if recorded {
			header = append(header, "its record")
		}
		t := report.NewTable(to, len(header)-1, header...)
		for _, tenant := range v.Tenants {
			row := table.Row{tenant.Tenant, tenant.Tier, spaced(tenant.Own)}
			if recorded {
				row = append(row, spaced(tenant.Record))
			}
			t.AppendRow(row)
		}
		t.Render()
	}
	if v.Cursor != "" {
		fmt.Fprintf(to, "more: --cursor %s\n", v.Cursor)
	}
}

func writeTenant(to io.Writer, v shown.Tenant) {
	limit := "none"
	if v.Limit != nil {
		limit = fmt.Sprintf("%s, at most %d at once", v.Limit.Words(), v.Limit.Burst) + scaledWords(v.Scaled(admission.Scope(v.Tenant)))
	}
	running := "no bound"
	if v.MaxRunning > 0 {
		running = fmt.Sprintf("at most %d", v.MaxRunning)
	}
	dispatches := "no bound"
	if v.Dispatch != nil {
		dispatches = fmt.Sprintf("%s, at most %d at once", admission.TokensPerSecond(1000*float64(v.Dispatch.Tokens)/v.Dispatch.PerMs).Words("job"), v.Dispatch.Burst)
	}
	own := "nothing"
	if v.Own != nil {
		own = spaced(v.Own)
	}
	t := report.NewTable(to, 2, "field", "value")
	t.AppendRows([]table.Row{{"tenant", v.Tenant}, {"tier", v.Tier}, {"limit in force", limit}, {"jobs at a time", running}, {"jobs that start", dispatches}, {"its own", own}})
	if v.Record != nil {
		t.AppendRow(table.Row{"its record", spaced(v.Record)})
	}
	for _, g := range v.Gates {
		t.AppendRow(table.Row{g.Name.Words(), cli.GateWords(g)})
	}
	for _, s := range v.Suspensions {
		t.AppendRow(table.Row{s.Name.Words(), "enqueueing suspended" + cli.Because(s.Reason) + cli.Until(s.Until)})
	}
	t.Render()
}

// tierPart is what the tenants of a tier have.
var tierPart = part{
	noun: "tier", path: shown.Tiers.Path, show: showPart(shown.Tiers),
	settings: func() []setting {
		return append(inQueueSettings(), weightsSetting(), maxRunningSetting("each tenant's "))
	},
	lost: "A tier without a limit needs one of its own again: --tokens, or --off. A tier goes only when no tenant has it,\nand standard never.",
}

// NewTier returns the command headgate tier.
func NewTier() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("tier", "Show or change what the tenants of a tier have", `A tier says what its tenants have that have nothing of their own: a limit each, limits and bounds
in single queues, weights, and how many jobs of each run at a time. Every tenant has one, standard unless it is told. Each edit is a version
of the whole policy (see headgate policy), and all processes follow it within a second.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 there is nothing like that to take away.`,
		`  headgate tier list --redis localhost:6379
  headgate tier set gold --tokens 1000 --burst 200 --weight high=5 --reason "new plan" --redis localhost:6379
  headgate tier unset gold --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(
		newPartList(&o, "list", "List the tiers", "Lists the tiers of the policy, with what their tenants have.", `  headgate tier list --redis localhost:6379
  headgate tier list --json --redis localhost:6379`, shown.Tiers),
		tierPart.newSet(&o, `Changes the settings of a tier that flags name, and leaves the others as they are. A tier that is not
there yet is made, and needs a limit: --tokens or --off. With --queue the limit and the bound of depth
are those of each of its tenants in that queue; docs/POLICY.md says which one holds where several do.`, `  headgate tier set gold --tokens 1000 --burst 200 --weight high=5,low=1 --redis localhost:6379
  headgate tier set gold --queue mail --tokens 100 --burst 200 --redis localhost:6379
  headgate tier set gold --queue '*' --class high --tokens 20 --redis localhost:6379
  headgate tier set basic --overflow reject --max-jobs 100000 --redis localhost:6379
  headgate tier set basic --queue mail --overflow reject --max-jobs 1000 --redis localhost:6379
  headgate tier set basic --max-running 5 --reason "too many at once" --redis localhost:6379`),
		tierPart.newUnset(&o, `  headgate tier unset gold --reason "plan is over" --redis localhost:6379
  headgate tier unset basic max-running --redis localhost:6379`),
	)
	return c
}
