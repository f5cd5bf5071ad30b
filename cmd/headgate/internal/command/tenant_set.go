package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

// tenantFlags say what a tenant is to have of its own.
type tenantFlags struct {
	tier            string
	limit, dispatch limitFlags
	weights         map[string]int
	maxRunning      int
	reason          string
}

func newTenantSet(o *operator) *cobra.Command {
	var f tenantFlags
	c := &cobra.Command{
		Use: "set TENANT", Short: "Say what a tenant has of its own", Args: oneArg("TENANT"),
		Long: `Changes the settings of a tenant that flags name, and leaves the others as they are. Weights are
changed class by class.`,
		Example: `  headgate tenant set acme --tier premium --redis localhost:6379
  headgate tenant set acme --tokens 100 --per 1s --burst 50 --weight high=5 --reason "new contract" --redis localhost:6379
  headgate tenant set acme --off --redis localhost:6379
  headgate tenant set acme --max-running 20 --dispatch 600 --dispatch-per 1m --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			edits, err := f.edits(c.Flags())
			if err != nil {
				return err
			}
			return o.with(c, func(ctx context.Context, store *lua.Store) error {
				if err := setTenant(ctx, store, args[0], edits, f.reason); err != nil {
					return err
				}
				return o.showTenant(ctx, c, store, args[0])
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.tier, "tier", "", "`TIER` of the policy, such as premium")
	f.limit.add(flags)
	flags.BoolVar(&f.limit.off, "off", false, "no limit, also where the tier has one")
	flags.StringToIntVar(&f.weights, "weight", nil, "`WEIGHTS` by class, high=5,low=1, each 1 to 1000")
	flags.IntVar(&f.maxRunning, "max-running", 0, fmt.Sprintf("`NUMBER` of jobs that workers hold at a time, 1 to %d, or 0 for no bound of its own", policy.MaxMaxRunning))
	flags.Int64Var(&f.dispatch.tokens, "dispatch", 0, "`NUMBER` of jobs that start in --dispatch-per")
	flags.DurationVar(&f.dispatch.per, "dispatch-per", time.Second, "`DURATION` in which they do")
	flags.Int64Var(&f.dispatch.burst, "dispatch-burst", 0, "largest `NUMBER` of jobs that start at once; by default as many as --dispatch")
	reasonFlag(c, &f.reason)
	return c
}

// edit is JSON for a place below a tenant in the policy.
type edit struct {
	path  []string
	value json.RawMessage
}

// edits returns what the flags say that were given.
func (f *tenantFlags) edits(flags *pflag.FlagSet) (all []edit, err error) {
	given := func(names ...string) bool { return slices.ContainsFunc(names, flags.Changed) }
	if given("tier") {
		all = append(all, edit{[]string{"tier"}, json.RawMessage(strconv.Quote(f.tier))})
	}
	var noLimit, noDispatch error
	if given("tokens", "per", "burst", "off") {
		var value json.RawMessage
		value, noLimit = f.limit.json("tokens", "--off")
		all = append(all, edit{[]string{"limit"}, value})
	}
	for _, class := range slices.Sorted(maps.Keys(f.weights)) {
		all = append(all, edit{[]string{"priority_weights", class}, json.RawMessage(strconv.Itoa(f.weights[class]))})
	}
	if given("max-running") {
		all = append(all, edit{[]string{"max_running"}, json.RawMessage(strconv.Itoa(f.maxRunning))})
	}
	if given("dispatch", "dispatch-per", "dispatch-burst") {
		var value json.RawMessage
		value, noDispatch = f.dispatch.json("dispatch", "headgate tenant unset TENANT dispatch")
		all = append(all, edit{[]string{"dispatch"}, value})
	}
	if len(all) == 0 {
		return nil, usage(errors.New("say what the tenant is to have: --tier, --tokens, --off, --weight, --max-running or --dispatch"))
	}
	return all, errors.Join(noLimit, noDispatch)
}

// setTenant stores the policy with edits of a tenant.
func setTenant(ctx context.Context, store *lua.Store, tenant string, edits []edit, reason string) error {
	if err := headgate.ValidateTenant(tenant); err != nil {
		return err
	}
	_, err := rollout.Change(ctx, store, editBy(reason), func(current policy.Policy) (policy.Policy, error) {
		for _, e := range edits {
			var err error
			if current, err = current.With(e.value, append(shown.TenantPath(tenant), e.path...)...); err != nil {
				return current, err
			}
		}
		return current, nil
	})
	return err
}
