package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/policydoc"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// NewPolicy returns the command headgate policy.
func NewPolicy() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("policy", "Show or change the limits and weights in force", `A policy says which limit applies to whom: one for everybody, one for each tier of tenants,
and overrides for tenants, queues and priorities; and which share each tenant has. It is one
JSON document: headgate policy reference has its fields, headgate policy schema tells editors.
All processes follow a new one within a second. The last 100 versions are kept, and an audit of
who stored them, when and why.

Exit codes: 0 done, 1 a failure, as a file that is wrong, 2 a wrong command line, 3 there is no such
version, diff found differences, or set would lose settings.`, `  headgate policy get --redis localhost:6379 > policy.json
  headgate policy dry-run policy.json --redis localhost:6379
  headgate policy set policy.json --reason "launch of acme" --redis localhost:6379
  headgate policy suggest --tenant acme --redis localhost:6379
  headgate policy merge part.json --reason "new contract" --redis localhost:6379
  headgate policy history --redis localhost:6379
  headgate policy rollback 17 --reason "too strict" --redis localhost:6379
  headgate policy schema > policy.schema.json`)
	o.Add(c)
	c.AddCommand(newPolicyGet(&o), newPolicySet(&o), newPolicyMerge(&o), newPolicyDryRun(&o), newPolicySuggest(&o), newPolicySync(&o), newPolicyExport(&o), newPolicyDiff(&o), newPolicyHistory(&o), newPolicyShow(&o), newPolicyRollback(&o), newPolicyRollout(&o),
		newPolicySchema(), newPolicyReference())
	return c
}

func newPolicyGet(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "get", Short: "Print the policy in force", Args: cli.NoArgs,
		Example: `  headgate policy get --redis localhost:6379 > policy.json`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				return printPolicy(ctx, s, c.OutOrStdout())
			})
		},
	}
}

func newPolicySet(o *cli.Operator) *cobra.Command {
	var reason string
	var dry, replace bool
	c := &cobra.Command{
		Use: "set FILE|default", Short: "Put a policy in force, or the built-in one",
		Long: `Puts the policy in FILE in force, as the version after the one in force. The file is the whole
policy: what it does not say is gone, or as by default. A "version" in the file must be that of
the policy it was made from: if another one is in force by now, nothing is changed. Without
"version" nothing is changed if anything would be lost that the file does not name; it is listed,
and --replace does it all the same. To put a part in force use headgate policy merge. "-" reads
standard input; "default" is the built-in policy, so a file of that name is ./default. --dry-run
makes all checks, tells what would change, and changes nothing.`,
		Args: cli.OneArg("FILE or default"),
		Example: `  headgate policy set policy.json --reason "launch of acme" --redis localhost:6379
  headgate policy set default --replace --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			text, document, err := policydoc.ReadDocument(args[0], c.InOrStdin())
			if err := errors.Join(cli.InFile("policy", args[0], err), cli.CheckReason(reason)); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				edit := cli.EditBy(reason)
				if !replace && document.Version == 0 {
					edit.Expected, err = dropsNothing(ctx, c, s, text, document)
					_, drops := errors.AsType[*cli.NothingError](err)
					switch {
					case drops && dry:
						fmt.Fprintln(c.ErrOrStderr(), "headgate:", err)
					case err != nil:
						return err
					}
				}
				var done rollout.Result
				if dry {
					done, err = rollout.DryRun(ctx, s, document)
				} else {
					done, err = rollout.Put(ctx, s, document, edit)
				}
				if err != nil {
					return cli.InFile("policy", args[0], err)
				}
				view := resultViewOf(done, dry)
				return o.Print(c, view, view.write)
			})
		},
	}
	cli.ReasonFlag(c, &reason)
	c.Flags().BoolVar(&dry, "dry-run", false, "check and tell what would change, and change nothing")
	c.Flags().BoolVar(&replace, "replace", false, "do so also where settings would be lost that FILE does not name")
	return c
}

// shownDrops is how many settings that would be lost are listed.
const shownDrops = 20

// dropsNothing reports settings in force that a text would do away with by not naming them, and the version that has them.
func dropsNothing(ctx context.Context, c *cobra.Command, store store.Deployment, text []byte, document policy.Policy) (version int64, err error) {
	version, drops, err := dropped(ctx, store, text, document)
	if err != nil || len(drops) == 0 {
		return version, err
	}
	writeChanges(c.ErrOrStderr(), drops[:min(len(drops), shownDrops)])
	return 0, cli.Nothing("settings in force that the file does not name: %d (the first %d are listed), and they would be lost: "+
		"--replace puts the file in force all the same, headgate policy merge only what it names", len(drops), min(len(drops), shownDrops))
}

// dropped returns those settings, and the version that has them.
func dropped(ctx context.Context, store store.Deployment, text []byte, document policy.Policy) (version int64, drops []shown.Change, err error) {
	current, err := rollout.Current(ctx, store)
	if err != nil || current.Version == 0 { // What is built in is nobody's setting.
		return 0, nil, err
	}
	changes, err := policy.Diff(current, document)
	return current.Version, shown.ChangesOf(policy.Unsaid(changes, text)), err
}

func newPolicyMerge(o *cli.Operator) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "merge FILE", Short: "Put a part of a policy in force, and leave the rest as it is",
		Long: `Changes the policy in force by the part of one in FILE, as RFC 7396 (JSON merge patch) says:
objects are merged name by name, null takes what it names away, anything else replaces what is
there. A "version" in the file must be that in force. "-" reads standard input.`,
		Args: cli.OneArg("FILE"),
		Example: `  headgate policy merge launch.json --reason "launch of acme" --redis localhost:6379
  echo '{"tenants":{"acme":{"tier":"premium"},"bolt":null}}' | headgate policy merge - --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			patch, err := policydoc.ReadText(args[0], c.InOrStdin())
			if err := errors.Join(err, cli.CheckReason(reason)); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				done, err := rollout.Change(ctx, s, cli.EditBy(reason), func(current policy.Policy) (policy.Policy, error) { return current.Merge(patch) })
				if err != nil {
					return cli.InFile("policy", args[0], err)
				}
				view := resultViewOf(done, false)
				return o.Print(c, view, func(to io.Writer) { writeChanges(to, view.Changes); view.write(to) })
			})
		},
	}
	cli.ReasonFlag(c, &reason)
	return c
}

