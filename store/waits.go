package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
)

// Wait is one reason why a job does not run yet.
type Wait struct {
	// Kind says which mechanism holds it back.
	Kind WaitKind
	// Text says so in a sentence, without a final stop.
	Text string
	// Gate is the closed gate, for the kinds that are one.
	Gate GateName
	// Until is when the reason ends by itself; zero when it does not, or nobody knows.
	Until time.Time
}

// WaitKind is a kind of Wait.
type WaitKind string

// The kinds.
const (
	// WaitPause is a queue or tenant that an operator paused.
	WaitPause WaitKind = "pause"
	// WaitBreaker is a downstream's breaker, open or half-open.
	WaitBreaker WaitKind = "breaker"
	// WaitCap is a gate whose units are all held.
	WaitCap WaitKind = "cap"
	// WaitRate is a rate of dispatches whose tokens are used up.
	WaitRate WaitKind = "rate"
	// WaitTime is the job's own time, or its backoff.
	WaitTime WaitKind = "time"
	// WaitType is a type that no worker knew to which the job came.
	WaitType WaitKind = "type"
	// WaitDepth is a tenant that has as many jobs in the queue as it may.
	WaitDepth WaitKind = "depth"
	// WaitWorkers is a queue that no worker serves.
	WaitWorkers WaitKind = "workers"
	// WaitWaking is a gate that has opened and whose waiters come back one after the other.
	WaitWaking WaitKind = "waking"
	// WaitTurn is the order: other jobs and other tenants come first.
	WaitTurn WaitKind = "turn"
)

// WaitFacts is what stands around a job that does not run.
type WaitFacts struct {
	// Tenant is how its tenant stands in its class: TenantRunnable, TenantBlocked or TenantParked.
	Tenant string
	// Blocked means that its lane stands behind its downstream's gate.
	Blocked bool
	// Gates are those on its way that are shut.
	Gates []GateState
	// Pools are the ids of those that serve the queue.
	Pools []string
	// Breaker is that of the job's downstream; the zero state where there is none.
	Breaker BreakerState
}

// The values of WaitFacts.Tenant.
const (
	TenantRunnable = "a"
	// TenantBlocked means that all of its lanes are behind gates, TenantParked that it stands behind a gate of its own.
	TenantBlocked = "b"
	TenantParked  = "t"
)

// AddWaits says what a job that does not run waits for, and takes back the estimate of its wait where nobody can know.
func (g *Sighting) AddWaits(f WaitFacts) {
	switch g.Place {
	case admission.PlaceWaiting, admission.PlaceLater, admission.PlaceReady, admission.PlaceSpilled:
		g.Waits = waits(g, f)
		if f.Tenant != TenantRunnable || f.Blocked || len(f.Gates) > 0 || len(f.Pools) == 0 {
			g.EstimatedWait = -1 // Until a gate opens, or a worker comes, nobody knows.
		}
	}
}

// waits lists what a job that does not run waits for.
func waits(g *Sighting, f WaitFacts) []Wait {
	var all []Wait
	job := &g.Record.Job
	if g.Place == admission.PlaceLater {
		all = append(all, waitLater(g))
	}
	if g.Place == admission.PlaceSpilled {
		if !g.At.IsZero() {
			all = append(all, Wait{Kind: WaitTime, Until: g.At, Text: "it starts at its own time, or later"})
		}
		return append(all, Wait{Kind: WaitDepth, Text: fmt.Sprintf("tenant %s has as many jobs in queue %s as it may; of those kept aside it is number %d", job.Tenant, job.Queue, g.Position)})
	}
	for _, gate := range f.Gates {
		all = append(all, gate.wait(f.Breaker, g.before()))
	}
	if len(f.Pools) == 0 && g.Place != admission.PlaceReady {
		all = append(all, Wait{Kind: WaitWorkers, Text: "no worker that is registered serves queue " + job.Queue})
	}
	if len(f.Gates) == 0 && (f.Blocked || f.Tenant == TenantBlocked || f.Tenant == TenantParked) {
		all = append(all, Wait{Kind: WaitWaking, Text: "its gate has opened, and its waiters come back one after the other"})
	}
	switch {
	case g.Place == admission.PlaceReady:
		all = append(all, Wait{Kind: WaitTurn, Text: "it is in its workers' stream, and the next of them that is free takes it"})
	case g.Place == admission.PlaceWaiting && g.Position > 1:
		text := fmt.Sprintf("%d jobs of tenant %s in class %s of queue %s go before it", g.Position-1, job.Tenant, job.Priority, job.Queue)
		if g.Position == 2 {
			text = fmt.Sprintf("1 job of tenant %s in class %s of queue %s goes before it", job.Tenant, job.Priority, job.Queue)
		}
		all = append(all, Wait{Kind: WaitTurn, Text: text + ", by deadline or arrival"})
	case g.Place == admission.PlaceWaiting && len(all) == 0:
		all = append(all, Wait{Kind: WaitTurn, Text: fmt.Sprintf("it is the first of its lane and waits for a free slot, for the turn of class %s and of tenant %s", job.Priority, job.Tenant)})
	}
	return all
}

