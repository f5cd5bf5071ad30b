package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

func newPolicy() *cobra.Command {
	c := &cobra.Command{
		Use: "policy", Short: "Show or change the limits and weights in force", Args: noArgs,
		Long: `A policy says which limit applies to whom: one for everybody, one for each tier of tenants,
and overrides for tenants, queues and priorities; and which share each tenant has. It is one
JSON document. Producers notice a new one with their next call.`,
		Example: `  headgate policy get --redis localhost:6379 > policy.json
  headgate policy set policy.json --redis localhost:6379
  headgate policy set default --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var s site
	s.add(c.PersistentFlags())
	c.AddCommand(&cobra.Command{
		Use: "get", Short: "Print the policy in force", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return s.with(c.Context(), c.ErrOrStderr(), func(ctx context.Context, store *lua.Store) error {
				return printPolicy(ctx, store, c.OutOrStdout())
			})
		},
	}, &cobra.Command{
		Use: "set FILE|default", Short: "Put a policy in force, or the built-in one",
		Long: `Puts the policy in FILE in force, as the version after the one in force. A "version" in the
file must be that of the policy it was made from: if another one is in force by now, nothing
is changed. Without "version" the file overrules whatever is in force. "-" reads standard
input; "default" is the built-in policy, so a file of that name is ./default.`,
		Args: oneArg("FILE or default"),
		RunE: func(c *cobra.Command, args []string) error {
			document, err := readPolicy(args[0], c.InOrStdin())
			if err != nil {
				return err
			}
			return s.with(c.Context(), c.ErrOrStderr(), func(ctx context.Context, store *lua.Store) error {
				version, err := rollout.Put(ctx, store, document)
				if err == nil {
					fmt.Fprintf(c.OutOrStdout(), "version %d is in force\n", version)
				}
				return err
			})
		},
	})
	return c
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
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		return fmt.Errorf("indent policy: %w", err)
	}
	_, err = fmt.Fprintln(to, pretty.String())
	return err
}

// readPolicy reads a policy from a file, standard input for "-", or takes the built-in one for "default".
func readPolicy(name string, stdin io.Reader) (policy.Policy, error) {
	var text []byte
	var err error
	switch name {
	case "default":
		return policy.Default(), nil
	case "-":
		text, err = io.ReadAll(io.LimitReader(stdin, policy.MaxBytes+1))
	default:
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return policy.Policy{}, fmt.Errorf("read policy: %w", err)
	}
	document, err := policy.Unmarshal(text)
	if err != nil {
		return policy.Policy{}, fmt.Errorf("policy %s: %w", name, err)
	}
	return document, nil
}
