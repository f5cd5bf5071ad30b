package redisstore

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// TestAClockThatIsSetBackStopsNothing: rates go by a clock that never goes back, and fills and wakes that ran out of moves are to go on at
// once. Their timers once stood by the old clock, and waited until that time came again.
func TestAClockThatIsSetBackStopsNothing(t *testing.T) {
	t.Parallel()
	const plain, parked, rated = 100, 100, 3
	y := newYard(t)
	start := ahead()
	at := func(after time.Duration) { y.store.conn.Now = strconv.FormatInt(start+after.Microseconds(), 10) }
	at(0)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: 30 * time.Second,
		Caps: []store.Cap{{Gate: store.DownstreamRateGate("slow"), Rate: admission.Limit{Tokens: 1, Per: time.Second, Burst: 1}}},
	}))
	_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.DownstreamGate("api"), Limit: 0, By: store.Intervention{Reason: t.Name()}})
	check(t, err)
	var all []admission.Job
	for downstream, n := range map[string]int{"": plain, "api": parked, "slow": rated} {
		for i := range n {
			j := mail(fmt.Sprint("tenant-", i), downstream+"job")
			j.Downstream = downstream
			all = append(all, j)
		}
	}
	y.admitAt(1, all...)
	more, err := y.store.Register(t.Context(), "w1", yardPool, len(all), 24*time.Hour)
	check(t, err)
	at(-time.Hour)
	y.promoteAll()
	if ready := y.ready(); !more || ready != plain+1 {
		t.Errorf("%d jobs are ready when the clock was set back while a pool is filled, want %d; more %t", ready, plain+1, more)
	}
	_, more, err = y.store.SetGate(t.Context(), store.Gate{Name: store.DownstreamGate("api"), Limit: parked})
	check(t, err)
	at(-2 * time.Hour)
	y.promoteAll()
	if ready := y.ready(); !more || ready != plain+parked+1 {
		t.Errorf("%d jobs are ready when it was set back while waiters wake, want %d; more %t", ready, plain+parked+1, more)
	}
	for second := range rated - 1 {
		at(-2*time.Hour + time.Duration(second+1)*time.Second)
		y.promoteAll()
		if ready, want := y.ready(), plain+parked+2+second; ready != want {
			t.Errorf("%d jobs are ready %d s later, want %d: a token a second", ready, second+1, want)
		}
	}
}

// TestSpilledJobsAndBreakersGoOnWhenTheClockIsSetBack: the timers of both stand by the clock that Redis had.
func TestSpilledJobsAndBreakersGoOnWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	const room, aside = 10, 100
	y := newYard(t)
	start := ahead()
	at := func(after time.Duration) { y.store.conn.Now = strconv.FormatInt(start+after.Microseconds(), 10) }
	bound := func(version int64, jobs int) {
		check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Expected: version - 1, Version: version, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
			Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour,
			Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: jobs, MaxSpilled: aside, LowWater: 100},
		}}}))
	}
	at(0)
	bound(1, room)
	jobs := make([]admission.Job, room+aside)
	for i := range jobs {
		jobs[i] = mail("acme", fmt.Sprint("job-", i))
	}
	y.admitAt(1, jobs...)
	_, err := y.store.ForceBreaker(t.Context(), "api", breaker.Open, time.Minute, store.Intervention{Reason: "to try"})
	check(t, err)
	bound(2, room+aside)
	at(time.Second)
	_, _, err = y.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: "job-0"}, store.Intervention{}) // It makes room, for more than its moves.
	check(t, err)
	if census, err := y.store.Census(t.Context()); err != nil || census.Spilled == 0 || census.Spilled == aside {
		t.Fatalf("%+v, %v", census, err)
	}
	at(-time.Hour)
	y.promoteAll()
	if census, err := y.store.Census(t.Context()); err != nil || census.Spilled != 0 {
		t.Errorf("%d jobs are still aside, %v", census.Spilled, err)
	}
	at(-time.Hour + 2*time.Minute)
	y.promoteAll()
	if state, err := y.store.Breaker(t.Context(), "api"); err != nil || state.State == breaker.Open {
		t.Errorf("the breaker is %s, %v", state.State, err)
	}
}