func waitLater(g *Sighting) Wait {
	w := Wait{Kind: WaitTime, Until: g.At, Text: "its time has not come"}
	if n := g.unknown(); n > 0 {
		job := &g.Record.Job
		w.Kind = WaitType
		w.Text = fmt.Sprintf("no worker of queue %s that it came to knows type %s: it was handed back %s, and comes back ever more seldom",
			job.Queue, job.Type, times(n))
		return w
	}
	if len(g.History) > 0 {
		last := g.History[len(g.History)-1]
		w.Text = fmt.Sprintf("it comes back after its last delivery, which was %s by worker %s", last.Outcome, last.Worker)
	}
	return w
}

// jobsGo says how many jobs go.
func jobsGo(n int) string {
	if n == 1 {
		return "1 job goes"
	}
	return fmt.Sprintf("%d jobs go", n)
}

// unknown returns how often in a row, of the deliveries that are kept, a job was handed back for its type.
func (g *Sighting) unknown() (n int) {
	for _, d := range slices.Backward(g.History) {
		if d.Outcome != "released" || !strings.HasPrefix(d.Text, UnknownType) {
			break
		}
		n++
	}
	return n
}

func times(n int) string {
	switch {
	case n == 1:
		return "once"
	case n >= HistoryCap:
		return fmt.Sprintf("%d times or more in a row", n)
	}
	return fmt.Sprintf("%d times in a row", n)
}

// HistoryCap is how many deliveries are kept, as in fragments/record.lua.
const HistoryCap = 20

// before is how many jobs of its lane, which are of its tenant and its downstream, go before a waiting job.
func (g *Sighting) before() int {
	if g.Place != admission.PlaceWaiting {
		return 0
	}
	return max(0, g.Position-1)
}

// wait says what a closed gate holds back of a job that has so many before it; b is the breaker of the job's downstream.
func (g GateState) wait(b BreakerState, before int) Wait {
	w := Wait{Gate: g.Name, Until: g.Until}
	kind, name := g.Name.Split()
	because := ""
	if g.Reason != "" {
		because = ": " + g.Reason
	}
	if g.Author != "" {
		because = " by " + g.Author + because
	}
	switch {
	case kind == KindBreaker && g.Limit == 0:
		w.Kind, w.Text, w.Until = WaitBreaker, "the circuit breaker of downstream "+name+" is open", b.Until
		if b.State == breaker.Open { // It may have changed since the gate was looked at.
			w.Text += ": " + b.why()
		}
	case kind == KindBreaker:
		w.Kind, w.Text = WaitBreaker, fmt.Sprintf("the circuit breaker of downstream %s lets %d jobs through at a time and has %d", name, g.Limit, g.Held)
	case g.Burst > 0:
		w.Kind, w.Text = WaitRate, fmt.Sprintf("%s starts %s", g.Name.Words(), admission.TokensPerSecond(g.Rate).Words("job"))
		if before > 0 && g.Rate > 0 && !g.Until.IsZero() { // Each of those before it takes a token.
			w.Text += ", and " + jobsGo(before) + " before it"
			w.Until = g.Until.Add(time.Duration(float64(before) / g.Rate * float64(time.Second)))
		}
	case g.NoShare:
		w.Kind, w.Text = WaitCap, g.Name.Words()+" runs jobs in other partitions only, until its cap is shared out again"
	case g.Limit == 0:
		w.Kind, w.Text = WaitPause, g.Name.Words()+" is paused"+because
	default:
		w.Kind, w.Text = WaitCap, fmt.Sprintf("%s runs %d jobs at a time and has %d%s", g.Name.Words(), g.Limit, g.Held, because)
	}
	return w
}

// why says what brought the state about, and what an operator who forced it gave as the reason.
func (b *BreakerState) why() string {
	if b.Forced && b.Reason != "" {
		return b.Cause.String() + ", " + b.Reason
	}
	return b.Cause.String()
}
