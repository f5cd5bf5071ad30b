package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/jobs"
)

// fleet is a hundred workers of one slot each, on a Redis whose time the test says, in front of a downstream that is
// half-open again and again.
type fleet struct {
	rt     *rapid.T
	t      *testing.T
	store  *Partition
	now    int64
	config breaker.Config
	// held are the jobs in workers' hands, dead the workers that were killed, numbered those that took their place.
	held     map[string]store.Lease
	dead     map[string]bool
	numbered int
	// guests are calls that are no jobs, and hold a probe.
	guests   []guest
	sequence uint64
	live     []string
	// beaten is when the workers that live renewed their leases.
	beaten int64
}

// guest is a probe of somebody who has no jobs from here.
type guest struct {
	call   string
	period uint64
}

const (
	fleetWorkers = 100
	fleetLease   = 5 * time.Second
)

// TestProbesStayWithinTheirLimit is law L11: whatever becomes of probes (they pass, fail, hang, are handed back, or their
// worker is killed), those in flight stay within the limit over the whole fleet, half-open ends within the time-out of its
// oldest probe, and no attempt is burnt by one.
func TestProbesStayWithinTheirLimit(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	prefix := redistest.Prefix(t)
	run := 0
	causes := map[string]int{}
	for range 3 { // What is asked for below is rare.
		rapid.Check(t, func(rt *rapid.T) {
			run++
			defer redistest.Clear(t, prefix+strconv.Itoa(run))
			s, err := newStore(client, Config{Prefix: prefix + strconv.Itoa(run)}, "")
			check(t, err)
			config, err := breaker.Config{
				MaxProbes: rapid.IntRange(1, 4).Draw(rt, "max probes"), SuccessThreshold: rapid.IntRange(1, 6).Draw(rt, "threshold"),
				ProbeTimeout: 3 * time.Second, OpenBase: time.Second, OpenMax: 4 * time.Second,
			}.Complete()
			check(t, err)
			f := &fleet{rt: rt, t: t, store: s, config: config, now: time.Now().UnixMicro(), held: map[string]store.Lease{}, dead: map[string]bool{}}
			f.begin()
			for range 60 {
				f.step()
			}
			events, _, err := s.BreakerEvents(t.Context(), "0-0", -1)
			check(t, err)
			for _, e := range events {
				causes[e.Cause]++
			}
		})
	}
	for _, cause := range []breaker.Cause{breaker.CauseProbeFailed, breaker.CauseProbeTimeout, breaker.CauseProbesPassed} {
		if causes[cause.String()] == 0 {
			t.Errorf("no %s in all runs: %v", cause, causes)
		}
	}
	t.Logf("transitions: %v", causes)
}

func (f *fleet) begin() {
	f.advance(0)
	for range fleetWorkers {
		f.hire()
	}
	// Where jobs wait they take every probe, so that guests have theirs only where few do.
	jobs := make([]store.Candidate, rapid.SampledFrom([]int{store.MaxBatchJobs, 3, 1}).Draw(f.rt, "jobs"))
	limits := &[admission.Levels]admission.Limit{}
	for i := range jobs {
		j := admission.NewJob(fmt.Sprint("t", i%7), "mail", "call", nil)
		j.ID, j.Downstream = fmt.Sprint("j", i), "api"
		jobs[i] = store.Candidate{Job: &j, Class: i % 3, Limits: limits}
	}
	_, _, err := f.store.ReportOutcomes(f.t.Context(), store.Reporter{Name: "w"}, []store.Outcomes{{Downstream: "api", Config: f.config, Report: breaker.Report{Sequence: 1}}})
	check(f.t, err)
	_, err = f.store.ForceBreaker(f.t.Context(), "api", breaker.Open, time.Second, store.Intervention{Reason: "test"})
	check(f.t, err)
	_, err = f.store.Admit(f.t.Context(), 0, jobs)
	check(f.t, err)
}

// hire registers a new worker.
func (f *fleet) hire() {
	f.numbered++
	name := fmt.Sprint("w", f.numbered)
	_, err := f.store.Register(f.t.Context(), name, yardPool, 1, fleetLease)
	check(f.t, err)
	f.live = append(f.live, name)
}

