package figures

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
	"github.com/headgate/headgate/store"
)

// Figures are what a run comes to; the package comment defines each.
type Figures struct {
	Scenario    string `json:"scenario"`
	System      string `json:"system"`
	Store       string `json:"store"`
	Interrupted bool   `json:"interrupted"`
	// Intended is how many jobs the plan has, over so many seconds; WallS is until all had settled.
	Intended  int     `json:"intended"`
	DurationS float64 `json:"duration_s"`
	WallS     float64 `json:"wall_s"`
	Sent      int     `json:"sent"`
	Admitted  int     `json:"admitted"`
	// Refused counts by reason.
	Refused     map[admission.Reason]int `json:"refused"`
	Unavailable int                      `json:"unavailable"`
	Unknown     int                      `json:"unknown"`
	// Late counts answers that came later than the time-out of a call and 50 ms.
	Late      int `json:"late"`
	Completed int `json:"completed"`
	Dead      int `json:"dead"`
	Held      int `json:"held"`
	Lost      int `json:"lost"`
	// Again counts runs of handlers beyond a job's first.
	Again int `json:"ran_again"`
	// Expired is how many of the dead were late, where the system tells.
	Expired int `json:"expired"`
	// JobsPerS is completed jobs ÷ wall.
	JobsPerS   float64 `json:"jobs_per_s"`
	Enqueue    Latency `json:"enqueue"`
	Wait       Latency `json:"wait"`
	Completion Latency `json:"completion"`
	Lateness   Latency `json:"lateness"`
	// Light is the wait of light tenants, Bystanders that of bystanders.
	Light      Latency       `json:"light_wait"`
	LightJobs  int           `json:"light_jobs"`
	Bystanders Latency       `json:"bystander_wait"`
	Jain       Fairness      `json:"fairness"`
	Tenants    int           `json:"tenants"`
	Heaviest   []Tenant      `json:"heaviest"`
	Classes    []Class       `json:"classes"`
	Bounds     []Bound       `json:"bounds"`
	Caps       []Cap         `json:"caps"`
	Goodput    *Goodput      `json:"goodput,omitempty"`
	Census     *store.Census `json:"census,omitempty"`
	// Broken are the promises that did not hold, each as a sentence.
	Broken []string `json:"broken"`
	// Overload is how many of them, the last, only say that the rate was too much.
	Overload int `json:"overload"`

	// Series is for plots.
	Series Series `json:"-"`
}

// Tenant is one tenant's part.
type Tenant struct {
	Name      string `json:"name"`
	Asked     int    `json:"asked"`
	Admitted  int    `json:"admitted"`
	Completed int    `json:"completed"`
	// Share is its part of all completed jobs.
	Share float64 `json:"share"`
}

// Class is one class's part.
type Class struct {
	Name      admission.Priority `json:"name"`
	Weight    int                `json:"weight"`
	Asked     int                `json:"asked"`
	Completed int                `json:"completed"`
	Wait      Latency            `json:"wait"`
	// InTime counts the jobs that started within the plan's longest wait, Refused those that were turned away; zero without one.
	InTime  int `json:"in_time"`
	Refused int `json:"refused"`
	// Before is the wait before the overload, During that of jobs which came in it.
	Before Latency `json:"wait_before"`
	During Latency `json:"wait_during"`
}

// Cap is a bound of the jobs of a queue in handlers, and the most there were.
type Cap struct {
	Queue string `json:"queue"`
	Cap   int    `json:"cap"`
	Most  int    `json:"most"`
}

// shownTenants is how many tenants have a row of their own.
const shownTenants = 20

// Of works out the figures of a run.
func Of(r *Run) *Figures {
	f := &Figures{
		Scenario: r.Plan.Scenario, System: r.System, Store: r.Store, Interrupted: r.Interrupted,
		Intended: len(r.Plan.Arrivals), DurationS: r.Plan.Duration.Seconds(), WallS: r.Wall.Seconds(),
		Refused: map[admission.Reason]int{}, Held: r.Account.Held, Census: r.Account.Census,
	}
	f.count(r)
	f.latencies(r)
	f.tenants(r)
	f.classes(r)
	f.Jain = fairnessOf(r)
	f.Bounds = boundsOf(r)
	for _, queue := range r.Plan.Queues {
		if most := r.Plan.Caps[queue]; most > 0 && r.Account.Census != nil {
			f.Caps = append(f.Caps, Cap{queue, most, r.Peaks[queue]})
		}
	}
	f.Goodput = goodputOf(r)
	f.Broken = f.broken(r)
	f.Series = seriesOf(r, f.Bounds)
	return f
}

