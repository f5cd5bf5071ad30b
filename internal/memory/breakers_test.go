package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// quick are rules that few calls meet.
func quick() breaker.Config {
	c, _ := breaker.Config{
		Window: 2 * time.Second, Buckets: 4, MinCalls: 3, FailureThreshold: 4, SuccessThreshold: 2, MaxProbes: 2,
		ProbeTimeout: time.Second, OpenBase: 500 * time.Millisecond, OpenMax: 8 * time.Second, ResetAfter: 20 * time.Second,
	}.Complete()
	return c
}

// outcomes are those of calls of smtp in a period, of no tenant.
func outcomes(sequence, period, ok, failed uint64) store.Outcomes {
	o := store.Outcomes{Downstream: "smtp", Config: quick(), Ran: time.Duration(ok+failed)*time.Millisecond + 300}
	o.Sequence, o.Period, o.Successes, o.Failures, o.Streak = sequence, period, ok, failed, failed
	if failed > 0 {
		o.Errors = []store.CallError{{Text: fmt.Sprintf("dial %d: refused\tby peer", sequence), Count: int64(failed)}}
	}
	return o
}

// report lets a worker report, and returns the state of the first one's breaker after it.
func (p *pair) report(from store.Reporter, reports ...store.Outcomes) (first store.BreakerWord) {
	p.tb.Helper()
	said := p.same("report of "+from.Name, func(s store.Partition) any { return replied(s.ReportOutcomes(p.ctx, from, reports)) })
	if words, _ := said.(reply).Values[0].([]store.BreakerWord); len(words) > 0 {
		first = words[0]
	}
	return first
}

// breakers compares all that is seen of breakers, and what they did to the gates, the timers and the audit. How long a state lasts
// still is told by the clock of Redis.
func (p *pair) breakers(downstreams ...string) (seen []store.BreakerState) {
	p.tb.Helper()
	whole := func(all []store.BreakerState) []store.BreakerState {
		for i := range all {
			all[i].For = min(all[i].For, 0)
		}
		return all
	}
	all := p.same("breakers", func(s store.Partition) any {
		states, err := s.Breakers(p.ctx)
		return replied(whole(states), err)
	})
	for _, downstream := range downstreams {
		p.same("breaker of "+downstream, func(s store.Partition) any {
			state, err := s.Breaker(p.ctx, downstream)
			return replied(whole([]store.BreakerState{state}), err)
		})
	}
	p.same("gates", func(s store.Partition) any { return replied(s.Gates(p.ctx)) })
	p.same("audit", func(s store.Partition) any {
		page, err := s.Audit(p.ctx, store.AuditQuery{})
		return replied(page.Entries, err)
	})
	seen, _ = all.(reply).Values[0].([]store.BreakerState)
	return seen
}

// transitions compares the events.
func (p *pair) transitions() (events []store.BreakerEvent) {
	p.tb.Helper()
	all := p.same("events", func(s store.Partition) any {
		told, position, err := s.BreakerEvents(p.ctx, "0-0", -1)
		if len(told) > 0 && told[len(told)-1].ID != position {
			p.tb.Fatalf("the last event is %s, and the position %s", told[len(told)-1].ID, position)
		}
		for i := range told {
			told[i].ID = ""
		}
		return replied(told, err)
	})
	events, _ = all.(reply).Values[0].([]store.BreakerEvent)
	return events
}

// promote runs what is due.
func (p *pair) promote() store.Promotion {
	p.tb.Helper()
	said := p.same("promote", func(s store.Partition) any {
		return replied(s.PromoteAfter(p.ctx, store.LeapStep, "s", time.Second))
	}).(reply)
	done, _ := said.Values[0].(store.Promotion)
	return done
}

func (p *pair) probe(begin bool, downstream, call string) (probe bool) {
	p.tb.Helper()
	if !begin {
		p.same("end probe "+call, func(s store.Partition) any { return replied(s.EndProbe(p.ctx, downstream, call)) })
		return false
	}
	said := p.same("begin probe "+call, func(s store.Partition) any { return replied(s.BeginProbe(p.ctx, downstream, call)) })
	probe, _ = said.(reply).Values[0].(bool)
	return probe
}

func (p *pair) force(downstream string, to breaker.State, length time.Duration, by store.Intervention) {
	p.tb.Helper()
	p.same("force "+downstream, func(s store.Partition) any { return replied(s.ForceBreaker(p.ctx, downstream, to, length, by)) })
}

