package limiter

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestTheReturnIsNoStorm: law L13. However many ask as Redis comes back, one call finds out, nothing of what was answered
// blind is asked again, and all of it is taken out of the bucket.
func TestTheReturnIsNoStorm(t *testing.T) {
	t.Parallel()
	v, proxy := newVirtual(), redistest.NewProxy(t, redistest.Shared(t).Addr())
	day := admission.Limit{Tokens: 5, Per: 24 * time.Hour, Burst: 1000}
	l := start(t, open(t, proxy.Client(t)), Config{Policy: limited(day, none), Outage: OutageOpen, Timeout: patient})
	l.clock.set = &v.process // The breaker opens and waits by it.
	var by [Blind + 1]atomic.Int64
	count := func() {
		v := ask(t, l, Request{})
		if by[v.Source].Add(1); !v.Admitted {
			t.Errorf("%+v", v)
		}
	}
	count()
	cut(t, nil, proxy)
	for l.breaker.State() != breaker.Open || by[Blind].Load() < 200 {
		count()
	}
	l.line.flying.Wait()

	var calls atomic.Int64
	under, answer := make(chan struct{}), make(chan struct{})
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if c.IsScript() {
			if calls.Add(1) == 1 {
				close(under)
				<-answer
			}
		}
		return redistest.Action{}
	})
	v.process.Add(int64(time.Minute))
	var callers sync.WaitGroup
	callers.Go(count)
	<-under
	var others sync.WaitGroup
	for range 200 {
		others.Go(count)
	}
	others.Wait() // While the first one waits for its answer.
	if calls.Load() != 1 || by[Exact].Load() != 1 {
		t.Errorf("%d calls before one was answered, %d checks answered by them", calls.Load(), by[Exact].Load()-1)
	}
	close(answer)
	callers.Wait()
	count() // It pays for those that asked meanwhile.
	if calls.Load() != 2 || by[Exact].Load() != 3 {
		t.Errorf("%d calls on return, %d checks answered by them, want 2", calls.Load(), by[Exact].Load()-1)
	}
	_, answers, err := l.store.Check(t.Context(), 0, true, []store.Question{l.ways.find(&Request{}).question(1)})
	check(t, err)
	left, admitted := answers[0].Left[admission.LevelGlobal].Tokens(), by[Exact].Load()+by[Blind].Load()
	if left != day.Burst-admission.Tokens(admitted) {
		t.Errorf("%d left of %d after %d were admitted, %d of them blind", left, day.Burst, admitted, by[Blind].Load())
	}
}
