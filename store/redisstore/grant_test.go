package redisstore

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
)

// lender asks for leases of one tenant's bucket of ten tokens.
type lender struct {
	*Partition
	t *testing.T
}

func (l lender) grant(member string, account store.Account) store.Leased {
	l.t.Helper()
	granted, err := l.Grant(l.t.Context(), &store.Grant{
		Member: member, Lease: time.Minute, Questions: []store.Question{ofTenant("a", 0)}, Accounts: []store.Account{account},
	})
	check(l.t, err)
	return granted.Leases[0]
}

func (l lender) left() admission.Tokens {
	l.t.Helper()
	_, answers, err := l.Check(l.t.Context(), 0, true, []store.Question{ofTenant("a", 1)})
	check(l.t, err)
	return answers[0].Left[admission.LevelTenant].Tokens()
}

func TestLeasesAreDebitedAndGivenBackOnce(t *testing.T) {
	t.Parallel()
	l := lender{newYard(t).store, t}
	at := store.Account{Level: admission.LevelTenant, Want: 9, Cap: 6}
	if got := l.grant("one", at); got != (store.Leased{Tokens: 5, Holders: 1}) {
		t.Errorf("the first got %+v, want half of what there was", got)
	}
	if got := l.grant("two", at); got != (store.Leased{Tokens: 1, Holders: 2}) || l.left() != 4 {
		t.Errorf("the second got %+v, want what the cap leaves; %d left", got, l.left())
	}
	if got := l.grant("three", at); got.Tokens != 0 {
		t.Errorf("the third got %+v above the cap", got)
	}
	back := store.Account{Level: admission.LevelTenant, Back: 5}
	l.grant("one", back)
	l.grant("one", back)
	if left := l.left(); left != 9 {
		t.Errorf("%d left after 5 were given back twice, want 9", left)
	}
	l.grant("two", back)
	if left := l.left(); left != 10 {
		t.Errorf("%d left after more was given back than was leased, want 10", left)
	}
}

func TestALeaseThatEndedIsNotGivenBack(t *testing.T) {
	t.Parallel()
	l := lender{newYard(t).store, t}
	now := time.Now().UnixMicro()
	l.conn.Now = strconv.FormatInt(now, 10)
	l.grant("one", store.Account{Level: admission.LevelTenant, Want: 9, Cap: 6})
	l.conn.Now = strconv.FormatInt(now+time.Minute.Microseconds(), 10)
	if got := l.grant("two", store.Account{Level: admission.LevelTenant, Want: 9, Cap: 6}); got.Holders != 1 {
		t.Errorf("%+v while another's lease has ended", got)
	}
	left := l.left()
	l.grant("one", store.Account{Level: admission.LevelTenant, Back: 5})
	if l.left() != left {
		t.Errorf("%d left, %d before a lease that had ended was given back", l.left(), left)
	}
}

func TestGrantAnswersEachQuestionByItself(t *testing.T) {
	t.Parallel()
	l := lender{newYard(t).store, t}
	g := store.Grant{Member: "one", Lease: time.Minute, Beat: time.Minute, Questions: []store.Question{ofTenant("a", 7), ofTenant("a", 0), ofTenant("a", 4), ofTenant("a", 3), ofTenant("a", 11)}}
	granted, err := l.Grant(t.Context(), &g)
	check(t, err)
	var reasons [4]admission.Reason
	for i := range granted.Verdicts {
		reasons[i] = granted.Verdicts[i].Reason
	}
	if reasons != [4]admission.Reason{"", admission.ReasonLimited, "", admission.ReasonTooCostly} || granted.Members != 1 {
		t.Errorf("%+v", granted)
	}
	g.Version = 3
	if _, err := l.Grant(t.Context(), &g); !errors.Is(err, store.ErrStale) {
		t.Errorf("of another version: %v", err)
	}
	g.Version, g.Member, g.Beat = 0, "two", -1
	if granted, err = l.Grant(t.Context(), &g); err != nil || granted.Members != 1 {
		t.Errorf("%+v, %v after one that never lived said that it is gone", granted, err)
	}
}

func TestWhatIsOwedIsTakenAsFarAsItReaches(t *testing.T) {
	t.Parallel()
	l := lender{newYard(t).store, t}
	if got := l.grant("one", store.Account{Level: admission.LevelTenant, Owed: 7}); got.Paid != 7 || l.left() != 3 {
		t.Errorf("%+v, %d left", got, l.left())
	}
	if got := l.grant("one", store.Account{Level: admission.LevelTenant, Owed: 7}); got.Paid != 3 || l.left() != 0 {
		t.Errorf("%+v, %d left", got, l.left())
	}
}