func (p *pair) reset(downstream string, by store.Intervention) {
	p.tb.Helper()
	p.same("reset "+downstream, func(s store.Partition) any { return replied(s.ResetBreaker(p.ctx, downstream, by)) })
}

// TestABreakerLives opens one by two workers' reports, and lets probes of guests and of jobs close it again.
func TestABreakerLives(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.breakers("smtp")
	p.register("w1", mailPool, 3)
	p.register("w2", mailPool, 1)
	for i := range 6 {
		j := mail("acme", fmt.Sprint("j", i))
		j.Downstream = "smtp"
		p.admit(j)
	}
	w1, w2 := store.Reporter{Name: "w1"}, store.Reporter{Name: "w2"}
	period := p.report(w1, outcomes(1, 0, 2, 1)).Period
	p.report(w1, outcomes(1, 0, 2, 1)) // It came twice.
	other := outcomes(2, period, 1, 0)
	other.Config.FailureRate = 0.25
	if word := p.report(w2, other); !word.Differs {
		t.Errorf("%+v", word)
	}
	if seen := p.breakers("smtp", "none")[0]; seen.Life.Calls != 4 || seen.Rules.Differs == nil || len(seen.Errors) != 1 || seen.Waiting != 2 {
		t.Errorf("%+v", seen)
	}
	p.report(w2, outcomes(3, period, 0, 5))
	if word := p.report(w1, outcomes(2, period, 0, 6)); word.State != breaker.Open {
		t.Fatalf("%+v", word)
	}
	p.report(w1, outcomes(3, period, 9, 0)) // It is late.
	if seen := p.breakers("smtp")[0]; len(seen.Voters) != 2 || seen.Limit != 0 || len(seen.Errors) != 1 || seen.Errors[0].Count != 12 {
		t.Errorf("%+v", seen)
	}
	if p.probe(true, "smtp", "early") || p.probe(true, "none", "c") {
		t.Error("a probe of a breaker that is not half-open")
	}
	p.move(time.Second)
	if !p.probe(true, "smtp", "c1") || !p.probe(true, "smtp", "c1") || !p.probe(true, "smtp", "c2") || p.probe(true, "smtp", "c3") { //nolint:staticcheck // SA4000: c1 asks twice.
		t.Error("not so many probes as the rules allow")
	}
	p.finish("w1", mailPool, p.take("w1", mailPool, 4), store.Finish{Outcome: store.Complete})
	p.breakers("smtp")
	p.move(100 * time.Millisecond)
	p.probe(false, "smtp", "c2") // A job goes to smtp in its place.
	p.probe(false, "smtp", "c2")
	if seen := p.breakers()[0]; seen.State != breaker.HalfOpen || seen.Waiting != 1 || p.probe(true, "smtp", "c4") {
		t.Errorf("%+v", seen)
	}
	p.move(900 * time.Millisecond)
	p.promote() // Nobody said how c1 ended.
	if seen := p.breakers()[0]; seen.Cause != breaker.CauseProbeTimeout || seen.TripsInRow != 2 {
		t.Errorf("%+v", seen)
	}
	p.probe(false, "smtp", "c1")
	p.move(2 * time.Second)
	p.promote()
	period = p.breakers()[0].Period
	p.report(w1, outcomes(4, period, 2, 0))
	if seen := p.breakers()[0]; seen.State != breaker.Closed || seen.Ramp != 1 || seen.Limit != 4 {
		t.Errorf("%+v", seen)
	}
	for range 8 {
		p.move(time.Second)
		p.promote()
		p.breakers()
	}
	p.move(time.Hour)
	p.promote()
	p.move(24 * time.Hour)
	p.promote()
	if seen := p.breakers("smtp"); len(seen) != 0 || len(p.transitions()) != 5 {
		t.Errorf("%+v", seen)
	}
}

// TestTheTimerOfABreakerThatIsGoneStays where it was when the clock steps: a probe has found that nobody was heard of for a day.
func TestTheTimerOfABreakerThatIsGoneStays(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.report(store.Reporter{Name: "w1"}, outcomes(1, 0, 1, 0))
	p.move(breaker.Quiet + time.Second)
	p.probe(true, "smtp", "c1")
	if seen := p.breakers("smtp"); len(seen) != 0 {
		t.Fatalf("%+v", seen)
	}
	p.move(-10 * time.Second)
	if done := p.promote(); !done.Stepped || done.Next != 9*time.Second {
		t.Errorf("%+v", done)
	}
}

