package redisstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// pressed is a store whose scheduler, s1, tells how much queues are pressed.
type pressed struct{ *goneYard }

func newPressed(t *testing.T, queues ...string) pressed {
	t.Helper()
	y := newEdge(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Pressured: queues}))
	_, err := y.store.Promote(t.Context(), "s1", time.Minute)
	check(t, err)
	return pressed{y}
}

func (y pressed) press(queue string, level admission.PressureLevel) {
	y.tb.Helper()
	_, err := y.store.Press(y.tb.Context(), store.Press{
		Owner: "s1", Version: 1, Queue: queue, Pressure: admission.Pressure{Level: level, Score: 0.5}, Life: time.Minute,
	})
	check(y.tb, err)
}

// TestWhoeverFloodsIsShedFirst: at the level at which tenants over their share are refused, those are whose jobs wait already, of this call too,
// and those who have had more service than whoever waits; others are let in.
func TestWhoeverFloodsIsShedFirst(t *testing.T) {
	t.Parallel()
	y := newPressed(t, "mail")
	number := 0
	enter := func(level admission.PressureLevel, tenants ...string) (in []bool) {
		t.Helper()
		y.press("mail", level)
		var jobs []store.Candidate
		for _, tenant := range tenants {
			number++
			j := mail(tenant, strconv.Itoa(number))
			jobs = append(jobs, store.Candidate{
				Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}, ShedFrom: admission.PressureHigh, ShedOverFrom: admission.PressureMedium, Tier: "basic",
			})
		}
		verdicts, err := y.store.Admit(t.Context(), 1, jobs)
		check(t, err)
		for _, v := range verdicts {
			if v.Decision == admission.Refused && v.Reason != admission.ReasonShed {
				t.Fatalf("%+v", v)
			}
			in = append(in, v.Decision == admission.Admitted)
		}
		return in
	}
	is := func(what string, got []bool, want ...bool) {
		t.Helper()
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: let in %v, want %v", what, got, want)
				return
			}
		}
	}
	is("below the level everybody is let in", enter(admission.PressureLow, "flood", "flood", "other"), true, true, true)
	is("whose jobs wait is refused, who has none is not, and then has one", enter(admission.PressureMedium, "flood", "light", "light"), false, true, false)
	is("from the next level on all are", enter(admission.PressureHigh, "flood", "new"), false, false)

	// A job of ten tokens is served: its tenant's tag is above V while others wait, whose jobs are of one.
	costly := mail("costly", "costly")
	costly.Cost = 10
	y.admitAt(1, costly)
	for i := range 20 {
		y.admitAt(1, mail("other", "more"+strconv.Itoa(i)))
	}
	y.register(2)
	for range 5 {
		leases, err := y.store.Read(t.Context(), "w1", yardPool.ID(), 1, -1, false)
		check(t, err)
		_, _, err = y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{leases[0].Finish(store.Complete)})
		check(t, err)
	}
	is("who has been served, and waits no more, is over its share while others wait", enter(admission.PressureMedium, "costly", "new"), false, true)
}

// TestAJobOfThisCallCountsWhateverItsType: a tenant's second job of a call is over its share, by whatever limits its type has.
func TestAJobOfThisCallCountsWhateverItsType(t *testing.T) {
	t.Parallel()
	y := newPressed(t, "mail")
	y.press("mail", admission.PressureMedium)
	plenty := admission.PerSecond(100)
	var jobs []store.Candidate
	for i, limit := range []*admission.Limit{nil, &plenty, nil} {
		j := mail("acme", strconv.Itoa(i))
		jobs = append(jobs, store.Candidate{
			Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}, TypeLimit: limit, ShedFrom: admission.PressureHigh, ShedOverFrom: admission.PressureMedium, Tier: "basic",
		})
	}
	verdicts, err := y.store.Admit(t.Context(), 1, jobs)
	check(t, err)
	for i, v := range verdicts {
		if (v.Reason == admission.ReasonShed) != (i > 0) {
			t.Errorf("job %d: %+v", i, v)
		}
	}
}

// TestQueuesOfOneCallArePressedEachByItself: of two queues of a call one is so pressed that it refuses, and the other is not.
func TestQueuesOfOneCallArePressedEachByItself(t *testing.T) {
	t.Parallel()
	levels := map[string]admission.PressureLevel{"mail": admission.PressureHigh, "sms": admission.PressureLow}
	y := newPressed(t, "mail", "sms")
	for queue, level := range levels {
		y.press(queue, level)
	}
	var jobs []store.Candidate
	for i, queue := range []string{"mail", "sms", "mail", "sms"} {
		j := mail("acme", strconv.Itoa(i))
		j.Queue = queue
		jobs = append(jobs, store.Candidate{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}, ShedFrom: admission.PressureHigh, Tier: "basic"})
	}
	verdicts, err := y.store.Admit(t.Context(), 1, jobs)
	check(t, err)
	for i, v := range verdicts {
		queue := jobs[i].Job.Queue
		if v.Pressure.Level != levels[queue] || (v.Reason == admission.ReasonShed) != (queue == "mail") {
			t.Errorf("job %d of %s: %+v", i, queue, v)
		}
	}
}
