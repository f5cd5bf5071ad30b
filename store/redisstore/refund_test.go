package redisstore

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestRefundsKeepTheBound: whatever is granted beside and after refunds would be granted had nobody asked for what was
// refunded. So law L1 holds for what was not.
func TestRefundsKeepTheBound(t *testing.T) {
	t.Parallel()
	client, prefix, run := redistest.Shared(t).Client(t), redistest.Prefix(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		defer redistest.Clear(t, prefix+strconv.Itoa(run))
		s, err := newStore(client, Config{Prefix: prefix + strconv.Itoa(run)}, "")
		check(t, err)
		q := ofTenant("a", 1)
		q.Limits[admission.LevelTenant] = admission.PerSecond(admission.Tokens(rapid.IntRange(1, 20).Draw(rt, "rate"))).WithBurst(10)
		q.Limits[admission.LevelGlobal] = admission.PerSecond(admission.Tokens(rapid.IntRange(1, 20).Draw(rt, "global rate"))).WithBurst(12)
		type grant struct {
			at       int64
			cost     admission.Tokens
			receipt  store.Taken
			refunded bool
		}
		now := ahead()
		var grants []*grant
		for range 60 {
			now += int64(rapid.IntRange(0, 600_000).Draw(rt, "us"))
			s.conn.Now = strconv.FormatInt(now, 10)
			if len(grants) > 0 && rapid.Bool().Draw(rt, "refund") {
				i := rapid.IntRange(max(0, len(grants)-4), len(grants)-1).Draw(rt, "which")
				word, err := s.Refund(t.Context(), strconv.Itoa(i), grants[i].receipt)
				check(t, err)
				if again := word == store.RefundedBefore; again != grants[i].refunded {
					rt.Fatalf("refund of %d: %s", i, word)
				}
				grants[i].refunded = true
				continue
			}
			q.Cost = admission.Tokens(rapid.IntRange(1, 10).Draw(rt, "cost"))
			verdict, receipt, err := s.Take(t.Context(), 0, q)
			check(t, err)
			if verdict.Decision == admission.Admitted {
				grants = append(grants, &grant{at: now, cost: q.Cost, receipt: receipt})
			}
		}
		var without buckets.Set
		for i, g := range grants {
			path := buckets.AppendPath(nil, q.Limits, "a", "", "")
			if g.refunded {
				continue
			}
			if v := without.Take(buckets.Instant(g.at), 0, path, g.cost); v.Decision != admission.Admitted {
				rt.Fatalf("grant %d of %d tokens is beyond the bound: %+v", i, g.cost, v)
			}
		}
	})
}

func TestARefundCountsOnceHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	take := func(cost admission.Tokens) store.Taken {
		verdict, receipt, err := s.Take(t.Context(), 0, ofTenant("a", cost))
		check(t, err)
		if verdict.Decision != admission.Admitted {
			t.Fatalf("take %d: %+v", cost, verdict)
		}
		return receipt
	}
	take(5)
	receipt := take(3)
	var refunded atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			word, err := s.Refund(t.Context(), "work", receipt)
			if err != nil {
				t.Error(err)
			}
			if word == store.Refunded {
				refunded.Add(1)
			}
		})
	}
	wg.Wait()
	_, answers, err := s.Check(t.Context(), 0, true, []store.Question{ofTenant("a", 1)})
	check(t, err)
	if left := answers[0].Left[admission.LevelTenant].Tokens(); refunded.Load() != 1 || left != 5 {
		t.Errorf("refunded %d times, %d tokens left, want 5 of 10", refunded.Load(), left)
	}
}

func TestARefundUnderAnotherPolicyOrTooLateDoesNothing(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	now := time.Now().UnixMicro()
	s.conn.Now = strconv.FormatInt(now, 10)
	_, receipt, err := s.Take(t.Context(), 0, ofTenant("a", 10))
	check(t, err)
	stale := receipt
	stale.Version++
	word, err := s.Refund(t.Context(), "work", stale)
	check(t, err)
	if word != store.RefundStale {
		t.Errorf("under another policy: %s", word)
	}
	s.conn.Now = strconv.FormatInt(now+store.RefundWindow.Microseconds()+1, 10)
	word, err = s.Refund(t.Context(), "work", receipt)
	check(t, err)
	if word != store.RefundLate {
		t.Errorf("after the window: %s", word)
	}
	verdict, _, err := s.Take(t.Context(), 0, ofTenant("a", 1))
	check(t, err)
	if verdict.Reason != admission.ReasonLimited {
		t.Errorf("afterwards: %+v", verdict)
	}
}

