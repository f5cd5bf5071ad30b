package limiter

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestACheckTakesTokensOfEveryScopeOrOfNone(t *testing.T) {
	t.Parallel()
	day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 10}
	small := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 4}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: limited(day, small), Timeout: patient})
	ask := func(tenant string, cost admission.Tokens) Verdict {
		v, err := l.Check(t.Context(), Request{Tenant: tenant, Cost: cost})
		check(t, err)
		return v
	}
	if v := ask("acme", 3); !v.Admitted || v.Source != Exact {
		t.Fatalf("%+v", v)
	}
	if v := ask("acme", 2); v.Admitted || v.Scope != "acme" || v.TokensLeft != 1 || v.Burst != 4 || v.Reason != admission.ReasonLimited {
		t.Errorf("2 of 1: %+v", v)
	}
	if v := ask("acme", 5); v.Admitted || v.Reason != admission.ReasonTooCostly || v.RetryAfter != 0 {
		t.Errorf("5 of a burst of 4: %+v", v)
	}
	if v := ask("other", 7); !v.Admitted {
		t.Errorf("a refusal took from the global bucket: %+v", v)
	}
	if v := ask("", 1); v.Admitted || v.Scope != admission.Global {
		t.Errorf("1 of 0: %+v", v)
	}
	if err := ask("other", 1).Err(); !errors.Is(err, admission.ErrLimited) {
		t.Errorf("%v", err)
	}
}

func TestADenialAnswersWhatItKnows(t *testing.T) {
	t.Parallel()
	limit := admission.Limit{Tokens: 10, Per: 24 * time.Hour, Burst: 10}
	store := open(t, redistest.Shared(t).Client(t))
	l := start(t, store, Config{Timeout: patient})
	l.clock.set = &newVirtual().process // It stands still: a denial is not forgotten because the machine halts.
	ask := func(cost admission.Tokens) Verdict {
		v, err := l.Check(t.Context(), Request{Tenant: "acme", Cost: cost})
		check(t, err)
		return v
	}
	p := limited(none, limit)
	p.Version = 1
	put(t, store, p)
	if v := ask(6); !v.Admitted {
		t.Fatalf("%+v", v)
	}
	if v := ask(5); v.Admitted || v.Source != Exact {
		t.Fatalf("%+v", v)
	}
	before := l.Stats().Calls
	v := ask(5)
	if v.Admitted || v.Source != Cached || v.TokensLeft != 4 || v.RetryAfter < 2*time.Hour || v.RetryAfter > 3*time.Hour {
		t.Errorf("5 of 4 again: %+v", v)
	}
	if calls := l.Stats().Calls - before; calls != 0 {
		t.Errorf("%d calls for what was known", calls)
	}
	for _, source := range []Source{Exact, Cached} {
		if v := ask(11); v.Reason != admission.ReasonTooCostly || v.Source != source {
			t.Errorf("11 of a burst of 10: %+v", v)
		}
	}
	if v := ask(4); !v.Admitted || v.Source != Exact {
		t.Errorf("denials of 5 and 11 refused 4 of 4: %+v", v)
	}
}

func TestManyCallersShareCalls(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	limit := admission.Limit{Tokens: 1000, Per: 24 * time.Hour, Burst: 100_000}
	l := start(t, open(t, proxy.Client(t)), Config{Policy: limited(limit, limit), Timeout: patient, Exact: true, InFlight: 1})
	under, hold := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(under) })
	proxy.Decide(func(redistest.Command) redistest.Action {
		first()
		<-hold // The first call stays until all others wait.
		return redistest.Action{}
	})
	before := l.Stats().Calls
	var callers sync.WaitGroup
	call := func() {
		if v, err := l.Check(t.Context(), Request{Tenant: "acme"}); err != nil || !v.Admitted {
			t.Errorf("%+v, %v", v, err)
		}
	}
	callers.Go(call)
	<-under
	for range 2 * store.MaxBatchJobs {
		callers.Go(call)
	}
	for waiting := 0; waiting < 2*store.MaxBatchJobs; <-time.After(time.Millisecond) {
		l.line.mu.Lock()
		waiting = l.line.mu.waiting.len()
		l.line.mu.Unlock()
	}
	close(hold)
	callers.Wait()
	if calls := l.Stats().Calls - before; calls > 3 {
		t.Errorf("%d calls for 1 caller and then %d", calls, 2*store.MaxBatchJobs)
	}
}

func TestBadInputNamesTheField(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]Config{
		"timeout": {Timeout: time.Minute}, "in flight": {InFlight: 65}, "max scopes": {MaxScopes: 1}, "outage": {Outage: "maybe"},
		"outage at acme": {OutageAt: map[admission.Scope]Outage{"acme": "maybe"}}, "scope": {OutageAt: map[admission.Scope]Outage{"a:b:c:d": OutageOpen}},
	} {
		if _, err := New(nil, config); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Timeout: patient})
	for name, r := range map[string]Request{
		"cost": {Tenant: "a", Cost: admission.MaxCost + 1}, `tenant "global"`: {Tenant: "global"}, "queue": {Tenant: "a", Class: "high"},
		`tenant ""`: {Queue: "mail"}, "a class of queue mail": {Tenant: "a", Queue: "mail", Class: "strange"},
	} {
		if _, err := l.Check(t.Context(), r); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestANewPolicyIsInForceWithinASecond(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	store := open(t, v.client(t))
	l := start(t, store, Config{Timeout: patient})
	l.clock.set = &v.process
	ask := func() Verdict {
		verdict, err := l.Check(t.Context(), Request{Tenant: "acme"})
		check(t, err)
		return verdict
	}
	one := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}
	for i, row := range []struct {
		limit    admission.Limit
		admitted bool
	}{{one, true}, {one, false}, {none, true}, {one, false}} {
		p := limited(none, row.limit)
		p.Version = int64(i + 1)
		put(t, store, p)
		v.pass(1100 * time.Millisecond)
		ask() // A way without limits asks for a new policy, and does not wait for it.
		l.line.flying.Wait()
		if verdict := ask(); i > 0 && verdict.Admitted != row.admitted {
			t.Errorf("version %d: %+v", i+1, verdict)
		}
	}
}

