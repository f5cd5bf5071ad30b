package limiter

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// moment is what was admitted at one time under which limit, and what made the bound wider just before.
type moment struct {
	at       time.Duration
	admitted admission.Tokens
	limit    admission.Limit
	// stepped says that the clock of Redis was set, which may add one burst.
	stepped bool
	// unseen says that the limit changed for the second time since the bucket was written. That may add one burst, and a burst
	// that is raised after it was lowered the amount of the raise: a bucket cannot know, see package buckets.
	unseen bool
	// lost is what a failover gave back, since no replica had heard of it.
	lost admission.Tokens
}

// widened reports whether the bound is wider from here on.
func (m *moment) widened() bool { return m.stepped || m.unseen || m.lost > 0 }

// fleet is limiters of one deployment in a time of their own.
type fleet struct {
	time *virtual
	// tenants are one of each partition, asking those that ask.
	tenants []string
	asking  []string
	store   store.Deployment
	config  Config
	limit   admission.Limit
	version int64
	// whole is the policy's limit, of which limit is the part that an operator has put in force, 0 for none.
	whole    admission.Limit
	scaled   float64
	limiters []*Limiter
	// killed are gone with what they hold.
	killed  []*Limiter
	began   int64
	moments []moment
	// leased counts checks, exact is what Redis admitted.
	leased int
	exact  admission.Tokens
	// course is how bursts change: 1 up, 2 down, else both ways.
	course int
	// changes of the limit since a tenant's partition has written its bucket for certain.
	changes map[string]int
}

// newFleet returns a fleet without limiters on a store.
func newFleet(v *virtual, store store.Deployment, config Config) *fleet {
	f := &fleet{time: v, store: store, config: config, began: v.process.Load(), tenants: tenantsOf(store), changes: map[string]int{}}
	f.asking = f.tenants
	return f
}

func (f *fleet) put(tb testing.TB, limit admission.Limit) {
	tb.Helper()
	f.version++
	p := policy.Unlimited()
	p.Global, p.Version = limit, f.version
	put(tb, f.store, &p)
	f.noteChange(limit)
}

// noteChange notes that another limit of the policy is in force, scaled as it is.
func (f *fleet) noteChange(limit admission.Limit) {
	unseen := false
	for _, tenant := range f.tenants {
		f.changes[tenant]++
		unseen = unseen || f.changes[tenant] == 2
	}
	f.limit, f.whole = limit, limit
	if f.scaled > 0 {
		f.limit.Tokens, f.limit.Burst = admission.Tokens(math.Round(float64(limit.Tokens)*f.scaled)), admission.Tokens(math.Round(float64(limit.Burst)*f.scaled))
	}
	f.note(moment{unseen: unseen})
}

// note adds a moment at the time and under the limit that it is now.
func (f *fleet) note(m moment) {
	m.at, m.limit = time.Duration(f.time.process.Load()-f.began), f.limit
	if n := len(f.moments); n > 0 && f.moments[n-1].at == m.at && f.moments[n-1].limit == m.limit && !m.widened() {
		f.moments[n-1].admitted += m.admitted
		return
	}
	f.moments = append(f.moments, m)
}

func (f *fleet) join(tb testing.TB) {
	tb.Helper()
	l := start(tb, f.store, f.config)
	for _, part := range units(l) {
		part.clock.set = &f.time.process
	}
	f.limiters = append(f.limiters, l)
}

func (f *fleet) part(i int) *Limiter {
	l := f.limiters[i]
	f.limiters = append(f.limiters[:i:i], f.limiters[i+1:]...)
	return l
}

// ask makes checks of one limiter, of each tenant that asks until one is refused, and waits for what it fetches.
func (f *fleet) ask(tb testing.TB, i, times int, cost admission.Tokens) admission.Tokens {
	tb.Helper()
	sum := admission.Tokens(0)
	for _, tenant := range f.asking {
		sum += f.askAs(tb, tenant, i, times, cost)
	}
	f.note(moment{admitted: sum})
	return sum
}

func (f *fleet) askAs(tb testing.TB, tenant string, i, times int, cost admission.Tokens) (sum admission.Tokens) {
	tb.Helper()
	for range times {
		v, err := f.limiters[i].Check(tb.Context(), Request{Tenant: tenant, Cost: cost})
		check(tb, err)
		if v.Source == Leased {
			f.leased++
		}
		for _, part := range units(f.limiters[i]) {
			part.line.flying.Wait()
		}
		if !v.Admitted {
			break
		}
		if v.Source == Exact {
			f.changes[tenant] = 0
			f.exact += cost
		}
		sum += cost
	}
	return sum
}

// broken says where what was admitted is beyond the bound: in any window that begins and ends with a moment beyond what
// Guarantee prints, or since the beginning beyond burst + ∫rate.
func (f *fleet) broken() string {
	for first := range f.moments {
		if over := f.beyond(first, leaseLife, f.leasable); over != "" {
			return over
		}
	}
	return f.beyond(0, 0, func(admission.Tokens) admission.Tokens { return 0 })
}

