package policies

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
)

// downstreamPart is what a downstream has of its own.
var downstreamPart = part{
	noun: "downstream", path: shown.Downstreams.Path, show: showPart(shown.Downstreams),
	settings: func() []setting {
		return []setting{
			maxRunningSetting("its "), dispatchSetting("headgate downstream unset DOWNSTREAM dispatch"),
			numberSetting("max-parked", "max_parked", fmt.Sprintf("`NUMBER` of its jobs that may wait while its circuit breaker is not closed, 1 to %d, or 0 for no bound", policy.MaxOverflowJobs)),
		}
	},
	lost: `What is said of "*" does not apply to a downstream that has settings of its own; it does again once they are gone.
An account has what it does not say itself from "SERVICE+*".`,
}

// NewDownstream returns the command headgate downstream.
func NewDownstream() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("downstream", "Show or change what a downstream may be asked", `A downstream is what jobs call. It may have a number of jobs that run at a time, a rate of dispatches,
and a bound of jobs that wait behind its circuit breaker (headgate breaker). "*" is each of those that
have nothing of their own. "shopify+*" is each account of the service shopify, which jobs name as
shopify+ACCOUNT: rates and jobs at a time are held for the service and for each account, the circuit
breaker is the service's; "shopify+shop-42" is one account. Each edit is a version of the whole policy (see headgate policy).

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 there is nothing like that to take away.`,
		`  headgate downstream list --redis localhost:6379
  headgate downstream set openai --max-running 20 --dispatch 600 --dispatch-per 1m --redis localhost:6379
  headgate downstream set "shopify+*" --max-running 4 --dispatch 2 --dispatch-per 1s --redis localhost:6379
  headgate downstream unset openai dispatch --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(
		newPartList(&o, "list", "List the downstreams that the policy names", `Lists the downstreams that have something of their own; "*" is what the others have.`, `  headgate downstream list --redis localhost:6379
  headgate downstream list --json --redis localhost:6379`, shown.Downstreams),
		downstreamPart.newSet(&o, "Changes the settings of a downstream that flags name, and leaves the others as they are.", `  headgate downstream set openai --max-running 20 --reason "their limit" --redis localhost:6379
  headgate downstream set "*" --max-parked 10000 --redis localhost:6379`),
		downstreamPart.newUnset(&o, `  headgate downstream unset openai dispatch --redis localhost:6379
  headgate downstream unset "*" --redis localhost:6379`),
	)
	return c
}
