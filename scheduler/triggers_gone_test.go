package scheduler_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// gatesAre the jobs at a time of smtp and the dispatches a second of sms that are in force.
func (b *triggerBench) gatesAre() (smtp int, sms float64) {
	b.t.Helper()
	gates, err := b.store.Gates(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, g := range gates {
		switch g.Name {
		case store.DownstreamGate("smtp"):
			smtp = g.Limit
		case store.DownstreamRateGate("sms"):
			sms = g.Rate
		}
	}
	return smtp, sms
}

// TestAnEditLiftsWhatNothingMovesAnyMore by itself, also where no scheduler lives. What of a limit of jobs at a time several partitions divide, of which each may still
// run what it had, comes back when a scheduler has looked at all.
func TestAnEditLiftsWhatNothingMovesAnyMore(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			t.Parallel()
			b := newTriggerBench(t)
			s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: partitions})
			if err != nil {
				t.Fatal(err)
			}
			b.store = s
			smtp, sms, mail := deep(policy.ReduceLimit, "downstream smtp"), deep(policy.ReduceLimit, "downstream sms"), deep(policy.ReduceLimit, "queue mail")
			smtp.By, sms.By, sms.Moves, mail.By = -.5, -.5, policy.MovesDispatch, -.5
			b.put(map[string]policy.Trigger{"smtp": smtp, "sms": sms, "mail": mail}, nil)
			stop := run(t, b.store, scheduler.Config{TimerLease: time.Second})
			fill(t, b.store, 20)
			await(t, "all to act", func() bool {
				smtp, sms := b.gatesAre()
				mail, _ := b.part(store.QueueLimitsGate("mail"))
				return smtp <= 20 && sms == 5 && mail == .5
			})
			stop()
			b.put(nil, nil)
			if smtp, sms := b.gatesAre(); smtp != 40 && partitions == 1 || sms != 10 {
				t.Errorf("after the edit smtp has %d and sms %g", smtp, sms)
			}
			client := redistest.Shared(t).Client(t)
			for _, part := range b.store.Partitions() {
				if left := client.Exists(t.Context(), redisstore.KeysOf(part).Base()+"scales").Val(); left != 0 {
					t.Error("limits of mail are scaled after the edit")
				}
			}
			began := time.Now()
			run(t, b.store, scheduler.Config{TimerLease: time.Second})
			await(t, "the whole limit", func() bool { smtp, _ := b.gatesAre(); return smtp > 40-partitions })
			t.Logf("smtp has all of its limit %v after a scheduler began", time.Since(began))
		})
	}
}

// TestAReducedLimitComesBackWithTheEditThatTakesItsTriggerAway: what moves it otherwise goes on from where it was, at once and not when it would have looked by itself;
// where no scheduler lives, when one looks.
func TestAReducedLimitComesBackWithTheEditThatTakesItsTriggerAway(t *testing.T) {
	t.Parallel()
	b := newTriggerBench(t)
	cut := deep(policy.ReduceLimit, "downstream smtp")
	cut.By = -.9
	adaptive := map[string]policy.Adaptive{"out": {Of: "downstream smtp", Min: 10, Max: 20, Interval: policy.MaxAdaptiveInterval}}
	is := func(want float64) func() bool {
		return func() bool { part, _ := b.part(store.DownstreamGate("smtp")); return part == want }
	}
	stop := run(t, b.store, scheduler.Config{TimerLease: time.Second})
	fill(t, b.store, 20)
	took := time.Hour
	for tries := 0; took > 4*time.Second && tries < 4; tries++ { // A machine that halts is slow once.
		b.put(map[string]policy.Trigger{"cut": cut}, adaptive)
		await(t, "the limit at its min", is(.25))
		edited := time.Now()
		b.put(nil, adaptive)
		await(t, "the limit as it was", is(.5))
		took = min(took, time.Since(edited))
	}
	if t.Logf("%v from the edit on", took); took > 4*time.Second {
		t.Errorf("it came back %v after the edit", took)
	}
	b.put(map[string]policy.Trigger{"cut": cut}, adaptive)
	await(t, "the limit at its min again", is(.25))
	stop()
	b.put(nil, adaptive)
	if !is(.25)() {
		t.Error("it has come back, and nobody looked: the guide says that this takes a scheduler")
	}
	run(t, b.store, scheduler.Config{TimerLease: time.Second})
	await(t, "the limit as it was, by another scheduler", is(.5))
}
