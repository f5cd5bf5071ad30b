package ops

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// queueState says in a few words what holds a queue back.
func queueState(v shown.Queue) string {
	var parts []string
	if v.Gate != nil {
		parts = append(parts, cli.GateWords(*v.Gate))
	}
	if v.Suspension != nil {
		parts = append(parts, "enqueueing suspended"+cli.Because(v.Suspension.Reason)+cli.Until(v.Suspension.Until))
	}
	if v.Workers == 0 {
		parts = append(parts, "no workers")
	}
	return strings.Join(parts, "; ")
}

func queueLater(v shown.Queue) string {
	if v.LaterAtLeast {
		return fmt.Sprintf("≥ %d", v.Later)
	}
	return strconv.FormatInt(v.Later, 10)
}

func writeQueues(to io.Writer, v shown.Queues) {
	if len(v.Queues) == 0 {
		return
	}
	t := report.NewTable(to, 1, "queue", "waiting", "ready", "running", "later", "dead", "slots", "state")
	for _, q := range v.Queues {
		t.AppendRow(table.Row{q.Queue, q.Waiting, q.Ready, q.Running, queueLater(q), q.Dead, q.Slots, queueState(q)})
	}
	t.Render()
}

// queueDetails is all that queue show tells.
type queueDetails struct {
	shown.Queue

	Tenants        []tenantView `json:"tenants"`         // those with the most waiting
	TenantsPartial bool         `json:"tenants_partial"` // not all were looked at
	Gates          []shown.Gate `json:"gates"`           // of tenants in the queue, of tenants, and of downstreams
	WorkerList     []workerView `json:"worker_list"`
}

type tenantView struct {
	Tenant  string `json:"tenant"`
	Waiting int64  `json:"waiting"`
}

type workerView struct {
	Worker   string     `json:"worker"`
	Pool     string     `json:"pool"`
	Slots    int        `json:"slots"`
	Held     int        `json:"held"`
	LeaseEnd *time.Time `json:"lease_end,omitempty"`
}

// newQueueDetails keeps the gates and workers that concern the queue.
func newQueueDetails(q *store.QueueState, tenants []store.TenantWaiting, partial bool, gates []store.GateState, workers []store.WorkerState) queueDetails {
	v := queueDetails{Queue: shown.QueueOf(q), Tenants: []tenantView{}, TenantsPartial: partial, Gates: []shown.Gate{}, WorkerList: []workerView{}}
	for _, t := range tenants {
		v.Tenants = append(v.Tenants, tenantView{t.Tenant, t.Waiting})
	}
	for _, g := range gates {
		name := string(g.Name)
		ofOtherQueue := strings.HasPrefix(name, "q:") || strings.HasPrefix(name, "u:") && !strings.HasSuffix(name, ":"+q.Name)
		if !ofOtherQueue {
			v.Gates = append(v.Gates, shown.GateOf(g))
		}
	}
	for _, w := range workers {
		for _, served := range w.Queues {
			if served.Queue == q.Name {
				v.WorkerList = append(v.WorkerList, workerView{w.Name, w.Pool, w.Slots, w.Held, shown.Stamp(w.LeaseEnd)})
			}
		}
	}
	return v
}

func (v queueDetails) write(to io.Writer) {
	writeQueues(to, shown.Queues{Queues: []shown.Queue{v.Queue}})
	t := report.NewTable(to, 1, "class", "weight", "waiting")
	for _, c := range v.Classes {
		t.AppendRow(table.Row{c.Class, c.Weight, c.Waiting})
	}
	t.Render()
	if v.PaceMs > 0 {
		fmt.Fprintf(to, "While jobs wait, one starts every %s.\n", report.Short(time.Duration(v.PaceMs*float64(time.Millisecond))))
	}
	if d := v.Distinct; d != nil {
		fmt.Fprintf(to, "Different tenants: %d in this hour, %d in the last. Different jobs: %d and %d.\n", d.ThisHour.Tenants, d.LastHour.Tenants, d.ThisHour.Jobs, d.LastHour.Jobs)
	}
	if len(v.Tenants) > 0 {
		t = report.NewTable(to, 1, "tenant", "waiting")
		for _, tenant := range v.Tenants {
			t.AppendRow(table.Row{tenant.Tenant, tenant.Waiting})
		}
		t.Render()
	}
	if v.TenantsPartial {
		fmt.Fprintln(to, "There are more tenants than were looked at.")
	}
	if len(v.Gates) > 0 {
		t = report.NewTable(to, 2, "gate", "state")
		for _, g := range v.Gates {
			t.AppendRow(table.Row{g.Name.Words(), cli.GateWords(g)})
		}
		t.Render()
	}
	if len(v.WorkerList) > 0 {
		t = report.NewTable(to, 2, "worker", "pool", "slots", "held", "lease ends")
		for _, w := range v.WorkerList {
			t.AppendRow(table.Row{w.Worker, w.Pool, w.Slots, w.Held, cli.At(w.LeaseEnd)})
		}
		t.Render()
	}
}

// peekView is what is next in a queue.
type peekView struct {
	Queue string `json:"queue"`
	// Turn is the class whose turn it is, of which TurnLeft dispatches are left.
	Turn     admission.Priority `json:"turn"`
	TurnLeft int                `json:"turn_left"`
	Classes  []peekedClassView  `json:"classes"`
}

type peekedClassView struct {
	shown.Class

	Runnable int64        `json:"runnable"` // tenants
	Held     int64        `json:"held"`     // tenants behind gates
	Next     []peekedView `json:"next"`
}

type peekedView struct {
	Tenant string     `json:"tenant"`
	Tag    float64    `json:"tag"`
	ID     string     `json:"id,omitempty"`
	Type   string     `json:"type,omitempty"`
	By     *time.Time `json:"by,omitempty"` // its deadline, or arrival + horizon
	// Behind is the closed gate at which it will park.
	Behind store.GateName `json:"behind,omitempty"`
}

func newPeekView(q *store.QueueState, classes []store.PeekedClass) peekView {
	v := peekView{Queue: q.Name, TurnLeft: q.TurnLeft, Classes: []peekedClassView{}}
	if q.Turn < len(q.Classes) {
		v.Turn = q.Classes[q.Turn].Name
	}
	for _, c := range classes {
		class := peekedClassView{shown.Class{Class: c.Name, Weight: c.Weight, Waiting: c.Waiting}, c.Runnable, c.Held, []peekedView{}}
		for _, p := range c.Next {
			class.Next = append(class.Next, peekedView{p.Tenant, p.Tag, p.Next.Key.ID, p.Next.Record.Job.Type, shown.Stamp(p.Next.At), p.Behind})
		}
		v.Classes = append(v.Classes, class)
	}
	return v
}

func (v peekView) write(to io.Writer) {
	fmt.Fprintf(to, "Queue %s: it is the turn of class %s, for %d more.\n", v.Queue, v.Turn, v.TurnLeft)
	for _, c := range v.Classes {
		fmt.Fprintf(to, "Class %s, weight %d: %d jobs wait, of %d tenants that can run and %d behind gates.\n", c.Class.Class, c.Weight, c.Waiting, c.Runnable, c.Held)
		if len(c.Next) == 0 {
			continue
		}
		t := report.NewTable(to, 5, "tenant", "next job", "type", "ordered by", "held by", "start tag")
		for _, p := range c.Next {
			held := ""
			if p.Behind != "" {
				held = "gate of " + p.Behind.Words()
			}
			t.AppendRow(table.Row{p.Tenant, p.ID, p.Type, cli.At(p.By), held, fmt.Sprintf("%.3f", p.Tag)})
		}
		t.Render()
	}
}
