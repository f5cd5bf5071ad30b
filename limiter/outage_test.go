package limiter

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// fault is a way in which Redis goes away, and comes back.
type fault struct {
	name        string
	begin, over func(tb testing.TB, s *redistest.Server, p *redistest.Proxy)
}

// cut is a partition: connections end, and new ones too.
func cut(_ testing.TB, _ *redistest.Server, p *redistest.Proxy) {
	p.Decide(func(redistest.Command) redistest.Action { return redistest.Action{Cut: redistest.CutBefore} })
	p.Sever()
}

// delay holds every command back.
func delay(by time.Duration) func(testing.TB, *redistest.Server, *redistest.Proxy) {
	return func(_ testing.TB, _ *redistest.Server, p *redistest.Proxy) {
		p.Decide(func(redistest.Command) redistest.Action { return redistest.Action{Delay: by} })
	}
}

func forward(_ testing.TB, _ *redistest.Server, p *redistest.Proxy) {
	p.Decide(nil)
	p.Sever()
}

var faults = []fault{
	{
		"stopped", func(tb testing.TB, s *redistest.Server, _ *redistest.Proxy) { tb.Helper(); s.Pause(tb) },
		func(tb testing.TB, s *redistest.Server, _ *redistest.Proxy) { tb.Helper(); s.Resume(tb) },
	},
	{
		"killed", func(tb testing.TB, s *redistest.Server, _ *redistest.Proxy) { tb.Helper(); s.Kill(tb) },
		func(tb testing.TB, s *redistest.Server, _ *redistest.Proxy) { tb.Helper(); s.Restart(tb) },
	},
	{"partition", cut, forward},
	{"500 ms of delay", delay(500 * time.Millisecond), forward},
	{"half-open sockets", delay(time.Hour), forward},
}

// until asks until an answer comes from Redis.
func until(tb testing.TB, l *Limiter, r Request) Verdict {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if v := ask(tb, l, r); v.Source == Exact {
			return v
		}
		<-time.After(time.Millisecond)
	}
	tb.Fatal("redis did not answer within a minute")
	return Verdict{}
}

// slowest is far above the time-out of 50 ms, for machines that also do something else; BenchmarkOutage measures.
const slowest = 10 * time.Second

func ask(tb testing.TB, l *Limiter, r Request) Verdict {
	tb.Helper()
	began := time.Now()
	v, err := l.Check(tb.Context(), r)
	check(tb, err)
	if took := time.Since(began); took > slowest {
		tb.Errorf("a check took %s", took)
	}
	return v
}

// outage is a limiter on a Redis of its own, whose faults it is to live through.
type outage struct {
	server  *redistest.Server
	proxy   *redistest.Proxy
	limiter *Limiter
}

func newOutage(tb testing.TB, config Config) *outage {
	tb.Helper()
	o := &outage{server: redistest.Start(tb, redistest.Options{AppendFsync: "always"})}
	o.proxy = redistest.NewProxy(tb, o.server.Addr())
	return o.with(tb, config)
}

// with is another limiter on the same Redis, with keys of its own.
func (o *outage) with(tb testing.TB, config Config) *outage {
	tb.Helper()
	return &outage{o.server, o.proxy, start(tb, open(tb, o.proxy.Client(tb)), config)}
}

