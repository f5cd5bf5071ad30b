package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// explained are the kinds in the order of the help.
var explained = []string{explain.Job, explain.Tenant, explain.Scope, explain.Downstream, explain.Queue}

// NewExplain returns the command headgate explain.
func NewExplain() *cobra.Command {
	var o cli.Operator
	c := &cobra.Command{
		Use:   "explain {job TENANT ID | tenant TENANT | scope SCOPE | downstream NAME | queue NAME}",
		Short: "Tell what something waits for, or why it is refused",
		Long: `Tells what holds back a job, a tenant, a scope (tenant, tenant:queue, tenant:queue:priority, global,
or of one type of job tenant:queue:type=TYPE) or a downstream: until when, which rule of the policy
decided that, who changed the rule last, and what would change it. A line with "!" holds back now, one with "-" may.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 nobody knows the job.`,
		Example: `  headgate explain job acme order-17 --redis localhost:6379
  headgate explain tenant acme --redis localhost:6379
  headgate explain scope acme:mail:high --json --redis localhost:6379
  headgate explain scope acme:mail:type=report --redis localhost:6379
  headgate explain downstream smtp --redis localhost:6379
  headgate explain queue mail --redis localhost:6379`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return explained, cobra.ShellCompDirectiveNoFileComp
		},
		Args: explainArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				answer, err := explain.New(ctx, s, args[0], strings.Join(args[1:], ":"), shown.Everything)
				if err != nil {
					return err
				}
				return o.Print(c, answer, answer.Write)
			})
		},
	}
	o.Add(c)
	return c
}

// explainArgs takes a kind and a name; a job has two.
func explainArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 || !slices.Contains(explained, args[0]) {
		return cli.Usage(errors.New("headgate explain takes what to explain: " + strings.Join(explained, ", ")))
	}
	names, want := []string{"a name"}, 1
	if args[0] == explain.Job {
		names, want = []string{"TENANT", "ID"}, 2
	}
	if args[0] == explain.Job && len(args) == 2 && strings.Contains(args[1], ":") {
		return nil // TENANT:ID, as it is printed.
	}
	if len(args) != want+1 {
		return cli.Usage(fmt.Errorf("headgate explain %s takes %s, got %d arguments", args[0], strings.Join(names, " and "), len(args)-1))
	}
	if args[0] == explain.Job { // The parts are joined by a colon, so that one in the tenant would change them.
		return cli.Usage(admission.ValidateTenant(args[1]))
	}
	return nil
}