// advance moves the clock; workers that live renew their leases in time, and a scheduler runs what is due.
func (f *fleet) advance(by time.Duration) {
	f.now += by.Microseconds()
	f.store.conn.Now = strconv.FormatInt(f.now, 10)
	if time.Duration(f.now-f.beaten)*time.Microsecond > fleetLease/2 {
		f.beat()
	}
	for more := true; more; {
		p, err := f.store.Promote(f.t.Context(), "s", time.Second)
		check(f.t, err)
		more = p.More
	}
}

func (f *fleet) beat() {
	f.beaten = f.now
	for _, name := range f.live {
		_, err := f.store.Heartbeat(f.t.Context(), name, fleetLease, "")
		if !errors.Is(err, admission.ErrLeaseLost) {
			check(f.t, err)
		}
	}
}

func (f *fleet) step() {
	f.advance(time.Duration(rapid.IntRange(0, 900).Draw(f.rt, "ms")) * time.Millisecond)
	if rapid.Bool().Draw(f.rt, "guests first") {
		f.visit()
		f.read()
	} else {
		f.read()
		f.visit()
	}
	f.arrive()
	f.leave()
	f.relapse(f.assert())
	if len(f.held) == 0 {
		return
	}
	worker := rapid.SampledFrom(f.holders()).Draw(f.rt, "worker")
	lease := f.held[worker]
	switch fate := rapid.SampledFrom([]string{"pass", "pass", "fail", "refuse", "hang", "hang", "kill"}).Draw(f.rt, "fate"); fate {
	case "pass":
		f.report(lease.Period, breaker.Counts{Successes: 1})
		f.finish(worker, store.Finish{Outcome: store.Complete})
	case "fail":
		f.report(lease.Period, breaker.Counts{Failures: 1})
		f.finish(worker, store.Finish{Outcome: store.Release, Delay: 10 * time.Millisecond})
	case "refuse":
		f.finish(worker, store.Finish{Outcome: store.Release})
	case "kill":
		f.live = slices.DeleteFunc(f.live, func(name string) bool { return name == worker })
		delete(f.held, worker)
		f.hire()
	}
	f.assert()
}

// relapse opens a breaker that has closed, now and then.
func (f *fleet) relapse(state store.BreakerState) {
	if state.State == breaker.Closed && rapid.IntRange(0, 3).Draw(f.rt, "relapse") == 0 {
		_, err := f.store.ForceBreaker(f.t.Context(), "api", breaker.Open, time.Second, store.Intervention{Reason: "test"})
		check(f.t, err)
	}
}

// visit lets guests ask for probes, each twice at times.
func (f *fleet) visit() {
	for range rapid.IntRange(0, 2).Draw(f.rt, "guests") {
		f.numbered++
		call := fmt.Sprint("call", f.numbered)
		probe, word, _, err := f.store.BeginProbe(f.t.Context(), "api", call)
		check(f.t, err)
		if rapid.Bool().Draw(f.rt, "asks again") {
			again, _, _, err := f.store.BeginProbe(f.t.Context(), "api", call)
			check(f.t, err)
			if again != probe {
				f.rt.Fatalf("call %s may begin: %t, and asked again: %t", call, probe, again)
			}
		}
		if probe {
			if word.State != breaker.HalfOpen {
				f.rt.Fatalf("a probe of a breaker that is %s", word.State)
			}
			f.guests = append(f.guests, guest{call, word.Period})
		}
	}
}

