package admin_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// neverTrips are rules by which nothing opens a breaker, and nothing leaves its window while a test runs.
func neverTrips() breaker.Config {
	return breaker.Config{Window: time.Hour, MinCalls: 1_000_000, FailureThreshold: 1_000_000, OpenBase: time.Millisecond, ProbeTimeout: time.Hour}
}

// called makes a breaker of a downstream with rules, as a worker in Go does that has called it.
func (p *plant) called(downstream string, rules breaker.Config) {
	p.tb.Helper()
	rules, err := rules.Complete()
	must(p.tb, err)
	for _, part := range p.store.Partitions() {
		_, _, err = part.ReportOutcomes(p.tb.Context(), store.Reporter{Name: "go"}, []store.Outcomes{{Downstream: downstream, Config: rules, Report: breaker.Report{Sequence: 1}}})
		must(p.tb, err)
	}
}

// breakers returns a downstream's breaker in each partition.
func (p *plant) breakers(downstream string) []store.BreakerState {
	p.tb.Helper()
	var all []store.BreakerState
	for _, part := range p.store.Partitions() {
		state, err := part.Breaker(p.tb.Context(), downstream)
		must(p.tb, err)
		all = append(all, state)
	}
	return all
}

func (p *plant) breaker(downstream string) store.BreakerState {
	p.tb.Helper()
	state, err := p.store.Breaker(p.tb.Context(), downstream)
	must(p.tb, err)
	return state
}

// enqueueTo enqueues n jobs that call a downstream, of tenants of its name, into the queue "mail".
func (p *plant) enqueueTo(downstream string, n int) {
	p.tb.Helper()
	p.enqueueFrom("mail", downstream, 0, n)
}

// enqueueFrom enqueues those with the numbers from one to before another.
func (p *plant) enqueueFrom(queue, downstream string, from, to int) {
	p.tb.Helper()
	for i := from; i < to; i++ {
		body := fmt.Sprintf(`{"tenant":%q,"queue":%q,"type":"t","id":"j%d","downstream":%q}`, p.tenant(downstream, i), queue, i, downstream)
		p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: body})
	}
}

// serving is a session for a queue of its own.
func (p *plant) serving(queue string, slots int) *client {
	p.tb.Helper()
	body := fmt.Sprintf(`{"queues":[{"queue":%q}],"slots":%d,"lease":"5m"}`, queue, slots)
	name, _ := p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/workers", body: body}).object(p.tb)["worker"].(string)
	return &client{p, name}
}

// TestSessionsOpenABreaker: two sessions whose calls fail are a quorum, one is none; what is in the stream by then goes back
// unharmed, and others' jobs are handed out (law L10).
func TestSessionsOpenABreaker(t *testing.T) {
	t.Parallel()
	everywhere(t, openByTwo)
}

func openByTwo(t *testing.T, p *plant) {
	t.Helper()
	p.called("smtp", breaker.Config{Window: time.Hour})
	a, b := p.serving("mail", 24), p.serving("mail", 24)
	p.enqueueTo("smtp", 40)
	next := func(c *client) map[string]any {
		t.Helper()
		jobs := c.lease(`{"wait":"5s"}`)
		if len(jobs) != 1 {
			t.Fatalf("%d jobs, and the breaker is %s", len(jobs), p.breaker("smtp").State)
		}
		return jobs[0]
	}
	b.end(http.StatusOK, "complete", next(b), "")
	for i, more := range []string{`,"kind":"failure"`, `,"kind":"timeout"`, ``} {
		for range 4 {
			a.end(http.StatusOK, "fail", next(a), more+`,"delay":"1h"`)
		}
		b.end(http.StatusOK, "fail", next(b), `,"kind":"own","delay":"1h"`)
		b.end(http.StatusOK, []string{"release", "fail", "fail"}[i], next(b), []string{`,"delay":"1h"`, `,"discard":true`, `,"kind":"own","discard":true`}[i])
	}
	for _, got := range p.breakers("smtp") {
		if want := (breaker.Counts{Successes: 1, Failures: 12}); got.State != breaker.Closed || got.Window != want || len(got.Callers) != 2 || len(got.Voters) != 1 {
			t.Fatalf("one session alone: %s, %+v of %v, votes of %v", got.State, got.Window, got.Callers, got.Voters)
		}
	}
	b.end(http.StatusOK, "fail", next(b), `,"delay":"1h"`)
	for _, got := range p.breakers("smtp") {
		if got.State != breaker.Open || got.Cause != breaker.CauseFailureStreak && got.Cause != breaker.CauseFailureRate {
			t.Fatalf("two sessions: %s by %s, %+v", got.State, got.Cause, got.Window)
		}
	}
	answer := p.want(http.StatusOK, "operator", a.ask("leases", `{"max":16}`))
	if jobs := answer.jobs(t); len(jobs) != 0 || answer.header.Get("Retry-After") != "1" {
		t.Errorf("an open downstream's: %v, ask again after %q", jobs, answer.header.Get("Retry-After"))
	}
	p.enqueueTo("ftp", 1)
	for end := time.Now().Add(time.Minute); ; { // Those in the stream before it go back, a page a call.
		jobs := a.lease(`{"max":16,"wait":"200ms"}`)
		if len(jobs) == 1 && jobs[0]["downstream"] == "ftp" {
			break
		}
		if len(jobs) > 0 || time.Now().After(end) {
			t.Fatalf("instead of another downstream's: %v", jobs)
		}
	}
	sight, err := p.store.Look(t.Context(), admission.Key{Tenant: p.tenant("smtp", 39), ID: "j39"})
	if err != nil || sight.Record.Attempts != 0 || sight.Place == store.PlaceRunning {
		t.Errorf("%+v, %v", sight, err)
	}
}

