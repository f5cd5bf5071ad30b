package jobs

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/store"
)

// cancelFlags are the flags of job cancel.
type cancelFlags struct {
	reason, tenant, queue string
	all, dryRun           bool
}

func newJobCancel(o *cli.Operator) *cobra.Command {
	var f cancelFlags
	c := &cobra.Command{
		Use: "cancel [TENANT ID]", Short: "End a job, or all of a tenant that wait in a queue",
		Args: func(c *cobra.Command, args []string) error {
			if f.all {
				return cli.NoArgs(c, args)
			}
			return cli.KeyArgs(c, args)
		},
		Long: `Ends a job wherever it waits. One that runs is told so by its worker's next heartbeat: its
handler's context ends, and the job leaves as cancelled unless it completes first.

With --all it ends all jobs of a tenant that wait in a queue, those kept aside too, 64 a call.
Jobs that wait for a time, run, or are in a worker's stream go on; --dry-run tells how many wait.`,
		Example: `  headgate job cancel acme order-17 --redis localhost:6379
  headgate job cancel acme order-17 --reason "ordered twice" --redis localhost:6379
  headgate job cancel --all --tenant acme --queue mail --dry-run --redis localhost:6379
  headgate job cancel --all --tenant acme --queue mail --reason "a loop in its code" --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				switch {
				case !f.all:
					return cancel(ctx, o, c, s, cli.KeyOf(args), f.reason)
				case f.dryRun:
					return countBacklog(ctx, o, c, s, f.tenant, f.queue)
				}
				return cancelAll(ctx, o, c, s, &f)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.reason, "reason", "", fmt.Sprintf("`TEXT` of up to %d bytes that its handler is told, and for the audit", store.MaxReason))
	flags.BoolVar(&f.all, "all", false, "end all that wait, of --tenant in --queue")
	flags.StringVar(&f.tenant, "tenant", "", "`TENANT` of --all")
	flags.StringVar(&f.queue, "queue", "", "`QUEUE` of --all")
	flags.BoolVar(&f.dryRun, "dry-run", false, "with --all, tell how many would end")
	return c
}

func (f *cancelFlags) validate() error {
	if err := cli.CheckReason(f.reason); err != nil {
		return err
	}
	if f.all {
		if f.tenant == "" || f.queue == "" {
			return cli.FieldError("all", "true", "--all beside --tenant and --queue")
		}
		if err := admission.ValidateTenant(f.tenant); err != nil {
			return err
		}
		return admission.ValidateName("queue", f.queue, true)
	}
	if f.tenant != "" || f.queue != "" || f.dryRun {
		return cli.FieldError("all", "false", "--all beside --tenant, --queue or --dry-run")
	}
	return nil
}

// cancel ends one job.
func cancel(ctx context.Context, o *cli.Operator, c *cobra.Command, store store.Deployment, key admission.Key, reason string) error {
	if _, err := store.Look(ctx, key); err != nil {
		return err // A name that none can have, or one that nobody knows.
	}
	running, _, err := store.Cancel(ctx, key, cli.By(reason))
	if err != nil {
		return err
	}
	outcome := struct {
		Tenant  string `json:"tenant"`
		ID      string `json:"id"`
		Outcome string `json:"outcome"`
	}{key.Tenant, key.ID, "cancelled"}
	text := "job " + key.String() + " is cancelled"
	if running {
		outcome.Outcome = "cancelling"
		text = "job " + key.String() + " runs; its worker ends it with its next heartbeat"
	}
	return o.Print(c, outcome, func(to io.Writer) { fmt.Fprintln(to, text) })
}

// clearedView is what became of all that waited.
type clearedView struct {
	Tenant    string `json:"tenant"`
	Queue     string `json:"queue"`
	Cancelled int    `json:"cancelled"`
	// Waiting is how many a dry run counted.
	Waiting int64 `json:"waiting,omitempty"`
}

// clearedEvery is after how many jobs cancelAll says how far it is.
const clearedEvery = 6400

// cancelAll ends all that waits, a portion a call.
func cancelAll(ctx context.Context, o *cli.Operator, c *cobra.Command, store store.Deployment, f *cancelFlags) error {
	view, who := clearedView{Tenant: f.tenant, Queue: f.queue}, cli.By(f.reason)
	for more := true; more; {
		var n int
		var err error
		if n, more, err = store.ClearTenant(ctx, f.tenant, f.queue, who); err != nil {
			return fmt.Errorf("%w (%d are cancelled)", err, view.Cancelled)
		}
		if before := view.Cancelled; before/clearedEvery < (before+n)/clearedEvery {
			fmt.Fprintf(c.ErrOrStderr(), "headgate: %d jobs cancelled so far\n", before+n)
		}
		view.Cancelled += n
	}
	return o.Print(c, view, func(to io.Writer) {
		fmt.Fprintf(to, "%d jobs of %s in %s are cancelled\n", view.Cancelled, f.tenant, f.queue)
	})
}

// countBacklog tells how many jobs of a tenant wait in a queue.
func countBacklog(ctx context.Context, o *cli.Operator, c *cobra.Command, store store.Deployment, tenant, queue string) error {
	backlogs, err := store.Backlogs(ctx, tenant)
	if err != nil {
		return err
	}
	view, more := clearedView{Tenant: tenant, Queue: queue}, ""
	for _, b := range backlogs {
		if b.Queue == queue {
			view.Waiting = b.Waiting + b.Spilled
			if b.Partial {
				more = " at least"
			}
		}
	}
	return o.Print(c, view, func(to io.Writer) {
		fmt.Fprintf(to, "%d jobs of %s wait in %s%s; nothing is changed\n", view.Waiting, tenant, queue, more)
	})
}