func (y *yard) ready() int {
	y.tb.Helper()
	census, err := y.store.Census(y.tb.Context())
	check(y.tb, err)
	return int(census.Ready)
}

// TestBucketsFillAfterTheClockIsSetBack, though everybody is refused and nothing else has the clocks go on.
func TestBucketsFillAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	question := ofTenant("acme", 1)
	question.Limits[admission.LevelTenant] = admission.PerSecond(1).WithBurst(1)
	for name, ask := range map[string]func(s *Partition, n int) (admitted bool, err error){
		"check": func(s *Partition, _ int) (bool, error) {
			granted, _, err := s.Check(t.Context(), 0, false, []store.Question{question})
			return granted, err
		},
		"grant": func(s *Partition, _ int) (bool, error) {
			granted, err := s.Grant(t.Context(), &store.Grant{Member: "one", Questions: []store.Question{question}})
			return err == nil && granted.Verdicts[0].Decision == admission.Admitted, err
		},
		"reserve": func(s *Partition, n int) (bool, error) {
			answer, _, err := s.Reserve(t.Context(), 0, strconv.Itoa(n), time.Minute, question)
			return answer.Verdict.Decision == admission.Admitted, err
		},
		"admit": func(s *Partition, n int) (bool, error) {
			job := mail("acme", strconv.Itoa(n))
			verdicts, err := s.Admit(t.Context(), 0, []store.Candidate{{Job: &job, Class: 1, Limits: &question.Limits}})
			return err == nil && verdicts[0].Decision == admission.Admitted, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now, n := newYard(t).store, ahead(), 0
			at := func(later time.Duration) bool {
				now, n = now+later.Microseconds(), n+1
				s.conn.Now = strconv.FormatInt(now, 10)
				admitted, err := ask(s, n)
				check(t, err)
				return admitted
			}
			got := []bool{at(0), at(100 * time.Millisecond), at(-30 * time.Minute), at(500 * time.Millisecond), at(500 * time.Millisecond)}
			if want := []bool{true, false, false, false, true}; !slices.Equal(got, want) {
				t.Errorf("admitted %v, want %v", got, want)
			}
		})
	}
}

// TestWakesGoOnWhenTheClockIsSetBack: tenants have a cap each, which nobody keeps while nothing counts against it, and moves run out before all who wait
// for theirs are awake.
func TestWakesGoOnWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	const tenants = store.MaxBatchJobs
	y := newYard(t)
	start := ahead()
	y.store.conn.Now = strconv.FormatInt(start, 10)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: 30 * time.Second, Caps: []store.Cap{{Gate: store.TenantGate(store.Every), Limit: 1}},
	}))
	y.register(3 * tenants)
	for class := range 3 { // One runs, and two lines of each tenant wait.
		candidates := make([]store.Candidate, tenants)
		for i := range candidates {
			job := mail(fmt.Sprint("tenant-", i), fmt.Sprint("job-", class))
			candidates[i] = store.Candidate{Job: &job, Class: class, Limits: &[admission.Levels]admission.Limit{}}
		}
		_, err := y.store.Admit(t.Context(), 1, candidates)
		check(t, err)
		y.promoteAll()
	}
	leases, err := y.store.Read(t.Context(), "w1", yardPool.ID(), tenants, -1, false)
	check(t, err)
	ends := make([]store.Finish, len(leases))
	for i, l := range leases {
		ends[i] = store.Finish{Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: store.Complete}
	}
	_, more, err := y.store.Finish(t.Context(), yardPool.ID(), "w1", ends)
	check(t, err)
	y.store.conn.Now = strconv.FormatInt(start-time.Hour.Microseconds(), 10)
	y.promoteAll()
	if ready := y.ready(); len(leases) != tenants || !more || ready != tenants {
		t.Errorf("%d jobs run of %d tenants that have others waiting, after %d that ended; more %t", ready, tenants, len(leases), more)
	}
}