func (f *Figures) count(r *Run) {
	pending := 0
	entries := r.Book.Entries()
	for i := range entries {
		e := &entries[i]
		switch e.Answer.Outcome {
		case record.Unsent:
			continue
		case record.Admitted:
			f.Admitted++
			if !e.Ended() {
				pending++
			}
		case record.Refused:
			f.Refused[e.Answer.Reason]++
		case record.Unavailable:
			f.Unavailable++
		case record.Unknown:
			f.Unknown++
		}
		f.Sent++
		if e.Answered-e.Sent > load.Timeout+grace {
			f.Late++
		}
		if e.Done() > 0 {
			f.Completed++
		} else if e.Dead() > 0 {
			f.Dead++
		}
		f.Again += max(0, e.Runs()-1)
	}
	untold := 0
	if c := r.Account.Census; c != nil {
		f.Expired = int(c.Died["expired"] + c.Died["queue_timeout"])
		died := max(int(c.Dead), total(c.Died))           // The oldest letters are dropped for want of room.
		untold = max(0, min(pending-f.Held, died-f.Dead)) // A worker that loses Redis's answer does not know that the attempt was the last.
	}
	f.Dead += untold
	f.Lost = max(0, pending-f.Held-untold)
	f.JobsPerS = float64(f.Completed) / r.Wall.Seconds()
}

func total(counts map[string]int64) (sum int) {
	for _, n := range counts {
		sum += int(n)
	}
	return sum
}

func (f *Figures) latencies(r *Run) {
	enqueue, wait, completion, lateness := newHistogram(), newHistogram(), newHistogram(), newHistogram()
	bystanders, bystander := newHistogram(), r.Plan.Bystander()
	entries := r.Book.Entries()
	for i := range entries {
		e, a := &entries[i], &r.Plan.Arrivals[i]
		if e.Answer.Outcome == record.Unsent {
			continue
		}
		lateness.add(e.Sent - a.At)
		enqueue.add(e.Answered - a.At)
		if e.Started() > 0 {
			wait.add(e.Started() - a.At)
			if bystander != nil && bystander(a) {
				bystanders.add(e.Started() - a.At)
			}
		}
		if e.Done() > 0 {
			completion.add(e.Done() - a.At)
		}
	}
	f.Enqueue, f.Wait, f.Completion, f.Lateness = enqueue.latency(), wait.latency(), completion.latency(), lateness.latency()
	f.Bystanders = bystanders.latency()
}

func (f *Figures) tenants(r *Run) {
	all := make([]Tenant, len(r.Plan.Tenants))
	entries := r.Book.Entries()
	for i := range entries {
		t := &all[r.Plan.Arrivals[i].Tenant]
		t.Asked++
		if entries[i].Answer.Outcome == record.Admitted {
			t.Admitted++
		}
		if entries[i].Done() > 0 {
			t.Completed++
		}
	}
	f.lightest(r, all)
	for i := range all {
		all[i].Name = r.Plan.Tenants[i]
		all[i].Share = float64(all[i].Completed) / float64(max(1, f.Completed))
	}
	all = slices.DeleteFunc(all, func(t Tenant) bool { return t.Asked == 0 })
	slices.SortFunc(all, func(a, b Tenant) int { return cmp.Or(cmp.Compare(b.Asked, a.Asked), cmp.Compare(a.Name, b.Name)) })
	f.Tenants = len(all)
	f.Heaviest = all[:min(len(all), shownTenants)]
}

// lightest finds the light tenants, of all in the order of the plan, and their wait.
func (f *Figures) lightest(r *Run, all []Tenant) {
	var asked []int
	for i := range all {
		if all[i].Asked > 0 {
			asked = append(asked, all[i].Asked)
		}
	}
	if len(asked) == 0 {
		return
	}
	slices.Sort(asked)
	f.LightJobs = asked[(len(asked)-1)/2]
	light := newHistogram()
	entries := r.Book.Entries()
	for i := range entries {
		if a := &r.Plan.Arrivals[i]; entries[i].Started() > 0 && all[a.Tenant].Asked <= f.LightJobs {
			light.add(entries[i].Started() - a.At)
		}
	}
	f.Light = light.latency()
}

func (f *Figures) classes(r *Run) {
	waits, before, during := make([]histogram, len(r.Plan.Classes)), make([]histogram, len(r.Plan.Classes)), make([]histogram, len(r.Plan.Classes))
	for i, class := range r.Plan.Classes {
		waits[i], before[i], during[i] = newHistogram(), newHistogram(), newHistogram()
		f.Classes = append(f.Classes, Class{Name: class.Name, Weight: class.Weight})
	}
	entries := r.Book.Entries()
	for i := range entries {
		e, a := &entries[i], &r.Plan.Arrivals[i]
		f.Classes[a.Class].Asked++
		if e.Done() > 0 {
			f.Classes[a.Class].Completed++
		}
		if e.Answer.Outcome == record.Refused {
			f.Classes[a.Class].Refused++
		}
		if e.Started() == 0 {
			continue
		}
		waits[a.Class].add(e.Started() - a.At)
		o := r.Plan.Overload
		switch {
		case o == nil:
			continue
		case a.At < o.From:
			before[a.Class].add(e.Started() - a.At)
		case a.At < o.To:
			during[a.Class].add(e.Started() - a.At)
		}
		if inTime(o, a, e) {
			f.Classes[a.Class].InTime++
		}
	}
	for i := range waits {
		f.Classes[i].Wait, f.Classes[i].Before, f.Classes[i].During = waits[i].latency(), before[i].latency(), during[i].latency()
	}
}
