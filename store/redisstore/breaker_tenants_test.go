package redisstore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// desk is a breaker of a downstream on a Redis whose time the test says, and whoever reports to it.
type desk struct {
	t        *testing.T
	store    *Partition
	now      int64
	config   breaker.Config
	sequence uint64
}

func newDesk(t *testing.T, config breaker.Config) *desk {
	t.Helper()
	full, err := config.Complete()
	check(t, err)
	s, err := newStore(redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)}, "")
	check(t, err)
	d := &desk{t: t, store: s, now: time.Now().UnixMicro(), config: full}
	d.pass(0)
	return d
}

// pass lets time pass, and what is due happen.
func (d *desk) pass(by time.Duration) {
	d.t.Helper()
	d.now += by.Microseconds()
	d.store.conn.Now = strconv.FormatInt(d.now, 10)
	for more := true; more; {
		p, err := d.store.Promote(d.t.Context(), "s", time.Second)
		check(d.t, err)
		more = p.More
	}
}

func (d *desk) state() store.BreakerState {
	d.t.Helper()
	state, err := d.store.Breaker(d.t.Context(), "api")
	check(d.t, err)
	return state
}

// report tells what a worker counted of a tenant's calls in the present period, and more of it.
func (d *desk) report(worker, tenant string, c breaker.Counts, more ...func(*store.Outcomes)) store.BreakerWord {
	d.t.Helper()
	d.sequence++
	o := store.Outcomes{Downstream: "api", Config: d.config, Report: breaker.Report{Sequence: d.sequence, Counts: c, Streak: c.Failures}}
	if state, err := d.store.Breaker(d.t.Context(), "api"); err == nil {
		o.Period = state.Period
	}
	o.Tenants = []breaker.TenantCounts{{Tenant: breaker.TenantNumber(tenant), Counts: c, Streak: c.Failures}}
	for _, change := range more {
		change(&o)
	}
	words, _, err := d.store.ReportOutcomes(d.t.Context(), store.Reporter{Name: worker}, []store.Outcomes{o})
	check(d.t, err)
	return words[0]
}

// expect compares the state of the breaker, and its trips in a row.
func (d *desk) expect(what string, state breaker.State, inRow uint64) {
	d.t.Helper()
	if got := d.state(); got.State != state || got.TripsInRow != inRow {
		d.t.Errorf("%s: %s with %d trips in a row, want %s with %d", what, got.State, got.TripsInRow, state, inRow)
	}
}

// open lets two tenants' calls fail through two workers, and the cooldown pass.
func (d *desk) open() {
	d.t.Helper()
	d.report("w1", "acme", breaker.Counts{Failures: 5})
	d.report("w2", "globex", breaker.Counts{Failures: 5})
	d.expect("two tenants fail", breaker.Open, 1)
	d.pass(d.config.OpenMax)
	d.expect("the cooldown is over", breaker.HalfOpen, 1)
}

// TestOneTenantsProbes: of one tenant two must fail, and then the cooldown is as long as before; two tenants' open for twice as
// long, and while another's pass one has ten.
func TestOneTenantsProbes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{OpenBase: time.Second, OpenMax: time.Minute})
	failed, passed := breaker.Counts{Failures: 1}, breaker.Counts{Successes: 1}
	d.open()
	d.report("w1", "acme", failed)
	d.expect("one probe of acme failed", breaker.HalfOpen, 1)
	d.report("w2", "acme", failed)
	d.expect("two probes of acme failed", breaker.Open, 1)
	d.pass(time.Minute)
	d.report("w1", "acme", failed)
	d.expect("another one of acme failed in the next period", breaker.HalfOpen, 1)
	d.report("w1", "globex", failed)
	d.expect("one of globex too", breaker.Open, 2)
	d.pass(time.Minute)
	for range 4 {
		d.report("w1", "globex", passed)
		d.report("w1", "acme", failed)
		d.report("w2", "acme", failed)
	}
	d.expect("acme fails, and globex does not", breaker.HalfOpen, 2)
	d.report("w1", "globex", passed)
	if got := d.state(); got.State != breaker.Closed || got.Cause != breaker.CauseProbesPassed {
		t.Errorf("got %+v", got)
	}
}

