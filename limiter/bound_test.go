package limiter

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

// moment is what was admitted at one time, under which limit, and whether the clock of Redis stepped just before.
type moment struct {
	at       time.Duration
	admitted headgate.Tokens
	limit    headgate.Limit
	stepped  bool
}

// fleet is limiters of one deployment in a time of their own.
type fleet struct {
	time     *virtual
	store    *lua.Store
	config   Config
	limit    headgate.Limit
	version  int64
	limiters []*Limiter
	// killed are gone with what they hold.
	killed  []*Limiter
	began   int64
	moments []moment
	leased  int
}

func (f *fleet) put(tb testing.TB, limit headgate.Limit) {
	tb.Helper()
	f.version++
	f.limit = limit
	p := policy.Unlimited()
	p.Global, p.Version = limit, f.version
	put(tb, f.store, &p)
	f.note(0, false)
}

func (f *fleet) note(admitted headgate.Tokens, stepped bool) {
	at := time.Duration(f.time.process.Load() - f.began)
	if n := len(f.moments); n > 0 && f.moments[n-1].at == at && !stepped && f.moments[n-1].limit == f.limit {
		f.moments[n-1].admitted += admitted
		return
	}
	f.moments = append(f.moments, moment{at, admitted, f.limit, stepped})
}

func (f *fleet) join(tb testing.TB) {
	tb.Helper()
	l := start(tb, f.store, f.config)
	l.clock.set = &f.time.process
	f.limiters = append(f.limiters, l)
}

func (f *fleet) part(i int) *Limiter {
	l := f.limiters[i]
	f.limiters = append(f.limiters[:i:i], f.limiters[i+1:]...)
	return l
}

// ask makes checks of one limiter until one is refused, and waits for what it fetches.
func (f *fleet) ask(tb testing.TB, i, times int, cost headgate.Tokens) headgate.Tokens {
	tb.Helper()
	l, sum := f.limiters[i], headgate.Tokens(0)
	for range times {
		v, err := l.Check(tb.Context(), Request{Tenant: "acme", Cost: cost})
		check(tb, err)
		if v.Source == Leased {
			f.leased++
		}
		l.line.flying.Wait()
		if !v.Admitted {
			break
		}
		sum += cost
	}
	f.note(sum, false)
	return sum
}

// checkBound fails unless every window that begins and ends with a moment is within the bound that Guarantee prints. What was
// in force in the second before a window counts too: leases of then may be spent in it.
func (f *fleet) checkBound(t *rapid.T) {
	for first := range f.moments {
		from := f.moments[first].at
		var burst, leased headgate.Tokens
		rate, steps, changes, sum := headgate.TokensPerSecond(0), 0, 0, headgate.Tokens(0)
		for i, m := range f.moments {
			if m.at < from-leaseLife {
				if i+1 < len(f.moments) && f.moments[i+1].at >= from-leaseLife {
					burst, rate = m.limit.Burst, m.limit.Rate()
				}
				continue
			}
			if i > 0 && m.limit != f.moments[i-1].limit {
				changes++
			}
			burst, rate = max(burst, m.limit.Burst), max(rate, m.limit.Rate())
			if m.stepped {
				steps++
			}
			if i < first {
				continue
			}
			if !f.config.Strict {
				limit := headgate.Limit{Burst: burst}
				leased = leasable(&limit, &f.config)
			}
			sum += m.admitted
			bound := float64(burst+leased) + float64(rate)*(m.at-from).Seconds() + float64(burst)*float64(steps)
			if changes > 1 {
				bound += float64(burst) * float64(changes-1)
			}
			if float64(sum) > bound+1e-6 {
				t.Fatalf("%d admitted from %s to %s, bound %.3f (burst %d, leased %d, strict %t, %d steps)", sum, from, m.at, bound, burst, leased, f.config.Strict, steps)
			}
		}
	}
}

