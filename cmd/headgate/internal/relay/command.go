package relay

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/database"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/telemetry"
)

// DatabaseVariable names the environment variable with the address of the database, which holds a password.
const DatabaseVariable = "HEADGATE_OUTBOX_DATABASE"

// outboxFlags are the flags of headgate outbox.
type outboxFlags struct {
	cli.Target

	from database.Source
	once bool
}

// NewCommand returns the command headgate outbox.
func NewCommand() *cobra.Command {
	f := outboxFlags{from: database.Source{Variable: DatabaseVariable, Flag: "database-file", Usage: cli.Usage, Field: cli.FieldError}}
	c := &cobra.Command{
		Use: "outbox --database-file FILE", Short: "Move jobs from a database in which applications committed them", Args: cli.NoArgs,
		Long: `Moves the rows that applications wrote into the table headgate_outbox with their own transactions
(package outbox): each job enters once, by its id, and those of a tenant in order. A refused job
waits as its verdict says and holds back its tenant's later ones; one that no wait helps goes to
the table headgate_outbox_dead with its reason. The tables are made, or raised to the newest
version, at the start.

The address of the database comes from a file or from ` + DatabaseVariable + `; it is never shown:

  postgres://user:password@host/name    PostgreSQL 12 or later
  mysql://user:password@host/name       MySQL 8.0.13, MariaDB 10.6 or later; mariadb:// is the same. It
                                        takes the parameters of Go's driver, as ?tls=true, and
                                        ?socket=/run/mysqld/mysqld.sock for a server on this machine
  sqlite:/var/lib/app/app.db            by headgate-sqlite alone, which is built with SQLite

Several may run on one database: one works, the others stand by. SIGTERM ends it after the rows
under way.

Exit codes: 0 it was told to stop, or has moved all with --once, 1 a failure, 2 a wrong command line.`,
		Example: `  headgate outbox --redis localhost:6379 --database-file /run/secrets/database
  headgate outbox --redis localhost:6379 --database-file /run/secrets/database --once
  headgate outbox --redis localhost:6379 --database-file /run/secrets/database --metrics :9092`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	addMetered(c, &f.Target, "relay")
	c.PersistentFlags().StringVar(&f.from.File, "database-file", "", "`FILE` with the address of the database (by default $"+DatabaseVariable+" is the address)")
	c.Flags().BoolVar(&f.once, "once", false, "move what may be moved now, and end")
	c.AddCommand(newStatus(&f), newRedrive(&f))
	return c
}

func (f *outboxFlags) run(c *cobra.Command) error {
	if err := f.Validate(); err != nil {
		return err
	}
	return f.from.With(func(db *database.DB) error { return f.move(c, db) })
}

// move runs the relay.
func (f *outboxFlags) move(c *cobra.Command, db *database.DB) error {
	return metered(c, &f.Target, func(ctx context.Context, s *serving) error {
		if err := outbox.Dialect(db.Dialect).Migrate(ctx, db.DB); err != nil {
			return err
		}
		p, err := producer.New(s.store, producer.Config{Logger: s.logger})
		if err != nil {
			return err
		}
		r, err := outbox.NewRelay(db.DB, p, outbox.Config{
			Dialect: outbox.Dialect(db.Dialect),
			Window:  func(ctx context.Context) (time.Duration, error) { return dedupWindow(ctx, s.store) },
			OnError: func(err error) { s.logger.Error().Err(err).Msg("outbox is not moved for now") },
		})
		if err != nil {
			return err
		}
		move := r.Run
		if f.once {
			move = r.Once
		}
		err = s.run(ctx, telemetry.Outbox(r), move)
		p.FlushOrLog()
		done := r.Stats()
		s.logger.Info().Uint64("admitted", done.Admitted).Uint64("duplicates", done.Duplicates).Uint64("refused", done.Refused).
			Uint64("dead", done.Dead).Msg("outbox stopped")
		return err
	})
}

// dedupWindow returns how long the policy in force has ids remembered.
func dedupWindow(ctx context.Context, s store.Deployment) (time.Duration, error) {
	text, err := s.Policy(ctx)
	if err != nil {
		return 0, err
	}
	compiled, err := policy.PrepareStored(text)
	if err != nil {
		return 0, err
	}
	return compiled.DedupWindow(), nil
}
