package ops

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewQueue takes the commands that change a queue's settings, which are edits of the policy.
func NewQueue(edits func(*cli.Operator) []*cobra.Command) *cobra.Command {
	var o cli.Operator
	c := cli.Parent("queue", "See what waits where, and who works on it; change a queue's settings", `Shows queues: what waits in each class, what runs, what is paused, who waits most, and which
jobs are next; and changes what the policy says of one: its classes, bounds and deadlines.

Exit codes: 0 done, 1 a failure, 2 a wrong command line, 3 there is no such queue, or nothing like
that to take away. A list of none is 0.`,
		`  headgate queue list --redis localhost:6379
  headgate queue show mail --redis localhost:6379
  headgate queue peek mail --redis localhost:6379
  headgate queue set mail --max-running 50 --overflow reject --max-jobs 10000 --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(newQueueList(&o), newQueueShow(&o), newQueuePeek(&o))
	c.AddCommand(edits(&o)...)
	return c
}

func newQueueList(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List every queue", Args: cli.NoArgs,
		Example: `  headgate queue list --redis localhost:6379
  headgate queue list --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				queues, err := s.Queues(ctx)
				if err != nil {
					return err
				}
				view := shown.QueuesOf(queues)
				if len(queues) == 0 {
					cli.None(c, "there is no queue yet: no job was enqueued and no worker registered")
				}
				return o.Print(c, view, func(to io.Writer) { writeQueues(to, view) })
			})
		},
	}
}

// shownTenants is how many tenants queue show names.
const shownTenants = 10

func newQueueShow(o *cli.Operator) *cobra.Command {
	return &cobra.Command{
		Use: "show QUEUE", Short: "Show one queue, who waits in it most, its gates and its workers", Args: cli.OneArg("QUEUE"),
		Example: `  headgate queue show mail --redis localhost:6379
  headgate queue show mail --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				view, err := readQueue(ctx, s, args[0])
				if err != nil {
					return err
				}
				return o.Print(c, view, view.write)
			})
		},
	}
}

func readQueue(ctx context.Context, store store.Deployment, name string) (queueDetails, error) {
	queue, err := store.Queue(ctx, name)
	if err != nil {
		return queueDetails{}, err
	}
	tenants, partial, err := store.WaitingTenants(ctx, name, shownTenants)
	if err != nil {
		return queueDetails{}, err
	}
	gates, err := store.Gates(ctx)
	if err != nil {
		return queueDetails{}, err
	}
	workers, err := store.Workers(ctx)
	if err != nil {
		return queueDetails{}, err
	}
	distincts, err := store.Distincts(ctx, name)
	if err != nil {
		return queueDetails{}, err
	}
	v := newQueueDetails(&queue, tenants, partial, gates, workers)
	v.Distinct = shown.DistinctOf(distincts[name])
	return v, nil
}

func newQueuePeek(o *cli.Operator) *cobra.Command {
	var n int
	c := &cobra.Command{
		Use: "peek QUEUE", Short: "Show which jobs of a queue are next", Args: cli.OneArg("QUEUE"),
		Long: `Shows, for each class, the tenants in the order in which they are served, with the next job of
each. A tenant that was served comes again by its share, which this does not foretell.`,
		Example: `  headgate queue peek mail --redis localhost:6379
  headgate queue peek mail --tenants 3 --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > store.MaxPeek {
				return cli.FieldError("tenants", strconv.Itoa(n), "1 to "+strconv.Itoa(store.MaxPeek)+" tenants")
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				queue, classes, err := s.Peek(ctx, args[0], n)
				if err != nil {
					return err
				}
				view := newPeekView(&queue, classes)
				return o.Print(c, view, view.write)
			})
		},
	}
	c.Flags().IntVar(&n, "tenants", 10, "at most `N` tenants a class, 1 to 100")
	return c
}
