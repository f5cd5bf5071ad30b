package redisstore

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

var smtpGate = store.DownstreamGate("smtp")

// movingCap lets the limit of smtp move between bounds.
func movingCap(limit, least, most int) store.Cap {
	return store.Cap{Gate: smtpGate, Limit: limit, Least: least, Most: most, Loop: "mail-out"}
}

// adaptiveBench is a deployment whose policies and limits a test moves.
type adaptiveBench struct {
	t       *testing.T
	store   store.Deployment
	version int64
	before  *store.PolicyUpdate
}

func newAdaptiveBench(t *testing.T, client redis.UniversalClient, parts int) *adaptiveBench {
	t.Helper()
	s, err := Open(t.Context(), client, Config{Prefix: redistest.Prefix(t), Partitions: parts})
	check(t, err)
	b := &adaptiveBench{t: t, store: s}
	b.promote()
	return b
}

// promote gives one the timer lease for an hour.
func (b *adaptiveBench) promote() store.Promotion {
	b.t.Helper()
	p, err := b.store.Partitions()[0].Promote(b.t.Context(), "one", time.Minute)
	check(b.t, err)
	return p
}

// put stores a policy of some caps.
func (b *adaptiveBench) put(caps ...store.Cap) {
	b.t.Helper()
	u := store.PolicyUpdate{Expected: b.version, Version: b.version + 1, Text: []byte("{}"), Caps: caps, Edit: strconv.FormatInt(b.version, 10), Before: b.before}
	check(b.t, b.store.PutPolicy(b.t.Context(), u))
	b.version, b.before = b.version+1, &u
}

// adapt moves the limit, by the version in force.
func (b *adaptiveBench) adapt(owner string, limit int) error {
	b.t.Helper()
	_, err := b.store.Adapt(b.t.Context(), store.Adapt{Owner: owner, Version: b.version, Gate: smtpGate, Limit: limit, Cause: "gain"})
	return err
}

// inForce fails unless the limit, as the gates of all partitions have it, and what tells of it, is so much.
func (b *adaptiveBench) inForce(what string, want int) {
	b.t.Helper()
	gates, err := b.store.Gates(b.t.Context())
	check(b.t, err)
	got := -1
	for _, g := range gates {
		if g.Name == smtpGate {
			got = g.Limit
		}
	}
	if got != want {
		b.t.Errorf("%s: %d are in force, want %d", what, got, want)
	}
}

// TestAMovedLimitStands through everything that is not about it: an edit of something else, of its own policy, a pause, another scheduler; and
// the policy's own is back when nothing moves it any more.
func TestAMovedLimitStands(t *testing.T) {
	t.Parallel()
	b := newAdaptiveBench(t, redistest.Shared(t).Client(t), 1)
	mail := store.Cap{Gate: store.QueueGate("mail"), Limit: 7}
	b.put(movingCap(40, 5, 30))
	if p := b.promote(); p.Adaptive != 1 {
		t.Errorf("a scheduler is told %+v", p)
	}
	b.inForce("at first, not above max", 30)
	check(t, b.adapt("one", 12))
	b.inForce("moved", 12)
	b.put(movingCap(40, 5, 30), mail)
	b.inForce("after an edit of something else", 12)
	b.put(movingCap(50, 5, 50), mail)
	b.inForce("after a higher cap", 12)
	b.before = nil // An edit by one who has to read what is there.
	b.put(movingCap(50, 5, 50))
	b.inForce("after an edit that read it", 12)
	b.put(movingCap(50, 20, 50))
	b.inForce("after a higher min", 20)
	b.put(movingCap(10, 5, 10))
	b.inForce("after a lower cap", 10)
	_, err := b.store.Pause(t.Context(), smtpGate, 0, store.Intervention{})
	check(t, err)
	check(t, b.adapt("one", 8))
	b.inForce("while it is paused", 0)
	_, err = b.store.Unpause(t.Context(), smtpGate, store.Intervention{})
	check(t, err)
	b.inForce("after the pause", 8)
	_, _, err = b.store.SetGate(t.Context(), store.Gate{Name: smtpGate, Limit: 3, For: time.Hour, Then: 8})
	check(t, err)
	check(t, b.adapt("one", 6))
	b.inForce("set by an operator for an hour", 3)
	b.put(store.Cap{Gate: smtpGate, Limit: 10})
	b.inForce("when nothing moves it any more", 10)
	if p := b.promote(); p.Adaptive != 0 {
		t.Errorf("a scheduler is told %+v", p)
	}
	if err := b.adapt("one", 6); !errors.Is(err, store.ErrNotAdaptive) {
		t.Errorf("got %v", err)
	}
	b.put(movingCap(10, 5, 10))
	check(t, b.adapt("one", 6))
	b.put()
	b.inForce("without a cap", -1)
	if all, err := b.store.Adaptations(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left are %+v, %v", all, err)
	}
}

