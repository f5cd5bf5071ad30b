package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// BenchmarkDimensionMemory is B3.4: what Redis takes for the buckets of a million users and 10,000 routes, drawn by Zipf's law (s = 1.05), by live
// bucket, which is one that is not full. Each key of Redis that has some has an end, when the last is full: so idle ones take nothing.
func BenchmarkDimensionMemory(b *testing.B) {
	for range b.N {
		client := redistest.Start(b, redistest.Options{}).Client(b)
		s := open(b, client)
		p := policy.Unlimited()
		slow := admission.Limit{Tokens: 1, Per: time.Hour, Burst: 100} // So that none is full before the last is asked.
		p.Dimensions = map[string]policy.DimensionRules{"user": {Limit: slow, MaxKeys: 1_500_000}, "route": {Limit: admission.PerSecond(100).WithBurst(1_000_000), MaxKeys: 20_000}}
		compiled, err := p.Prepare()
		check(b, err)
		ask := func(name, value string) store.Question {
			owner, key, err := compiled.Dimension(name, value, "")
			check(b, err)
			q := store.Question{Tenant: owner, Queue: key, Cost: 1}
			q.Limits, q.MaxKeys, _ = compiled.DimensionLimits(owner, key)
			return q
		}
		before := usedMemory(b, client)
		draw := rand.New(rand.NewPCG(1, 2))
		users, routes := rand.NewZipf(draw, 1.05, 1, 999_999), rand.NewZipf(draw, 1.05, 1, 9_999)
		began, checks := time.Now(), 0
		// Each user asks once, and as many by the law.
		for n := range 1_000_000 / 16 {
			questions := make([]store.Question, 0, 64)
			for i := range 16 {
				questions = append(questions, ask("user", strconv.Itoa(16*n+i)), ask("user", strconv.FormatUint(users.Uint64(), 10)),
					ask("route", fmt.Sprint("/v1/route-", routes.Uint64())))
			}
			_, err := s.Partitions()[0].Grant(b.Context(), &store.Grant{Member: "m", Lease: time.Second, Questions: questions})
			check(b, err)
			checks += len(questions)
		}
		took := time.Since(began)
		live, packed := countBuckets(b, client)
		b.ReportMetric(float64(usedMemory(b, client)-before)/float64(live), "B/live")
		b.ReportMetric(float64(live), "live")
		b.ReportMetric(100*packed, "%packed")
		b.ReportMetric(float64(checks)/took.Seconds(), "buckets/s")
	}
}

func usedMemory(tb testing.TB, client *redis.Client) int64 {
	tb.Helper()
	info, err := client.InfoMap(tb.Context(), "memory").Result()
	check(tb, err)
	n, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	check(tb, err)
	return n
}

// countBuckets returns how many buckets of dimensions there are, and which part of them in hashes that Redis packs.
func countBuckets(tb testing.TB, client *redis.Client) (live int64, packed float64) {
	tb.Helper()
	count := redis.NewScript(`
local live, packed, cursor = 0, 0, '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', '*b:+*', 'COUNT', 10000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local n = redis.call('HLEN', key) - 1
    live = live + n
    if redis.call('PTTL', key) < 0 then return redis.error_reply(key .. ' does not end') end
    if redis.call('OBJECT', 'ENCODING', key) ~= 'hashtable' then packed = packed + n end
  end
until cursor == '0'
return { live, packed }`)
	got, err := count.Run(context.WithoutCancel(tb.Context()), client, nil).Int64Slice()
	check(tb, err)
	return got[0], float64(got[1]) / float64(got[0])
}

// BenchmarkFourWays is what a check of a tenant and three dimensions, each with a limit of its own, takes of Redis by its statistics, exactly and on lease, at a pace: a second
// of each in turn. One process has the ways for itself.
func BenchmarkFourWays(b *testing.B) {
	limit := admission.PerSecond(20_000)
	p := limited(none, limit)
	p.Dimensions = map[string]policy.DimensionRules{"user": {Limit: limit}, "route": {Limit: limit}, "ip": {Limit: limit, By: []string{"/24", "/64"}}}
	r := Request{Tenant: "acme", Cost: 1, Also: also("user", "123", "route", "GET-/v1/pay", "ip", "203.0.113.7")}
	for _, pace := range []int{10, 100, 1000, 4000} {
		b.Run("checks="+strconv.Itoa(pace), func(b *testing.B) {
			client := redistest.Start(b, redistest.Options{}).Client(b)
			var by [2]*Limiter
			for i := range by {
				s, err := redisstore.Open(b.Context(), client, redisstore.Config{Prefix: redistest.Prefix(b) + strconv.Itoa(i)})
				check(b, err)
				by[i] = start(b, s, Config{Policy: p, Timeout: patient, Exact: i == 0})
				_, err = by[i].Check(b.Context(), r)
				check(b, err)
			}
			warm(b, by[1], r)
			var took [2][]float64
			var ratios []float64
			leased := 0
			for b.Loop() {
				for i, l := range by {
					before := scriptMicros(b, client)
					leased += atAPace(b, l, r, pace)
					took[i] = append(took[i], (scriptMicros(b, client)-before)/float64(pace))
				}
				ratios = append(ratios, took[1][len(ratios)]/took[0][len(ratios)])
			}
			for _, all := range [][]float64{took[0], took[1], ratios} {
				slices.Sort(all)
			}
			b.ReportMetric(took[0][len(ratios)/2], "exact-us/check")
			b.ReportMetric(took[1][len(ratios)/2], "leased-us/check")
			b.ReportMetric(ratios[len(ratios)/2], "leased/exact")
			b.ReportMetric(float64(leased)/float64(pace*len(ratios)), "leased/check")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// atAPace makes so many checks in a second or a little more, and returns how many were answered on lease.
func atAPace(b *testing.B, l *Limiter, r Request, checks int) (leased int) {
	b.Helper()
	next := time.NewTicker(time.Second / time.Duration(checks))
	defer next.Stop()
	for range checks {
		<-next.C
		v, err := l.Check(b.Context(), r)
		if check(b, err); !v.Admitted {
			b.Fatal(v)
		}
		if v.Source == Leased {
			leased++
		}
	}
	return leased
}

// scriptMicros is what scripts have taken of Redis' time.
func scriptMicros(tb testing.TB, client *redis.Client) float64 {
	tb.Helper()
	return redistest.CommandStats(tb, client)["fcall"].Micros
}
