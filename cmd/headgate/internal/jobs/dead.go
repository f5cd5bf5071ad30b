package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/store"
)

// NewDead returns the command headgate dead.
func NewDead() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("dead", "See dead letters, and end them for good", `A dead letter is a job that is out of attempts, or will never run for another reason. It is
kept until somebody redrives it (headgate redrive) or purges it.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 no dead letter is like that.`,
		`  headgate dead list --queue mail --redis localhost:6379
  headgate dead show acme order-17 --redis localhost:6379
  headgate dead purge --queue mail --older-than 720h --dry-run --redis localhost:6379
  headgate dead purge --queue mail --older-than 720h --yes --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(newDeadList(&o), newDeadShow(&o), newDeadPurge(&o))
	return c
}

func newDeadList(o *cli.Operator) *cobra.Command {
	var f listFlags
	c := &cobra.Command{
		Use: "list", Short: "List dead letters, the oldest first", Args: cli.NoArgs,
		Example: `  headgate dead list --redis localhost:6379
  headgate dead list --queue mail --died-of max_attempts --limit 200 --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			f.query.Place = store.PlaceDead
			return o.With(c, func(ctx context.Context, s store.Deployment) error { return diedOf(list(ctx, o, c, s, f.query), "") })
		},
	}
	f.add(c)
	diedOfFlag(c, &f.query.Reason)
	return c
}

// diedOfFlag adds --died-of, and --reason, which is its name in 0.1 and why something is done in all other commands.
func diedOfFlag(c *cobra.Command, reason *string) {
	flags := c.Flags()
	flags.StringVar(reason, "died-of", "", "those that died of `REASON` only, such as max_attempts, expired, poison or discarded")
	flags.StringVar(reason, "reason", "", "the name of --died-of in 0.1")
	_ = flags.MarkHidden("reason") // It is there.
}

// audited ends what is said of a bad REASON where it may have been meant for the audit.
const audited = "; why it is done is told by --why"

// diedOf names the flag of a bad reason of death.
func diedOf(err error, more string) error {
	if bad, ok := errors.AsType[*admission.FieldError](err); ok && bad.Field == "reason" {
		return cli.FieldError("died-of", bad.Value, bad.Allowed+more)
	}
	return err
}

