package policies

import (
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/shown"
)

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