// TestOperatorsForceBreakers also compares what is refused.
func TestOperatorsForceBreakers(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.register("w1", mailPool, 1)
	by := store.Intervention{Author: "ada", Reason: "it is down"}
	p.reset("smtp", by)
	p.breakers("smtp")
	p.force("smtp", breaker.Open, time.Minute, by)
	j := mail("acme", "j")
	j.Downstream = "smtp"
	p.admit(j)
	p.breakers("smtp")
	p.sights(key("j"))
	p.move(30 * time.Second)
	p.force("smtp", breaker.Closed, 0, store.Intervention{Own: true})
	if word := p.report(store.Reporter{Name: "g", Guest: true}, outcomes(0, 0, 0, 9)); !word.Forced || word.State != breaker.Closed {
		t.Errorf("%+v", word)
	}
	p.force("smtp", breaker.Closed, time.Second+300, by)
	p.breakers("smtp")
	p.move(time.Second)
	p.promote()
	p.force("smtp", breaker.Open, 0, by)
	p.breakers("smtp")
	p.reset("smtp", by)
	if seen := p.breakers("smtp")[0]; seen.Ramp != 1 || seen.Reason != by.Reason {
		t.Errorf("%+v", seen)
	}
	for _, bad := range []store.Intervention{{Author: "a\nb"}, {Reason: strings.Repeat("a", 5000)}} {
		p.force("smtp", breaker.Open, 0, bad)
		p.reset("smtp", bad)
	}
	p.force("", breaker.HalfOpen, time.Nanosecond, by)
	p.force("smtp", breaker.Open, store.MaxForce+1, by)
	p.reset("", by)
	p.report(store.Reporter{Name: "w"}, make([]store.Outcomes, store.MaxReports+1)...)
	p.probe(true, "smtp", "")
	p.probe(false, "smtp", strings.Repeat("c", 300))
	p.breakers("smtp")
	if n := len(p.transitions()); n != 6 {
		t.Errorf("%d transitions", n)
	}
}

// TestTooManyBreakers fills all places. Of those of which nothing is going on Redis forgets one of some, and memory that of which nothing
// was heard for longest.
func TestTooManyBreakers(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const most = 4096
	for at := range most / store.MaxReports {
		var reports []store.Outcomes
		for i := range store.MaxReports {
			o := outcomes(1, 0, 1, 0)
			o.Downstream = fmt.Sprint("d", at*store.MaxReports+i)
			reports = append(reports, o)
		}
		p.report(store.Reporter{Name: "w"}, reports...)
		p.move(time.Second)
	}
	full := func(want bool) {
		t.Helper()
		other := outcomes(2, 0, 1, 0)
		other.Downstream = "db"
		if word := p.report(store.Reporter{Name: "w"}, outcomes(2, 0, 1, 0), other); word.Full != want {
			t.Errorf("%+v", word)
		}
	}
	full(false)
	for _, s := range []store.Partition{p.redis, p.memory} {
		all, err := s.Breakers(p.ctx)
		check(t, err)
		if len(all) != most {
			t.Errorf("%d breakers", len(all))
		}
		for _, one := range all {
			_, err := s.ForceBreaker(p.ctx, one.Downstream, breaker.Open, 0, store.Intervention{})
			check(t, err)
		}
		_, err = s.ForceBreaker(p.ctx, "fax", breaker.Open, 0, store.Intervention{})
		if err == nil || !strings.Contains(err.Error(), "too many downstreams") {
			t.Error(err)
		}
	}
	p.same("known", func(s store.Partition) any {
		_, err := s.Breaker(p.ctx, "db")
		return replied(err)
	})
	if _, err := p.memory.Breaker(p.ctx, "d0"); !errors.Is(err, store.ErrNoBreaker) {
		t.Error(err)
	}
	p.reset("fax", store.Intervention{})
	p.probe(true, "fax", "c")
}