func newDeadShow(o *cli.Operator) *cobra.Command {
	var payload bool
	c := &cobra.Command{
		Use: "show TENANT ID", Short: "Tell why a job is dead, and what became of its attempts", Args: cli.KeyArgs,
		Example: `  headgate dead show acme order-17 --redis localhost:6379
  headgate dead show acme order-17 --payload --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				sight, err := s.Look(ctx, cli.KeyOf(args))
				if err != nil {
					return err
				}
				if sight.Place != store.PlaceDead {
					return fmt.Errorf("job %s: %w: it is %s", cli.KeyOf(args), admission.ErrNotDead, sight.Place)
				}
				return show(ctx, o, c, s, cli.KeyOf(args), payload)
			})
		},
	}
	c.Flags().BoolVar(&payload, "payload", false, "show the payload too")
	return c
}

// purgeFlags are the flags of headgate dead purge.
type purgeFlags struct {
	query     store.ListQuery
	olderThan time.Duration
	yes       bool
	dryRun    bool
	why       string
}

func newDeadPurge(o *cli.Operator) *cobra.Command {
	var f purgeFlags
	c := &cobra.Command{
		Use: "purge (TENANT ID | --queue QUEUE --yes)", Short: "End dead letters for good",
		Long: `Ends one dead letter, or those of a queue that had died when the command began. They are gone
for good, with payload and history.`,
		Example: `  headgate dead purge acme order-17 --redis localhost:6379
  headgate dead purge --queue mail --died-of expired --yes --redis localhost:6379
  headgate dead purge --queue mail --older-than 720h --dry-run --redis localhost:6379
  headgate dead purge --queue mail --older-than 720h --yes --redis localhost:6379`,
		Args: keyOrQueue(&f.query.Queue, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(len(args) == 0); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				if len(args) > 0 {
					return purgeOne(ctx, o, c, s, cli.KeyOf(args), f)
				}
				if f.dryRun {
					return diedOf(countDead(ctx, o, c, s, f.query, f.olderThan, 0, "purged"), audited)
				}
				return diedOf(purgeMany(ctx, o, c, s, f), audited)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.query.Queue, "queue", "", "all of `QUEUE`")
	flags.StringVar(&f.query.Tenant, "tenant", "", "with --queue, those of `TENANT` only")
	diedOfFlag(c, &f.query.Reason)
	flags.DurationVar(&f.olderThan, "older-than", 0, "those that died longer ago than `DURATION` only, such as 24h; 0s or more")
	flags.StringVar(&f.why, "why", "", fmt.Sprintf("`TEXT` of up to %d bytes for the audit", store.MaxReason))
	flags.BoolVar(&f.dryRun, "dry-run", false, "with --queue, tell how many would be purged, and change nothing")
	flags.BoolVar(&f.yes, "yes", false, "yes, all of them, for good")
	return c
}

// keyOrQueue takes TENANT and ids, at most of them in all, or nothing with --queue.
func keyOrQueue(queue *string, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case *queue != "" && len(args) == 0, *queue == "" && len(args) >= 2 && len(args) <= most, *queue == "" && len(args) == 1 && strings.Contains(args[0], ":"):
			return nil
		case *queue != "":
			return cli.Usage(fmt.Errorf("%s takes a TENANT and ID or --queue, not both", c.CommandPath()))
		}
		return cli.Usage(fmt.Errorf("%s takes TENANT and ID, TENANT:ID, or --queue, got %d arguments", c.CommandPath(), len(args)))
	}
}

func (f *purgeFlags) validate(many bool) error {
	switch {
	case !many && (f.query.Reason != "" || f.query.Tenant != "" || f.olderThan != 0):
		return cli.Usage(errors.New("--tenant, --died-of and --older-than choose among the dead letters of a --queue"))
	case f.olderThan < 0:
		return cli.FieldError("older-than", f.olderThan.String(), "0 or more")
	case !many && f.dryRun:
		return cli.Usage(errors.New("--dry-run counts the dead letters of a --queue"))
	case many && !f.yes && !f.dryRun:
		return cli.Usage(fmt.Errorf("this ends dead letters of queue %s for good: say so with --yes, or look first with --dry-run or headgate dead list --queue %s", f.query.Queue, f.query.Queue))
	}
	return nil
}

// purgedView is what became of a purge.
type purgedView struct {
	Purged int `json:"purged"`
}

func (v purgedView) write(to io.Writer) { fmt.Fprintf(to, "%d dead letters are purged\n", v.Purged) }

func purgeOne(ctx context.Context, o *cli.Operator, c *cobra.Command, store store.Deployment, key admission.Key, f purgeFlags) error {
	sight, err := store.Look(ctx, key)
	if err != nil {
		return err
	}
	purged, err := store.Purge(ctx, []admission.Key{key}, cli.By(f.why))
	if err != nil {
		return err
	}
	if !purged[0] {
		return fmt.Errorf("purge %s: %w: it is %s, and headgate job cancel ends jobs that live", key, admission.ErrNotDead, sight.Place)
	}
	return o.Print(c, purgedView{1}, purgedView{1}.write)
}

func purgeMany(ctx context.Context, o *cli.Operator, c *cobra.Command, store store.Deployment, f purgeFlags) error {
	painter := report.NewPainter(c.ErrOrStderr())
	who := cli.By(f.why)
	var view purgedView
	err := eachDead(ctx, store, f.query, f.olderThan, 0, func(keys []admission.Key) error {
		purged, err := store.Purge(ctx, keys, who)
		if err != nil {
			return err
		}
		for _, yes := range purged {
			if yes {
				view.Purged++
			}
		}
		line := fmt.Sprintf("headgate: %d dead letters of queue %s purged so far", view.Purged, f.query.Queue)
		painter.Paint(line, line)
		return nil
	})
	painter.Done(true)
	if err != nil && view.Purged == 0 {
		return err
	}
	if printed := o.Print(c, view, view.write); err != nil || printed != nil {
		return errors.Join(err, printed)
	}
	if view.Purged == 0 {
		return cli.Nothing("no dead letter of queue %s is like that", f.query.Queue)
	}
	return nil
}

// eachDead hands the dead letters that a query names to do, in portions of one call, the oldest first: those that died
// longer ago than age when it began, at most most unless 0. A letter that dies again meanwhile is not handed out again.
func eachDead(ctx context.Context, s store.Deployment, query store.ListQuery, age time.Duration, most int, do func([]admission.Key) error) error {
	if _, err := s.Queue(ctx, query.Queue); err != nil {
		return err
	}
	now, err := s.Time(ctx)
	if err != nil {
		return err
	}
	query.Place, query.Before = store.PlaceDead, now.Add(-age)
	for left := most; most == 0 || left > 0; {
		query.Limit = store.MaxBatchJobs
		if most > 0 {
			query.Limit = min(left, store.MaxBatchJobs)
		}
		if ctx.Err() != nil {
			return cli.ErrInterrupted
		}
		page, err := s.List(ctx, query)
		if err != nil {
			return err
		}
		if len(page.Jobs) > 0 {
			keys := make([]admission.Key, len(page.Jobs))
			for i, job := range page.Jobs {
				keys[i] = job.Key
			}
			if err := do(keys); err != nil {
				return err
			}
		}
		left -= len(page.Jobs)
		if query.Cursor = page.Cursor; page.Cursor == "" {
			return nil
		}
	}
	return nil
}