// beyond says where a window that begins with a moment is beyond the bound; leased is what may be on lease of a burst as it
// begins. What was in force for a while before it counts too: leases of then may be spent in it.
func (f *fleet) beyond(first int, before time.Duration, leased func(burst admission.Tokens) admission.Tokens) string {
	from := f.moments[first].at
	var burst, sum, extra admission.Tokens
	gained, bursts, lowered := 0.0, 1, false
	for i := range f.moments {
		m := &f.moments[i]
		if m.at < from-before && (i+1 == len(f.moments) || f.moments[i+1].at < from-before) {
			continue
		}
		if i > 0 && m.at >= from-before {
			last := &f.moments[i-1]
			if i > first {
				gained += float64(last.limit.Rate()) * (m.at - last.at).Seconds()
			}
			lowered = lowered || m.limit.Burst < last.limit.Burst
			if lowered {
				extra += max(0, m.limit.Burst-last.limit.Burst)
			}
			extra += m.lost
			if m.stepped || m.unseen {
				bursts++
			}
		}
		burst = max(burst, m.limit.Burst)
		if i < first {
			continue
		}
		sum += m.admitted
		if bound := float64(burst)*float64(bursts) + float64(leased(burst)+extra) + gained; float64(sum) > bound+1e-6 {
			return fmt.Sprintf("%d admitted from %s to %s, bound %.3f (%d bursts of %d, %d leased, %d more, strict %t)",
				sum, from, m.at, bound, bursts, burst, leased(burst), extra, f.config.Strict)
		}
	}
	return ""
}

// leasable is what may be on lease beside a burst.
func (f *fleet) leasable(burst admission.Tokens) admission.Tokens {
	if f.config.Strict {
		return 0
	}
	parts := admission.Tokens(len(f.tenants))
	return parts * leasable(&admission.Limit{Burst: burst}, &f.config, parts)
}

// TestLeasesKeepTheBound: law L1 for leases. Limiters come, go, are killed with tokens in hand; the clock of Redis steps; the
// limit changes, again and again. Over all time Σ ≤ burst + ∫rate, in a window at most Guarantee.Leased more, with Strict
// nothing more; Σ is over all partitions of the deployment.
func TestLeasesKeepTheBound(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	client, prefix, run, leased := v.client(t), redistest.Prefix(t), 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		defer redistest.Clear(t, prefix+strconv.Itoa(run))
		partitions := rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(rt, "partitions")
		s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix + strconv.Itoa(run), Partitions: partitions})
		check(t, err)
		f := newFleet(v, s, Config{Strict: rapid.Bool().Draw(rt, "strict"), Timeout: patient})
		f.course = rapid.IntRange(0, 3).Draw(rt, "course")
		f.put(t, drawLimit(rt))
		for range rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, 64)).Draw(rt, "limiters") {
			f.join(t)
		}
		stepping := rapid.Bool().Draw(rt, "stepping")
		for range rapid.IntRange(15, 40).Draw(rt, "operations") {
			f.operate(t, rt, stepping)
			f.checkHeld(rt)
		}
		if over := f.broken(); over != "" {
			rt.Fatal(over)
		}
		leased += f.leased
	})
	if leased == 0 {
		t.Error("nothing was ever leased")
	}
}

func drawLimit(t *rapid.T) admission.Limit {
	rate := admission.Tokens(rapid.SampledFrom([]int{50, 500, 5000}).Draw(t, "rate"))
	return admission.PerSecond(rate).WithBurst(rate * admission.Tokens(rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "burst")) / 2)
}

// drawNext draws the limit after the one in force. In half of the runs bursts only go up or only go down, since the bound is
// wider where they do both.
func (f *fleet) drawNext(t *rapid.T) admission.Limit {
	next := drawLimit(t)
	switch f.course {
	case 1:
		next.Burst = max(next.Burst, f.whole.Burst)
	case 2:
		next.Burst = min(next.Burst, f.whole.Burst)
	}
	return next
}

