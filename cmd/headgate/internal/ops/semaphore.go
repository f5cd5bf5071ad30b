package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewSemaphore returns the command headgate semaphore.
func NewSemaphore() *cobra.Command {
	c := &cobra.Command{
		Use: "semaphore", Short: "See permits that are held on lease, and give one back", Args: cli.NoArgs,
		Long: `Semaphores limit what is done at a time outside of jobs (see docs/guides/semaphores.md): permits
are leased, and end by themselves where their holder died.`,
		Example: `  headgate semaphore list --redis localhost:6379
  headgate semaphore release gpu TOKEN --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newSemaphoreList(), newSemaphoreShow(), newSemaphoreRelease())
	return c
}

func newSemaphoreList() *cobra.Command {
	var o cli.Operator
	c := &cobra.Command{
		Use: "list", Short: "List the semaphores in use", Args: cli.NoArgs,
		Long: `Lists every semaphore of which permits are held or for which somebody waits: its limit, how many
permits are held, who waits, and since when the first in line does.`,
		Example: `  headgate semaphore list --redis localhost:6379
  headgate semaphore list --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				inForce, err := shown.ReadInForce(ctx, s)
				if err != nil {
					return err
				}
				all, err := shown.ReadSemaphores(ctx, s, inForce, "", "", store.MaxSemaphores*len(s.Partitions()))
				if err != nil {
					return err
				}
				return printSemaphores(ctx, c, s, &o, all, all.Semaphores)
			})
		},
	}
	o.Add(c)
	return c
}

func newSemaphoreShow() *cobra.Command {
	var o cli.Operator
	c := &cobra.Command{
		Use: "show NAME", Short: "Show what a semaphore holds", Args: cli.OneArg("NAME"),
		Long: "Shows one semaphore, NAME or TENANT:NAME, also one that nobody uses.",
		Example: `  headgate semaphore show gpu --redis localhost:6379
  headgate semaphore show acme:gpu --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				inForce, err := shown.ReadInForce(ctx, s)
				if err != nil {
					return err
				}
				one, err := shown.ReadSemaphore(ctx, s, inForce, args[0])
				if err != nil {
					return err
				}
				return printSemaphores(ctx, c, s, &o, one, []shown.Semaphore{one})
			})
		},
	}
	o.Add(c)
	return c
}

// releasedView is what release did.
type releasedView struct {
	Name  string `json:"name"`
	Token string `json:"token"`
}

func newSemaphoreRelease() *cobra.Command {
	var o cli.Operator
	c := &cobra.Command{
		Use: "release NAME TOKEN", Short: "Give permits back that a token holds", Args: cli.Args(2, 2, "NAME and TOKEN"),
		Long: `Gives back what the token of an acquisition holds, or its place in line: for work of which it is
known that it is over. Its holder is not told. It may be done again.

Exit code 3 says that the lease had ended by itself.`,
		Example: `  headgate semaphore release gpu 7KQ2 --redis localhost:6379
  headgate semaphore release gpu 7KQ2 --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				err := s.Release(ctx, args[0], args[1])
				if errors.Is(err, store.ErrLeaseEnded) {
					return cli.Nothing("the lease of %s had ended", args[1])
				}
				if err != nil {
					return err
				}
				return o.Print(c, releasedView{args[0], args[1]}, func(to io.Writer) {
					fmt.Fprintf(to, "%s holds nothing of %s\n", report.Tame(args[1], cli.ShownText), report.Tame(args[0], cli.ShownText))
				})
			})
		},
	}
	o.Add(c)
	return c
}

func printSemaphores(ctx context.Context, c *cobra.Command, s store.Deployment, o *cli.Operator, value any, all []shown.Semaphore) error {
	now, err := s.Time(ctx)
	if err != nil {
		return err
	}
	return o.Print(c, value, func(to io.Writer) { writeSemaphores(to, all, now) })
}

func writeSemaphores(to io.Writer, all []shown.Semaphore, now time.Time) {
	if len(all) == 0 {
		_, _ = io.WriteString(to, "nobody holds or waits for a permit\n")
		return
	}
	t := report.NewTable(to, 1, "name", "limit", "held", "waiting", "oldest")
	for _, v := range all {
		t.AppendRow(table.Row{report.Tame(v.Name, cli.ShownText), v.Limit, v.Held, v.Waiting, sinceWhen(v.Oldest, now)})
	}
	t.Render()
}
