package relay

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/database"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/outbox"
)

// shownDead is how many dead rows are named.
const shownDead = 20

type statusView struct {
	Rows     int64      `json:"rows"`
	OldestMs int64      `json:"oldest_ms"`
	Held     int64      `json:"held_tenants"`
	Dead     int64      `json:"dead"`
	DeadRows []deadView `json:"dead_rows"`
}

type deadView struct {
	Tenant  string    `json:"tenant"`
	ID      string    `json:"id"`
	Reason  string    `json:"reason"`
	Created time.Time `json:"created"`
	Died    time.Time `json:"died"`
}

func (v *statusView) write(to io.Writer) {
	fmt.Fprintf(to, "%d rows wait, the oldest for %s; %d tenants are held back by a refusal; %d rows are dead\n",
		v.Rows, time.Duration(v.OldestMs)*time.Millisecond, v.Held, v.Dead)
	if len(v.DeadRows) == 0 {
		return
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TENANT\tID\tREASON\tDIED")
	for _, d := range v.DeadRows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", report.Tame(d.Tenant, 0), report.Tame(d.ID, 0), report.Tame(d.Reason, 0), d.Died.UTC().Format(time.RFC3339))
	}
	_ = table.Flush()
}

func newStatus(f *outboxFlags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "status", Short: "Tell what waits in the outbox, and what is dead", Args: cli.NoArgs,
		Long: fmt.Sprintf(`Tells how many rows wait to be moved and since when, how many tenants are held back by a refusal,
and the first %d rows that no wait helps. It asks the database alone.`, shownDead),
		Example: `  headgate outbox status --database-file /run/secrets/database
  headgate outbox status --database-file /run/secrets/database --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.from.With(func(db *database.DB) error {
				status, err := outbox.Dialect(db.Dialect).Status(c.Context(), db.DB)
				if err != nil {
					return err
				}
				dead, err := outbox.Dialect(db.Dialect).Dead(c.Context(), db.DB, 0, shownDead)
				if err != nil {
					return err
				}
				view := &statusView{Rows: status.Rows, OldestMs: status.Oldest.Milliseconds(), Held: status.Held, Dead: status.Dead, DeadRows: []deadView{}}
				for _, d := range dead {
					view.DeadRows = append(view.DeadRows, deadView{d.Tenant, d.ID, d.Reason, d.Created, d.Died})
				}
				return cli.Print(c, asJSON, view, view.write)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON object to standard output")
	return c
}

func newRedrive(f *outboxFlags) *cobra.Command {
	var asJSON, all bool
	var reason string
	c := &cobra.Command{
		Use: "redrive (--reason REASON | --all)", Short: "Put dead rows back into the outbox", Args: cli.NoArgs,
		Long: `Puts dead rows back, behind all that wait. Those of the reason doubt may have run: who puts them
back has made sure that they have not, or does not mind that they run twice.

Exit codes: 0 they are back, 1 a failure, 2 a wrong command line, 3 there was none.`,
		Example: `  headgate outbox redrive --reason too_large --database-file /run/secrets/database
  headgate outbox redrive --all --database-file /run/secrets/database`,
		RunE: func(c *cobra.Command, _ []string) error {
			if all == (reason != "") {
				return cli.Usage(errors.New("say which with --reason, or --all, and not both"))
			}
			return f.from.With(func(db *database.DB) error {
				n, err := outbox.Dialect(db.Dialect).Redrive(c.Context(), db.DB, reason)
				if err != nil {
					return err
				}
				view := struct {
					Redriven int64 `json:"redriven"`
				}{n}
				if err := cli.Print(c, asJSON, view, func(to io.Writer) { fmt.Fprintf(to, "%d rows are back in the outbox\n", n) }); err != nil {
					return err
				}
				if n == 0 {
					return cli.Nothing("no dead row is like that")
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "those that died for `REASON`")
	c.Flags().BoolVar(&all, "all", false, "all dead rows")
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON object to standard output")
	return c
}
