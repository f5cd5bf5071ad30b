package intake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
)

// WriteJSON writes the tally as one object on one line.
func (t *Tally) WriteJSON(to io.Writer) error {
	text, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if _, err := fmt.Fprintf(to, "%s\n", text); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// WriteVerdicts writes a row for each verdict that was kept, and what is to be said of it beside.
func (t *Tally) WriteVerdicts(to io.Writer) {
	rows := report.NewTable(to, 5, "line", "id", "verdict", "reason", "scope", "tokens left", "retry after", "position", "estimated wait")
	for _, v := range t.Verdicts {
		tokens, retry, place, wait := "-", "-", "-", "-"
		switch {
		case v.Reason == admission.ReasonLimited:
			tokens, retry = fmt.Sprint(v.TokensLeft), short(v.RetryAfterMs)
		case v.RetryAfterMs > 0:
			retry = short(v.RetryAfterMs)
		case v.Decision == admission.Admitted.String():
			place = "at a worker's"
			switch {
			case v.Position > 0:
				place = strconv.Itoa(v.Position)
			case v.Place == admission.PlaceLater:
				place = "waits for its time"
			}
			if v.EstimatedWaitMs != nil {
				wait = short(*v.EstimatedWaitMs)
			}
		}
		line := "-"
		if v.Line > 0 {
			line = strconv.Itoa(v.Line)
		}
		rows.AppendRow(table.Row{
			line, v.ID, v.Decision, cmp.Or(string(v.Reason), "-"), cmp.Or(string(v.Scope), "-"), tokens, retry, place, wait,
		})
	}
	rows.Render()
	for _, v := range t.Verdicts {
		which := ""
		if v.Line > 0 {
			which = fmt.Sprintf("line %d: ", v.Line)
		}
		if v.Detail != "" {
			fmt.Fprintln(to, which+report.Tame(v.Detail, 0))
		}
		if v.Unreplicated {
			fmt.Fprintln(to, which+"the job is on too few replicas: a failover may lose it")
		}
	}
}

// WriteCounts writes how many jobs came to what, and what the first refusal of each reason says.
func (t *Tally) WriteCounts(to io.Writer) {
	rows := report.NewTable(to, 1, "verdict", "jobs", "retry after")
	rows.AppendRow(table.Row{"admitted", t.Admitted, "-"})
	rows.AppendRow(table.Row{"duplicate", t.Duplicates, "-"})
	for _, reason := range slices.Sorted(maps.Keys(t.Refused)) {
		retry := "-"
		if reason == admission.ReasonLimited {
			retry = "≤ " + short(t.RetryAfterMs)
		}
		rows.AppendRow(table.Row{"refused: " + string(reason), t.Refused[reason], retry})
	}
	if t.Bypassed > 0 {
		rows.AppendRow(table.Row{"of these beside limits, by bypass", t.Bypassed, "-"})
	}
	if t.Unreplicated > 0 {
		rows.AppendRow(table.Row{"of these on too few replicas", t.Unreplicated, "-"})
	}
	if t.BadLines > 0 {
		rows.AppendRow(table.Row{"bad lines", t.BadLines, "-"})
	}
	if t.Unanswered > 0 {
		rows.AppendRow(table.Row{"no answer", t.Unanswered, "-"})
	}
	rows.Render()
	if len(t.Verdicts) > 0 {
		return // They say it.
	}
	for _, reason := range slices.Sorted(maps.Keys(t.Refused)) {
		fmt.Fprintf(to, "the first refused, %s: %s\n", reason, report.Tame(t.details[reason], 0))
	}
}

func short(ms float64) string { return report.Short(time.Duration(ms * float64(time.Millisecond))) }
