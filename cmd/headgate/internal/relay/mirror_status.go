package relay

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/database"
	"github.com/headgate/headgate/mirror"
	"github.com/headgate/headgate/outbox"
)

type sourceView struct {
	Source string `json:"source"`
	Rows   int64  `json:"rows"`
	Began  bool   `json:"began"`
	LagMs  int64  `json:"lag_ms"`
	Gaps   int64  `json:"gaps"`
	Lost   int64  `json:"lost"`
}

type mirrorView struct {
	Sources []sourceView `json:"sources"`
}

func (v *mirrorView) write(to io.Writer) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SOURCE\tROWS\tCOMPLETE\tGAPS\tLOST")
	for _, s := range v.Sources {
		complete := "never"
		if s.Began {
			complete = (time.Duration(s.LagMs) * time.Millisecond).Round(time.Second).String() + " ago"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%d\t%d\n", s.Source, s.Rows, complete, s.Gaps, s.Lost)
	}
	_ = table.Flush()
}

func newMirrorStatus(f *mirrorFlags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "status", Short: "Tell what the mirror has, and how late it is", Args: cli.NoArgs,
		Long: `Tells of each source how many rows the database has, how long ago it was noted that all was there,
which a mirror that has nothing to copy does each 10 s, and how much had gone from Redis before it was
copied. It asks the database alone.`,
		Example: `  headgate mirror status --database-file /run/secrets/database
  headgate mirror status --to postgres://audit@db/headgate --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.to.With(func(db *database.DB) error {
				all, err := mirror.StatusOf(c.Context(), outbox.Dialect(db.Dialect), db.DB)
				if err != nil {
					return err
				}
				view := &mirrorView{}
				for _, s := range all {
					view.Sources = append(view.Sources, sourceView{s.Source, s.Rows, s.Began, s.Lag.Milliseconds(), s.Gaps, s.Lost})
				}
				return cli.Print(c, asJSON, view, view.write)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON object to standard output")
	return c
}
