package crash_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// restTime is several times as long as a downstream that flaps is well.
const restTime = 2 * time.Second

// measurement is what a number of jobs of downstreams that are well cost, and how they waited.
type measurement struct {
	// micros is the time of the CPU that Redis took a job, commands its commands, scripts' included, beyond what it takes while none
	// of these jobs is there: heartbeats, probes, and the jobs that a downstream which flaps lets run and fail.
	micros, commands float64
	// idle is what Redis uses a second without these jobs.
	idle usage
	// steps is how many dispatches of its like, or of jobs that a gate should have held, went before a job in the mean;
	// probes are not counted, places are where each job came.
	steps  float64
	places []int
	took   time.Duration
}

// moved returns how far jobs were from their places in another measurement, as a part of their wait. Places are those
// among the jobs of all tenants but some.
func (m *measurement) moved(from *measurement, but map[int]bool) float64 {
	here, there := m.among(but), from.among(but)
	far, wait := 0, 0
	for i, place := range here {
		far += max(place-there[i], there[i]-place)
		wait += there[i]
	}
	return float64(far) / float64(max(wait, 1))
}

// among returns the places of jobs, by their numbers, that they have without those of some tenants.
func (m *measurement) among(but map[int]bool) map[int]int {
	order := make([]int, len(m.places))
	for number, place := range m.places {
		order[place] = number
	}
	places := map[int]int{}
	for _, number := range order {
		if !but[number%offerTenants] {
			places[number] = len(places)
		}
	}
	return places
}

// tenantsServedByIll returns the tenants of which jobs of downstreams that fall ill were dispatched since a mark.
func (o *outage) tenantsServedByIll(from mark) map[int]bool {
	o.Helper()
	served := map[int]bool{}
	for _, d := range o.dispatches(from) {
		if isWell(d.downstream) {
			continue
		}
		tenant, err := strconv.Atoi(d.key[1:strings.IndexByte(d.key, ':')])
		o.check(err)
		served[tenant] = true
	}
	return served
}

// measure runs jobs of downstreams that are well twice: among jobs of those that fall ill for how they wait, and as many as costed
// without them, but for those that wait already, for what they cost. It rests before and after the latter, and takes off what
// Redis does then: by time what it also does without outage, which is idle, and what is beyond by the ill ones' dispatches. Without
// outage idle is nil.
func (o *outage) measure(jobs, costed int, idle *usage) *measurement {
	o.Helper()
	m, _ := o.run(jobs, offerTenants)
	rest := o.rest()
	cost, all := o.run(costed, 0)
	rest = rest.plus(o.rest())
	m.idle = rest.times(1 / rest.seconds)
	if idle == nil {
		idle = &m.idle
	}
	others := all.less(rest, *idle)
	m.micros, m.commands, m.took = others.micros/float64(costed), others.commands/float64(costed), cost.took
	return m
}

// spell is what Redis used for some seconds, and how many jobs of downstreams that fall ill were dispatched.
type spell struct {
	usage

	seconds float64
	ill     int
}

// less returns what was used beyond idle, by time, and beyond what a rest used for each job of an ill downstream.
func (s spell) less(rest spell, idle usage) usage {
	others := s.since(idle.times(s.seconds))
	if rest.ill > 0 {
		others = others.since(rest.since(idle.times(rest.seconds)).times(float64(s.ill) / float64(rest.ill)))
	}
	return others
}

func (s spell) plus(more spell) spell {
	return spell{usage{s.micros + more.micros, s.commands + more.commands}, s.seconds + more.seconds, s.ill + more.ill}
}

// spell measures what goes on while something is done.
func (o *outage) spell(do func()) spell {
	o.Helper()
	from, before, start := o.mark(), o.used(), time.Now()
	do()
	s := spell{usage: o.used().since(before), seconds: time.Since(start).Seconds()}
	o.follow()
	for _, d := range o.dispatches(from) {
		if !isWell(d.downstream) {
			s.ill++
		}
	}
	return s
}

