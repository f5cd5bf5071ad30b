package policies

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// writeChanges writes a line a change.
func writeChanges(to io.Writer, changes []shown.Change) {
	for _, c := range changes {
		switch c.Kind {
		case "added":
			fmt.Fprintf(to, "+ %s %s\n", c.Path, c.After)
		case "removed":
			fmt.Fprintf(to, "- %s %s\n", c.Path, c.Before)
		default:
			fmt.Fprintf(to, "~ %s %s → %s\n", c.Path, c.Before, c.After)
		}
	}
}

type diffView struct {
	InForce int64          `json:"in_force"`
	Changes []shown.Change `json:"changes"`
}

// resultView is what an edit did, or would do.
type resultView struct {
	From    int64          `json:"from"`
	Version int64          `json:"version"`
	DryRun  bool           `json:"dry_run"`
	Changes []shown.Change `json:"changes"`
}

func resultViewOf(done rollout.Result, dry bool) resultView {
	return resultView{done.From, done.To, dry, shown.ChangesOf(done.Changes)}
}

func (v resultView) write(to io.Writer) {
	if !v.DryRun {
		fmt.Fprintf(to, "version %d is in force\n", v.Version)
		return
	}
	writeChanges(to, v.Changes)
	fmt.Fprintf(to, "version %d would follow version %d, with %d changes\n", v.Version, v.From, len(v.Changes))
}

// versionView is a version that is kept. Of one that an older program stored only its number is known.
type versionView struct {
	Version  int64      `json:"version"`
	At       *time.Time `json:"at,omitempty"`
	Author   string     `json:"author,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Restored int64      `json:"restored,omitempty"`
	Changes  *int       `json:"changes,omitempty"`
}

func versionViewOf(entry store.AuditEntry) versionView {
	v := versionView{Version: entry.To, At: shown.Stamp(entry.At), Author: entry.Author, Reason: entry.Reason, Restored: entry.Restored}
	if s, ok := summaryOf(entry); ok {
		v.Changes = &s.Total
	}
	return v
}

type historyView struct {
	Versions []versionView `json:"versions"`
}

func (v historyView) write(to io.Writer) {
	if len(v.Versions) == 0 {
		return
	}
	t := report.NewTable(to, 1, "version", "when", "who", "changes", "why")
	for _, row := range v.Versions {
		when, changes, why := "-", "-", report.Tame(row.Reason, cli.ShownText)
		if row.At != nil {
			when = cli.Clock(*row.At)
		}
		if row.Changes != nil {
			changes = strconv.Itoa(*row.Changes)
		}
		if row.Restored != 0 {
			why = fmt.Sprintf("version %d again%s", row.Restored, cli.Because(row.Reason))
		}
		t.AppendRow(table.Row{row.Version, when, report.Tame(cmp.Or(row.Author, "-"), cli.ShownText), changes, why})
	}
	t.Render()
}
