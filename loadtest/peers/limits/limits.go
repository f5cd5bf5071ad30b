package limits

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limit is so many tokens in each window. A bucket holds as many, and gets as many in a window, unless its subject waits.
type Limit struct {
	Tokens int
	Window time.Duration
}

// Ask asks for a token of a tenant, and reports whether it got one.
type Ask func(ctx context.Context, tenant string) (bool, error)

// Subject is an algorithm of a library.
type Subject struct {
	// Name is the algorithm and the library.
	Name string
	// Open opens an instance that keeps its counts in the Redis at an address.
	Open func(tb testing.TB, addr string, limit Limit) Ask
	// Most is the largest limit that Speed sets, where there is one.
	Most int
	// Waits says that Ask waits for its token. It counts then as it returns, not while it asks.
	Waits bool
	// Alone says that instances share nothing, so there is one.
	Alone bool
}

// The load of Speed.
const (
	Callers = 64
	tenants = 1000
	plenty  = 1_000_000
	// warmUp is how many checks each tenant has before: connections are opened then, and leases fetched.
	warmUp = 10
	checks = 60
)

// Start starts a Redis and returns its address.
type Start func(tb testing.TB) (addr string)

// Speed measures a subject.
func Speed(b *testing.B, start Start, s Subject) {
	b.Helper()
	addr := start(b)
	ask := s.Open(b, addr, Limit{Tokens: cmp.Or(s.Most, plenty), Window: time.Second})
	run := func(each int) (refused int) {
		var mu sync.Mutex
		var asking sync.WaitGroup
		for k := range Callers {
			asking.Go(func() {
				mine := 0
				for i := k; i < tenants*each; i += Callers {
					ok, err := ask(b.Context(), "tenant-"+strconv.Itoa(i%tenants))
					if err != nil {
						b.Error(err)
						return
					}
					if !ok {
						mine++
					}
				}
				mu.Lock()
				defer mu.Unlock()
				refused += mine
			})
		}
		asking.Wait()
		return refused
	}
	run(warmUp)
	// A subject that asks no Redis is done in no time: it is measured for as long as the others.
	each := checks
	began := time.Now()
	run(each)
	each = max(each, int(float64(each)*0.5/time.Since(began).Seconds()))
	before := spent(b, addr)
	began = time.Now()
	refused := run(each)
	took := time.Since(began)
	n := float64(tenants * each)
	b.ReportMetric(n/took.Seconds(), "checks/s")
	b.ReportMetric(1e6*(spent(b, addr)-before)/n, "redis-us/check")
	b.ReportMetric(float64(refused)/n, "refused/check")
	b.ReportMetric(0, "ns/op")
}

// spent is the seconds of its processor that a Redis has had.
func spent(tb testing.TB, addr string) float64 {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	info, err := client.InfoMap(tb.Context(), "cpu").Result()
	if err != nil {
		tb.Fatal(err)
	}
	sum := 0.0
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		value, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			tb.Fatal(err)
		}
		sum += value
	}
	return sum
}

// The limit of Exactness, its instances, and how long who waits does at most.
var exactly = Limit{Tokens: 100, Window: 2 * time.Second}

const (
	instances = 4
	patience  = time.Second
)

// Arrivals are the times after the beginning of a window by the clock at which Exactness asks: a call that opens windows which begin with the
// first one, bursts of one and a half limits on both sides of the edges of windows, and twice the limit evenly.
func Arrivals() []time.Duration {
	all := []time.Duration{0}
	burst := func(at time.Duration) {
		for i := range exactly.Tokens * 3 / 2 {
			all = append(all, at+time.Duration(i)*500*time.Microsecond)
		}
	}
	const before, after = 100 * time.Millisecond, 30 * time.Millisecond
	for _, edge := range []time.Duration{exactly.Window, 2 * exactly.Window, 4 * exactly.Window} {
		burst(edge - before)
		burst(edge + after)
	}
	every := exactly.Window / time.Duration(2*exactly.Tokens)
	for at := 9 * exactly.Window / 4; at < 15*exactly.Window/4; at += every {
		all = append(all, at)
	}
	slices.Sort(all)
	return all
}

// Call is one that was let through: when it was asked, and answered.
type Call struct{ Asked, Answered time.Duration }

// Result is what came of the arrivals.
type Result struct {
	Passed []Call
	Failed int
}

// Exactness asks by Arrivals, of all subjects at the same time, each of which has a Redis of its own.
func Exactness(b *testing.B, start Start, subjects []Subject) []Result {
	b.Helper()
	arrivals := Arrivals()
	results := make([]Result, len(subjects))
	asks := make([][]Ask, len(subjects))
	for i, s := range subjects {
		addr := start(b)
		for range instances {
			asks[i] = append(asks[i], s.Open(b, addr, exactly))
			if s.Alone {
				break
			}
		}
		for _, ask := range asks[i] { // Connections are opened.
			if _, err := ask(b.Context(), "other"); err != nil {
				b.Fatal(s.Name, err)
			}
		}
	}
	began := time.Now().Add(exactly.Window / 4).Truncate(exactly.Window).Add(exactly.Window)
	var running sync.WaitGroup
	var mu sync.Mutex
	for number, at := range arrivals {
		time.Sleep(time.Until(began.Add(at))) //nolint:forbidigo // the pace of calls
		for i, s := range subjects {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(b.Context(), patience)
				defer cancel()
				asked := time.Since(began)
				ok, err := asks[i][number%len(asks[i])](ctx, "tenant")
				call := Call{Asked: asked, Answered: time.Since(began)}
				if s.Waits {
					call.Asked = call.Answered
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case s.Waits && (ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)): // Its patience was over, which is a refusal.
				case err != nil:
					results[i].Failed++
				case ok:
					results[i].Passed = append(results[i].Passed, call)
				}
			})
		}
	}
	running.Wait()
	return results
}

// Report reports what came of a subject's arrivals.
func (r *Result) Report(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(Most(r.Passed, exactly.Window)), "most-of-"+strconv.Itoa(exactly.Tokens))
	b.ReportMetric(float64(len(r.Passed))/float64(Possible(Arrivals(), exactly)), "of-possible")
	b.ReportMetric(float64(r.Failed), "failed")
	b.ReportMetric(0, "ns/op")
}

// Most returns the largest number of calls that a window holds from being asked to being answered: so many were let through in it, whenever
// between the two each of them was.
func Most(passed []Call, window time.Duration) int {
	most := 0
	for _, first := range passed {
		n := 0
		for _, c := range passed {
			if c.Asked >= first.Asked && c.Answered <= first.Asked+window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Possible returns how many of the arrivals are let through by who lets each through that no window forbids.
func Possible(arrivals []time.Duration, limit Limit) int {
	var passed []time.Duration
	for _, at := range arrivals {
		if n := len(passed); n < limit.Tokens || at-passed[n-limit.Tokens] >= limit.Window {
			passed = append(passed, at)
		}
	}
	return len(passed)
}

// Run runs both benchmarks of subjects, as sub-benchmarks of b.
func Run(b *testing.B, start Start, subjects []Subject) {
	b.Helper()
	for _, s := range subjects {
		b.Run("speed/"+s.Name, func(b *testing.B) {
			for b.Loop() {
				Speed(b, start, s)
			}
		})
	}
	var once sync.Once
	var results []Result
	for i, s := range subjects {
		b.Run("exactness/"+s.Name, func(b *testing.B) {
			for b.Loop() {
				once.Do(func() { results = Exactness(b, start, subjects) })
				if len(results) == 0 {
					b.Fatal("nothing was measured")
				}
				results[i].Report(b)
			}
		})
	}
}
