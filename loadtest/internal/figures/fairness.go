package figures

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/fairness"
	"github.com/headgate/headgate/loadtest/internal/load"
)

// Fairness is how evenly tenants were served that competed.
type Fairness struct {
	Jain       float64 `json:"jain"`
	Compared   int     `json:"compared"`
	Dispatches int     `json:"dispatches"`
	// Queue and Class are where.
	Queue string             `json:"queue,omitempty"`
	Class admission.Priority `json:"class,omitempty"`
}

// lane is where jobs compete.
type lane struct{ queue, class int }

// begun is a job that began.
type begun struct {
	tenant            int
	runnable, beganAt time.Duration
	cost              float64
}

// fairnessOf returns the evenness over the longest span of any queue and class. All tenants have the same weight.
func fairnessOf(r *Run) Fairness {
	best := Fairness{Jain: 1}
	lanes := logs(r)
	for at, log := range lanes {
		even := fairness.Compare(spells(log), func(string) float64 { return 1 })
		if even.Compared > 0 && even.Dispatches > best.Dispatches {
			best = Fairness{even.Jain, even.Compared, even.Dispatches, r.Plan.Queues[at.queue], r.Plan.Classes[at.class].Name}
		}
	}
	return best
}

// never is when a job is runnable of which that is not known.
const never = time.Duration(math.MaxInt64)

// logs returns the jobs that began, by lane, in the order in which they did.
func logs(r *Run) map[lane][]begun {
	bystander := r.Plan.Bystander()
	all := map[lane][]begun{}
	entries := r.Book.Entries()
	for i := range entries {
		e, a := &entries[i], &r.Plan.Arrivals[i]
		if e.Started() == 0 {
			continue
		}
		b := begun{a.Tenant, e.Answered, e.Started(), float64(a.Cost)}
		if a.Downstream != load.None && bystander != nil && !bystander(a) {
			b.runnable = never // It may have stood behind a breaker.
		}
		at := lane{a.Queue, a.Class}
		all[at] = append(all[at], b)
	}
	for _, log := range all {
		slices.SortFunc(log, func(a, b begun) int { return cmp.Compare(a.beganAt, b.beganAt) })
	}
	return all
}

// spells cuts a log into the times in which each tenant was surely runnable.
func spells(log []begun) []fairness.Spell {
	own := map[int][]int{}
	for place := range log {
		own[log[place].tenant] = append(own[log[place].tenant], place)
	}
	var all []fairness.Spell
	for tenant, places := range own {
		if len(places) >= fairness.Rounds {
			all = append(all, cut(strconv.Itoa(tenant), places, log)...)
		}
	}
	return all
}

func cut(name string, places []int, log []begun) []fairness.Spell {
	// earliest[i] is when the first of the jobs from places[i] on was in.
	earliest := make([]time.Duration, len(places)+1)
	earliest[len(places)] = never
	for i := len(places) - 1; i >= 0; i-- {
		earliest[i] = min(earliest[i+1], log[places[i]].runnable)
	}
	var all []fairness.Spell
	current := fairness.NewSpell(name)
	for i, place := range places {
		current.Add(place, log[place].cost)
		if earliest[i+1] >= log[place].beganAt {
			all = append(all, current)
			current = fairness.NewSpell(name)
		}
	}
	return all // The last dispatch ends a spell: nothing comes after it.
}