// TestLeasesKeepTheBound: law L1 for leases. Limiters come, go, are killed with tokens in hand; the clock of Redis steps; the
// limit changes. Over all time Σ ≤ burst + rate·t, in a window at most Guarantee.Leased more, with Strict nothing more.
func TestLeasesKeepTheBound(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	client, prefix, run, leased := v.client(t), redistest.Prefix(t), 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		store, err := lua.Open(t.Context(), client, lua.Config{Prefix: prefix + strconv.Itoa(run)})
		check(t, err)
		f := &fleet{time: v, store: store, config: Config{Strict: rapid.Bool().Draw(rt, "strict"), Timeout: patient}, began: v.process.Load()}
		f.put(t, drawLimit(rt))
		for range rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, 64)).Draw(rt, "limiters") {
			f.join(t)
		}
		stepping := rapid.Bool().Draw(rt, "stepping")
		for range rapid.IntRange(15, 40).Draw(rt, "operations") {
			f.operate(t, rt, stepping)
			f.checkHeld(rt)
		}
		f.checkBound(rt)
		f.checkSum(rt)
		leased += f.leased
	})
	if leased == 0 {
		t.Error("nothing was ever leased")
	}
}

func drawLimit(t *rapid.T) headgate.Limit {
	rate := headgate.Tokens(rapid.SampledFrom([]int{50, 500, 5000}).Draw(t, "rate"))
	return headgate.PerSecond(rate, rate*headgate.Tokens(rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "burst"))/2)
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
		f.note(0, true)
	case 3:
		if f.version == 1 {
			f.put(tb, drawLimit(rt))
		}
	case 4:
		f.rush(tb)
	case 5, 6, 7, 8, 9, 10:
		f.time.pass(time.Duration(rapid.SampledFrom([]int{1, 7, 25, 60, 110, 400, 1300}).Draw(rt, "ms")) * time.Millisecond)
	default:
		cost := headgate.Tokens(rapid.SampledFrom([]int{1, 1, 2, 5, 20}).Draw(rt, "cost"))
		f.ask(tb, one(), rapid.SampledFrom([]int{3, 20, 100}).Draw(rt, "times"), cost)
	}
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
	for i := range f.limiters {
		for _, cost := range []headgate.Tokens{100, 10, 1} {
			f.ask(tb, i, 20, cost)
		}
	}
}

// checkHeld fails unless all that is on lease, of killed limiters too, is within what Guarantee prints, or would without Strict.
func (f *fleet) checkHeld(t *rapid.T) {
	now, sum := time.Duration(f.time.process.Load()), headgate.Tokens(0)
	for _, m := range f.moments {
		if at := m.at + time.Duration(f.began); (m.stepped || m.limit != f.limit) && at > now-2*leaseLife {
			return // What is on lease may be of another limit, or be thought to have ended.
		}
	}
	for _, l := range slices.Concat(f.killed, f.limiters) {
		if s, ok := l.ways.scopes.Load(headgate.Global); ok && !s.ended(breaker.Instant(now)) {
			sum += s.held.tokens()
		}
	}
	limit := f.limit
	if most := leasable(&limit, &f.config); sum > most {
		t.Fatalf("%d tokens on lease, which may be %d", sum, most)
	}
}

// checkSum fails unless what was admitted since the beginning is within burst and rate, for one limit and a steady clock.
func (f *fleet) checkSum(t *rapid.T) {
	sum := headgate.Tokens(0)
	for _, m := range f.moments {
		if m.stepped || f.version > 1 {
			return
		}
		sum += m.admitted
		if bound := float64(f.limit.Burst) + float64(f.limit.Rate())*m.at.Seconds(); float64(sum) > bound+1e-6 {
			t.Fatalf("%d admitted until %s, bound %.3f", sum, m.at, bound)
		}
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
				f := &fleet{time: v, store: open(t, v.client(t)), config: Config{Strict: strict, Timeout: patient}, began: v.process.Load()}
				f.put(t, headgate.PerSecond(rate, rate))
				for range limiters {
					f.join(t)
				}
				sum := headgate.Tokens(0)
				// The rate allows 10 tokens in 5 ms, and some 30 are asked for. The first two seconds use up the burst.
				for tick := range seconds * 200 {
					for i := range f.limiters {
						i = (i + tick) % limiters
						if times := share(i); times > 0 {
							admitted := f.ask(t, i, times, 1)
							if tick >= 400 {
								sum += admitted
							}
						}
					}
					v.pass(5 * time.Millisecond)
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
