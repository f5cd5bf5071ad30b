package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
)

// Figures are what a report says about a run; the package comment defines each.
type Figures struct {
	Progress Progress
	Refused  map[admission.Reason]int
	// Classes are by name; every class asked for is there.
	Classes map[admission.Priority]Group
	// Downstreams are by name.
	Downstreams map[string]Group
	// Healthy is of the jobs of downstreams whose breaker never opened, and HealthySteps their waits counted in
	// dispatches of such jobs alone.
	Healthy      Group
	HealthySteps Steps
	OrderHead    string
	Tenants      []Tenant
	// LightWait is the wait of light tenants, LightJobs the most jobs that one of them asked for.
	LightWait Waits
	LightJobs int
	Fairness  Fairness
	Breakers  []Breaker
	Estimate  Estimate
}

// Group is a set of jobs.
type Group struct {
	// Dispatched counts the jobs whose handler started, Failures their failed runs.
	Dispatched, Failures int
	Wait                 Waits
	// Steps are waits in dispatches.
	Steps Steps
}

// Waits are waits in time.
type Waits struct {
	P50, P99, Max time.Duration
}

// Steps are waits in dispatches.
type Steps struct {
	P50, P99, Max int
}

// Tenant is what became of one tenant's jobs.
type Tenant struct {
	Name string
	Progress
	Wait Waits
	// Refusals are by reason; Longest is the longest retry-after that it was told.
	Refusals map[admission.Reason]int
	Longest  time.Duration
	// LastRefusal is one of them, as an example; its Decision is Refused if there was one.
	LastRefusal admission.Verdict
}

// Estimate compares estimated waits with real ones.
type Estimate struct {
	// Compared counts the jobs that had to wait, were given an estimate and started; Unknown those that had to wait
	// and were given none.
	Compared, Unknown int
	// MedianError is relative: 0.5 is half too long or half too short.
	MedianError float64
}

// ledgerPage is a copy of a ledger on which figures are worked out.
type ledgerPage struct {
	records []record
	log     []delivery
	periods map[string][]Period
}

// page copies the ledger and gives the jobs their places in the sorted log.
func (l *Ledger) page() (*ledgerPage, Progress, map[string]Progress) {
	l.mu.Lock()
	p := &ledgerPage{records: slices.Clone(l.mu.records), log: slices.Clone(l.mu.log), periods: map[string][]Period{}}
	for downstream, periods := range l.mu.periods {
		p.periods[downstream] = slices.Clone(periods)
	}
	tenants := map[string]Progress{}
	for name, progress := range l.mu.tenants {
		tenants[name] = *progress
	}
	all := l.mu.progress
	l.mu.Unlock()
	slices.SortFunc(p.log, func(a, b delivery) int { return a.token.Compare(b.token) })
	for i := range p.records {
		p.records[i].first, p.records[i].ranAt = none, none
	}
	for place, d := range p.log {
		r := &p.records[d.job]
		if r.first == none {
			r.first = place
		}
		if d.token == r.ran {
			r.ranAt = place
		}
	}
	return p, all, tenants
}

// steps returns how many dispatches a started job waited.
func (p *ledgerPage) steps(r *record) int {
	if r.straight() && r.first == r.ranAt {
		return 0
	}
	before, _ := slices.BinarySearchFunc(p.log, r.arrival+1, func(d delivery, millis int64) int {
		return cmp.Compare(d.token.Millis, millis)
	})
	return max(0, r.ranAt-before)
}

// healthySteps returns the waits of jobs that no breaker stood before, in dispatches of such jobs.
func (p *ledgerPage) healthySteps() Steps {
	others := make([]int, len(p.log)+1) // dispatches of the other jobs, up to each place
	for place, d := range p.log {
		others[place+1] = others[place]
		if p.suspect(&p.records[d.job]) {
			others[place+1]++
		}
	}
	var all []int
	for i := range p.records {
		if r := &p.records[i]; r.ranAt != none && !p.suspect(r) {
			steps := p.steps(r)
			all = append(all, steps-(others[r.ranAt]-others[r.ranAt-steps]))
		}
	}
	return stepsOf(all)
}

// suspect reports whether a job may have stood behind a breaker.
func (p *ledgerPage) suspect(r *record) bool { return len(p.periods[r.Downstream]) > 0 }