// TestALoneTenantIsTold: a worker hears whose failures are not its own, and only if it has failures.
func TestALoneTenantIsTold(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{})
	d.report("w1", "acme", breaker.Counts{Successes: 9})
	d.report("w2", "globex", breaker.Counts{Successes: 9})
	if word := d.report("w1", "evil", breaker.Counts{Failures: 20}); len(word.Aside) != 1 || word.Aside[0] != breaker.TenantNumber("evil") || word.State != breaker.Closed {
		t.Errorf("got %+v", word)
	}
	if word := d.report("w2", "acme", breaker.Counts{Successes: 1}); len(word.Aside) != 0 {
		t.Errorf("got %+v", word)
	}
	if state := d.state(); state.Tenants != 3 || state.FailingTenants != 1 {
		t.Errorf("got %+v", state)
	}
	if word := d.report("w2", "globex", breaker.Counts{Failures: 1}); len(word.Aside) != 0 { // Its own calls are well but for this one.
		t.Errorf("got %+v", word)
	}
}

// TestTripsInARowAreForgotten once the breaker has been closed for ResetAfter, and not before.
func TestTripsInARowAreForgotten(t *testing.T) {
	t.Parallel()
	for closed, want := range map[time.Duration]uint64{time.Minute - time.Second: 2, time.Minute: 1} {
		d := newDesk(t, breaker.Config{OpenBase: time.Second, OpenMax: time.Second, ResetAfter: time.Minute})
		d.open()
		d.report("w1", "acme", breaker.Counts{Successes: 5})
		d.pass(closed)
		d.report("w1", "acme", breaker.Counts{Failures: 5})
		d.report("w2", "globex", breaker.Counts{Failures: 5})
		d.expect("closed for "+closed.String(), breaker.Open, want)
	}
}

// TestSlowProbesDoNotClose, even though they pass.
func TestSlowProbesDoNotClose(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{OpenBase: time.Second, OpenMax: time.Second})
	d.open()
	d.report("w1", "acme", breaker.Counts{Successes: 4, Slow: 4, SlowEnds: 4})
	if got := d.state(); got.State != breaker.Open || got.Cause != breaker.CauseProbesSlow {
		t.Errorf("got %s by %s", got.State, got.Cause)
	}
}

// TestReportersThatAreGoneAreForgotten, so that no breaker grows with each worker that ever was.
func TestReportersThatAreGoneAreForgotten(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{})
	for i := range 16 {
		d.report("old"+strconv.Itoa(i), "acme", breaker.Counts{Successes: 1})
	}
	d.pass(61 * time.Second)
	d.report("new", "acme", breaker.Counts{Successes: 1})
	fields, err := redisconn.Client(d.store.conn).HKeys(d.t.Context(), d.store.conn.Partition.Breaker("api")).Result()
	check(t, err)
	workers := 0
	for _, field := range fields {
		if strings.HasPrefix(field, "w:") {
			workers++
		}
	}
	if workers != 1 {
		t.Errorf("%d workers are known: %v", workers, fields)
	}
}

// TestAProbeOfAnEarlierPeriodGivesNothingBack: its unit is not of the present one.
func TestAProbeOfAnEarlierPeriodGivesNothingBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{OpenBase: time.Second, OpenMax: time.Second})
	probe := func(call string, want bool) {
		t.Helper()
		got, _, _, err := d.store.BeginProbe(t.Context(), "api", call)
		check(t, err)
		if got != want {
			t.Errorf("%s is a probe: %t", call, got)
		}
	}
	d.open()
	probe("early", true)
	d.report("w1", "acme", breaker.Counts{Failures: 1})
	d.report("w1", "globex", breaker.Counts{Failures: 1})
	d.pass(time.Second)
	d.expect("the next period", breaker.HalfOpen, 2)
	probe("late", true)
	_, _, err := d.store.EndProbe(t.Context(), "api", "early")
	check(t, err)
	probe("later", false)
	_, _, err = d.store.EndProbe(t.Context(), "api", "late")
	check(t, err)
	probe("later", true)
}

