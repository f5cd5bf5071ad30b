package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/relay"
)

func main() {
	logging.Disable() // go-redis writes a line of its own for each failed dial; the errors say what matters.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // The first signal drains, a second one ends the process at once.
	code := execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs the command and returns its exit code.
func execute(ctx context.Context, args []string) int {
	root := &cobra.Command{
		Use: "headgate-sqlite", Short: "The commands headgate outbox and headgate mirror with SQLite", Args: cli.NoArgs,
		Long: "Moves jobs from a database in which applications committed them, as headgate outbox does, and copies what Redis keeps for a time only, as " +
			"headgate mirror does, and both take sqlite:FILE, too.",
		Example: `  headgate-sqlite outbox --redis localhost:6379 --database-file /run/secrets/database
  headgate-sqlite mirror --redis localhost:6379 --to sqlite:/var/lib/headgate/audit.db
  headgate-sqlite outbox --help`,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(cli.FlagError(err)) })
	root.AddCommand(relay.NewCommand(), relay.NewMirror()) //nolint:contextcheck // Cobra hands ctx to the commands.
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	return cli.Fail(os.Stderr, c, err)
}
