package limiter

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// missing returns how many tokens the bucket of acme lacks.
func missing(t *testing.T, s store.Deployment, p *policy.Policy) admission.Tokens {
	t.Helper()
	inForce, err := p.Prepare()
	check(t, err)
	q, err := questionOf(inForce, route{tenant: "acme"}, 1)
	check(t, err)
	_, answers, err := s.Check(t.Context(), p.Version, true, []store.Question{q})
	check(t, err)
	return q.Limits[admission.LevelTenant].Burst - answers[0].Left[admission.LevelTenant].Tokens()
}

// TestAReservationStandsWhereItsCostComesTooLate, or where less was used and the policy has changed; what lacks is taken all the same.
func TestAReservationStandsWhereItsCostComesTooLate(t *testing.T) {
	t.Parallel()
	year := func(burst admission.Tokens) admission.Limit {
		return admission.Limit{Tokens: burst, Per: 31 * 24 * time.Hour, Burst: burst}
	}
	for name, c := range map[string]struct {
		actual, want admission.Tokens
		passed       time.Duration
		edited       bool
		stands       bool
	}{
		"less":                    {actual: 10, want: 10},
		"less at the last":        {actual: 10, want: 10, passed: store.RefundWindow},
		"less too late":           {actual: 10, want: 40, passed: store.RefundWindow + time.Microsecond, stands: true},
		"more too late":           {actual: 60, want: 40, passed: store.RefundWindow + time.Microsecond, stands: true},
		"less, policy changed":    {actual: 10, want: 40, edited: true, stands: true},
		"more, policy changed":    {actual: 60, want: 60, edited: true},
		"as much, all the same":   {actual: 40, want: 40, edited: true, passed: time.Hour},
		"more than a debt may be": {actual: 10_000, want: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVirtual()
			s := open(t, v.client(t))
			p := limited(none, year(100))
			p.Version = 1
			put(t, s, p)
			l := start(t, s, Config{Timeout: patient})
			r, err := l.Reserve(t.Context(), Request{Tenant: "acme", Cost: 40})
			check(t, err)
			if v.pass(c.passed); c.edited {
				v.pass(time.Millisecond)
				p.Version, p.DedupWindow = 2, time.Minute
				put(t, s, p)
			}
			err = r.Commit(t.Context(), c.actual)
			if errors.Is(err, ErrReservationStands) != c.stands || err != nil && !c.stands {
				t.Errorf("commit: %v", err)
			}
			// What came in meanwhile is less than a token.
			if got := missing(t, s, p); got != c.want && got != c.want-1 || name == "less" && got != c.want {
				t.Errorf("%d tokens are missing, want %d", got, c.want)
			}
		})
	}
}

// TestACommitWhoseAnswerWasLostCountsOnce: it is sent again under the same id.
func TestACommitWhoseAnswerWasLostCountsOnce(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	var cut atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if c.IsScript() && slices.ContainsFunc(c.Args, func(arg string) bool { return len(arg) == len("r-")+26 && arg[:2] == "r-" }) && cut.Add(1)%2 == 1 {
			return redistest.Action{Cut: redistest.CutAfter}
		}
		return redistest.Action{}
	})
	p := limited(none, admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 100})
	p.Version = 1
	s := open(t, proxy.Client(t))
	put(t, s, p)
	l := start(t, s, Config{Timeout: patient})
	want := admission.Tokens(0)
	for _, actual := range []admission.Tokens{5, 30} {
		r, err := l.Reserve(t.Context(), Request{Tenant: "acme", Cost: 20})
		check(t, err)
		if err = r.Commit(t.Context(), actual); err == nil {
			t.Error("nothing was cut off")
		}
		check(t, r.Commit(t.Context(), actual))
		want += actual
	}
	r, err := l.Reserve(t.Context(), Request{Tenant: "acme", Cost: 5})
	check(t, err)
	for range 2 { // The first of each is cut off; what is told next is less.
		if err = r.CommitPart(t.Context(), 25); err == nil {
			t.Error("nothing was cut off")
		}
		check(t, r.CommitPart(t.Context(), 15))
	}
	if err = r.Commit(t.Context(), 5); err == nil {
		t.Error("nothing was cut off")
	}
	check(t, r.Commit(t.Context(), 5))
	want += 25
	if got := missing(t, s, p); got != want {
		t.Errorf("%d tokens are missing, want %d", got, want)
	}
}

