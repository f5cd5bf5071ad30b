package command

import (
	"cmp"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/lua"
)

// jobView is a job as JSON shows it. What does not apply is left out; durations are milliseconds.
type jobView struct {
	Tenant       string            `json:"tenant"`
	ID           string            `json:"id"`
	Place        headgate.Place    `json:"place"`
	Queue        string            `json:"queue,omitempty"`
	Type         string            `json:"type,omitempty"`
	Priority     headgate.Priority `json:"priority,omitempty"`
	Downstream   string            `json:"downstream,omitempty"`
	Cost         headgate.Tokens   `json:"cost,omitempty"`
	Attempts     int               `json:"attempts"`
	MaxAttempts  int               `json:"max_attempts,omitempty"`
	Lost         int               `json:"lost"`
	Suspect      bool              `json:"suspect,omitempty"`
	Arrival      *time.Time        `json:"arrival,omitempty"`
	Deadline     *time.Time        `json:"deadline,omitempty"`
	Position     int               `json:"position,omitempty"`
	WaitMs       *float64          `json:"estimated_wait_ms,omitempty"` // a guess; absent when there is none
	Waits        []waitView        `json:"waits,omitempty"`
	At           *time.Time        `json:"at,omitempty"`
	Pool         string            `json:"pool,omitempty"`
	Worker       string            `json:"worker,omitempty"`
	Token        string            `json:"token,omitempty"`
	Since        *time.Time        `json:"since,omitempty"`
	Cancelled    bool              `json:"cancelled,omitempty"`
	Reason       string            `json:"reason,omitempty"`
	Text         string            `json:"text,omitempty"`
	History      []deliveryView    `json:"history,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	PayloadBytes int64             `json:"payload_bytes"`
	Payload      []byte            `json:"payload,omitempty"`
}

// waitView is one reason why a job waits.
type waitView struct {
	Kind  lua.WaitKind `json:"kind"`
	Text  string       `json:"text"`
	Gate  lua.GateName `json:"gate,omitempty"`
	Until *time.Time   `json:"until,omitempty"`
}

// deliveryView is one line of a job's history.
type deliveryView struct {
	Outcome string    `json:"outcome"`
	At      time.Time `json:"at"`
	RanMs   float64   `json:"ran_ms"`
	Worker  string    `json:"worker"`
	Text    string    `json:"text,omitempty"`
}

func viewOf(g lua.Sighting) jobView {
	job := g.Record.Job
	v := jobView{
		Tenant: g.Key.Tenant, ID: g.Key.ID, Place: g.Place, Queue: job.Queue, Type: job.Type, Priority: job.Priority,
		Downstream: job.Downstream, Cost: job.Cost, Attempts: g.Record.Attempts, MaxAttempts: job.MaxAttempts, Lost: g.Record.Lost, Suspect: g.Record.Suspect,
		Arrival: stamp(g.Record.Arrival), Deadline: stamp(job.Deadline), Position: g.Position, At: stamp(g.At), Pool: g.Pool,
		Worker: g.Worker, Token: g.Token, Since: stamp(g.Since), Cancelled: g.Cancelled, Reason: g.Reason, Text: g.Text,
		Headers: job.Headers, PayloadBytes: g.PayloadBytes,
	}
	if g.Place == headgate.PlaceWaiting && g.EstimatedWait >= 0 {
		v.WaitMs = new(float64(g.EstimatedWait.Microseconds()) / 1e3)
	}
	for _, w := range g.Waits {
		v.Waits = append(v.Waits, waitView{w.Kind, w.Text, w.Gate, stamp(w.Until)})
	}
	for _, d := range g.History {
		v.History = append(v.History, deliveryView{d.Outcome, d.At.UTC(), float64(d.Ran.Microseconds()) / 1e3, d.Worker, d.Text})
	}
	return v
}

// write writes a job for people.
func (v jobView) write(to io.Writer) {
	fmt.Fprintf(to, "Job %s of tenant %s: %s\n", v.ID, v.Tenant, v.where())
	if v.Place == lua.PlaceEnded {
		return
	}
	for _, w := range v.Waits {
		fmt.Fprintf(to, "  waits: %s%s\n", tame(w.Text, 0), until(w.Until))
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
		{"arrival", at(v.Arrival)},
		{"deadline", at(v.Deadline)},
		{"worker", v.Worker},
		{"lease token", v.Token},
		{"payload", fmt.Sprintf("%d bytes", v.PayloadBytes)},
	} {
		if row.value != "" {
			t.AppendRow(table.Row{row.name, row.value})
		}
	}
	t.Render()
	if len(v.History) > 0 {
		h := report.NewTable(to, 5, "ended", "outcome", "ran", "worker", "error")
		for _, d := range v.History {
			h.AppendRow(table.Row{clock(d.At), d.Outcome, report.Short(time.Duration(d.RanMs * float64(time.Millisecond))), d.Worker, tame(d.Text, shownText)})
		}
		h.Render()
	}
	if v.Payload != nil {
		if text := string(v.Payload); utf8.ValidString(text) {
			fmt.Fprintln(to, tame(text, 0))
		} else {
			fmt.Fprintf(to, "%q\n", v.Payload)
		}
	}
}

// where says in a few words where a job is.
func (v jobView) where() string {
	switch v.Place {
	case headgate.PlaceWaiting:
		text := fmt.Sprintf("waiting, at place %d of its lane", v.Position)
		if v.WaitMs != nil {
			text += fmt.Sprintf(", for some %s", time.Duration(*v.WaitMs*1e6).Round(time.Millisecond))
		}
		return text
	case headgate.PlaceLater:
		return "waiting until " + at(v.At)
	case headgate.PlaceSpilled:
		return fmt.Sprintf("spilled, at place %d of its overflow store", v.Position)
	case headgate.PlaceReady:
		return "ready, in the stream of pool " + v.Pool
	case lua.PlaceRunning:
		text := "running on worker " + v.Worker + " since " + at(v.Since)
		if v.Cancelled {
			text += ", to be cancelled: " + cmp.Or(tame(v.Reason, shownText), "no reason given")
		}
		return text
	case lua.PlaceDead:
		text := "dead since " + at(v.At) + ", " + v.Reason
		if v.Text != "" {
			text += ": " + tame(v.Text, 0)
		}
		return text
	case lua.PlaceEnded:
		return "ended; its id is remembered for a while, nothing else"
	}
	return "in no place: this is a fault of the store, please report it"
}

func at(t *time.Time) string {
	if t == nil {
		return ""
	}
	return clock(*t)
}

func until(t *time.Time) string {
	if t == nil {
		return ""
	}
	return ", until " + clock(*t)
}

// listView is a page of a listing.
type listView struct {
	Jobs []listedView `json:"jobs"`
	// Cursor is empty at the end.
	Cursor string `json:"cursor"`
}

// listedView is one job of it.
type listedView struct {
	Tenant   string            `json:"tenant"`
	ID       string            `json:"id"`
	Place    headgate.Place    `json:"place"`
	Queue    string            `json:"queue"`
	Type     string            `json:"type"`
	Priority headgate.Priority `json:"priority"`
	Attempts int               `json:"attempts"`
	At       *time.Time        `json:"at,omitempty"`
	Worker   string            `json:"worker,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Text     string            `json:"text,omitempty"`
}