// during makes as many checks, some of them at once, and returns those that were admitted and refused.
func (o *outage) during(tb testing.TB, checks int) (admitted int, refused []Verdict) {
	tb.Helper()
	var callers sync.WaitGroup
	var mu sync.Mutex
	for range 8 {
		callers.Go(func() {
			for range checks / 8 {
				v := ask(tb, o.limiter, Request{})
				mu.Lock()
				if v.Admitted {
					admitted++
				} else {
					refused = append(refused, v)
				}
				if v.Source != Blind {
					tb.Errorf("answered by %s: %+v", v.Source, v)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	return admitted, refused
}

// modes are what is to become of 64 checks of a bucket of 20, and whether it still holds a token when Redis is back.
var modes = []struct {
	mode     Outage
	admitted int
	reason   admission.Reason
	after    bool
}{
	{OutageOpen, 64, "", false},
	{OutageClosed, 0, admission.ReasonUnavailable, true},
	{OutageShare, 20, admission.ReasonLimited, false},
	{OutageGrace, 0, admission.ReasonUnavailable, true}, // Nothing is on lease of so slow a limit.
}

// TestOutageModes: law L13. These run one after the other, since each looks for goroutines that it leaves behind.
func TestOutageModes(t *testing.T) {
	day := admission.Limit{Tokens: 20, Per: 24 * time.Hour, Burst: 20}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			all := make([]*outage, len(modes))
			for i, row := range modes {
				config := Config{Policy: limited(day, none), Outage: row.mode}
				if i == 0 {
					all[i] = newOutage(t, config)
				} else {
					all[i] = all[0].with(t, config)
				}
				until(t, all[i].limiter, Request{Cost: 20})
				check(t, all[i].refill(t))
			}
			fault.begin(t, all[0].server, all[0].proxy)
			for i, row := range modes {
				already := blindAdmissions(all[i].limiter, row.mode)
				admitted, refused := all[i].during(t, 64)
				if admitted != row.admitted {
					t.Errorf("%s: %d admitted, want %d", row.mode, admitted, row.admitted)
				}
				for _, v := range refused {
					if v.Reason != row.reason || v.RetryAfter <= 0 {
						t.Errorf("%s: %+v, want reason %s", row.mode, v, row.reason)
						break
					}
				}
				if counted := blindAdmissions(all[i].limiter, row.mode) - already; counted != admitted {
					t.Errorf("%s: %d blind admissions counted of %d", row.mode, counted, admitted)
				}
			}
			fault.over(t, all[0].server, all[0].proxy)
			for i, row := range modes {
				if v := until(t, all[i].limiter, Request{}); v.Admitted != row.after {
					t.Errorf("%s, on return: %+v", row.mode, v)
				}
			}
		})
	}
}

// refill fills the global bucket, and lets the limiter forget that it was not.
func (o *outage) refill(tb testing.TB) error {
	tb.Helper()
	o.limiter.line.flying.Wait()
	o.limiter.blind.end()
	_, err := o.limiter.store.ResetBucket(tb.Context(), "", "", "", store.Intervention{})
	if s, ok := o.limiter.ways.scopes.Load(admission.Global); ok {
		s.denial.Store(nil)
		s.acquit()
	}
	return err
}

func blindAdmissions(l *Limiter, mode Outage) int {
	return int(blindOf(l, mode, true)) //nolint:gosec // Few.
}

// TestAnOpenBreakerSendsNothing: while it is open, checks cost no call and no wait.
func TestAnOpenBreakerSendsNothing(t *testing.T) {
	v := newVirtual()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	l := start(t, open(t, proxy.Client(t)), Config{Policy: limited(admission.PerSecond(1).WithBurst(10), none), Outage: OutageOpen})
	l.clock.set = &v.process // It stands still, so the breaker stays open.
	cut(t, nil, proxy)
	for range 60_000 {
		if ask(t, l, Request{}); l.shut.Load() > v.process.Load() {
			break
		}
	}
	before := proxy.Commands()
	for range 100 {
		if v := ask(t, l, Request{}); !v.Admitted || v.Source != Blind {
			t.Fatalf("%+v", v)
		}
	}
	l.line.flying.Wait()
	if calls := proxy.Commands() - before; calls != 0 || l.breaker.State() != breaker.Open {
		t.Errorf("%d calls while the breaker is %s", calls, l.breaker.State())
	}
}

// TestSharesAreOfOneLimit: limiters that know of each other admit one burst together.
func TestSharesAreOfOneLimit(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	client := proxy.Client(t)
	client.AddHook(hook{v, client})
	store := open(t, client)
	f := &fleet{time: v, store: store, config: Config{Policy: limited(admission.PerSecond(40).WithBurst(20), none), Timeout: patient}}
	for range 4 {
		f.join(t)
	}
	for range 2 { // At the second time each has heard of all.
		for _, l := range f.limiters {
			until(t, l, Request{})
		}
		v.pass(beatEvery)
	}
	cut(t, nil, proxy)
	round := func() (admitted int) {
		for _, l := range f.limiters {
			for range 30 {
				if v := ask(t, l, Request{}); v.Admitted {
					admitted++
				}
			}
		}
		return admitted
	}
	if admitted := round(); admitted != 20 {
		t.Errorf("%d admitted of a burst of 20", admitted)
	}
	v.process.Add(int64(200 * time.Millisecond))
	if admitted := round(); admitted != 8 {
		t.Errorf("%d admitted of 40 a second in 0.2 s", admitted)
	}
	v.process.Add(int64(halfTime))
	round()
	v.process.Add(int64(200 * time.Millisecond))
	if admitted := round(); admitted != 4 {
		t.Errorf("%d admitted in 0.2 s a minute later, when shares are half as large", admitted)
	}
}

// TestGraceSpendsWhatIsOnLease also after its end, and nothing else.
func TestGraceSpendsWhatIsOnLease(t *testing.T) {
	t.Parallel()
	for mode, spent := range map[Outage]bool{OutageGrace: true, OutageClosed: false} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			v := newVirtual()
			proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
			client := proxy.Client(t)
			client.AddHook(hook{v, client})
			f := &fleet{time: v, store: open(t, client), config: Config{Policy: limited(admission.PerSecond(1000), none), Timeout: patient, Outage: mode}}
			f.join(t)
			l := f.limiters[0]
			for range 60_000 {
				v.pass(time.Millisecond)
				ask(t, l, Request{})
				if l.line.flying.Wait(); heldOf(l) > leastChunk {
					break
				}
			}
			held := heldOf(l)
			cut(t, nil, proxy)
			v.process.Add(int64(2 * leaseLife))
			admitted := admission.Tokens(0)
			for range held + 50 {
				if v := ask(t, l, Request{}); v.Admitted {
					admitted++
				} else if v.Reason != admission.ReasonUnavailable {
					t.Fatalf("%+v", v)
				}
			}
			if held == 0 || spent && admitted != held || !spent && admitted != 0 {
				t.Errorf("%d admitted of %d on lease", admitted, held)
			}
		})
	}
}

