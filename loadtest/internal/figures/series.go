package figures

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
)

// sliceCount is the number of slices of a run in a Series.
const sliceCount = 100

// Series is a run over time, in slices of equal length.
type Series struct {
	// Slice is a slice's length in seconds.
	Slice float64
	// P50 and P99 are of the waits of jobs that were to arrive in a slice, in milliseconds; negative where there
	// are none.
	P50, P99 []float64
	// BystanderP50 and BystanderP99 are those of bystanders, nil where there are none.
	BystanderP50, BystanderP99 []float64
	// Bounds are what scopes admitted over time, those of Figures.Bounds.
	Bounds []BoundLine
	// Depth is the number of jobs that were in and had not begun at the end of a slice.
	Depth []float64
	// Tenants are jobs begun in a slice of the heaviest tenants by jobs asked for; Classes those of each class.
	Tenants []Line
	Classes []Line
	// Overload is, of a run with one, jobs in a slice that arrived, were let in and started in time; ClassWaits the 99th percentile of each class's waits in
	// milliseconds, negative where there are none.
	Overload   []Line
	ClassWaits []Line
	// Shares compares, tenant by tenant from the heaviest, the part of jobs asked for and of jobs completed while jobs
	// arrived: in the end everybody is served.
	Shares []ShareOf
	// Breakers are what each breaker did, by downstream.
	Breakers []BreakerLine
}

// Line is a named line of a plot.
type Line struct {
	Name   string
	Values []float64
}

// ShareOf is a tenant's part of the jobs asked for and of those completed.
type ShareOf struct{ Asked, Completed float64 }

// BoundLine is what a scope was asked for and admitted, each up to the end of a slice.
type BoundLine struct {
	Bound

	Asked, Admitted []float64
}

// BreakerLine is the states of a breaker, each from its time in seconds.
type BreakerLine struct {
	Downstream string
	At         []float64
	State      []string
}

// shownLines is how many tenants have a line.
const shownLines = 6

type sliced struct {
	length time.Duration
	series Series
}

func seriesOf(r *Run, bounds []Bound) Series {
	s := sliced{length: max(1, (r.Wall+sliceCount-1)/sliceCount)}
	s.series.Slice = s.length.Seconds()
	s.series.P50, s.series.P99 = s.waits(r, func(*load.Arrival) bool { return true })
	if bystander := r.Plan.Bystander(); bystander != nil {
		s.series.BystanderP50, s.series.BystanderP99 = s.waits(r, bystander)
	}
	s.depth(r)
	for _, b := range bounds {
		s.bound(r, b)
	}
	s.lines(r)
	s.overload(r)
	s.breakers(r)
	return s.series
}

// of returns the slice of a time.
func (s *sliced) of(at time.Duration) int { return min(max(0, int(at/s.length)), sliceCount-1) }

// waits returns percentiles of the waits of some jobs.
func (s *sliced) waits(r *Run, counts func(*load.Arrival) bool) (p50, p99 []float64) {
	slot := make([][]time.Duration, sliceCount)
	entries := r.Book.Entries()
	for i := range entries {
		if a := &r.Plan.Arrivals[i]; entries[i].Started() > 0 && counts(a) {
			slot[s.of(a.At)] = append(slot[s.of(a.At)], entries[i].Started()-a.At)
		}
	}
	h := newHistogram()
	for _, waits := range slot {
		h.Reset()
		for _, wait := range waits {
			h.add(wait)
		}
		if l := h.latency(); l.Count > 0 {
			p50, p99 = append(p50, l.P50), append(p99, l.P99)
		} else {
			p50, p99 = append(p50, -1), append(p99, -1)
		}
	}
	return p50, p99
}

func (s *sliced) depth(r *Run) {
	s.series.Depth = make([]float64, sliceCount)
	entries := r.Book.Entries()
	for i := range entries {
		e := &entries[i]
		if e.Answer.Outcome != record.Admitted {
			continue
		}
		in := e.Answered
		if e.Started() > 0 {
			in = min(in, e.Started()) // A handler may begin before the caller hears of it.
			s.series.Depth[s.of(e.Started())]--
		}
		s.series.Depth[s.of(in)]++
	}
	add(s.series.Depth)
}

