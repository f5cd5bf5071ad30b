package limiter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/store"
)

var errGone = errors.New("the caller went away")

// caller waits for tokens of a leaky bucket, in one of several limiters. Its times are since the beginning.
type caller struct {
	at, patience time.Duration // a patience of zero has no end
	limiter      int
	cost         admission.Tokens
	// deadline says that the patience is known before as the deadline of its ctx; it is cancelled else.
	deadline bool
	// step is by how much the clock of the store steps as it comes.
	step time.Duration

	// ended is when its Wait returned, err why.
	ended time.Duration
	err   error
}

func (c *caller) passed() bool { return c.err == nil }

// context is one that ends with the caller's patience, at the latest when it is cancelled.
func (c *caller) context(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	if c.patience > 0 && c.deadline {
		return context.WithDeadlineCause(ctx, began.Add(c.at+c.patience), errGone)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if c.patience > 0 {
		time.AfterFunc(c.patience, func() { cancel(errGone) })
	}
	return ctx, func() { cancel(nil) }
}

// leak is one run: callers of limiters that have a leaky bucket in common.
type leak struct {
	limit    admission.Limit
	limiters int
	exact    bool
	callers  []*caller
	stepping bool
}

func drawLeak(t *rapid.T) *leak {
	k := &leak{
		limiters: rapid.IntRange(1, 3).Draw(t, "limiters"), exact: rapid.Bool().Draw(t, "exact"), stepping: rapid.IntRange(0, 2).Draw(t, "stepping") == 0,
		limit: admission.Limit{
			Tokens: admission.Tokens(rapid.SampledFrom([]int{1, 3, 7}).Draw(t, "tokens")), Burst: admission.Tokens(rapid.SampledFrom([]int{1, 1, 4}).Draw(t, "burst")),
			Per: time.Duration(rapid.SampledFrom([]int{10, 1000, 7001}).Draw(t, "per ms")) * time.Millisecond,
		},
	}
	interval, at := k.limit.Per/time.Duration(k.limit.Tokens), time.Duration(0)
	part := func(label string, of ...int) time.Duration {
		return (time.Duration(rapid.SampledFrom(of).Draw(t, label)) * interval / 100).Truncate(time.Microsecond)
	}
	for range rapid.IntRange(2, 25).Draw(t, "callers") {
		at += part("after", 0, 0, 0, 20, 90, 400)
		c := &caller{at: at, limiter: rapid.IntRange(0, k.limiters-1).Draw(t, "limiter"), cost: admission.Tokens(rapid.IntRange(1, int(k.limit.Burst)).Draw(t, "cost"))}
		if rapid.IntRange(0, 2).Draw(t, "impatient") == 0 {
			c.patience, c.deadline = part("patience", 1, 50, 130, 310, 900)+time.Microsecond, rapid.Bool().Draw(t, "deadline")
		}
		if k.stepping && rapid.IntRange(0, 5).Draw(t, "step") == 0 {
			c.step = part("step by", -1000, -150, 70, 300, 1000)
		}
		k.callers = append(k.callers, c)
	}
	return k
}

// run lets them wait, in the bubble of a test.
func (k *leak) run(t *testing.T) {
	t.Helper()
	var ahead atomic.Int64
	s := store.Single(memory.New(memory.Config{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}), io.NopCloser(nil))
	began := time.Now()
	var limiters []*Limiter
	for range k.limiters {
		limiters = append(limiters, start(t, s, Config{Policy: limited(none, k.limit), Exact: k.exact, Timeout: patient}))
	}
	var all sync.WaitGroup
	for _, c := range k.callers {
		time.Sleep(c.at - time.Since(began)) //nolint:forbidigo // in a bubble
		ahead.Add(int64(c.step))
		all.Go(func() {
			ctx, cancel := c.context(t.Context(), began)
			defer cancel()
			_, c.err = limiters[c.limiter].Wait(ctx, Request{Tenant: "acme", Cost: c.cost})
			c.ended = time.Since(began)
		})
		synctest.Wait()
	}
	all.Wait()
	for _, l := range limiters {
		check(t, l.Close(t.Context()))
	}
}

// broken says what is not as promised.
func (k *leak) broken() string {
	for i, c := range k.callers {
		leaves := c.at + c.patience
		switch {
		case c.passed():
		case !errors.Is(c.err, errGone) && !errors.Is(c.err, context.DeadlineExceeded):
			return fmt.Sprintf("caller %d: %v", i, c.err)
		case c.ended > leaves || !c.deadline && c.ended < leaves:
			return fmt.Sprintf("caller %d ended at %s, its ctx at %s", i, c.ended, leaves)
		}
		for j, later := range k.callers[i+1:] {
			if c.limiter == later.limiter && c.passed() && later.passed() && later.ended < c.ended {
				return fmt.Sprintf("caller %d passed at %s, %d that came later at %s", i, c.ended, i+1+j, later.ended)
			}
		}
	}
	if over := k.beyond(); over != "" {
		return over
	}
	if k.limiters == 1 && !k.stepping && (k.exact || k.limit.Burst == 1) {
		return k.late()
	}
	return ""
}

// beyond says where more passed than one burst, what came in, and a burst for each step of the clock.
func (k *leak) beyond() string {
	config := Config{Exact: k.exact}
	most := k.limit
	leased := leasable(&most, &config, 1)
	for _, first := range k.callers {
		for _, last := range k.callers {
			if last.ended < first.ended {
				continue
			}
			sum, bursts := admission.Tokens(0), 1
			for _, c := range k.callers {
				if c.passed() && first.ended <= c.ended && c.ended <= last.ended {
					sum += c.cost
				}
				if c.step != 0 && first.ended <= c.at && c.at <= last.ended {
					bursts++
				}
			}
			came := float64(k.limit.Rate()) * (last.ended - first.ended + time.Microsecond).Seconds()
			if bound := float64(k.limit.Burst)*float64(bursts) + float64(leased) + came; float64(sum) > bound+1e-6 {
				return fmt.Sprintf("%d passed from %s to %s, bound %.3f of %+v with %d bursts", sum, first.ended, last.ended, bound, k.limit, bursts)
			}
		}
	}
	return ""
}

// late says who did not pass as its turn had come and those who passed before it had left enough: nobody took a token who did not pass.
func (k *leak) late() string {
	var set buckets.Set
	path := []buckets.LevelLimit{{Scope: "acme", Limit: buckets.LimitOf(k.limit)}}
	const rounded = 10 * time.Microsecond
	instant := func(at time.Duration) buckets.Instant {
		return buckets.Instant(time.Hour.Microseconds() + at.Microseconds())
	}
	head := time.Duration(0) // when the last of those before left the head of the line
	for i, c := range k.callers {
		head = max(head, c.at)
		if !c.passed() && c.ended < head {
			continue // It left while others were before it.
		}
		due := head
		for refused := true; refused; {
			v := set.Peek(instant(due), 0, path, c.cost)
			due, refused = due+v.RetryAfter, v.RetryAfter > 0 // A second time where it was told a microsecond too little.
		}
		switch {
		case c.passed() && (c.ended < due-rounded || c.ended > due+rounded):
			return fmt.Sprintf("caller %d of cost %d was first at %s and passed at %s, want %s", i, c.cost, head, c.ended, due)
		case !c.passed() && due < c.at+c.patience-rounded:
			return fmt.Sprintf("caller %d of cost %d was first at %s and gave up at %s: %v; it might have passed at %s", i, c.cost, head, c.ended, c.err, due)
		case c.passed():
			set.Take(instant(max(due, c.ended)), 0, path, c.cost)
		}
		head = max(head, c.ended)
	}
	return ""
}

// TestALeakyBucketKeepsItsBoundAndItsOrder: those who wait for a leaky bucket in 1 to 3 limiters, as they come and give up by chance, pass one in its time
// and no sooner, in the order of their line, and at the first time at which that may be; who gives up returns as its ctx ends, and has taken nothing. Each
// step of the clock may add a burst.
func TestALeakyBucketKeepsItsBoundAndItsOrder(t *testing.T) {
	t.Parallel()
	gaveUp, passed := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		k := drawLeak(rt)
		synctest.Test(t, k.run)
		if broken := k.broken(); broken != "" {
			rt.Fatal(broken)
		}
		for _, c := range k.callers {
			if c.passed() {
				passed++
			} else {
				gaveUp++
			}
		}
	})
	if gaveUp == 0 || passed == 0 {
		t.Errorf("%d passed, %d gave up", passed, gaveUp)
	}
}

