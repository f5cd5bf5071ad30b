package policies

import (
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/policydoc"
)

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