// TestTheQuietestBreakerMakesRoom: where there are as many as are kept, one that is closed goes for a new one, and none that is open.
func TestTheQuietestBreakerMakesRoom(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{})
	const most = 4096
	_, err := d.store.ForceBreaker(t.Context(), "open", breaker.Open, 0, store.Intervention{Reason: "test"})
	check(t, err)
	report := func(from, to int) (words []store.BreakerWord) {
		var reports []store.Outcomes
		for i := from; i < to; i++ {
			d.sequence++
			reports = append(reports, store.Outcomes{Downstream: "d" + strconv.Itoa(i), Config: d.config, Report: breaker.Report{Sequence: d.sequence, Counts: breaker.Counts{Successes: 1}}})
		}
		words, _, err := d.store.ReportOutcomes(t.Context(), store.Reporter{Name: "w"}, reports)
		check(t, err)
		return words
	}
	for from := 1; from < most; from += store.MaxReports - 1 {
		report(from, min(from+store.MaxReports-1, most))
	}
	d.pass(time.Second)
	for i := range 200 {
		if words := report(most+i, most+i+1); words[0].Full {
			t.Fatalf("there is no room for another, %d", i)
		}
	}
	n, err := redisconn.Client(d.store.conn).SCard(t.Context(), d.store.conn.Partition.Breakers()).Result()
	check(t, err)
	if n != most {
		t.Errorf("%d are known", n)
	}
	if state, err := d.store.Breaker(t.Context(), "open"); err != nil || state.State != breaker.Open {
		t.Errorf("got %+v, %v", state, err)
	}
	fresh := 0
	for i := range 200 {
		if _, err := d.store.Breaker(t.Context(), "d"+strconv.Itoa(most+i)); err == nil {
			fresh++
		}
	}
	if fresh < 190 { // Of 16 that are drawn the one that was quiet longest goes, so a fresh one goes only where all are.
		t.Errorf("%d of the last 200 are known", fresh)
	}
}

// TestATenantsBreakersMakeRoomForOthers: a tenant whose jobs name downstreams that are made up, and fail, opens as many breakers as there may
// be. They do not keep another tenant's downstream from having one, nor go on holding jobs, and no breaker of others goes for them.
func TestATenantsBreakersMakeRoomForOthers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{})
	const most, others = 4096, 40
	fail := func(tenant string, downstreams ...string) (words []store.BreakerWord) {
		for _, worker := range []string{"w", "v"} {
			for from := 0; from < len(downstreams); from += store.MaxReports {
				var reports []store.Outcomes
				for _, downstream := range downstreams[from:min(from+store.MaxReports, len(downstreams))] {
					d.sequence++
					c := breaker.Counts{Failures: 100}
					reports = append(reports, store.Outcomes{Downstream: downstream, Config: d.config, Report: breaker.Report{
						Sequence: d.sequence, Counts: c, Streak: c.Failures,
						Tenants: []breaker.TenantCounts{{Tenant: breaker.TenantNumber(tenant), Counts: c, Streak: c.Failures}},
					}})
				}
				some, _, err := d.store.ReportOutcomes(t.Context(), store.Reporter{Name: worker}, reports)
				check(t, err)
				words = append(words, some...)
			}
		}
		return words
	}
	names := func(of string, from, to int) (all []string) {
		for i := from; i < to; i++ {
			all = append(all, of+strconv.Itoa(i))
		}
		return all
	}
	for i, name := range names("own", 0, others) { // Each of another tenant.
		fail("t"+strconv.Itoa(i), name)
	}
	d.pass(time.Millisecond)
	fail("flood", names("f", 0, most-others)...)
	gates := func() int {
		n, err := redisconn.Client(d.store.conn).HLen(t.Context(), d.store.conn.Partition.Gates()).Result()
		check(t, err)
		return int(n)
	}
	if n := gates(); n != most {
		t.Fatalf("%d breakers are open, want %d", n, most)
	}
	for i, word := range fail("late", names("late", 0, 10)...) {
		if word.Full {
			t.Fatalf("there is no room for another tenant's breaker, %d", i)
		}
	}
	if n := gates(); n != most {
		t.Errorf("%d gates are there for %d breakers: what has gone for another still holds jobs", n, most)
	}
	for _, word := range fail("flood", names("more", 0, 200)...) {
		if word.Full {
			t.Fatal("a tenant's own breakers make no room for another of its own")
		}
	}
	for _, name := range append(names("own", 0, others), names("late", 0, 10)...) {
		if state, err := d.store.Breaker(t.Context(), name); err != nil || state.State != breaker.Open {
			t.Errorf("%s of another tenant: %+v, %v", name, state, err)
		}
	}
	n, err := redisconn.Client(d.store.conn).SCard(t.Context(), d.store.conn.Partition.Breakers()).Result()
	check(t, err)
	if n != most {
		t.Errorf("%d are known", n)
	}
}