// Figures works out the figures so far. classes are those of the queue, weight gives a tenant's share in one.
func (l *Ledger) Figures(classes []admission.Class, weight func(tenant string, class admission.Priority) admission.Weight) Figures {
	p, progress, tenants := l.page()
	f := Figures{Progress: progress, Refused: map[admission.Reason]int{}, Classes: map[admission.Priority]Group{}, Downstreams: map[string]Group{}}
	byClass, byDownstream, healthy := map[admission.Priority]*sample{}, map[string]*sample{}, &sample{}
	for _, class := range classes {
		byClass[class.Name] = &sample{}
	}
	for i := range p.records {
		r := &p.records[i]
		if r.decided && r.verdict.Decision == admission.Refused {
			f.Refused[r.verdict.Reason]++
		}
		if r.Downstream != "" {
			if byDownstream[r.Downstream] == nil {
				byDownstream[r.Downstream] = &sample{}
			}
			byDownstream[r.Downstream].add(p, r)
		}
		if s := byClass[r.Class]; s != nil {
			s.add(p, r)
		}
		if !p.suspect(r) {
			healthy.add(p, r)
		}
	}
	for name, s := range byClass {
		f.Classes[name] = s.group()
	}
	for name, s := range byDownstream {
		f.Downstreams[name] = s.group()
	}
	f.Healthy, f.HealthySteps = healthy.group(), p.healthySteps()
	f.OrderHead = p.orderHead(classes)
	f.Tenants, f.LightWait, f.LightJobs = p.tenants(tenants)
	f.Fairness = p.fairness(classes, weight)
	f.Breakers = p.breakers()
	f.Estimate = p.estimate()
	return f
}

// sample gathers the waits of a group.
type sample struct {
	waits    []time.Duration
	steps    []int
	failures int
}

func (s *sample) add(p *ledgerPage, r *record) {
	if !r.hasStarted() {
		return
	}
	s.failures += r.failures
	s.waits = append(s.waits, r.wait)
	if r.ranAt != none {
		s.steps = append(s.steps, p.steps(r))
	}
}

func (s *sample) group() Group {
	return Group{Dispatched: len(s.waits), Failures: s.failures, Wait: waitsOf(s.waits), Steps: stepsOf(s.steps)}
}

func waitsOf(waits []time.Duration) Waits {
	slices.Sort(waits)
	return Waits{P50: percentile(waits, 0.5), P99: percentile(waits, 0.99), Max: percentile(waits, 1)}
}

func stepsOf(steps []int) Steps {
	slices.Sort(steps)
	return Steps{P50: percentile(steps, 0.5), P99: percentile(steps, 0.99), Max: percentile(steps, 1)}
}

// tenants returns what became of each tenant's jobs, by name, and the waits of the light ones.
func (p *ledgerPage) tenants(progress map[string]Progress) (all []Tenant, light Waits, lightJobs int) {
	waits := map[string][]time.Duration{}
	found := map[string]*Tenant{}
	asked := make([]int, 0, len(progress))
	for name, counts := range progress {
		found[name] = &Tenant{Name: name, Progress: counts, Refusals: map[admission.Reason]int{}}
		asked = append(asked, counts.Asked)
	}
	for i := range p.records {
		r := &p.records[i]
		t := found[r.Tenant]
		if r.decided && r.verdict.Decision == admission.Refused {
			t.Refusals[r.verdict.Reason]++
			t.Longest = max(t.Longest, r.verdict.RetryAfter)
			t.LastRefusal = r.verdict
		}
		if r.hasStarted() {
			waits[r.Tenant] = append(waits[r.Tenant], r.wait)
		}
	}
	slices.Sort(asked)
	lightJobs = percentile(asked, 0.5)
	var lightWaits []time.Duration
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t := found[name]
		if t.Asked <= lightJobs {
			lightWaits = append(lightWaits, waits[name]...)
		}
		t.Wait = waitsOf(waits[name])
		all = append(all, *t)
	}
	return all, waitsOf(lightWaits), lightJobs
}

func (p *ledgerPage) estimate() Estimate {
	var e Estimate
	var faults []float64
	for i := range p.records {
		r := &p.records[i]
		if !r.admitted() || r.straight() || !r.hasStarted() || r.wait <= 0 {
			continue
		}
		if r.verdict.EstimatedWait < 0 {
			e.Unknown++
			continue
		}
		fault := float64(r.verdict.EstimatedWait-r.wait) / float64(r.wait)
		faults = append(faults, max(fault, -fault))
	}
	slices.Sort(faults)
	e.Compared, e.MedianError = len(faults), percentile(faults, 0.5)
	return e
}