// TestCallsAreJudgedByTheRulesOfTheirDownstream: what a slow call is the server's configuration says, as a worker's own does, and
// its rules are those of a breaker that no worker in Go has reported to.
func TestCallsAreJudgedByTheRulesOfTheirDownstream(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) {
		c.Breaker, c.Breakers = neverTrips(), map[string]breaker.Config{"reports": neverTrips(), "fragile": {FailureThreshold: 1}}
		c.Breaker.SlowCallDuration = 2 * time.Second
		reports := c.Breakers["reports"]
		reports.SlowCallDuration = time.Minute
		c.Breakers["reports"] = reports
	})
	c := p.serving("mail", 8)
	for downstream, slow := range map[string]map[string]uint64{
		"smtp": {`,"ran":"1.9s"`: 0, `,"ran":"2s"`: 1}, "reports": {`,"ran":"59s"`: 0, `,"ran":"60s"`: 1, "": 0},
	} {
		p.enqueueTo(downstream, len(slow))
		var want breaker.Counts
		for more, n := range slow {
			for _, job := range c.lease(`{"wait":"5s"}`) {
				c.end(http.StatusOK, "complete", job, more)
				want.Successes, want.Slow, want.SlowEnds = want.Successes+1, want.Slow+n, want.SlowEnds+n
			}
		}
		if got := p.breaker(downstream).Window; got != want || int(got.Successes) != len(slow) {
			t.Errorf("%s: %+v, want %+v of %d calls", downstream, got, want, len(slow))
		}
	}
	p.enqueueTo("fragile", 1)
	for _, job := range c.lease(`{"wait":"5s"}`) {
		c.end(http.StatusOK, "fail", job, "")
	}
	if got := p.breaker("fragile"); got.State != breaker.Open {
		t.Errorf("one failure leaves the breaker %s, its threshold is one", got.State)
	}
}

// TestACallCountsOnce: however often and by how many at once the end of a job is sent, its call is in the window once; rules
// that workers in Go have reported stay.
func TestACallCountsOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, countOnce)
}

