package ops

import (
	"errors"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/doctor"
	"github.com/headgate/headgate/store/redisstore"
)

// NewDoctor returns the command headgate doctor.
func NewDoctor() *cobra.Command {
	var o cli.Operator
	c := &cobra.Command{
		Use: "doctor", Short: "Check a Redis and what Headgate keeps there", Args: cli.NoArgs,
		Long: `Checks version, replication, eviction, memory, persistence, clocks, policy, the window of ended
ids, tiers of records, workers and timers, and says what to do about what is not well. It changes nothing.

Exit codes: 0 all is well or bears a risk that is named, 1 something is wrong, 2 a wrong command
line.`,
		Example: `  headgate doctor --redis localhost:6379
  headgate doctor --json --redis redis://user:password@host:6379/0`,
		RunE: func(c *cobra.Command, _ []string) error { return examine(&o, c) },
	}
	o.Add(c)
	return c
}

// examine does without redisstore.Open, which refuses what this is to tell.
func examine(o *cli.Operator, c *cobra.Command) (err error) {
	opened, err := o.Open(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	parts, err := redisstore.Stored(c.Context(), opened.Client(), o.Keys())
	if err != nil {
		return err
	}
	view, err := doctor.Examine(c.Context(), parts)
	if err != nil {
		return err
	}
	if err := o.Print(c, view, func(to io.Writer) { writeReport(to, view) }); err != nil {
		return err
	}
	if view.Health == doctor.HealthFail {
		return errors.New("something is wrong: see the lines that say fail")
	}
	return nil
}

func writeReport(to io.Writer, v doctor.Report) {
	t := report.NewTable(to, 3, "", "what", "found")
	for _, f := range v.Findings {
		t.AppendRow(table.Row{f.Health, f.Name, f.Text})
		if f.Do != "" {
			t.AppendRow(table.Row{"", "", "→ " + f.Do})
		}
	}
	t.Render()
}