// TestOnlyTheHolderMovesALimit, and only by the policy in force, within its bounds.
func TestOnlyTheHolderMovesALimit(t *testing.T) {
	t.Parallel()
	b := newAdaptiveBench(t, redistest.Shared(t).Client(t), 1)
	b.put(movingCap(40, 5, 30))
	if err := b.adapt("two", 12); !errors.Is(err, store.ErrNotHolder) {
		t.Errorf("another scheduler: %v", err)
	}
	b.version--
	if err := b.adapt("one", 12); !errors.Is(err, store.ErrStale) {
		t.Errorf("by an older policy: %v", err)
	}
	b.version++
	for want, ask := range map[int]int{5: 1, 30: 1000} {
		check(t, b.adapt("one", ask))
		b.inForce(fmt.Sprint("asked for ", ask), want)
	}
}

// TestAFrozenLimitStays until it is thawed, and the audit names both, and what moved at most once a minute.
func TestAFrozenLimitStays(t *testing.T) {
	t.Parallel()
	b := newAdaptiveBench(t, redistest.Shared(t).Client(t), 1)
	b.put(movingCap(40, 5, 40))
	for limit := 10; limit < 20; limit++ {
		check(t, b.adapt("one", limit))
	}
	was, err := b.store.Freeze(t.Context(), smtpGate, true, store.Intervention{Author: "ada", Reason: "their maintenance"})
	if err != nil || was {
		t.Fatal(was, err)
	}
	check(t, b.adapt("one", 30))
	b.put(movingCap(40, 6, 40))
	check(t, b.adapt("one", 30))
	b.inForce("frozen", 19)
	all, err := b.store.Adaptations(t.Context())
	check(t, err)
	if f := all[0].Frozen; f == nil || f.Author != "ada" || f.Reason != "their maintenance" || f.Since.IsZero() || all[0].Raised != 9 || all[0].Lowered != 1 {
		t.Errorf("got %+v, frozen %+v", all[0], f)
	}
	if was, err = b.store.Freeze(t.Context(), smtpGate, false, store.Intervention{Author: "ada"}); err != nil || !was {
		t.Error(was, err)
	}
	check(t, b.adapt("one", 30))
	b.inForce("thawed", 30)
	for range 2 {
		_, err = b.store.Adapt(t.Context(), store.Adapt{Owner: "one", Version: b.version, Gate: smtpGate, Limit: 30, Cause: "dead_band", DeadBand: 3})
		check(t, err)
	}
	b.put(movingCap(40, 6, 40))
	if all, err = b.store.Adaptations(t.Context()); err != nil || all[0].DeadBand != 6 || all[0].Cause != "dead_band" {
		t.Errorf("of twice three looks that changed too little: %+v, %v", all[0], err)
	}
	page, err := b.store.Audit(t.Context(), store.AuditQuery{Name: string(smtpGate)})
	check(t, err)
	var told strings.Builder
	for _, e := range page.Entries {
		told.WriteString(e.Action + " by " + e.Author + ", " + e.Reason + "; ")
	}
	if told.String() != "thaw by ada, ; freeze by ada, their maintenance; adapt by headgate, 40 to 10: gain; " {
		t.Errorf("the audit says %s", told.String())
	}
}

// TestAMovedLimitSpansPartitions: it is divided as the policy's own is, lowered at once and raised by the balancer; a process that dies between
// two partitions leaves no more in force than the higher of both, and the next one mends it.
func TestAMovedLimitSpansPartitions(t *testing.T) {
	t.Parallel()
	b := newAdaptiveBench(t, redistest.Shared(t).Client(t), 3)
	b.put(movingCap(60, 6, 60))
	b.inForce("at first", 60)
	check(t, b.adapt("one", 30))
	b.inForce("lowered", 30)
	check(t, b.adapt("one", 45))
	b.inForce("raised, before shares are balanced", 30)
	balancer := b.store.NewBalancer()
	check(t, balancer.Step(t.Context()))
	b.inForce("raised", 45)
	number, err := b.store.Partitions()[0].Adapt(t.Context(), store.Adapt{Owner: "one", Version: b.version, Gate: smtpGate, Limit: 12, Cause: "no_gain"})
	check(t, err)
	b.inForce("lowered in the first partition alone", 4+15+15)
	all, err := b.store.Adaptations(t.Context())
	if err != nil || len(all) != 1 || !all[0].Uneven || all[0].Limit != 12 {
		t.Fatalf("%+v, %v", all, err)
	}
	check(t, b.adapt("one", 12))
	b.inForce("mended", 12)
	_, err = b.store.Partitions()[1].Adapt(t.Context(), store.Adapt{Gate: smtpGate, Limit: 60, Cause: "gain", Number: number - 1})
	check(t, err)
	check(t, balancer.Step(t.Context()))
	b.inForce("after a late word of somebody who was cut off", 12)
	if all, err = b.store.Adaptations(t.Context()); err != nil || all[0].Uneven {
		t.Errorf("after that %+v, %v", all, err)
	}
}

