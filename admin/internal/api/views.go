package api

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/lua"
)

type queueView struct {
	Queue        string            `json:"queue"`
	Classes      []classView       `json:"classes"`
	Waiting      int64             `json:"waiting"`
	Ready        int64             `json:"ready"`
	Running      int64             `json:"running"`
	Later        int64             `json:"later"`
	LaterAtLeast bool              `json:"later_at_least"`
	Spilled      int64             `json:"spilled"`
	Dead         int64             `json:"dead"`
	Gate         *shown.Gate       `json:"gate,omitempty"`
	Suspension   *shown.Suspension `json:"suspension,omitempty"`
	Pools        []string          `json:"pools"`
	Workers      int               `json:"workers"`
	Slots        int               `json:"slots"`
	PaceMs       float64           `json:"pace_ms,omitempty"`
	WaitMs       *float64          `json:"estimated_wait_ms,omitempty"`
}

type classView struct {
	Class   headgate.Priority `json:"class"`
	Weight  int               `json:"weight"`
	Waiting int64             `json:"waiting"`
}

func queueViewOf(q *lua.QueueState) queueView {
	v := queueView{
		Queue: q.Name, Classes: []classView{}, Waiting: q.Waiting(), Ready: q.Ready, Running: q.Running, Later: q.Later,
		LaterAtLeast: q.LaterAtLeast, Spilled: q.Spilled, Dead: q.Dead, Pools: append([]string{}, q.Pools...),
		Workers: q.Workers, Slots: q.Slots, PaceMs: shown.Millis(q.Pace),
	}
	if q.Pace > 0 && q.Busy {
		v.WaitMs = new(shown.Millis(q.Pace * time.Duration(v.Waiting+v.Ready)))
	}
	for _, c := range q.Classes {
		v.Classes = append(v.Classes, classView{c.Name, c.Weight, c.Waiting})
	}
	if q.Gate != nil {
		v.Gate = new(shown.GateOf(*q.Gate))
	}
	if q.Suspended != nil {
		v.Suspension = new(shown.SuspensionOf(*q.Suspended))
	}
	return v
}

type listedView struct {
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

type pageView struct {
	Jobs   []listedView `json:"jobs"`
	Cursor string       `json:"cursor"`
}

func pageViewOf(page lua.ListPage) pageView {
	v := pageView{Jobs: []listedView{}, Cursor: page.Cursor}
	for _, l := range page.Jobs {
		job := &l.Record.Job
		text := l.Text
		if l.Err != nil {
			text = "its record cannot be read"
		}
		v.Jobs = append(v.Jobs, listedView{
			l.Key.Tenant, l.Key.ID, l.Place, job.Queue, job.Type, job.Priority, l.Record.Attempts, shown.Stamp(l.At), l.Reason, text,
		})
	}
	return v
}

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
	Arrival      *time.Time        `json:"arrival,omitempty"`
	Deadline     *time.Time        `json:"deadline,omitempty"`
	Position     int               `json:"position,omitempty"`
	WaitMs       *float64          `json:"estimated_wait_ms,omitempty"`
	At           *time.Time        `json:"at,omitempty"`
	Since        *time.Time        `json:"since,omitempty"`
	Pool         string            `json:"pool,omitempty"`
	Worker       string            `json:"worker,omitempty"`
	Cancelled    bool              `json:"cancelled,omitempty"`
	Reason       string            `json:"reason,omitempty"`
	Text         string            `json:"text,omitempty"`
	PayloadBytes int64             `json:"payload_bytes"`
	Waits        []waitView        `json:"waits,omitempty"`
	History      []deliveryView    `json:"history,omitempty"`
}

type waitView struct {
	Kind  lua.WaitKind `json:"kind"`
	Text  string       `json:"text"`
	Until *time.Time   `json:"until,omitempty"`
}

type deliveryView struct {
	Outcome string    `json:"outcome"`
	At      time.Time `json:"at"`
	RanMs   float64   `json:"ran_ms"`
	Worker  string    `json:"worker,omitempty"`
	Text    string    `json:"text,omitempty"`
}

// jobViewOf shows a job. Which workers there are is nothing for a principal that is bound to a tenant.
func jobViewOf(g lua.Sighting, who access.Principal) jobView {
	job := &g.Record.Job
	v := jobView{
		Tenant: g.Key.Tenant, ID: g.Key.ID, Place: g.Place, Queue: job.Queue, Type: job.Type, Priority: job.Priority,
		Downstream: job.Downstream, Cost: job.Cost, Attempts: g.Record.Attempts, MaxAttempts: job.MaxAttempts, Lost: g.Record.Lost,
		Arrival: shown.Stamp(g.Record.Arrival), Deadline: shown.Stamp(job.Deadline), Position: g.Position, At: shown.Stamp(g.At), Since: shown.Stamp(g.Since),
		Cancelled: g.Cancelled, Reason: g.Reason, Text: g.Text, PayloadBytes: g.PayloadBytes,
	}
	if g.Place == headgate.PlaceWaiting && g.EstimatedWait >= 0 {
		v.WaitMs = new(shown.Millis(g.EstimatedWait))
	}
	all := who.Tenant == ""
	if all {
		v.Pool, v.Worker = g.Pool, g.Worker
	}
	for _, w := range g.Waits {
		v.Waits = append(v.Waits, waitView{w.Kind, w.Text, shown.Stamp(w.Until)})
	}
	for _, d := range g.History {
		line := deliveryView{Outcome: d.Outcome, At: d.At.UTC(), RanMs: shown.Millis(d.Ran), Text: d.Text}
		if all {
			line.Worker = d.Worker
		}
		v.History = append(v.History, line)
	}
	return v
}
