package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

func newPolicy() *cobra.Command {
	var o operator
	c := parent("policy", "Show or change the limits and weights in force", `A policy says which limit applies to whom: one for everybody, one for each tier of tenants,
and overrides for tenants, queues and priorities; and which share each tenant has. It is one
JSON document. All processes follow a new one within a second. The last 100 versions are kept,
and an audit of who stored them, when and why.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 there is no such version, or diff
found differences.`, `  headgate policy get --redis localhost:6379 > policy.json
  headgate policy dry-run policy.json --redis localhost:6379
  headgate policy set policy.json --reason "launch of acme" --redis localhost:6379
  headgate policy history --redis localhost:6379
  headgate policy rollback 17 --reason "too strict" --redis localhost:6379`)
	o.add(c)
	c.AddCommand(newPolicyGet(&o), newPolicySet(&o), newPolicyDryRun(&o), newPolicyDiff(&o), newPolicyHistory(&o), newPolicyShow(&o), newPolicyRollback(&o), newPolicyRollout(&o))
	return c
}

func newPolicyGet(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "get", Short: "Print the policy in force", Args: noArgs,
		Example: `  headgate policy get --redis localhost:6379 > policy.json`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.with(c, func(ctx context.Context, store *lua.Store) error {
				return printPolicy(ctx, store, c.OutOrStdout())
			})
		},
	}
}

func newPolicySet(o *operator) *cobra.Command {
	var reason string
	var dry bool
	c := &cobra.Command{
		Use: "set FILE|default", Short: "Put a policy in force, or the built-in one",
		Long: `Puts the policy in FILE in force, as the version after the one in force. A "version" in the
file must be that of the policy it was made from: if another one is in force by now, nothing
is changed. Without "version" the file overrules whatever is in force. "-" reads standard
input; "default" is the built-in policy, so a file of that name is ./default. --dry-run makes
all checks, tells what would change, and changes nothing.`,
		Args: oneArg("FILE or default"),
		Example: `  headgate policy set policy.json --reason "launch of acme" --redis localhost:6379
  headgate policy set default --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			document, err := readPolicy(args[0], c.InOrStdin())
			if err != nil {
				return err
			}
			return o.with(c, func(ctx context.Context, store *lua.Store) error {
				var done rollout.Result
				if dry {
					done, err = rollout.DryRun(ctx, store, document)
				} else {
					done, err = rollout.Put(ctx, store, document, editBy(reason))
				}
				if err != nil {
					return err
				}
				view := resultViewOf(done, dry)
				return o.print(c, view, view.write)
			})
		},
	}
	reasonFlag(c, &reason)
	c.Flags().BoolVar(&dry, "dry-run", false, "check and tell what would change, and change nothing")
	return c
}

func newPolicyDiff(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "diff FILE|default", Short: "Tell how a policy differs from the one in force",
		Long: `Lists every value of FILE that differs from the policy in force, by its path (a JSON pointer):
+ is added, - is removed, ~ is changed. The exit code is 3 if there are any, and 0 if not.`,
		Args: oneArg("FILE or default"),
		Example: `  headgate policy diff policy.json --redis localhost:6379
  headgate policy diff default --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			document, err := readPolicy(args[0], c.InOrStdin())
			if err != nil {
				return err
			}
			return o.with(c, func(ctx context.Context, store *lua.Store) error {
				current, err := rollout.Current(ctx, store)
				if err != nil {
					return err
				}
				changes, err := policy.Diff(current, document)
				if err != nil {
					return err
				}
				view := diffView{InForce: current.Version, Changes: shown.ChangesOf(changes)}
				if err := o.print(c, view, func(to io.Writer) { writeChanges(to, view.Changes) }); err != nil {
					return err
				}
				if len(changes) > 0 {
					return nothing("%d differences from version %d", len(changes), current.Version)
				}
				return nil
			})
		},
	}
}

func reasonFlag(c *cobra.Command, reason *string) {
	c.Flags().StringVar(reason, "reason", "", fmt.Sprintf("why, for the audit: `TEXT` of up to %d bytes", lua.MaxReason))
}

// checkReason bounds a reason that goes into no audit.
func checkReason(reason string) error {
	if len(reason) > lua.MaxReason {
		return fieldError("reason", fmt.Sprintf("of %d bytes", len(reason)), "up to "+strconv.Itoa(lua.MaxReason)+" bytes")
	}
	return nil
}

// editBy is an edit of whoever runs the command.
func editBy(reason string) rollout.Edit {
	return rollout.Edit{Author: author(), Reason: reason, Expected: rollout.AnyVersion}
}

// author names whoever runs the command, for the audit.
func author() string {
	who, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return who.Username
}

func printPolicy(ctx context.Context, store *lua.Store, to io.Writer) error {
	current, err := rollout.Current(ctx, store)
	if err != nil {
		return err
	}
	text, err := policy.Marshal(current)
	if err != nil {
		return err
	}
	return printText(text, to)
}

// printText writes a policy for people.
func printText(text []byte, to io.Writer) error {
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		return fmt.Errorf("indent policy: %w", err)
	}
	_, err := fmt.Fprintln(to, pretty.String())
	return err
}

// readPolicy reads a policy from a file, standard input for "-", or takes the built-in one for "default".
func readPolicy(name string, stdin io.Reader) (policy.Policy, error) {
	if name == "default" {
		return policy.Default(), nil
	}
	text, err := readText(name, stdin)
	if err != nil {
		return policy.Policy{}, err
	}
	document, err := policy.Unmarshal(text)
	if err != nil {
		return policy.Policy{}, fmt.Errorf("policy %s: %w", name, err)
	}
	return document, nil
}