// TestAMovedRateStands through edits that are not about it, over one partition and three; its burst goes with it, and the policy's own is back
// when nothing moves it any more.
func TestAMovedRateStands(t *testing.T) {
	t.Parallel()
	const unit = store.RateUnit
	gate := store.DownstreamRateGate("smtp")
	for _, parts := range []int{1, 3} {
		b := newAdaptiveBench(t, redistest.Shared(t).Client(t), parts)
		moving := func(own, least, most int) store.Cap {
			return store.Cap{
				Gate: gate, Rate: admission.PerSecond(admission.Tokens(own)).WithBurst(admission.Tokens(own)),
				Limit: own * unit, Least: least * unit, Most: most * unit, Loop: "mail-rate",
			}
		}
		inForce := func(what string, rate float64, burst int) {
			t.Helper()
			gates, err := b.store.Gates(t.Context())
			check(t, err)
			for _, g := range gates {
				if g.Name == gate && math.Abs(g.Rate-rate) < 1e-9 && g.Burst == burst {
					return
				}
			}
			t.Errorf("%s: not %g a second, burst %d, in %+v", what, rate, burst, gates)
		}
		adapt := func(limit float64) error {
			_, err := b.store.Adapt(t.Context(), store.Adapt{Owner: "one", Version: b.version, Gate: gate, Limit: int(limit * unit), Cause: "refused"})
			return err
		}
		b.put(moving(60, 3, 60))
		if p := b.promote(); p.Adaptive != 1 {
			t.Errorf("a scheduler is told %+v", p)
		}
		inForce("at first", 60, 60)
		check(t, adapt(7.5))
		inForce("moved", 7.5, map[int]int{1: 7, 3: 6}[parts])
		check(t, adapt(30))
		inForce("raised", 30, 30)
		mail := store.Cap{Gate: store.QueueGate("mail"), Limit: 7}
		b.put(moving(60, 3, 60), mail)
		inForce("after an edit of something else", 30, 30)
		b.put(moving(90, 3, 90), mail)
		inForce("after a higher rate", 30, 30)
		b.before = nil // An edit by one who has to read what is there.
		b.put(moving(90, 3, 90))
		inForce("after an edit that read it", 30, 30)
		b.put(moving(15, 3, 15))
		inForce("after a lower rate", 15, 15)
		_, err := b.store.Freeze(t.Context(), gate, true, store.Intervention{Author: "ada"})
		check(t, err)
		check(t, adapt(6))
		inForce("frozen", 15, 15)
		all, err := b.store.Adaptations(t.Context())
		if err != nil || len(all) != 1 || all[0].Name != "mail-rate" || !all[0].IsRate() || all[0].Limit != 15*unit || all[0].Own != 15*unit || all[0].Uneven || all[0].Paused {
			t.Errorf("%+v, %v", all, err)
		}
		b.put(store.Cap{Gate: gate, Rate: admission.PerSecond(90)})
		inForce("when nothing moves it any more", 90, 90)
		if err := adapt(6); !errors.Is(err, store.ErrNotAdaptive) {
			t.Errorf("got %v", err)
		}
		page, err := b.store.Audit(t.Context(), store.AuditQuery{Name: string(gate), Action: store.AuditAdapt})
		if err != nil || len(page.Entries) != 1 || page.Entries[0].Reason != "60 a second to 7.5 a second: refused" {
			t.Errorf("the audit says %+v, %v", page.Entries, err)
		}
	}
}