// TestADebtIsPaidOnce, however many calls are under way when Redis is back, and by the next one where a call that was to pay it has failed.
func TestADebtIsPaidOnce(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	const burst = 200
	l := start(t, open(t, proxy.Client(t)), Config{Policy: limited(daily(burst), none), Exact: true, Outage: OutageOpen, Timeout: patient})
	ask(t, l, Request{})
	proxy.Decide(func(redistest.Command) redistest.Action { return redistest.Action{Cut: redistest.CutBefore} })
	for _, cost := range []admission.Tokens{10, 5} { // At the second time a call has the debt of the first.
		if v := ask(t, l, Request{Cost: cost}); !v.Admitted || v.Source != Blind {
			t.Fatalf("%+v", v)
		}
	}
	const calls = 4
	under, held := make(chan struct{}, calls), make(chan struct{})
	proxy.Decide(func(redistest.Command) redistest.Action {
		under <- struct{}{}
		return redistest.Action{Hold: held}
	})
	var asked sync.WaitGroup
	for n := range calls {
		for range max(1, n) { // As many as are under way, so that the next call goes out.
			asked.Go(func() { ask(t, l, Request{}) })
		}
		<-under
	}
	proxy.Decide(nil)
	close(held)
	asked.Wait()
	spent := admission.Tokens(1+10+5) + 1 + 1 + 2 + 3
	if v := ask(t, l, Request{Remaining: true}); v.TokensLeft != burst-spent-1 {
		t.Errorf("%d are left of %d after %d were spent", v.TokensLeft, burst, spent+1)
	}
}

func heldOf(l *Limiter) admission.Tokens {
	s, _ := l.ways.scopes.Load(admission.Global)
	return s.held.tokens()
}