func (s *sliced) bound(r *Run, b Bound) {
	line := BoundLine{b, make([]float64, sliceCount), make([]float64, sliceCount)}
	entries := r.Book.Entries()
	for i := range entries {
		e, a := &entries[i], &r.Plan.Arrivals[i]
		if b.Scope != admission.Global && string(b.Scope) != r.Plan.Tenants[a.Tenant] {
			continue
		}
		line.Asked[s.of(a.At)] += float64(a.Cost)
		if e.Answer.Outcome == record.Admitted {
			line.Admitted[s.of(e.Answered)] += float64(a.Cost)
		}
	}
	add(line.Asked)
	add(line.Admitted)
	s.series.Bounds = append(s.series.Bounds, line)
}

// add makes sums up to each value.
func add(values []float64) {
	for i := 1; i < len(values); i++ {
		values[i] += values[i-1]
	}
}

func (s *sliced) lines(r *Run) {
	asked, completed := make([]int, len(r.Plan.Tenants)), make([]int, len(r.Plan.Tenants))
	entries, total := r.Book.Entries(), 0
	for i := range entries {
		asked[r.Plan.Arrivals[i].Tenant]++
		if done := entries[i].Done(); done > 0 && done <= r.Plan.Duration {
			completed[r.Plan.Arrivals[i].Tenant]++
			total++
		}
	}
	order := make([]int, len(asked))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(asked[b], asked[a]) })
	line := map[int]int{}
	for rank, tenant := range order {
		s.series.Shares = append(s.series.Shares, ShareOf{
			float64(asked[tenant]) / float64(max(1, len(entries))), float64(completed[tenant]) / float64(max(1, total)),
		})
		if rank < shownLines {
			line[tenant] = rank
			s.series.Tenants = append(s.series.Tenants, Line{r.Plan.Tenants[tenant], make([]float64, sliceCount)})
		}
	}
	for _, class := range r.Plan.Classes {
		s.series.Classes = append(s.series.Classes, Line{string(class.Name), make([]float64, sliceCount)})
	}
	for i := range entries {
		if entries[i].Started() == 0 {
			continue
		}
		a, at := &r.Plan.Arrivals[i], s.of(entries[i].Started())
		s.series.Classes[a.Class].Values[at]++
		if rank, ok := line[a.Tenant]; ok {
			s.series.Tenants[rank].Values[at]++
		}
	}
}

func (s *sliced) overload(r *Run) {
	if r.Plan.Overload == nil {
		return
	}
	arrive, let, good := make([]float64, sliceCount), make([]float64, sliceCount), make([]float64, sliceCount)
	entries := r.Book.Entries()
	for i := range entries {
		e, a := &entries[i], &r.Plan.Arrivals[i]
		arrive[s.of(a.At)]++
		if e.Answer.Outcome == record.Admitted {
			let[s.of(e.Answered)]++
		}
		if inTime(r.Plan.Overload, a, e) {
			good[s.of(e.Started())]++
		}
	}
	s.series.Overload = []Line{{"arrives", arrive}, {"let in", let}, {"starts in time", good}}
	for class := range r.Plan.Classes {
		_, p99 := s.waits(r, func(a *load.Arrival) bool { return a.Class == class })
		s.series.ClassWaits = append(s.series.ClassWaits, Line{string(r.Plan.Classes[class].Name), p99})
	}
}

func (s *sliced) breakers(r *Run) {
	place := map[string]int{}
	for _, change := range r.Breakers {
		i, ok := place[change.Downstream]
		if !ok {
			i = len(s.series.Breakers)
			place[change.Downstream] = i
			s.series.Breakers = append(s.series.Breakers, BreakerLine{Downstream: change.Downstream})
		}
		b := &s.series.Breakers[i]
		b.At, b.State = append(b.At, change.At.Seconds()), append(b.State, change.State)
	}
	slices.SortFunc(s.series.Breakers, func(a, b BreakerLine) int { return cmp.Compare(a.Downstream, b.Downstream) })
}