func listedViewOf(job lua.Listed) listedView {
	v := listedView{
		Tenant: job.Key.Tenant, ID: job.Key.ID, Place: job.Place, Queue: job.Record.Job.Queue, Type: job.Record.Job.Type,
		Priority: job.Record.Job.Priority, Attempts: job.Record.Attempts, Worker: job.Worker, Reason: job.Reason, Text: job.Text,
	}
	if job.Place == lua.PlaceDead || job.Place == headgate.PlaceLater {
		v.At = stamp(job.At)
	}
	if job.Err != nil {
		v.Text = job.Err.Error()
	}
	return v
}

func (v listView) write(to io.Writer) {
	if len(v.Jobs) > 0 {
		t := report.NewTable(to, 9, "tenant", "id", "place", "queue", "type", "class", "failed", "at", "note")
		for _, j := range v.Jobs {
			note := j.Worker
			if j.Reason != "" {
				note = tame(j.Reason+": "+j.Text, shownText)
			}
			t.AppendRow(table.Row{j.Tenant, j.ID, j.Place, j.Queue, j.Type, j.Priority, j.Attempts, at(j.At), note})
		}
		t.Render()
	}
	if v.Cursor != "" {
		fmt.Fprintf(to, "There is more: --cursor %s\n", v.Cursor)
	}
}