// TestCallErrorsAreMerged reports more kinds of errors than are kept.
func TestCallErrorsAreMerged(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for i, texts := range [][]string{
		{"a 1", "b", "c", "d", "e 5"}, {"f", "e 77", "e 8", "x\x00\ny", "g", "h"}, {"#3", "3"}, {""}, {strings.Repeat("é", 150)},
	} {
		p.move(time.Second)
		o := outcomes(uint64(i+1), 0, 1, 1)
		o.Errors = nil
		for n, text := range texts {
			o.Errors = append(o.Errors, store.CallError{Text: text, Count: int64(n - 1)})
		}
		p.report(store.Reporter{Name: "w"}, o, o)
		if seen := p.breakers("smtp")[0]; len(seen.Errors) == 0 {
			t.Errorf("%+v", seen)
		}
	}
}

// TestEventsAreFollowed waits for transitions.
func TestEventsAreFollowed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.same("followed", func(s store.Partition) any { return replied(s.EventsFollowed(p.ctx, "f")) })
	p.same("the place of nothing", func(s store.Partition) any { return replied(s.BreakerEvents(p.ctx, "", time.Hour)) })
	p.force("smtp", breaker.Open, 0, store.Intervention{Reason: "down"})
	p.each(func(s store.Partition) error {
		r := s.NewEventReader()
		defer r.Close()
		_, position, err := r.Read(p.ctx, "", time.Hour)
		check(t, err)
		check(t, s.NoteEventsFollowed(p.ctx, "f", position))
		if got, err := s.EventsFollowed(p.ctx, "f"); got != position || err != nil {
			t.Errorf("followed to %s, not %s: %v", got, position, err)
		}
		if events, at, err := r.Read(p.ctx, position, time.Millisecond); len(events) != 0 || at != position || err != nil {
			t.Errorf("after the last: %+v to %s: %v", events, at, err)
		}
		ending, cancel := context.WithCancel(p.ctx)
		time.AfterFunc(5*time.Millisecond, cancel)
		if events, _, err := r.Read(ending, position, time.Minute); len(events) != 0 || err != nil {
			t.Errorf("after the end: %+v: %v", events, err)
		}
		failed := make(chan error, 1)
		go func() {
			events, at, err := r.Read(p.ctx, position, time.Minute)
			if err == nil && (len(events) != 1 || at != events[0].ID || events[0].To != breaker.Closed) {
				err = fmt.Errorf("waited for %+v to %s", events, at)
			}
			failed <- err
		}()
		_, err = s.ResetBreaker(p.ctx, "smtp", store.Intervention{})
		return errors.Join(err, <-failed)
	})
	p.each(func(s store.Partition) error {
		for range 1200 {
			if _, err := s.ForceBreaker(p.ctx, "smtp", breaker.Open, 0, store.Intervention{}); err != nil {
				return err
			}
		}
		n, at := 0, "0-0"
		for {
			events, next, err := s.BreakerEvents(p.ctx, at, -1)
			if n, at = n+len(events), next; len(events) == 0 || err != nil {
				if n < 1000 || n > 1100 {
					t.Errorf("%d transitions are kept", n)
				}
				return err
			}
		}
	})
	if _, _, err := p.memory.BreakerEvents(p.ctx, "nowhere", -1); err == nil {
		t.Error("a position that is none")
	}
}

// TestRightsAreLeased asks for rights of two names.
func TestRightsAreLeased(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	lease := func(right, token string, limit int, want bool) {
		t.Helper()
		got := p.same("lease "+right+" "+token, func(s store.Partition) any {
			return replied(s.LeaseRight(p.ctx, right, token, limit, time.Minute))
		})
		if got.(reply).Values[0] != want {
			t.Errorf("%s leased %s: %v", token, right, got)
		}
	}
	lease("smtp", "a", 2, true)
	lease("smtp", "b", 2, true)
	lease("smtp", "c", 2, false)
	lease("db", "c", 1, true)
	lease("smtp", "a", 2, true)
	lease("smtp", "a", 1, false) // b has the only one.
	lease("smtp", "c", 2, true)
	p.move(time.Minute - time.Microsecond)
	lease("db", "d", 1, false)
	p.move(time.Microsecond)
	lease("db", "d", 1, true)
	lease("db", "d", 0, false)
	lease("db", "e", 1, true)
	p.same("return", func(s store.Partition) any { return replied(s.ReturnRight(p.ctx, "db", "d")) })
	lease("db", "d", 1, false)
	p.same("return", func(s store.Partition) any { return replied(s.ReturnRight(p.ctx, "db", "e")) })
	p.same("return", func(s store.Partition) any { return replied(s.ReturnRight(p.ctx, "db", "e")) })
	lease("db", "d", 1, true)
	lease("none", "d", -1, false)
}