func (f *fleet) operate(tb testing.TB, rt *rapid.T, stepping bool) {
	tb.Helper()
	one := func() int { return rapid.IntRange(0, len(f.limiters)-1).Draw(rt, "limiter") }
	switch rapid.IntRange(0, 19).Draw(rt, "operation") {
	case 0:
		f.killed = append(f.killed, f.part(one()))
		f.join(tb)
	case 1:
		l := f.part(one())
		check(tb, l.Close(tb.Context()))
		check(tb, l.Close(tb.Context()))
		f.join(tb)
	case 2:
		if !stepping {
			return
		}
		step := time.Duration(rapid.IntRange(-5000, 5000).Draw(rt, "step ms")) * time.Millisecond
		f.time.redis.Add(step.Microseconds())
		f.note(moment{stepped: true})
	case 3:
		if rapid.Bool().Draw(rt, "empty") { // What comes in until the next write is all there is to spend.
			f.exhaust(tb)
			f.time.pass(time.Duration(rapid.SampledFrom([]int{0, 60, 400}).Draw(rt, "ms before")) * time.Millisecond)
		}
		f.put(tb, f.drawNext(rt))
		if rapid.Bool().Draw(rt, "spend") {
			f.time.pass(time.Duration(rapid.SampledFrom([]int{0, 60, 400}).Draw(rt, "ms after")) * time.Millisecond)
			f.exhaust(tb)
		}
	case 4:
		f.rush(tb)
		f.scale(tb, rapid.SampledFrom([]float64{1, 0.2, 0.6, 1}).Draw(rt, "part"))
	case 5, 6, 7, 8, 9, 10:
		f.time.pass(time.Duration(rapid.SampledFrom([]int{1, 7, 25, 60, 110, 400, 1300}).Draw(rt, "ms")) * time.Millisecond)
	default:
		cost := admission.Tokens(rapid.SampledFrom([]int{1, 1, 2, 5, 20}).Draw(rt, "cost"))
		if rapid.Bool().Draw(rt, "one tenant") {
			f.asking = []string{rapid.SampledFrom(f.tenants).Draw(rt, "tenant")}
		}
		f.ask(tb, one(), rapid.SampledFrom([]int{3, 20, 100}).Draw(rt, "times"), cost)
		f.asking = f.tenants
	}
}

// scale has all limits be a part of the policy's, 1 for all of it, for longer than the run lasts; what is on lease then is spent.
func (f *fleet) scale(tb testing.TB, part float64) {
	tb.Helper()
	lasts := time.Hour
	if part == 1 {
		part, lasts = 0, 0
	}
	if part == f.scaled {
		return
	}
	f.scaled = part
	_, err := f.store.ScaleLimits(tb.Context(), store.ScaleAll, part, lasts, store.Intervention{})
	check(tb, err)
	f.noteChange(f.whole)
	f.exhaust(tb)
}

// rush lets all take on lease what they can, waits until the bucket is full again or nearly, and spends all at once.
func (f *fleet) rush(tb testing.TB) {
	tb.Helper()
	for range 2 {
		for i := range f.limiters {
			f.ask(tb, i, 20, 1)
		}
		f.time.pass(30 * time.Millisecond)
	}
	f.time.pass(leaseLife / 2)
	f.exhaust(tb)
}

// exhaust spends what is on lease, and the bucket down to nothing.
func (f *fleet) exhaust(tb testing.TB) {
	tb.Helper()
	for i := range f.limiters {
		for _, cost := range []admission.Tokens{1000, 100, 10, 1} {
			f.ask(tb, i, 20, cost)
		}
	}
}

// checkHeld fails unless all that is on lease, of killed limiters too, is within what Guarantee prints, or would without Strict.
func (f *fleet) checkHeld(t *rapid.T) {
	now, sum := time.Duration(f.time.process.Load()), admission.Tokens(0)
	for _, m := range f.moments {
		if at := m.at + time.Duration(f.began); (m.stepped || m.limit != f.limit) && at > now-2*leaseLife {
			return // What is on lease may be of another limit, or be thought to have ended.
		}
	}
	for _, l := range slices.Concat(f.killed, f.limiters) {
		for _, part := range units(l) {
			if s, ok := part.ways.scopes.Load(admission.Global); ok && !s.ended(breaker.Instant(now)) {
				sum += s.held.tokens()
			}
		}
	}
	limit, parts := f.limit, admission.Tokens(len(f.tenants))
	if most := parts * leasable(&limit, &f.config, parts); sum > most {
		t.Fatalf("%d tokens on lease, which may be %d", sum, most)
	}
}

// TestLeasesWasteNothing: under load, what may be admitted is, wherever the load is.
func TestLeasesWasteNothing(t *testing.T) {
	t.Parallel()
	const limiters, rate, seconds = 16, 2000, 8
	for name, share := range map[string]func(i int) int{
		"even":   func(int) int { return 2 },
		"skewed": func(i int) int { return map[bool]int{true: 28, false: 0}[i == 0] + i%2 },
	} {
		for _, strict := range []bool{false, true} {
			t.Run(name+" strict="+strconv.FormatBool(strict), func(t *testing.T) {
				t.Parallel()
				v := newVirtual()
				f := newFleet(v, open(t, v.client(t)), Config{Strict: strict, Timeout: patient})
				f.put(t, admission.PerSecond(rate))
				for range limiters {
					f.join(t)
				}
				sum := admission.Tokens(0)
				// The rate allows 20 tokens in 10 ms, and some 30 are asked for. The first two seconds use up the burst.
				for tick := range seconds * 100 {
					for i := range f.limiters {
						i = (i + tick) % limiters
						if times := share(i); times > 0 {
							admitted := f.ask(t, i, times, 1)
							if tick >= 200 {
								sum += admitted
							}
						}
					}
					v.pass(10 * time.Millisecond)
				}
				used := float64(sum) / (rate * (seconds - 2))
				t.Logf("%.4f of the rate; %d checks leased", used, f.leased)
				if used < 0.98 {
					t.Errorf("%.4f of what may be admitted was", used)
				}
			})
		}
	}
}