// rest is a spell without jobs of downstreams that are well.
func (o *outage) rest() spell {
	o.Helper()
	return o.spell(func() { o.pause(restTime) })
}

// run lets jobs of downstreams that are well in, and some of those that fall ill, all before the first is dispatched, and
// runs them.
func (o *outage) run(jobs, ill int) (*measurement, spell) {
	o.Helper()
	o.until("the jobs of others", func() bool { return o.others() == 0 })
	o.measured++
	queue := store.QueueGate(callQueues[0].Queue)
	_, err := o.store.Pause(o.Context(), queue, 0, store.Intervention{Reason: "measure"})
	o.check(err)
	o.admitAll(jobs, ill)
	from := o.mark()
	all := o.spell(func() {
		_, err := o.store.Unpause(o.Context(), queue, store.Intervention{})
		o.check(err)
		want := o.done() + jobs
		o.until("the measured jobs", func() bool { return o.done() == want })
	})
	m := &measurement{took: time.Duration(all.seconds * float64(time.Second))}
	m.place(o.dispatches(from), walks(o.TB, o.store), jobs)
	return m, all
}

// done counts the completed jobs of downstreams that are well.
func (o *outage) done() (n int) {
	for _, f := range o.ends {
		if isWell(f.downstream) && f.outcome == worker.Completed {
			n++
		}
	}
	return n
}

// others counts the jobs of downstreams that are well that are in and have not run.
func (o *outage) others() int {
	offered := -o.done()
	for downstream, n := range o.offered {
		if isWell(downstream) {
			offered += n
		}
	}
	return offered
}

// admitAll lets so many jobs of downstreams that are well in, in the same order each time, and behind them a job each
// of so many tenants for one that falls ill.
func (o *outage) admitAll(jobs, ill int) {
	o.Helper()
	var all []store.Candidate
	add := func(to, tenant int, kind string) {
		j := callJob(o.urls, to, tenant, fmt.Sprintf("%s%d-%d", kind, o.measured, len(all)))
		all = append(all, candidate(j))
		o.offered[j.Downstream]++
	}
	for i := range jobs {
		add(0, i%offerTenants, "m")
	}
	for i := range ill {
		add(1+i%len(o.illnesses), i, "i")
	}
	for part := range slices.Chunk(all, store.MaxBatchJobs) {
		verdicts, err := o.store.Partitions()[0].Admit(o.Context(), 0, part)
		o.check(err)
		for _, v := range verdicts {
			if v.Decision != admission.Admitted {
				o.Fatalf("admit: %+v", v)
			}
		}
	}
}

// place finds the places of the measured jobs among the dispatches since they were let go.
func (m *measurement) place(all []dispatch, walks map[string]walk, jobs int) {
	m.places = make([]int, jobs)
	placed := make([]bool, jobs)
	before, sum, own := 0, 0, 0
	for _, d := range all {
		var of, number int
		if _, err := fmt.Sscanf(d.key[strings.IndexByte(d.key, ':')+1:], "m%d-%d", &of, &number); err == nil && !placed[number] {
			placed[number], m.places[number] = true, own
			sum += before
			own++
		}
		if isWell(d.downstream) || walks[d.downstream].was(breaker.Open, d.millis) {
			before++
		}
	}
	m.steps = float64(sum) / float64(jobs)
}

// usage is what Redis has used since its start.
type usage struct{ micros, commands float64 }

func (u usage) since(before usage) usage {
	return usage{u.micros - before.micros, u.commands - before.commands}
}

func (u usage) times(x float64) usage { return usage{u.micros * x, u.commands * x} }

// used reads it.
func (o *outage) used() usage {
	o.Helper()
	took := redistest.Processor(o.TB, o.client)
	return usage{float64(took.Microseconds()), float64(redistest.CommandCalls(o.TB, o.client))}
}
