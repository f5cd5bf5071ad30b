package ops

import (
	"context"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewHolds returns the command headgate holds.
func NewHolds() *cobra.Command {
	var o cli.Operator
	c := &cobra.Command{
		Use: "holds", Short: "List what is paused, suspended or scaled, by whom, since when and why", Args: cli.NoArgs,
		Long: `Lists every pause of a queue, a tenant, a tenant in a queue or a downstream, everybody for whom
enqueueing is suspended, and limits that are scaled: who did it, when, until when and why. headgate
resume ends one, headgate limit scale SCOPE --off the last.
Caps, rates and breakers are no holds: --json has all gates.`,
		Example: `  headgate holds --redis localhost:6379
  headgate holds --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				now, err := s.Time(ctx)
				if err != nil {
					return err
				}
				holds, err := shown.ReadHolds(ctx, s, func(store.GateName) bool { return true })
				if err != nil {
					return err
				}
				return o.Print(c, holds, func(to io.Writer) { writeHolds(to, holds, now) })
			})
		},
	}
	o.Add(c)
	return c
}

func writeHolds(to io.Writer, holds shown.Holds, now time.Time) {
	t := report.NewTable(to, 1, "what", "held back", "who", "since", "until", "why")
	rows := 0
	add := func(name, what, author string, since, until *time.Time, reason string) {
		rows++
		t.AppendRow(table.Row{report.Tame(name, cli.ShownText), what, held(author), sinceWhen(since, now), cli.At(until), report.Tame(reason, cli.ShownText)})
	}
	for _, g := range holds.Gates {
		if g.Paused {
			add(g.Name.Words(), "dispatch", g.Author, g.Since, g.Until, g.Reason)
		}
	}
	for _, s := range holds.Suspensions {
		add(s.Name.Words(), "enqueueing", s.Author, s.Since, s.Until, s.Reason)
	}
	for _, s := range holds.Scales {
		add(s.Scope.Words(), "limits, "+store.PartText(s.Part)+" is left", s.Author, s.Since, s.Until, s.Reason)
	}
	if rows == 0 {
		_, _ = io.WriteString(to, "nothing is paused, suspended or scaled\n")
		return
	}
	t.Render()
}

// held names whoever holds something back; nobody is a dash.
func held(author string) string {
	if author == "" {
		return "-"
	}
	return report.Tame(author, cli.ShownText)
}

// sinceWhen writes a time, and how long ago it was.
func sinceWhen(since *time.Time, now time.Time) string {
	if since == nil {
		return "-"
	}
	return cli.At(since) + ", " + now.Sub(*since).Round(time.Second).String()
}