func countOnce(t *testing.T, p *plant) {
	t.Helper()
	p.called("smtp", neverTrips())
	const jobs, sessions, senders = 30, 3, 3
	p.enqueueTo("smtp", jobs)
	var mu sync.Mutex
	var want breaker.Counts
	var all sync.WaitGroup
	for range sessions {
		c := p.serving("mail", jobs/sessions)
		all.Go(func() {
			for done := 0; done < jobs/sessions; {
				for _, job := range c.lease(fmt.Sprintf(`{"max":%d,"wait":"1s"}`, min(4, jobs/sessions-done))) {
					done++
					what, counts := "complete", breaker.Counts{Successes: 1}
					if done%3 == 0 {
						what, counts = "fail", breaker.Counts{Failures: 1}
					}
					more := map[string]string{"complete": `,"ran":"31s"`, "fail": `,"delay":"1h"`}[what]
					if what == "complete" {
						counts.Slow, counts.SlowEnds = 1, 1
					}
					var ended sync.WaitGroup
					answers := make([]int, senders)
					for i := range answers {
						body := fmt.Sprintf(`{"tenant":%q,"id":%q,"token":%q%s}`, job["tenant"], job["id"], job["token"], more)
						ended.Go(func() { answers[i] = p.call("operator", c.ask(what, body)).status })
					}
					ended.Wait()
					slices.Sort(answers)
					if !slices.Equal(answers, []int{http.StatusOK, http.StatusConflict, http.StatusConflict}) {
						t.Errorf("%s of %s: %v", what, job["id"], answers)
					}
					mu.Lock()
					want.Successes, want.Failures = want.Successes+counts.Successes, want.Failures+counts.Failures
					want.Slow, want.SlowEnds = want.Slow+counts.Slow, want.SlowEnds+counts.SlowEnds
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for _, got := range p.breakers("smtp") {
		if got.Window != want || len(got.Callers) != sessions {
			t.Errorf("%+v of %d callers, want %+v of %d", got.Window, len(got.Callers), want, sessions)
		}
	}
}

// trial is a half-open breaker and the sessions that call its downstream.
type trial struct {
	*plant

	rt                *rapid.T
	queue, downstream string
	probes            int
	sessions          []*client
	held              []probe
	ended             []probe
}

// probe is a job that was handed out while a period of the breaker lasted.
type probe struct {
	by     *client
	job    map[string]any
	part   int
	period uint64
}

// TestProbesOverHTTPStayWithinTheirLimit asserts L11 over HTTP: whatever clients do with probes, no more than the limit are
// handed out at a time in a period, over all partitions, a probe's failure burns no attempt, and an end that is sent again changes nothing.
func TestProbesOverHTTPStayWithinTheirLimit(t *testing.T) {
	t.Parallel()
	plants, round := []*plant{newPlantOf(t, 1), newPlantOf(t, 3)}, 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		p := rapid.SampledFrom(plants).Draw(rt, "plant")
		y := &trial{plant: p, rt: rt, queue: fmt.Sprint("q", round), downstream: fmt.Sprint("d", round), probes: rapid.IntRange(1, 3).Draw(rt, "probes")}
		rules := neverTrips()
		rules.MaxProbes, rules.SuccessThreshold = y.probes, rapid.IntRange(2, 4).Draw(rt, "successes")
		p.called(y.downstream, rules)
		for range 2 {
			y.sessions = append(y.sessions, p.serving(y.queue, 4))
		}
		early := rapid.IntRange(0, 3).Draw(rt, "early") // They are in the stream when it opens, and no probes.
		p.enqueueFrom(y.queue, y.downstream, 0, early)
		_, err := p.store.ForceBreaker(t.Context(), y.downstream, breaker.Open, time.Millisecond, store.Intervention{Reason: "a test"})
		must(t, err)
		p.enqueueFrom(y.queue, y.downstream, early, early+5)
		for range rapid.IntRange(4, 12).Draw(rt, "steps") {
			y.step()
		}
		for _, c := range y.sessions {
			c.leave()
		}
	})
}

func (y *trial) step() {
	c := rapid.SampledFrom(y.sessions).Draw(y.rt, "session")
	switch what := rapid.SampledFrom([]string{"lease", "lease", "complete", "fail", "release", "again"}).Draw(y.rt, "what"); {
	case what == "lease":
		y.lease(c)
	case what == "again" && len(y.ended) > 0:
		y.again()
	case what != "again" && len(y.held) > 0:
		y.end(what)
	}
}

// partOf returns the partition of a job.
func (y *trial) partOf(job map[string]any) int { return y.store.PartitionOf(fmt.Sprint(job["tenant"])) }

func (y *trial) lease(c *client) {
	before := y.breakers(y.downstream)
	jobs := c.lease(`{"max":4}`)
	after := y.breakers(y.downstream)
	for _, job := range jobs {
		part := y.partOf(job)
		if before[part].State == breaker.Open && before[part].Period == after[part].Period {
			y.rt.Fatalf("handed out while it is open: %v", job)
		}
		y.held = append(y.held, probe{c, job, part, after[part].Period})
	}
	n := 0
	for _, one := range y.held {
		if after[one.part].State == breaker.HalfOpen && one.period == after[one.part].Period {
			n++
		}
	}
	if n > y.probes {
		y.rt.Fatalf("%d probes at a time, allowed are %d", n, y.probes)
	}
}

func (y *trial) end(what string) {
	i := rapid.IntRange(0, len(y.held)-1).Draw(y.rt, "which")
	one := y.held[i]
	y.held, y.ended = slices.Delete(y.held, i, i+1), append(y.ended, one)
	state := y.breakers(y.downstream)[one.part]
	one.by.end(http.StatusOK, what, one.job, "")
	if what != "fail" || state.State != breaker.HalfOpen || state.Period != one.period {
		return
	}
	if now := y.breakers(y.downstream)[one.part]; now.Trips != state.Trips+1 {
		y.rt.Fatalf("a probe failed, and the breaker is %s with %d trips after %d", now.State, now.Trips, state.Trips)
	}
	sight, err := y.store.Look(y.tb.Context(), admission.Key{Tenant: fmt.Sprint(one.job["tenant"]), ID: fmt.Sprint(one.job["id"])})
	if err != nil || sight.Record.Attempts != 0 || sight.History[len(sight.History)-1].Outcome != "released" {
		y.rt.Fatalf("a probe that failed: %+v, %v", sight, err)
	}
}

// again sends the end of a job once more, by whoever held it or by another.
func (y *trial) again() {
	one := rapid.SampledFrom(y.ended).Draw(y.rt, "ended")
	before := y.breakers(y.downstream)
	by := rapid.SampledFrom(y.sessions).Draw(y.rt, "by")
	by.end(http.StatusConflict, rapid.SampledFrom([]string{"complete", "fail", "release"}).Draw(y.rt, "end"), one.job, "")
	for part, after := range y.breakers(y.downstream) {
		if was := before[part]; after.Trips != was.Trips || after.Period == was.Period && after.ProbesPassed != was.ProbesPassed {
			y.rt.Fatalf("sent again: %+v, before %+v", after, was)
		}
	}
}
