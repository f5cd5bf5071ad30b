package shown

import (
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Job is a job wherever it is, dead letters included.
type Job struct {
	Tenant      string             `json:"tenant"`
	ID          string             `json:"id"`
	Place       admission.Place    `json:"place"`
	Queue       string             `json:"queue,omitempty"`
	Type        string             `json:"type,omitempty"`
	Priority    admission.Priority `json:"priority,omitempty"`
	Downstream  string             `json:"downstream,omitempty"`
	Cost        admission.Tokens   `json:"cost,omitempty"`
	Attempts    int                `json:"attempts"`
	MaxAttempts int                `json:"max_attempts,omitempty"`
	Lost        int                `json:"lost"`
	Arrival     *time.Time         `json:"arrival,omitempty"`
	Deadline    *time.Time         `json:"deadline,omitempty"`
	Position    int                `json:"position,omitempty"`
	// WaitMs is a guess; absent where there is none.
	WaitMs    *float64   `json:"estimated_wait_ms,omitempty"`
	At        *time.Time `json:"at,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	Pool      string     `json:"pool,omitempty"`
	Worker    string     `json:"worker,omitempty"`
	Cancelled bool       `json:"cancelled,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Text      string     `json:"text,omitempty"`
	// InSecond says of a spilled job that its body is in the second Redis.
	InSecond     bool       `json:"in_second,omitempty"`
	PayloadBytes int64      `json:"payload_bytes"`
	Waits        []Wait     `json:"waits,omitempty"`
	History      []Delivery `json:"history,omitempty"`
}

// Wait is one reason why a job waits.
type Wait struct {
	Kind store.WaitKind `json:"kind"`
	Text string         `json:"text"`
	// Gate is the closed gate, for the kinds that are one.
	Gate  store.GateName `json:"gate,omitempty"`
	Until *time.Time     `json:"until,omitempty"`
}

// Delivery is one line of a job's history.
type Delivery struct {
	Outcome string    `json:"outcome"`
	At      time.Time `json:"at"`
	RanMs   float64   `json:"ran_ms"`
	Worker  string    `json:"worker,omitempty"`
	Text    string    `json:"text,omitempty"`
}

// Eyes are what somebody may see of a job or a tenant. The zero Eyes see the least.
type Eyes struct {
	// Deployment is for whoever may see more than one tenant: pools, workers, and what operators have noted and count.
	Deployment bool
	// Texts are what receivers and commands have said, which may hold parts of payloads.
	Texts bool
}

// Everything is what somebody with the password of Redis sees.
var Everything = Eyes{Deployment: true, Texts: true}

// Said returns what a receiver or a command has said, if it is to be seen.
func (e Eyes) Said(text string) string {
	if e.Texts {
		return text
	}
	return ""
}

// plainWaits say why a job waits without a word of others: no operator's note, no number and no name of theirs.
var plainWaits = map[store.WaitKind]string{
	store.WaitPause: "an operator holds it back", store.WaitBreaker: "its downstream's breaker is not closed", store.WaitCap: "as many jobs run as may",
	store.WaitRate: "as many jobs were dispatched as may be for now", store.WaitWorkers: "no worker serves its queue",
	store.WaitTime: "its time has not come",
}

// WaitText says why a job waits.
func (e Eyes) WaitText(w store.Wait) string {
	if plain, ok := plainWaits[w.Kind]; ok && !e.Deployment {
		return plain
	}
	return w.Text
}

// ReasonOf says why a job is dead, or was cancelled while it ran: the latter is an operator's note.
func (e Eyes) ReasonOf(g *store.Sighting) string {
	if g.Cancelled && !e.Deployment {
		return ""
	}
	return g.Reason
}

// JobOf shows a job as far as it is to be seen.
func JobOf(g store.Sighting, eyes Eyes) Job {
	job := &g.Record.Job
	v := Job{
		Tenant: g.Key.Tenant, ID: g.Key.ID, Place: g.Place, Queue: job.Queue, Type: job.Type, Priority: job.Priority,
		Downstream: job.Downstream, Cost: job.Cost, Attempts: g.Record.Attempts, MaxAttempts: job.MaxAttempts, Lost: g.Record.Lost,
		Arrival: Stamp(g.Record.Arrival), Deadline: Stamp(job.Deadline), Position: g.Position, At: Stamp(g.At), Since: Stamp(g.Since),
		Cancelled: g.Cancelled, Reason: eyes.ReasonOf(&g), Text: eyes.Said(g.Text), InSecond: g.Record.Away, PayloadBytes: g.PayloadBytes,
	}
	if g.Place == admission.PlaceWaiting && g.EstimatedWait >= 0 {
		v.WaitMs = new(Millis(g.EstimatedWait))
	}
	if eyes.Deployment {
		v.Pool, v.Worker = g.Pool, g.Worker
	}
	for _, w := range g.Waits {
		v.Waits = append(v.Waits, Wait{w.Kind, eyes.WaitText(w), w.Gate, Stamp(w.Until)})
	}
	for _, d := range g.History {
		line := Delivery{Outcome: d.Outcome, At: Moment(d.At), RanMs: Millis(d.Ran), Text: eyes.Said(d.Text)}
		if eyes.Deployment {
			line.Worker = d.Worker
		}
		v.History = append(v.History, line)
	}
	return v
}

// Listed is a job of a listing.
type Listed struct {
	Tenant   string             `json:"tenant"`
	ID       string             `json:"id"`
	Place    admission.Place    `json:"place"`
	Queue    string             `json:"queue"`
	Type     string             `json:"type"`
	Priority admission.Priority `json:"priority"`
	Attempts int                `json:"attempts"`
	At       *time.Time         `json:"at,omitempty"`
	Reason   string             `json:"reason,omitempty"`
	Text     string             `json:"text,omitempty"`
}

// Page is a page of a listing. The cursor is empty at the end.
type Page struct {
	Jobs   []Listed `json:"jobs"`
	Cursor string   `json:"cursor"`
}

// PageOf shows a page as far as it is to be seen.
func PageOf(page store.ListPage, eyes Eyes) Page {
	v := Page{Jobs: []Listed{}, Cursor: page.Cursor}
	for i := range page.Jobs {
		v.Jobs = append(v.Jobs, ListedOf(&page.Jobs[i], eyes))
	}
	return v
}

// ListedOf shows a job of a listing as far as it is to be seen.
func ListedOf(l *store.Listed, eyes Eyes) Listed {
	job := &l.Record.Job
	text := eyes.Said(l.Text)
	if l.Err != nil {
		text = "its record cannot be read"
	}
	return Listed{l.Key.Tenant, l.Key.ID, l.Place, job.Queue, job.Type, job.Priority, l.Record.Attempts, Stamp(l.At), l.Reason, text}
}