func newPolicyDiff(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "diff FILE|default", Short: "Tell how a policy differs from the one in force",
		Long: `Lists every value of FILE that differs from the policy in force, by its path (a JSON pointer):
+ is added, - is removed, ~ is changed. The exit code is 3 if there are any, and 0 if not.`,
		Args: cli.OneArg("FILE or default"),
		Example: `  headgate policy diff policy.json --redis localhost:6379
  headgate policy diff default --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			document, err := policydoc.ReadPolicy(args[0], c.InOrStdin())
			if err != nil {
				return cli.InFile("policy", args[0], err)
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				current, err := rollout.Current(ctx, s)
				if err != nil {
					return err
				}
				changes, err := policy.Diff(current, document)
				if err != nil {
					return err
				}
				view := diffView{InForce: current.Version, Changes: shown.ChangesOf(changes)}
				if err := o.Print(c, view, func(to io.Writer) { writeChanges(to, view.Changes) }); err != nil {
					return err
				}
				if len(changes) > 0 {
					return cli.Nothing("%d differences from version %d", len(changes), current.Version)
				}
				return nil
			})
		},
	}
}

func printPolicy(ctx context.Context, store store.Deployment, to io.Writer) error {
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

func newPolicySchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of a policy, for editors", Args: cli.NoArgs,
		Long: `Prints the JSON Schema (draft 2020-12) of the policy document: each field with what it is, its unit,
its range and what holds without it. Editors complete and check a policy by it. It calls nobody.

In Visual Studio Code, in settings.json:
  {"json.schemas": [{"fileMatch": ["*policy.json"], "url": "./policy.schema.json"}]}

A schema knows no range of a duration, and no tier that another file has: headgate policy dry-run
checks all of it.`,
		Example: `  headgate policy schema > policy.schema.json
  headgate policy dry-run policy.json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error { return policydoc.Schema(c.OutOrStdout()) },
	}
}

func newPolicyReference() *cobra.Command {
	return &cobra.Command{
		Use: "reference", Short: "List every field of a policy, as Markdown", Args: cli.NoArgs,
		Long: `Prints what docs/POLICY.md has: each field of the policy document with what it is, its range and
what holds without it. It calls nobody.`,
		Example: `  headgate policy reference
  headgate policy reference > POLICY.md`,
		RunE: func(c *cobra.Command, _ []string) error { return policydoc.Reference(c.OutOrStdout()) },
	}
}