// arrive lets a job come while guests may hold every probe.
func (f *fleet) arrive() {
	if rapid.IntRange(0, 3).Draw(f.rt, "arrives") > 0 {
		return
	}
	f.numbered++
	j := admission.NewJob("late", "mail", "call", nil)
	j.ID, j.Downstream = fmt.Sprint("late", f.numbered), "api"
	_, err := f.store.Admit(f.t.Context(), 0, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	check(f.t, err)
}

// leave decides about one guest. One that hangs, or was killed, is never heard of again.
func (f *fleet) leave() {
	if len(f.guests) == 0 {
		return
	}
	g := f.guests[0]
	f.guests = f.guests[1:]
	switch rapid.SampledFrom([]string{"pass", "pass", "fail", "ignore", "hang", "later"}).Draw(f.rt, "fate of a guest") {
	case "pass":
		f.report(g.period, breaker.Counts{Successes: 1})
	case "fail":
		f.report(g.period, breaker.Counts{Failures: 1})
	case "later":
		f.guests = append(f.guests, g)
		return
	case "hang":
		return
	}
	for range 2 { // a lost reply
		_, _, err := f.store.EndProbe(f.t.Context(), "api", g.call)
		check(f.t, err)
	}
}

func (f *fleet) holders() []string {
	var all []string
	for name := range f.held {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// read lets ten workers that have a slot free read.
func (f *fleet) read() {
	for range 10 {
		name := rapid.SampledFrom(f.live).Draw(f.rt, "reader")
		if _, busy := f.held[name]; busy {
			continue
		}
		leases, err := f.store.Read(f.t.Context(), name, yardPool.ID(), 1, -1, false)
		check(f.t, err)
		if len(leases) == 1 {
			f.held[name] = leases[0]
		}
	}
}

func (f *fleet) report(period uint64, counts breaker.Counts) {
	f.sequence++
	_, _, err := f.store.ReportOutcomes(f.t.Context(), store.Reporter{Name: "fleet"}, []store.Outcomes{{
		Downstream: "api", Config: f.config, Report: breaker.Report{Sequence: f.sequence, Period: period, Counts: counts, Streak: counts.Failures},
	}})
	check(f.t, err)
}

func (f *fleet) finish(worker string, finish store.Finish) {
	lease := f.held[worker]
	delete(f.held, worker)
	finish.Token, finish.Key = lease.Token, admission.Key{Tenant: lease.Job.Tenant, ID: lease.Job.ID}
	_, _, err := f.store.Finish(f.t.Context(), yardPool.ID(), worker, []store.Finish{finish})
	check(f.t, err)
}

// assert counts the probes by what stands in the ready stream.
func (f *fleet) assert() store.BreakerState {
	state, err := f.store.Breaker(f.t.Context(), "api")
	check(f.t, err)
	if state.State != breaker.HalfOpen {
		return state
	}
	entries, err := redisconn.Client(f.store.conn).XRange(f.t.Context(), f.store.conn.Partition.Ready(yardPool.ID()), "-", "+").Result()
	check(f.t, err)
	marks, err := redisconn.Client(f.store.conn).HGetAll(f.t.Context(), f.store.conn.Partition.Base()+"marks").Result()
	check(f.t, err)
	probes := 0
	for _, e := range entries {
		if jobs.PeriodOf(e) != state.Period {
			continue
		}
		probes++
		var period uint64
		var began int64
		key, _ := e.Values["j"].(string)
		if _, err := fmt.Sscanf(marks[key], "%d|%d|api", &period, &began); err != nil {
			f.rt.Fatalf("probe %s has the mark %q", key, marks[key])
		}
		if age := time.Duration(f.now-began) * time.Microsecond; age >= f.config.ProbeTimeout {
			f.rt.Fatalf("half-open still, and a probe began %s ago", age)
		}
	}
	own, err := redisconn.Client(f.store.conn).HGetAll(f.t.Context(), f.store.conn.Partition.Breaker("api")).Result()
	check(f.t, err)
	stale := 0
	for field, text := range own {
		if !strings.HasPrefix(field, "p:") {
			continue
		}
		var period uint64
		var began int64
		_, err := fmt.Sscanf(text, "%d|%d", &period, &began)
		check(f.t, err)
		if period != state.Period {
			stale++
			continue
		}
		probes++
		if age := time.Duration(f.now-began) * time.Microsecond; age >= f.config.ProbeTimeout {
			f.rt.Fatalf("half-open still, and the probe of a guest began %s ago", age)
		}
	}
	if stale > f.config.MaxProbes {
		f.rt.Fatalf("%d probes of periods that are over are kept, at most those of one may be", stale)
	}
	if probes > f.config.MaxProbes {
		f.rt.Fatalf("%d probes in flight, at most %d may be", probes, f.config.MaxProbes)
	}
	if probes < f.config.MaxProbes && state.Waiting > 0 {
		f.rt.Fatalf("law W: %d probes in flight of %d, and %d jobs wait", probes, f.config.MaxProbes, state.Waiting)
	}
	return state
}
