package jobs

import (
	"cmp"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// jobView is a job, with what only whoever reaches Redis may see.
type jobView struct {
	shown.Job

	Suspect bool              `json:"suspect,omitempty"`
	Token   string            `json:"token,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Payload []byte            `json:"payload,omitempty"`
}

func viewOf(g store.Sighting) jobView {
	return jobView{Job: shown.JobOf(g, shown.Everything), Suspect: g.Record.Suspect, Token: g.Token, Headers: g.Record.Job.Headers}
}

// write writes a job for people.
func (v jobView) write(to io.Writer) {
	fmt.Fprintf(to, "Job %s of tenant %s: %s\n", v.ID, v.Tenant, v.where())
	if v.Place == store.PlaceEnded {
		return
	}
	for _, w := range v.Waits {
		fmt.Fprintf(to, "  waits: %s%s\n", report.Tame(w.Text, 0), cli.Until(w.Until))
	}
	t := report.NewTable(to, 2, "field", "value")
	for _, row := range []struct {
		name, value string
	}{
		{"queue", v.Queue},
		{"type", v.Type},
		{"class", string(v.Priority)},
		{"downstream", v.Downstream},
		{"cost", fmt.Sprintf("%d tokens", v.Cost)},
		{"attempts", fmt.Sprintf("%d of %d failed, %d lost with workers known to run them", v.Attempts, v.MaxAttempts, v.Lost)},
		{"arrival", cli.At(v.Arrival)},
		{"deadline", cli.At(v.Deadline)},
		{"worker", v.Worker},
		{"lease token", v.Token},
		{"payload", v.payload()},
	} {
		if row.value != "" {
			t.AppendRow(table.Row{row.name, row.value})
		}
	}
	t.Render()
	if len(v.History) > 0 {
		h := report.NewTable(to, 5, "ended", "outcome", "ran", "worker", "error")
		for _, d := range v.History {
			h.AppendRow(table.Row{cli.Clock(d.At), d.Outcome, report.Short(time.Duration(d.RanMs * float64(time.Millisecond))), d.Worker, report.Tame(d.Text, cli.ShownText)})
		}
		h.Render()
	}
	if v.Payload != nil {
		if text := string(v.Payload); utf8.ValidString(text) {
			fmt.Fprintln(to, report.Tame(text, 0))
		} else {
			fmt.Fprintf(to, "%q\n", v.Payload)
		}
	}
}

// payload says how large it is, where that is known.
func (v jobView) payload() string {
	if v.InSecond {
		return ""
	}
	return fmt.Sprintf("%d bytes", v.PayloadBytes)
}

// where says in a few words where a job is.
func (v jobView) where() string {
	switch v.Place {
	case admission.PlaceWaiting:
		text := fmt.Sprintf("waiting, at position %d of its lane", v.Position)
		if v.WaitMs != nil {
			text += fmt.Sprintf(", for some %s", time.Duration(*v.WaitMs*1e6).Round(time.Millisecond))
		}
		return text
	case admission.PlaceLater:
		return "waiting until " + cli.At(v.At)
	case admission.PlaceSpilled:
		text := fmt.Sprintf("spilled, at position %d of its overflow store", v.Position)
		if v.InSecond {
			text += ", its body in the second Redis"
		}
		return text
	case admission.PlaceReady:
		return "ready, in the stream of pool " + v.Pool
	case store.PlaceRunning:
		text := "running on worker " + v.Worker + " since " + cli.At(v.Since)
		if v.Cancelled {
			text += ", to be cancelled: " + cmp.Or(report.Tame(v.Reason, cli.ShownText), "no reason given")
		}
		return text
	case store.PlaceDead:
		text := "dead since " + cli.At(v.At) + ", " + v.Reason
		if v.Text != "" {
			text += ": " + report.Tame(v.Text, 0)
		}
		return text
	case store.PlaceEnded:
		return "ended; its id is remembered for a while, nothing else"
	}
	return "in no place: half of what made it or moved it is missing, see docs/OPERATIONS.md, HeadgateJobsLost"
}

// listView is a page of a listing. The cursor is empty at the end.
type listView struct {
	Jobs   []listedView `json:"jobs"`
	Cursor string       `json:"cursor"`
}

// listedView is one job of it, with who has it.
type listedView struct {
	shown.Listed

	Worker string `json:"worker,omitempty"`
}

func (v listView) write(to io.Writer) {
	if len(v.Jobs) > 0 {
		t := report.NewTable(to, 9, "tenant", "id", "place", "queue", "type", "class", "failed", "at", "note")
		for _, j := range v.Jobs {
			note, when := j.Worker, ""
			if j.Place == store.PlaceDead || j.Place == admission.PlaceLater {
				when = cli.At(j.At)
			}
			if j.Reason != "" {
				note = report.Tame(j.Reason+": "+j.Text, cli.ShownText)
			}
			t.AppendRow(table.Row{j.Tenant, j.ID, j.Place, j.Queue, j.Type, j.Priority, j.Attempts, when, note})
		}
		t.Render()
	}
	if v.Cursor != "" {
		fmt.Fprintf(to, "There is more: --cursor %s\n", v.Cursor)
	}
}
