package setup

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
)

// NewConfig returns the command headgate config. check reports what would keep a process from starting.
func NewConfig(check func(*config.Loaded) error) *cobra.Command {
	c := cli.Parent("config", "Check, show or explain the configuration",
		`What headgate can be told comes from defaults, a file (--config, or the one HEADGATE_CONFIG names),
variables HEADGATE_*, and flags; the later wins.`,
		`  headgate config check headgate.yaml
  headgate config print --config headgate.yaml --set worker.lease=30s
  headgate config reference`)
	c.AddCommand(newConfigCheck(check), newConfigPrint(), newConfigReference())
	return c
}

func newConfigCheck(check func(*config.Loaded) error) *cobra.Command {
	var s cli.Target
	c := &cobra.Command{
		Use: "check [FILE]", Short: "Report all that is wrong with a configuration",
		Long: `Reads the FILE, or that of --config or HEADGATE_CONFIG, with the environment over it, and reports
unknown keys, wrong types, values out of range and values that contradict each other, all at
once. Files that it names are read. It calls nobody. That guard.max_cgroup_memory or guard.max_cgroup_cpu
could not be measured here is a warning: where the process runs the cgroup may have a limit.

Exit codes: 0 it is well, 1 something is wrong, 2 the command line is.`,
		Args: cli.Args(0, 1, "FILE"),
		Example: `  headgate config check headgate.yaml
  HEADGATE_CONFIG=headgate.yaml headgate config check`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				if s.File != "" {
					return cli.Usage(errors.New("the file is given twice, as argument and with --config"))
				}
				s.File = args[0]
			}
			loaded, err := s.Read()
			cli.WriteDoubts(c.ErrOrStderr(), loaded)
			if err := errors.Join(err, check(loaded)); err != nil {
				return err
			}
			if err := loaded.GuardHere(); err != nil { // It may be well where the process runs.
				fmt.Fprintf(c.ErrOrStderr(), "headgate: warning: here no worker and no server would start: %v\n", err)
			}
			fmt.Fprintln(c.OutOrStdout(), "the configuration is well")
			return nil
		},
	}
	s.Add(c.Flags())
	return c
}

func newConfigPrint() *cobra.Command {
	var s cli.Target
	c := &cobra.Command{
		Use: "print", Short: "Show the values in force and where each comes from", Args: cli.NoArgs,
		Long: `Writes the values in force as YAML that can be loaded again. The comment after a value says where it
comes from: default, a file, a variable or a flag. Secrets are masked.`,
		Example: `  headgate config print --config headgate.yaml --set worker.lease=30s`,
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := s.Load()
			if err != nil {
				return err
			}
			return loaded.Print(c.OutOrStdout())
		},
	}
	s.Add(c.Flags())
	return c
}

func newConfigReference() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "reference", Short: "List every option", Args: cli.NoArgs,
		Example: `  headgate config reference
  headgate config reference --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return config.ReferenceJSON(c.OutOrStdout())
			}
			return config.Reference(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write a JSON array instead of Markdown")
	return c
}
