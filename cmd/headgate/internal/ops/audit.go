package ops

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NewAudit returns the command headgate audit.
func NewAudit() *cobra.Command {
	var o cli.Operator
	var q store.AuditQuery
	c := &cobra.Command{
		Use: "audit", Short: "List who changed what, when and why", Args: cli.NoArgs,
		Long: `Lists what operators did, the newest first: who, when, what, to how many jobs and why. These are
versions of the policy, breakers that were forced or reset, pauses, suspensions, drains, their
ends, buckets that were reset, and jobs that were cancelled, purged or redriven. The script that
makes a change writes its entry in the same moment, over whichever way it comes, and nothing
changes one but more of the same act. The last 10,000 are kept. What a tenant's credential does to
the tenant's own jobs is counted with the jobs, and is not here.`,
		Example: `  headgate audit --redis localhost:6379
  headgate audit --action pause --author ada --redis localhost:6379
  headgate audit --name q:mail --redis localhost:6379
  headgate audit --limit 1000 --json --redis localhost:6379`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				view, err := readAudit(ctx, s, q)
				if err != nil {
					return err
				}
				if len(view.Entries) == 0 {
					cli.None(c, "the audit has no entry like that")
				}
				return o.Print(c, view, func(to io.Writer) { writeAudit(to, view) })
			})
		},
	}
	o.Add(c)
	flags := c.Flags()
	flags.IntVar(&q.Limit, "limit", store.DefaultPage, fmt.Sprintf("largest `NUMBER` of entries, up to %d", store.MaxPage))
	flags.StringVar(&q.Cursor, "cursor", "", "`CURSOR` of the page before, of the same filters")
	flags.StringVar(&q.Action, "action", "", "that `ACTION` only: "+strings.Join(store.AuditActions, ", "))
	flags.StringVar(&q.Author, "author", "", "those of `WHO` only")
	flags.StringVar(&q.Name, "name", "", "those about `NAME` only: q:QUEUE, t:TENANT, u:TENANT:QUEUE, TENANT:ID, a scope or a downstream")
	return c
}

// readAudit reads on until there is something to show: a page may hold nothing of what is asked for.
func readAudit(ctx context.Context, store store.Deployment, q store.AuditQuery) (shown.AuditPage, error) {
	for {
		page, err := store.Audit(ctx, q)
		if err != nil || len(page.Entries) > 0 || page.Cursor == "" {
			return shown.AuditPageOf(page), err
		}
		q.Cursor = page.Cursor
	}
}

func writeAudit(to io.Writer, page shown.AuditPage) {
	if len(page.Entries) > 0 {
		t := report.NewTable(to, 1, "when", "who", "what", "why")
		for _, entry := range page.Entries {
			t.AppendRow(table.Row{cli.At(entry.At), report.Tame(entry.Author, cli.ShownText), auditWhat(entry), report.Tame(entry.Reason, cli.ShownText)})
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
	var what string
	switch entry.Action {
	case store.AuditPolicy:
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
	case store.AuditReset:
		what = "breaker of " + entry.Downstream + " reset"
	case store.AuditOpen, store.AuditClosed:
		what = "breaker of " + entry.Downstream + " forced " + entry.Action
	default:
		what = strings.ReplaceAll(entry.Action, "_", " ") + " " + report.Tame(auditName(entry), cli.ShownText)
		if entry.Jobs > 0 {
			what += fmt.Sprintf(", %d jobs", entry.Jobs)
		}
	}
	if entry.ForMs > 0 {
		what += " for " + time.Duration(entry.ForMs*float64(time.Millisecond)).String()
	}
	return what
}

// auditName names for people what was acted on.
func auditName(entry shown.AuditEntry) string {
	switch entry.Action {
	case store.AuditCancel, store.AuditResetBucket:
		return entry.Name
	}
	return store.GateName(entry.Name).Words()
}
