package shown

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lua"
)

// Job is a job wherever it is, dead letters included.
type Job struct {
	Tenant      string            `json:"tenant"`
	ID          string            `json:"id"`
	Place       headgate.Place    `json:"place"`
	Queue       string            `json:"queue,omitempty"`
	Type        string            `json:"type,omitempty"`
	Priority    headgate.Priority `json:"priority,omitempty"`
	Downstream  string            `json:"downstream,omitempty"`
	Cost        headgate.Tokens   `json:"cost,omitempty"`
	Attempts    int               `json:"attempts"`
	MaxAttempts int               `json:"max_attempts,omitempty"`
	Lost        int               `json:"lost"`
	Arrival     *time.Time        `json:"arrival,omitempty"`
	Deadline    *time.Time        `json:"deadline,omitempty"`
	Position    int               `json:"position,omitempty"`
	// WaitMs is a guess; absent where there is none.
	WaitMs       *float64   `json:"estimated_wait_ms,omitempty"`
	At           *time.Time `json:"at,omitempty"`
	Since        *time.Time `json:"since,omitempty"`
	Pool         string     `json:"pool,omitempty"`
	Worker       string     `json:"worker,omitempty"`
	Cancelled    bool       `json:"cancelled,omitempty"`
	Reason       string     `json:"reason,omitempty"`
	Text         string     `json:"text,omitempty"`
	PayloadBytes int64      `json:"payload_bytes"`
	Waits        []Wait     `json:"waits,omitempty"`
	History      []Delivery `json:"history,omitempty"`
}

// Wait is one reason why a job waits.
type Wait struct {
	Kind lua.WaitKind `json:"kind"`
	Text string       `json:"text"`
	// Gate is the closed gate, for the kinds that are one.
	Gate  lua.GateName `json:"gate,omitempty"`
	Until *time.Time   `json:"until,omitempty"`
}

// Delivery is one line of a job's history.
type Delivery struct {
	Outcome string    `json:"outcome"`
	At      time.Time `json:"at"`
	RanMs   float64   `json:"ran_ms"`
	Worker  string    `json:"worker,omitempty"`
	Text    string    `json:"text,omitempty"`
}

// JobOf shows a job. Pools and workers are left out for whoever is to see a tenant alone.
func JobOf(g lua.Sighting, workers bool) Job {
	job := &g.Record.Job
	v := Job{
		Tenant: g.Key.Tenant, ID: g.Key.ID, Place: g.Place, Queue: job.Queue, Type: job.Type, Priority: job.Priority,
		Downstream: job.Downstream, Cost: job.Cost, Attempts: g.Record.Attempts, MaxAttempts: job.MaxAttempts, Lost: g.Record.Lost,
		Arrival: Stamp(g.Record.Arrival), Deadline: Stamp(job.Deadline), Position: g.Position, At: Stamp(g.At), Since: Stamp(g.Since),
		Cancelled: g.Cancelled, Reason: g.Reason, Text: g.Text, PayloadBytes: g.PayloadBytes,
	}
	if g.Place == headgate.PlaceWaiting && g.EstimatedWait >= 0 {
		v.WaitMs = new(Millis(g.EstimatedWait))
	}
	if workers {
		v.Pool, v.Worker = g.Pool, g.Worker
	}
	for _, w := range g.Waits {
		v.Waits = append(v.Waits, Wait{w.Kind, w.Text, w.Gate, Stamp(w.Until)})
	}
	for _, d := range g.History {
		line := Delivery{Outcome: d.Outcome, At: d.At.UTC(), RanMs: Millis(d.Ran), Text: d.Text}
		if workers {
			line.Worker = d.Worker
		}
		v.History = append(v.History, line)
	}
	return v
}

// Listed is a job of a listing.
type Listed struct {
	Tenant   string            `json:"tenant"`
	ID       string            `json:"id"`
	Place    headgate.Place    `json:"place"`
	Queue    string            `json:"queue"`
	Type     string            `json:"type"`
	Priority headgate.Priority `json:"priority"`
	Attempts int               `json:"attempts"`
	At       *time.Time        `json:"at,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Text     string            `json:"text,omitempty"`
}

// Page is a page of a listing. The cursor is empty at the end.
type Page struct {
	Jobs   []Listed `json:"jobs"`
	Cursor string   `json:"cursor"`
}

// PageOf shows a page.
func PageOf(page lua.ListPage) Page {
	v := Page{Jobs: []Listed{}, Cursor: page.Cursor}
	for i := range page.Jobs {
		v.Jobs = append(v.Jobs, ListedOf(&page.Jobs[i]))
	}
	return v
}

// ListedOf shows a job of a listing.
func ListedOf(l *lua.Listed) Listed {
	job := &l.Record.Job
	text := l.Text
	if l.Err != nil {
		text = "its record cannot be read"
	}
	return Listed{l.Key.Tenant, l.Key.ID, l.Place, job.Queue, job.Type, job.Priority, l.Record.Attempts, Stamp(l.At), l.Reason, text}
}
