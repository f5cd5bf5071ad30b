package relay

import (
	"context"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/database"
	"github.com/headgate/headgate/mirror"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/telemetry"
)

// MirrorVariable names the environment variable with the address of the database, which may hold a password.
const MirrorVariable = "HEADGATE_MIRROR_DATABASE"

// mirrorFlags are those of headgate mirror.
type mirrorFlags struct {
	cli.Target

	to   database.Source
	once bool
}

// NewMirror returns the command headgate mirror.
func NewMirror() *cobra.Command {
	f := mirrorFlags{to: database.Source{
		Variable: MirrorVariable, Flag: "database-file", AddressFlag: "to", Usage: cli.Usage, Field: cli.FieldError,
	}}
	c := &cobra.Command{
		Use: "mirror (--to ADDRESS | --database-file FILE)", Short: "Copy audit, policy versions, usage, anomalies and breakers' transitions into an SQL database", Args: cli.NoArgs,
		Long: `Copies what Redis keeps for a time only into tables of an SQL database, for those who ask about the
past: headgate_audit, headgate_policy_versions, headgate_usage, headgate_transitions and
headgate_anomalies. The tables are made, or raised to the newest version, at the start. Nothing of Headgate decides by them.

Each row is there once. What had gone from Redis before it was copied is a row of
headgate_mirror_gaps, and a line of the log. With the database or Redis away rows are late, no
more: it comes again, until it is told to stop.

An address with a password comes from a file or from ` + MirrorVariable + `, never from the
command line, which others on the machine can read:

  postgres://user:password@host/name    PostgreSQL 12 or later
  mysql://user:password@host/name       MySQL 8.0.13, MariaDB 10.6 or later; mariadb:// is the same
  sqlite:/var/lib/app/audit.db          by headgate-sqlite alone, which is built with SQLite

Several may run on one database: one works, the others stand by. A database has the mirror of one
deployment.

Exit codes: 0 it was told to stop, or has copied all with --once, 1 a failure, 2 a wrong command line.`,
		Example: `  headgate mirror --redis localhost:6379 --database-file /run/secrets/database
  headgate mirror --redis localhost:6379 --to postgres://audit@db/headgate --once
  headgate mirror --redis localhost:6379 --database-file /run/secrets/database --metrics :9093`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Validate(); err != nil {
				return err
			}
			return f.to.With(func(db *database.DB) error { return f.copy(c, db) })
		},
	}
	addMetered(c, &f.Target, "mirror")
	c.PersistentFlags().StringVar(&f.to.Address, "to", "", "`ADDRESS` of the database, without a password")
	c.PersistentFlags().StringVar(&f.to.File, "database-file", "", "`FILE` with the address of the database (by default $"+MirrorVariable+" is the address)")
	c.Flags().BoolVar(&f.once, "once", false, "copy what there is, and end")
	c.AddCommand(newMirrorStatus(&f))
	return c
}

// copy runs the mirror.
func (f *mirrorFlags) copy(c *cobra.Command, db *database.DB) error {
	return metered(c, &f.Target, func(ctx context.Context, s *serving) error {
		d := outbox.Dialect(db.Dialect)
		if err := mirror.Migrate(ctx, d, db.DB); err != nil {
			return err
		}
		m, err := mirror.New(db.DB, s.store, f.config(d, &s.logger))
		if err != nil {
			return err
		}
		run := m.Run
		if f.once {
			run = m.Once
		}
		err = s.run(ctx, telemetry.Mirror(m), run)
		done := s.logger.Info()
		stats := m.Stats()
		for _, source := range mirror.Sources {
			done.Uint64(source, stats.Sources[source].Rows)
		}
		done.Msg("mirror stopped; these rows were written")
		return err
	})
}

func (f *mirrorFlags) config(d outbox.Dialect, logger *zerolog.Logger) mirror.Config {
	return mirror.Config{
		Dialect: d, Prefix: f.Loaded.Config.Redis.Store.Prefix,
		OnError: func(err error) { logger.Error().Err(err).Msg("nothing is mirrored for now") },
		OnOver:  func() { logger.Info().Msg("all is mirrored again") },
		OnGap: func(gap mirror.Gap) {
			logger.Warn().Str("source", gap.Source).Int("partition", gap.Part).Int64("lost", gap.Lost).Str("after", gap.After).Str("reason", gap.Reason).
				Msg("what had gone from Redis before it was copied is not in the mirror")
		},
	}
}
