package policies

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// topBudget is how long reading what was counted may take.
const topBudget = 10 * time.Second

func newLimitTop(o *cli.Operator) *cobra.Command {
	var order string
	var most, minutes int
	const longest = int(store.CountedFor/time.Minute) + 1
	c := &cobra.Command{
		Use: "top", Short: "List the scopes with the most decisions in the last minutes", Args: cli.NoArgs,
		Long: fmt.Sprintf(`Lists what limits decided on the jobs and checks of those scopes that have the most, in the last minutes,
the one under way included. Counted are the %d scopes with the most in each minute, of types of jobs where
these have a limit, and those in the policy's "observe", by processes that count (Producer.Run, headgate
serve, limiter.Config.Minutes).`, store.TopScopes),
		Example: `  headgate limit top --redis localhost:6379
  headgate limit top --sort refused --limit 10 --minutes 60 --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains(shown.Orders, order):
				return cli.FieldError("sort", strconv.Quote(order), "one of "+strings.Join(shown.Orders, ", "))
			case most < 1 || most > store.MaxPage:
				return cli.FieldError("limit", strconv.Itoa(most), fmt.Sprintf("1 to %d scopes", store.MaxPage))
			case minutes < 1 || minutes > longest:
				return cli.FieldError("minutes", strconv.Itoa(minutes), fmt.Sprintf("1 to %d", longest))
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				counted, err := s.LastMinutes(ctx, minutes, topBudget)
				if err != nil {
					return err
				}
				view := shown.TopOf(counted, order, most)
				if len(view.Scopes) == 0 {
					cli.None(c, "nothing like that was counted in the last minutes")
				}
				return o.Print(c, view, func(to io.Writer) { writeTop(to, view) })
			})
		},
	}
	c.Flags().StringVar(&order, "sort", shown.ByRequests, "by `WHAT`, the most first: "+strings.Join(shown.Orders, ", "))
	c.Flags().IntVar(&most, "limit", 20, fmt.Sprintf("largest `NUMBER` of scopes, up to %d", store.MaxPage))
	c.Flags().IntVar(&minutes, "minutes", 5, fmt.Sprintf("`NUMBER` of minutes, up to %d", longest))
	return c
}

func writeTop(to io.Writer, v shown.Top) {
	if len(v.Scopes) == 0 {
		return
	}
	t := report.NewTable(to, 1, "scope", "requests", "allowed", "refused", "tokens")
	for _, s := range v.Scopes {
		t.AppendRow(table.Row{s.Scope, s.Requests, s.Allowed, s.Refused, s.Tokens})
	}
	t.Render()
	fmt.Fprintf(to, "Since %s.\n", cli.Clock(*v.Since))
}