// TestAClassThatIsNewIsHeardOf by who asks for nothing else, so that no call says that the policy is another; what no policy has is looked for once a second.
func TestAClassThatIsNewIsHeardOf(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	v := newVirtual()
	urgent := Request{Tenant: "acme", Queue: "mail", Class: "urgent", Cost: 1}
	asked := map[string]func(*Limiter, Request) error{
		"Check":         func(l *Limiter, r Request) error { _, err := l.Check(t.Context(), r); return err },
		"Wait":          func(l *Limiter, r Request) error { _, err := l.Wait(t.Context(), r); return err },
		"CheckTogether": func(l *Limiter, r Request) error { _, err := l.CheckTogether(t.Context(), []Request{r}); return err },
		"Reserve":       func(l *Limiter, r Request) error { _, err := l.Reserve(t.Context(), r); return err },
	}
	for _, partitions := range []int{1, 3} {
		s, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: redistest.Prefix(t) + strconv.Itoa(partitions), Partitions: partitions})
		check(t, err)
		p := limited(admission.PerSecond(100), none)
		p.Version = 1
		put(t, s, p)
		limiters := map[string]*Limiter{}
		for what, ask := range asked {
			l := start(t, s, Config{Timeout: patient})
			for _, unit := range append(units(l), l) {
				unit.clock.set = &v.process
			}
			check(t, ask(l, Request{Tenant: "acme", Queue: "mail", Cost: 1}))
			for _, unit := range units(l) {
				unit.line.flying.Wait() // It says that it lives.
			}
			before := proxy.Commands()
			for range 20 {
				if err := ask(l, urgent); !errors.Is(err, admission.ErrInvalid) {
					t.Errorf("%d partitions, %s of a class that there is not: %v", partitions, what, err)
				}
			}
			if n := proxy.Commands() - before; n != 1 {
				t.Errorf("%d partitions, %s: Redis is asked %d times for a policy that has the class", partitions, what, n)
			}
			limiters[what] = l
		}
		p.Version, p.Queues = 2, map[string]policy.Queue{"mail": {Classes: []admission.Class{{Name: "urgent", Weight: 2}, {Name: "calm", Weight: 1}}}}
		put(t, s, p)
		v.process.Add(int64(heardLife))
		for what, ask := range asked {
			if err := ask(limiters[what], urgent); err != nil {
				t.Errorf("%d partitions, %s of a class that is new: %v", partitions, what, err)
			}
		}
	}
}

// TestADenialTellsWhatRedisDid, of a bucket below zero and of one that is scaled: when it helps to come again, what is left, and that less may pass.
func TestADenialTellsWhatRedisDid(t *testing.T) {
	t.Parallel()
	limit := admission.Limit{Tokens: 60, Per: time.Hour, Burst: 100}
	t.Run("below zero", func(t *testing.T) {
		t.Parallel()
		l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: limited(none, limit), Timeout: patient})
		l.clock.set = &newVirtual().process
		ask(t, l, Request{Tenant: "acme"}) // It hears of the limits with its first call, which ends denials.
		reserved, err := l.Reserve(t.Context(), Request{Tenant: "acme", Cost: 90})
		check(t, err)
		check(t, reserved.Commit(t.Context(), 150))
		first := ask(t, l, Request{Tenant: "acme", Cost: 10})
		if again := ask(t, l, Request{Tenant: "acme", Cost: 10}); first.TokensLeft > -50 || again.Source != Cached || again.TokensLeft != first.TokensLeft || again.RetryAfter < 59*time.Minute {
			t.Errorf("%+v, and then %+v", first, again)
		}
	})
	t.Run("scaled", func(t *testing.T) {
		t.Parallel()
		s := open(t, redistest.Shared(t).Client(t))
		l := start(t, s, Config{Policy: limited(none, limit), Timeout: patient})
		l.clock.set = &newVirtual().process
		_, err := s.ScaleLimits(t.Context(), store.ScaleAll, 0.1, 24*time.Hour, store.Intervention{})
		check(t, err)
		ask(t, l, Request{Tenant: "acme", Cost: 2})
		first := ask(t, l, Request{Tenant: "acme", Cost: 10})
		again := ask(t, l, Request{Tenant: "acme", Cost: 10})
		if first.TokensLeft != 8 || again.Source != Cached || again.TokensLeft != 8 || again.Burst != first.Burst || first.RetryAfter-again.RetryAfter > time.Minute {
			t.Errorf("%+v, and then %+v", first, again)
		}
		if less := ask(t, l, Request{Tenant: "acme", Cost: 3}); !less.Admitted {
			t.Errorf("of 8 that are left 3 were refused: %+v", less)
		}
	})
}
