package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/migrate"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/store"
)

// migrateFlags are the flags of headgate migrate.
type migrateFlags struct {
	cli.Operator

	from, to   string
	partitions int
	wait       time.Duration
	dryRun     bool
}

// NewMigrate returns the command headgate migrate.
func NewMigrate() *cobra.Command {
	var f migrateFlags
	c := &cobra.Command{
		Use: "migrate --partitions N", Short: "Move a deployment to another number of partitions, or to another Redis", Args: cli.NoArgs,
		Long: `Moves all that a deployment holds to N partitions, on the same Redis or to another one: jobs with
their order, attempts and deadlines, dead letters, results, unique keys, ids that have ended, levels
of limits, breakers, pauses, the policy and its history.

Stop workers, schedulers, limiters and serve first; they are waited for, but for a serve that holds
no tokens. From then on all enqueueing is refused, with words, until the migration has ended. It may
be killed at any point: run the same again, and it goes on. Processes that run on with the old
layout are refused, or end by themselves, as serve does; start them anew.

With the number of partitions that there is on the same Redis it raises the data to the newest
layout, after an upgrade. Releases before it can no longer work on the deployment then.

Exit codes: 0 it is done, or could be with --dry-run, 1 it is not: run the same again, 2 a wrong
command line, 3 refused, because processes are running.`,
		Example: `  headgate migrate --partitions 16 --redis localhost:6379 --dry-run
  headgate migrate --partitions 16 --from redis://one:6379 --to redis-cluster://a:7000,b:7000`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.Add(c)
	flags := c.Flags()
	flags.StringVar(&f.from, "from", "", "`URL` of the Redis where it is; the same as --redis")
	flags.StringVar(&f.to, "to", "", "`URL` of the Redis where it is to be (by default the same Redis)")
	flags.IntVar(&f.partitions, "partitions", 0, "`NUMBER` of partitions that it is to have, 1 to 256")
	flags.DurationVar(&f.wait, "wait", 30*time.Second, "`DURATION` that workers, schedulers and limiters may take to end, 0s or more")
	flags.BoolVar(&f.dryRun, "dry-run", false, "tell what there is to do, and change nothing")
	return c
}

// migrationView is what a migration has to do, or did.
type migrationView struct {
	From     int      `json:"from"`
	To       int      `json:"to"`
	InPlace  bool     `json:"in_place"`
	Resumed  bool     `json:"resumed"`
	Done     bool     `json:"done"` // nothing is left to do
	Jobs     int64    `json:"jobs"`
	Moving   int64    `json:"moving"`
	Version  int64    `json:"policy_version"` // of the policy in the end, 0 for none
	Busy     []string `json:"busy"`           // who has to end before
	TookS    float64  `json:"took_s"`
	Migrated bool     `json:"migrated"`
}

func (f *migrateFlags) run(c *cobra.Command) (err error) {
	if f.wait < 0 {
		return cli.FieldError("wait", f.wait.String(), "0 or more")
	}
	if f.partitions < 1 || f.partitions > store.MaxPartitions {
		return cli.FieldError("partitions", strconv.Itoa(f.partitions), fmt.Sprintf("1 to %d", store.MaxPartitions))
	}
	if f.from != "" {
		f.Extra = map[string]any{config.PathURL: f.from}
	}
	from, err := f.Open(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	target := f.Target
	target.Loaded = nil
	if f.to != "" {
		target.Extra = map[string]any{config.PathURL: f.to}
	}
	to, err := target.Open(c.Context(), c.ErrOrStderr())
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()

	painter := report.NewPainter(c.ErrOrStderr())
	m, err := migrate.Open(c.Context(), from.Client(), to.Client(), migrate.Config{
		Prefix: f.Keys().Prefix, Partitions: f.partitions, Target: plainURL(target.Loaded.Config.Redis.URL), Wait: f.wait, Update: rollout.Renew,
		Observe: func(p migrate.Progress) { paintMigration(painter, p) },
	})
	if err == nil {
		err = f.migrate(c, m)
	}
	painter.Done(true)
	bad, invalid := errors.AsType[*admission.FieldError](err)
	switch {
	case errors.Is(err, migrate.ErrBusy):
		return cli.Nothing("%w", err)
	case invalid:
		return cli.Usage(bad)
	}
	return err
}

func (f *migrateFlags) migrate(c *cobra.Command, m *migrate.Migration) error {
	began := time.Now()
	do := m.Run
	if f.dryRun {
		do = m.Plan
	}
	plan, err := do(c.Context())
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %w", err)
	}
	if err != nil {
		return err
	}
	view := migrationView{
		From: plan.From, To: plan.To, InPlace: plan.InPlace, Resumed: plan.Resumed, Done: plan.Done, Jobs: plan.Jobs, Moving: plan.Moving,
		Version: plan.Version, Busy: append([]string{}, plan.Busy...), TookS: time.Since(began).Seconds(), Migrated: !f.dryRun,
	}
	return f.Print(c, view, func(to io.Writer) { writeMigration(to, view) })
}

func paintMigration(painter *report.Painter, p migrate.Progress) {
	line := "headgate: " + p.Step
	if p.Total > 0 {
		line += fmt.Sprintf(", %d of %d", p.Done, p.Total)
	}
	painter.Paint(line, line)
}

func writeMigration(to io.Writer, v migrationView) {
	if v.Migrated {
		fmt.Fprintf(to, "the deployment has %d partitions; %d jobs have moved in %.1f s\n", v.To, v.Moving, v.TookS)
		return
	}
	where := "to another Redis"
	if v.InPlace {
		where = "on the same Redis"
	}
	t := report.NewTable(to, 0, "what", "found")
	t.AppendRow(table.Row{"partitions", fmt.Sprintf("%d now, %d then, %s", v.From, v.To, where)})
	t.AppendRow(table.Row{"jobs", fmt.Sprintf("%d, %d of them move", v.Jobs, v.Moving)})
	if v.Version > 0 {
		t.AppendRow(table.Row{"policy", fmt.Sprintf("stored anew as version %d", v.Version)})
	}
	if v.Resumed {
		t.AppendRow(table.Row{"begun", "by an earlier run; it goes on from there"})
	}
	if v.Done {
		t.AppendRow(table.Row{"done", "nothing is left but to tidy up"})
	}
	if len(v.Busy) > 0 {
		t.AppendRow(table.Row{"stop first", strings.Join(v.Busy, ", ")})
	}
	t.Render()
}

// plainURL returns a URL of Redis without a user, a password and settings.
func plainURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return text[strings.LastIndex(text, "@")+1:]
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