// TestPartsOfALongCall: the greatest that was told counts, also where its answer was lost, under another policy, and longer than a minute after the
// reservation; Cancel gives back only what no part has told.
func TestPartsOfALongCall(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	s := open(t, v.client(t))
	p := limited(none, admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 366})
	p.Version = 1
	put(t, s, p)
	l := start(t, s, Config{Timeout: patient})
	want := admission.Tokens(0)
	reserve := func() Reservation {
		t.Helper()
		r, err := l.Reserve(t.Context(), Request{Tenant: "acme", Cost: 40})
		check(t, err)
		return r
	}
	lacks := func(what string, tokens admission.Tokens) {
		t.Helper()
		// What came in meanwhile is less than a token.
		if got := missing(t, s, p); got != want+tokens && got != want+tokens-1 {
			t.Errorf("%s: %d tokens are missing, want %d", what, got, want+tokens)
		}
	}
	for _, c := range []struct {
		name      string
		parts     []admission.Tokens
		so, final admission.Tokens // what lacks after the parts, and after the commit
		commit    admission.Tokens
		passed    time.Duration // before each part
		edited    bool
	}{
		{name: "less at last", parts: []admission.Tokens{10, 20}, so: 40, commit: 30, final: 30},
		{name: "beyond", parts: []admission.Tokens{10, 60, 60, 50}, so: 60, commit: 65, final: 65},
		{name: "never less than told", parts: []admission.Tokens{60}, so: 60, commit: 40, final: 60},
		{name: "cancelled", parts: []admission.Tokens{25}, so: 40, commit: 0, final: 25},
		{name: "five minutes", parts: []admission.Tokens{5, 10, 10, 15, 20, 50}, so: 50, passed: 50 * time.Second, commit: 50, final: 50},
		{name: "five minutes, less", parts: []admission.Tokens{0, 1, 2, 3, 4, 5}, so: 40, passed: 50 * time.Second, commit: 6, final: 6},
		{name: "another policy", parts: []admission.Tokens{20, 45}, so: 45, edited: true, commit: 46, final: 46},
	} {
		r := reserve()
		for _, used := range c.parts {
			if v.pass(c.passed); c.edited {
				v.pass(time.Millisecond)
				p.Version, p.DedupWindow = p.Version+1, time.Duration(p.Version)*time.Minute
				put(t, s, p)
			}
			check(t, r.CommitPart(t.Context(), used))
		}
		lacks(c.name+", so far", c.so)
		if c.commit == 0 {
			check(t, r.Cancel(t.Context()))
		} else {
			check(t, r.Commit(t.Context(), c.commit))
		}
		want += c.final
		check(t, r.CommitPart(t.Context(), 500))
		lacks(c.name, 0)
	}
	unsent := reserve()
	gone, cancel := context.WithCancel(t.Context())
	if cancel(); unsent.CommitPart(gone, 41) == nil {
		t.Error("a part was told without a context")
	}
	check(t, unsent.Commit(t.Context(), 10))
	want += 41
	lacks("a part that did not arrive", 0)
	late := reserve()
	v.pass(store.RefundWindow + time.Microsecond)
	if err := late.CommitPart(t.Context(), 60); !errors.Is(err, ErrReservationStands) {
		t.Errorf("a part too late: %v", err)
	}
	var field *admission.FieldError
	if err := late.CommitPart(t.Context(), admission.MaxActualCost+1); !errors.As(err, &field) {
		t.Errorf("a part out of range: %v", err)
	}
	check(t, Reservation{}.CommitPart(t.Context(), 1))
}
