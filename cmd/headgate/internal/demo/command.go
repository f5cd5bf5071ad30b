package demo

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
)

const demoHelp = `Three tenants of three tiers share one worker. The crawler (basic) floods it, the clinic
(premium) sends urgent work with deadlines, the bakery (standard) calls a downstream that
dies and recovers. Watch who is served when, and read why at the end.

It needs nothing: without --redis it starts redis-server or valkey-server from PATH for
itself, or, where there is none, does with its own memory. On a Redis of yours it writes
under a prefix of its own and removes that at the end.`

// NewCommand returns the command headgate.
func NewCommand() *cobra.Command {
	var f cli.PlayFlags
	var config Config
	c := &cobra.Command{
		Use: "demo", Short: "See what Headgate does, in 20 seconds", Long: demoHelp, Args: cli.NoArgs,
		Example: `  headgate demo
  headgate demo --duration 10s --redis localhost:6379
  headgate demo --json > report.json`,
		RunE: func(c *cobra.Command, _ []string) error {
			logger, err := f.Logger(c.ErrOrStderr())
			if err != nil {
				return err
			}
			if config.Duration == 0 { // A Config would take it for not given.
				return cli.Usage(&admission.FieldError{Field: "--duration", Value: "0", Allowed: "3s to 1m"})
			}
			if err := config.Validate(); err != nil {
				return cli.Usage(err)
			}
			config.Redis, config.Keep, config.Logger, config.Progress = f.Redis, f.Keep, logger, c.ErrOrStderr()
			outcome, err := Run(c.Context(), config)
			if err != nil {
				return err
			}
			summary := report.NewSummary(outcome.Run)
			if f.JSON {
				err = summary.WriteJSON(c.OutOrStdout())
			} else {
				outcome.Write(c.OutOrStdout())
			}
			return errors.Join(err, cli.Verdict(summary))
		},
	}
	f.Add(c)
	c.Flags().DurationVar(&config.Duration, "duration", DefaultDuration, "`TIME` that the story takes, 3s to 1m")
	return c
}
