package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/lua"
)

func newAudit() *cobra.Command {
	var o operator
	var limit int
	var cursor string
	c := &cobra.Command{
		Use: "audit", Short: "List who changed the policy or a breaker, when and why", Args: noArgs,
		Long: `Lists the changes of the policy and of circuit breakers, the newest first: who made each, when,
why, and from which version to which. The script that makes a change writes its entry, and
nothing changes one. The last 10,000 are kept.`,
		Example: `  headgate audit --redis localhost:6379
  headgate audit --limit 1000 --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.with(c, func(ctx context.Context, store *lua.Store) error {
				page, err := store.Audit(ctx, limit, cursor)
				if err != nil {
					return err
				}
				view := shown.AuditPageOf(page)
				if len(view.Entries) == 0 {
					none(c, "nobody has changed the policy or a breaker")
				}
				return o.print(c, view, func(to io.Writer) { writeAudit(to, view) })
			})
		},
	}
	o.add(c)
	c.Flags().IntVar(&limit, "limit", lua.DefaultPage, fmt.Sprintf("largest `NUMBER` of entries, up to %d", lua.MaxPage))
	c.Flags().StringVar(&cursor, "cursor", "", "`CURSOR` of the page before")
	return c
}

func writeAudit(to io.Writer, page shown.AuditPage) {
	if len(page.Entries) > 0 {
		t := report.NewTable(to, 1, "when", "who", "what", "why")
		for _, entry := range page.Entries {
			t.AppendRow(table.Row{at(entry.At), tame(entry.Author, shownText), auditWhat(entry), tame(entry.Reason, shownText)})
		}
		t.Render()
	}
	if page.Gone > 0 {
		fmt.Fprintf(to, "%d older entries have left.\n", page.Gone)
	}
	if page.Cursor != "" {
		fmt.Fprintf(to, "There is more: --cursor %s\n", page.Cursor)
	}
}

// auditWhat says in a few words what was changed.
func auditWhat(entry shown.AuditEntry) string {
	what := ""
	switch entry.Action {
	case lua.AuditPolicy:
		what = fmt.Sprintf("policy %d", entry.To)
		if entry.From != nil {
			what = fmt.Sprintf("policy %d → %d", *entry.From, entry.To)
		}
		if entry.Restored != 0 {
			what += fmt.Sprintf(", which is %d again", entry.Restored)
		}
		if entry.Total != nil {
			what += fmt.Sprintf(", %d changes", *entry.Total)
		}
		return what
	case lua.AuditReset:
		what = "reset"
	case lua.AuditOpen, lua.AuditClosed:
		what = "forced " + entry.Action
	}
	what = "breaker of " + entry.Downstream + " " + what
	if entry.ForMs > 0 {
		what += " for " + time.Duration(entry.ForMs*float64(time.Millisecond)).String()
	}
	return what
}
