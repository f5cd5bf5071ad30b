package limiter

import (
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
	if got := missing(t, s, p); got != want {
		t.Errorf("%d tokens are missing, want %d", got, want)
	}
}