// TestADebtIsRefilledLikeAnythingElse: a bucket one burst below zero is empty when a burst has come in, and full after two. At any time a
// refusal says when the next token is there, to the microsecond.
func TestADebtIsRefilledLikeAnythingElse(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	now := ahead()
	at := func(passed time.Duration) { s.conn.Now = strconv.FormatInt(now+passed.Microseconds(), 10) }
	q := ofTenant("a", 10)
	q.Limits[admission.LevelTenant] = admission.PerSecond(10)
	at(0)
	_, receipt, err := s.Take(t.Context(), 0, q)
	check(t, err)
	word, err := s.Commit(t.Context(), "work", receipt, 1000)
	check(t, err)
	if word != store.Refunded {
		t.Fatalf("commit: %s", word)
	}
	q.Cost = 1
	for _, step := range []struct {
		after time.Duration
		left  buckets.Micro
		wait  time.Duration
	}{
		{0, -10_000_000, 1100 * time.Millisecond},
		{500 * time.Millisecond, -5_000_000, 600 * time.Millisecond},
		{time.Second, 0, 100 * time.Millisecond},
		{1099 * time.Millisecond, 990_000, time.Millisecond},
		{1100 * time.Millisecond, 1_000_000, 0},
		{2 * time.Second, 10_000_000, 0},
		{time.Hour, 10_000_000, 0},
	} {
		at(step.after)
		_, answers, err := s.Check(t.Context(), 0, true, []store.Question{q})
		check(t, err)
		if a := answers[0]; a.Left[admission.LevelTenant] != step.left || a.Verdict.RetryAfter != step.wait {
			t.Errorf("after %s: %d micro-tokens and a wait of %s, want %d and %s", step.after, a.Left[admission.LevelTenant], a.Verdict.RetryAfter, step.left, step.wait)
		}
	}
}

// TestPartsAddUpToWhatWasCommitted: whatever parts are told of whichever reservations, in whatever order, and sent again after lost answers, the
// bucket lacks what was committed and not a token else: of what is settled the greatest that was told, of what is not the greater of that and
// what was reserved.
func TestPartsAddUpToWhatWasCommitted(t *testing.T) {
	t.Parallel()
	client, prefix, run := redistest.Shared(t).Client(t), redistest.Prefix(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		defer redistest.Clear(t, prefix+strconv.Itoa(run))
		s, err := newStore(client, Config{Prefix: prefix + strconv.Itoa(run)}, "")
		check(t, err)
		const burst = 100_000
		q := ofTenant("a", 1)
		q.Limits[admission.LevelTenant] = admission.Limit{Tokens: 1, Per: 31 * 24 * time.Hour, Burst: burst}
		q.Limits[admission.LevelGlobal] = q.Limits[admission.LevelTenant]
		type work struct {
			taken          store.Taken
			reserved, told admission.Tokens
			until          int64 // when it stands
			settled        bool
		}
		now := ahead()
		var all []*work
		for range 40 {
			now += int64(rapid.IntRange(0, 25).Draw(rt, "s")) * 1_000_000
			s.conn.Now = strconv.FormatInt(now, 10)
			if len(all) == 0 || rapid.IntRange(0, 5).Draw(rt, "new") == 0 {
				q.Cost = admission.Tokens(rapid.IntRange(1, 50).Draw(rt, "cost"))
				verdict, taken, err := s.Take(t.Context(), 0, q)
				check(t, err)
				if verdict.Decision != admission.Admitted {
					rt.Fatalf("take %d: %+v", q.Cost, verdict)
				}
				taken.ExpireAfter = rapid.SampledFrom([]time.Duration{0, 10 * time.Second, 40 * time.Second, 5 * time.Minute}).Draw(rt, "expire after")
				all = append(all, &work{taken: taken, reserved: q.Cost, until: now + taken.Expiry().Microseconds()})
				continue
			}
			i := rapid.IntRange(max(0, len(all)-3), len(all)-1).Draw(rt, "which")
			w, used, final := all[i], admission.Tokens(rapid.IntRange(0, 120).Draw(rt, "used")), rapid.IntRange(0, 4).Draw(rt, "final") == 0
			tell, want := s.CommitPart, store.Refunded
			if final {
				tell = s.Commit
			}
			switch {
			case now > w.until:
				want = store.RefundLate // Redis forgets by its own clock, which the test does not wait for.
				check(t, client.Del(t.Context(), s.Keys().Base()+"refund:"+strconv.Itoa(i)).Err())
			case w.settled:
				want = store.RefundedBefore
			default:
				w.told, w.settled, w.until = max(w.told, used), final, now+w.taken.Expiry().Microseconds()
			}
			for range rapid.IntRange(1, 3).Draw(rt, "sent") {
				got, err := tell(t.Context(), strconv.Itoa(i), w.taken, used)
				check(t, err)
				if got != want {
					rt.Fatalf("%d of work %d, final %t: %s, want %s", used, i, final, got, want)
				}
				if want == store.Refunded && final {
					want = store.RefundedBefore
				}
			}
		}
		left := admission.Tokens(burst)
		for _, w := range all {
			if w.settled {
				left -= w.told
			} else {
				left -= max(w.told, w.reserved)
			}
		}
		_, answers, err := s.Check(t.Context(), 0, true, []store.Question{q})
		check(t, err)
		for _, level := range []admission.Level{admission.LevelGlobal, admission.LevelTenant} {
			// Less than a hundredth of a token has come in.
			if got := (answers[0].Left[level] + buckets.MicroPerToken/2).Tokens(); got != left {
				rt.Fatalf("%d tokens are left at level %d, want %d of %+v", got, level, left, all)
			}
		}
	})
}
