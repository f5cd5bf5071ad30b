package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// BenchmarkAccountMemory has jobs call for a million accounts of one service, each of which has a cap and a rate: what an account takes of Redis whose
// rate is not full, and what all take together once they are idle.
func BenchmarkAccountMemory(b *testing.B) {
	const accounts = 1_000_000
	var none [admission.Levels]admission.Limit
	for level := range none {
		none[level].Disabled = true
	}
	for range b.N {
		clock := redistest.NewClock(b, 0)
		client := redistest.Start(b, redistest.Options{Clock: clock}).Client(b)
		s, err := newStore(client, Config{}, "")
		check(b, err)
		check(b, s.PutPolicy(b.Context(), store.PolicyUpdate{
			Version: 1, Text: []byte("{}"), Edit: "one", Window: time.Second,
			Caps: []store.Cap{{Gate: "d:shopify+*", Limit: 4}, {Gate: "s:shopify+*", Rate: admission.PerHour(2).WithBurst(40)}},
		}))
		pool := store.Pool{Queues: []store.QueueWeight{{Queue: "q", Weight: 1}}}
		_, err = s.Register(b.Context(), "w", pool, 64, time.Hour)
		check(b, err)
		used := func() int64 {
			u, err := redisconn.Client(s.conn).InfoMap(b.Context(), "memory").Result()
			check(b, err)
			var n int64
			_, err = fmt.Sscan(u["Memory"]["used_memory"], &n)
			check(b, err)
			return n
		}
		call := func(from, to int) {
			for n := from; n < to; n += 64 {
				at := n
				benchAdmit(b, s, 1, &none, 64, n, func(c *store.Candidate) {
					c.Job.Downstream = fmt.Sprint("shopify+shop-", at)
					at++
				})
				benchDrain(b, s, pool, 64)
			}
		}
		call(0, 64)
		before := used()
		began := time.Now()
		call(64, accounts)
		b.ReportMetric(float64(accounts)/time.Since(began).Seconds(), "jobs/s")
		b.ReportMetric(float64(used()-before)/accounts, "B/account")
		clock.Step(b, 2*time.Hour)
		for cursor := uint64(0); ; { // Redis finds those that have ended as it is asked for them.
			_, next, err := client.Scan(b.Context(), cursor, "", 10_000).Result()
			check(b, err)
			if cursor = next; cursor == 0 {
				break
			}
		}
		_, err = s.Promote(b.Context(), "one", time.Minute) // Timers end what has its own.
		check(b, err)
		b.ReportMetric(float64(used()-before)/accounts, "B/idle")
	}
}
