package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// TestErrorsOfAKindAreOne: the last five kinds are kept, the newest first, with how often and when; text is clipped to what can be
// shown.
func TestErrorsOfAKindAreOne(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{})
	say := func(texts ...string) {
		d.report("w1", "acme", breaker.Counts{Successes: 9, Failures: 1}, func(o *store.Outcomes) {
			for _, text := range texts {
				o.Errors = store.AddCallError(o.Errors, store.CallError{Text: text, Count: 1})
			}
		})
	}
	say("read 10.0.0.7:4711: reset", "read 10.0.0.9:1: reset", "one")
	d.pass(time.Second)
	say("read 10.0.0.8:99: reset")
	if got := store.AddCallError([]store.CallError{{Text: "port 1", Count: 2}}, store.CallError{Text: "port 22", Count: 1}); len(got) != 1 || got[0].Text != "port 22" || got[0].Count != 3 {
		t.Errorf("got %+v", got)
	}
	if got := d.state().Errors; len(got) != 2 || got[0].Text != "read 10.0.0.8:99: reset" || got[0].Count != 3 || got[0].At.UnixMicro() != d.now || got[1].Text != "one" {
		t.Errorf("got %+v", got)
	}
	say("two", "three", "four", "five\n\tand\x00 more")
	say(strings.Repeat("é", store.MaxErrorText))
	got := d.state().Errors
	if len(got) != store.MaxCallErrors || got[0].Text != strings.Repeat("é", store.MaxErrorText/2) || got[1].Text != "five  and  more" {
		t.Errorf("got %+v", got)
	}
}

// TestABreakersLifeIsCounted in every state, whoever reports late, and read of one that an older release made.
func TestABreakersLifeIsCounted(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{OpenBase: time.Second, OpenMax: time.Second})
	ran := func(o *store.Outcomes) { o.Ran = 30 * time.Millisecond }
	d.report("w1", "acme", breaker.Counts{Successes: 2, Failures: 1}, ran)
	if got := d.state().Life; got.Calls != 3 || got.Failures != 1 || got.Ran != 30*time.Millisecond || got.LastFailure.UnixMicro() != d.now || len(got.Transitions) != 0 {
		t.Errorf("got %+v", got)
	}
	d.open()
	d.report("w1", "acme", breaker.Counts{Successes: 5})
	d.report("w1", "acme", breaker.Counts{Failures: 7}, func(o *store.Outcomes) { o.Period-- }) // Late: it counts for nothing else.
	got := d.state().Life
	want := []store.BreakerTransitions{{From: breaker.Closed, To: breaker.Open, Count: 1}, {From: breaker.Open, To: breaker.HalfOpen, Count: 1}, {From: breaker.HalfOpen, To: breaker.Closed, Count: 1}}
	if got.Calls != 3+10+5+7 || got.Failures != 1+10+7 || len(got.Transitions) != 3 || got.Transitions[0] != want[0] || got.Transitions[1] != want[1] || got.Transitions[2] != want[2] {
		t.Errorf("got %+v", got)
	}
	check(t, redisconn.Client(d.store.conn).HDel(t.Context(), d.store.conn.Partition.Breaker("api"), "x", "e").Err())
	d.report("w1", "acme", breaker.Counts{Successes: 1})
	if got := d.state(); got.Life.Calls != 1 || got.State != breaker.Closed {
		t.Errorf("got %+v", got)
	}
}

// TestThePolicysRulesWinAtOnce: over those of workers' files, which one after the other come into force once nobody has the
// present ones any more; and who has others is told.
func TestThePolicysRulesWinAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, breaker.Config{})
	rules := func(threshold int, origin breaker.Origin, version int64) func(*store.Outcomes) {
		return func(o *store.Outcomes) {
			o.Config.FailureThreshold, o.Origin, o.Version = threshold, origin, version
		}
	}
	well := breaker.Counts{Successes: 1}
	expect := func(what string, threshold int, origin breaker.Origin, version int64) {
		t.Helper()
		if got := d.state().Rules; got.FailureThreshold != threshold || got.Origin != origin || got.Version != version {
			t.Errorf("%s: %d failures, of %s, version %d; want %d, %s, %d", what, got.FailureThreshold, got.Origin, got.Version, threshold, origin, version)
		}
	}
	d.report("w1", "acme", well, rules(3, breaker.OriginWorker, 1))
	expect("the first worker's", 3, breaker.OriginWorker, 1)
	if word := d.report("w2", "acme", well, rules(4, breaker.OriginWorker, 1)); !word.Differs {
		t.Errorf("got %+v", word)
	}
	expect("those of another", 3, breaker.OriginWorker, 1)
	if got := d.state().Rules.Differs; got == nil || got.Worker != "w2" || got.Config.FailureThreshold != 4 || got.At.UnixMicro() != d.now {
		t.Errorf("got %+v", got)
	}
	if word := d.report("w1", "acme", well, rules(5, breaker.OriginPolicy, 2)); word.Differs {
		t.Errorf("got %+v", word)
	}
	expect("the policy's", 5, breaker.OriginPolicy, 2)
	d.pass(breaker.ConfigHold)
	d.report("w2", "acme", well, rules(4, breaker.OriginWorker, 1))
	d.report("w3", "acme", well, rules(4, breaker.OriginWorker, 2))
	expect("the policy's still, whoever has not heard of it", 5, breaker.OriginPolicy, 2)
	for _, worker := range []string{"w2", "w3"} {
		d.report(worker, "acme", breaker.Counts{Failures: 5}, rules(5, breaker.OriginPolicy, 2))
	}
	d.expect("five failures in a row", breaker.Open, 1)
	d.report("w2", "acme", well, rules(5, breaker.OriginPolicy, 3))
	d.report("w2", "acme", well, rules(7, breaker.OriginPolicy, 4))
	expect("a newer policy's, while it is open", 7, breaker.OriginPolicy, 4)
	d.report("w2", "acme", well, rules(4, breaker.OriginWorker, 5))
	expect("a worker's, once the policy has none", 4, breaker.OriginWorker, 5)
	d.pass(store.DiffersFor + time.Second)
	if got := d.state().Rules.Differs; got != nil {
		t.Errorf("a minute later: %+v", got)
	}
}