// TestGrantTakesWhatBucketsTake holds the script to package buckets.
func TestGrantTakesWhatBucketsTake(t *testing.T) {
	t.Parallel()
	l := lender{newYard(t).store, t}
	var set buckets.Set
	now := ahead()
	for i := range 40 {
		now += int64(i) * 70_000
		l.conn.Now = strconv.FormatInt(now, 10)
		q := ofTenant("a", admission.Tokens(1+i%4))
		q.Limits[admission.LevelTenant] = admission.PerSecond(2).WithBurst(10)
		granted, err := l.Grant(t.Context(), &store.Grant{Member: "one", Lease: time.Minute, Questions: []store.Question{q}})
		check(t, err)
		want := set.Take(buckets.Instant(now), 0, buckets.AppendPath(nil, q.Limits, "a", "", ""), q.Cost)
		if *granted.Verdicts[0] != want {
			t.Fatalf("call %d: %+v, want %+v", i, *granted.Verdicts[0], want)
		}
	}
}

// TestAStockIsOfTheUpperHalf: nothing is noted of it, so it takes no part from those who have leases, and what it may be is told with each call.
func TestAStockIsOfTheUpperHalf(t *testing.T) {
	t.Parallel()
	l := lender{newYard(t).store, t}
	stock := func(want, held, most admission.Tokens) store.Account {
		return store.Account{Level: admission.LevelTenant, Want: want, Held: held, Cap: most, Stock: true}
	}
	for _, c := range []struct {
		says   string
		ask    store.Account
		tokens admission.Tokens
		left   admission.Tokens
	}{
		{"one that may have 3", stock(9, 0, 3), 3, 7},
		{"the same, which has 2 of them left", stock(9, 2, 3), 1, 6},
		{"another, of what is above half of the burst", stock(9, 0, 9), 1, 5},
		{"of half of a burst", stock(9, 0, 9), 0, 5},
	} {
		if got := l.grant("one", c.ask); got != (store.Leased{Tokens: c.tokens}) || l.left() != c.left {
			t.Errorf("%s: %+v, %d left, want %d and %d", c.says, got, l.left(), c.tokens, c.left)
		}
	}
	if got := l.grant("two", store.Account{Level: admission.LevelTenant, Want: 9, Cap: 9}); got != (store.Leased{Tokens: 2, Holders: 1}) {
		t.Errorf("a lease beside stocks is %+v", got)
	}
	g := store.Grant{Member: "one", Lease: time.Minute, Left: true, Questions: []store.Question{ofTenant("b", 1), ofTenant("c", 1)}, Accounts: []store.Account{
		{Level: admission.LevelTenant, Want: 2, Cap: 2, Stock: true},
		{Question: 1, Level: admission.LevelTenant, Want: 2, Cap: 2},
		{Question: 1, Level: admission.LevelGlobal, Want: 2, Cap: 2, Stock: true},
	}}
	granted, err := l.Grant(t.Context(), &g)
	check(t, err)
	if want := []store.Leased{{Tokens: 2}, {Tokens: 2, Holders: 1}, {}}; !slices.Equal(granted.Leases, want) || granted.Verdicts[0].TokensLeft != 9 {
		t.Errorf("%+v, want %+v, one of a scope without a limit", granted, want)
	}
}

// TestABeatTellsWhenLimitsChanged: by a scale, and as that ends; by a tenant's record, and as that is taken away.
func TestABeatTellsWhenLimitsChanged(t *testing.T) {
	t.Parallel()
	l := lender{newYard(t).store, t}
	last := int64(-1)
	beat := func() bool {
		t.Helper()
		granted, err := l.Grant(t.Context(), &store.Grant{Member: "one", Beat: time.Minute, Questions: []store.Question{ofTenant("a", 1)}})
		check(t, err)
		changed := granted.Changed != last
		last = granted.Changed
		return changed
	}
	beat()
	for _, part := range []float64{0.5, 0} {
		if beat() {
			t.Error("nothing has changed, and a beat says so")
		}
		_, err := l.ScaleLimits(t.Context(), store.ScaleAll, part, time.Duration(part*float64(time.Hour)), store.Intervention{})
		check(t, err)
		if !beat() {
			t.Errorf("limits are scaled to %g, and a beat does not say so", part)
		}
	}
	for _, text := range []string{`{"limit":{"tokens":1,"per":"1s"}}`, ""} {
		_, err := l.PutRecord(t.Context(), store.RecordEdit{Tenant: "b", Text: []byte(text), LongestFill: time.Second})
		check(t, err)
		if !beat() {
			t.Errorf("a tenant's record is %q, and a beat does not say so", text)
		}
		if beat() {
			t.Error("nothing has changed after a record, and a beat says so")
		}
	}
}

// TestAStockIsScaledToo: what a limiter may have of a limit is as much less as the limit is.
func TestAStockIsScaledToo(t *testing.T) {
	t.Parallel()
	l := lender{newYard(t).store, t}
	_, err := l.ScaleLimits(t.Context(), store.ScaleAll, 0.5, time.Hour, store.Intervention{})
	check(t, err)
	if got := l.grant("one", store.Account{Level: admission.LevelTenant, Want: 9, Cap: 3, Stock: true}); got.Tokens != 1 {
		t.Errorf("of a limit that is scaled to a half the stock is %d, want 1 of 3", got.Tokens)
	}
}