// TestAnOverriddenLimit stands in all partitions whatever the loop finds and whatever is edited, until its time is over or it is ended; then what
// the loop had found is back.
func TestAnOverriddenLimit(t *testing.T) {
	t.Parallel()
	for _, parts := range []int{1, 3} {
		b := newAdaptiveBench(t, redistest.Shared(t).Client(t), parts)
		balancer := b.store.NewBalancer()
		inForce := func(what string, want int) {
			t.Helper()
			if balancer != nil {
				check(t, balancer.Step(t.Context()))
			}
			b.inForce(what, want)
		}
		override := func(limit int, duration time.Duration) (int64, error) {
			return b.store.Override(t.Context(), smtpGate, limit, duration, store.Intervention{Author: "ada", Reason: "calm"})
		}
		if _, err := override(9, time.Minute); !errors.Is(err, store.ErrNotAdaptive) {
			t.Errorf("of nothing: %v", err)
		}
		b.put(movingCap(60, 6, 54))
		check(t, b.adapt("one", 30))
		if n, err := override(0, 0); n != 0 || err != nil {
			t.Errorf("nothing to end: %d, %v", n, err)
		}
		for _, limit := range []int{5, 55} {
			if _, err := override(limit, time.Minute); err == nil || err.Error() != fmt.Sprintf("invalid limit %d: allowed is 6 to 54, between which the policy lets it move", limit) {
				t.Errorf("got %v", err)
			}
		}
		_, err := override(12, time.Minute)
		check(t, err)
		inForce("overridden", 12)
		check(t, b.adapt("one", 48))
		b.put(movingCap(60, 6, 54), store.Cap{Gate: store.QueueGate("mail"), Limit: 7})
		check(t, b.adapt("one", 48))
		inForce("after steps and an edit", 12)
		_, err = override(18, time.Second)
		check(t, err)
		inForce("overridden once more", 18)
		all, err := b.store.Adaptations(t.Context())
		if err != nil || all[0].Override == nil || all[0].Override.Back != 30 || all[0].Frozen.Author != "ada" || all[0].Frozen.Reason != "calm" {
			t.Fatalf("%+v, %v", all, err)
		}
		for time.Now().Before(all[0].Override.Until.Add(10 * time.Millisecond)) {
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // It ends by the clock of Redis.
		}
		check(t, b.adapt("one", 30))
		inForce("after its time", 30)
		_, err = override(12, time.Minute)
		check(t, err)
		if n, err := override(0, 0); n == 0 || err != nil {
			t.Errorf("ended: %d, %v", n, err)
		}
		inForce("after its end", 30)
		check(t, b.adapt("one", 48))
		inForce("moves again", 48)
		page, err := b.store.Audit(t.Context(), store.AuditQuery{Action: store.AuditOverride})
		if err != nil || len(page.Entries) != 3 || page.Entries[0].Reason != "calm" || page.Entries[0].For != time.Minute {
			t.Errorf("%+v, %v", page.Entries, err)
		}
	}
}

// TestWithoutAdaptiveLimitsNothingIsAsked: not one command, nor a byte of a reply, of who promotes and of who edits.
func TestWithoutAdaptiveLimitsNothingIsAsked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	b := newAdaptiveBench(t, client, 1)
	b.put(store.Cap{Gate: smtpGate, Limit: 40})
	check(t, client.ConfigResetStat(t.Context()).Err())
	b.put(store.Cap{Gate: smtpGate, Limit: 30})
	if p := b.promote(); p.Adaptive != 0 {
		t.Errorf("got %+v", p)
	}
	keys, err := client.Keys(t.Context(), "*adaptive*").Result()
	if err != nil || len(keys) != 0 {
		t.Errorf("there are %v, %v", keys, err)
	}
	fields, err := client.HKeys(t.Context(), KeysOf(b.store.Partitions()[0]).State()).Result()
	if err != nil || strings.Contains(" "+strings.Join(fields, " ")+" ", " na ") {
		t.Errorf("the state has %v, %v", fields, err)
	}
}

// TestWhatIsReducedIsReadAsThePolicyHasIt: who edits a policy that he does not know reads what is there, and a limit that triggers reduce is no
// difference to it.
func TestWhatIsReducedIsReadAsThePolicyHasIt(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rate := store.Cap{Gate: store.DownstreamRateGate("pay"), Rate: admission.PerSecond(10), Limit: 10 * store.RateUnit, Least: store.RateUnit, Most: 10 * store.RateUnit, Loop: "pay-rate"}
	u := store.PolicyUpdate{Version: 1, Text: []byte("{}"), Edit: "one", Caps: []store.Cap{movingCap(40, 5, 30), rate}}
	check(t, y.store.PutPolicy(t.Context(), u))
	want := policies.SettingsOf(&u)
	for _, back := range []int{0, 20} {
		_, err := y.store.Promote(t.Context(), "one", time.Minute)
		check(t, err)
		for gate, limit := range map[store.GateName]int{smtpGate: 10, rate.Gate: 5 * store.RateUnit} {
			_, err = y.store.Adapt(t.Context(), store.Adapt{Owner: "one", Version: 1, Gate: gate, Limit: limit, Cause: "trigger slow", Back: min(2*limit, limit*back)})
			check(t, err)
		}
		got, err := y.store.Stored(t.Context())
		check(t, err)
		for key := range want {
			if key.Kind == policies.SettingGate && got[key] != want[key] {
				t.Errorf("to come back to %d: %s is read as %q, want %q", back, key.Name, got[key], want[key])
			}
		}
	}
}
