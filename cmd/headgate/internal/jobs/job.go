package jobs

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewJob returns the command headgate job.
func NewJob() *cobra.Command {
	var o cli.Operator
	c := cli.Parent("job", "Find, list and cancel jobs", `Nobody should have to ask where a job went. A job is named by its tenant and its id,
TENANT ID or, as it is printed, TENANT:ID.

Exit codes: 0 found or done, 1 a failure, 2 a wrong command line, 3 no such job, or it has
ended already.`,
		`  headgate job show acme order-17 --redis localhost:6379
  headgate job list --place waiting --queue mail --redis localhost:6379
  headgate job cancel acme order-17 --reason "ordered twice" --redis localhost:6379`)
	o.Add(c)
	c.AddCommand(newJobShow(&o), newJobList(&o), newJobCancel(&o))
	return c
}

func newJobShow(o *cli.Operator) *cobra.Command {
	var payload bool
	c := &cobra.Command{
		Use: "show TENANT ID", Short: "Tell where a job is, and what it waits for", Args: cli.KeyArgs,
		Example: `  headgate job show acme order-17 --redis localhost:6379
  headgate job show acme order-17 --payload --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				return show(ctx, o, c, s, cli.KeyOf(args), payload)
			})
		},
	}
	c.Flags().BoolVar(&payload, "payload", false, "show the payload too")
	return c
}

// show writes all that is known of a job.
func show(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, key admission.Key, payload bool) error {
	sight, err := s.Look(ctx, key)
	if err != nil {
		return err
	}
	view := viewOf(sight)
	if payload && sight.Place != store.PlaceEnded {
		if view.Payload, err = s.Payload(ctx, key); err != nil {
			return err
		}
	}
	return o.Print(c, view, view.write)
}

// listFlags are the flags of the commands that list jobs.
type listFlags struct {
	query store.ListQuery
	place string
}

func (f *listFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.query.Queue, "queue", "", "those of `QUEUE` only")
	flags.IntVar(&f.query.Limit, "limit", store.DefaultPage, "at most `N` jobs, 1 to 1000")
	flags.StringVar(&f.query.Cursor, "cursor", "", "go on after the page that ended with `CURSOR`")
}

func newJobList(o *cli.Operator) *cobra.Command {
	var f listFlags
	c := &cobra.Command{
		Use: "list", Short: "List the jobs that live", Args: cli.NoArgs,
		Long: `Lists jobs that live, dead letters included: all of them in no order, or those of one place.
Places are waiting, later, spilled, ready, running and dead. A job that moves while pages are read may
show twice, or not at all; one that stays shows.`,
		Example: `  headgate job list --place running --redis localhost:6379
  headgate job list --tenant acme --type welcome --limit 200 --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			f.query.Place = admission.Place(f.place)
			return o.With(c, func(ctx context.Context, s store.Deployment) error { return list(ctx, o, c, s, f.query) })
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.place, "place", "", "`PLACE`: waiting, later, spilled, ready, running or dead; by default all")
	c.Flags().StringVar(&f.query.Tenant, "tenant", "", "those of `TENANT` only")
	c.Flags().StringVar(&f.query.Type, "type", "", "those of `TYPE` only")
	return c
}

// list writes one page of a listing. The store may need several calls to fill it.
func list(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, query store.ListQuery) error {
	if query.Limit < 1 {
		return cli.FieldError("limit", strconv.Itoa(query.Limit), fmt.Sprintf("1 to %d jobs", store.MaxPage))
	}
	view := listView{Jobs: []listedView{}}
	for left := query.Limit; left > 0; left = query.Limit - len(view.Jobs) {
		query := query
		query.Limit = left
		if view.Cursor != "" {
			query.Cursor = view.Cursor
		}
		page, err := s.List(ctx, query)
		if err != nil {
			return err
		}
		for i := range page.Jobs {
			view.Jobs = append(view.Jobs, listedView{shown.ListedOf(&page.Jobs[i], shown.Everything), page.Jobs[i].Worker})
		}
		if view.Cursor = page.Cursor; view.Cursor == "" {
			break
		}
	}
	if len(view.Jobs) == 0 {
		cli.None(c, "no job is like that")
	}
	return o.Print(c, view, view.write)
}