// TestAClockThatIsSetBackDelaysNobody: the clock of Redis is set back while all who ask are refused. Who waits passes when it would have passed, and asks
// no oftener.
func TestAClockThatIsSetBackDelaysNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Hour
		s := store.Single(memory.New(memory.Config{Now: func() time.Time { return time.Now().Add(ahead) }}), io.NopCloser(nil))
		l := start(t, s, Config{Policy: limited(none, admission.PerSecond(1).WithBurst(2)), Exact: true, Timeout: patient})
		r := Request{Tenant: "acme"}
		for range 2 {
			if v, err := l.Check(t.Context(), r); err != nil || !v.Admitted {
				t.Fatal(v, err)
			}
			time.Sleep(time.Second - time.Microsecond) //nolint:forbidigo // in a bubble
		}
		if v, err := l.Check(t.Context(), r); err != nil || !v.Admitted {
			t.Fatal(v, err)
		}
		ahead -= 5 * time.Second
		began, asked := time.Now(), 0
		check(t, l.inTurn(t.Context(), &r, func() (Verdict, error) {
			asked++
			return l.Check(t.Context(), r)
		}))
		if took := time.Since(began); took > 10*time.Microsecond || asked > 3 {
			t.Errorf("it asked %d times in %s for a token that was a microsecond away", asked, took)
		}
		check(t, l.Close(t.Context()))
	})
}
