package scheduler_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// counted writes what queues were asked for in the hour before now: mail has 3 admitted and 1 refused a minute, hook, in every other one, 5 more than
// the minute's number in its ten. It returns the points that whoever begins within five minutes finds whole.
func counted(t *testing.T, client redis.UniversalClient, s store.Deployment) (points []time.Time) {
	t.Helper()
	keys := redisstore.KeysOf(s.Partitions()[0])
	now, err := s.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pipe := client.Pipeline()
	for ago := range int64(63) {
		minute := now.Unix()/60 - ago
		pipe.HSet(t.Context(), keys.Watched(minute), "a:mail", 3, "r:mail", 1)
		if minute%2 == 0 {
			pipe.HSet(t.Context(), keys.Watched(minute), "a:hook", 5+minute%10)
		}
		pipe.HSet(t.Context(), keys.Counts(minute), "global", "30:10:40:0")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for at := now.Truncate(store.RateStep).Add(-store.RateStep); now.Sub(at) < 54*time.Minute; at = at.Add(-store.RateStep) {
		if now.Sub(at) > store.RateStep+70*time.Second { // Else it may not be over for those who look 5 s late.
			points = append(points, at)
		}
	}
	return points
}

// kept returns the points of a queue that are known, by when they began.
func kept(t *testing.T, s store.Deployment, queue string) map[time.Time]store.Rate {
	t.Helper()
	h, err := s.RateHistory(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	points := map[time.Time]store.Rate{}
	for i, one := range h.Queues[queue] {
		if one.Known {
			points[h.First.Add(time.Duration(i)*store.RateStep).UTC()] = one
		}
	}
	return points
}

// checkKept compares what is kept with what counted has written.
func checkKept(t *testing.T, s store.Deployment, points []time.Time) {
	t.Helper()
	for queue, want := range map[string]store.Rate{"mail": {Allowed: 30, Refused: 10, Known: true}, "hook": {Allowed: 25 + 0 + 2 + 4 + 6 + 8, Known: true}, "nobody": {Known: true}} {
		of := kept(t, s, queue)
		for at, one := range of {
			if one != want {
				t.Errorf("the point of %s at %v is %+v, want %+v", queue, at, one, want)
			}
		}
		for _, at := range points {
			if !of[at.UTC()].Known {
				t.Errorf("the point of %s at %v is lost", queue, at)
			}
		}
	}
}

// TestRatesAtEveryPoint has a scheduler die at each of the writes by which points of rates are kept, before Redis has it and after, at two partitions.
// Another takes over, and no point of the hour is lost, or counted twice.
func TestRatesAtEveryPoint(t *testing.T) {
	t.Parallel()
	dieAtEveryPoint(t, "write of rates", 4, 3, ratesDieAt)
}

// ratesDieAt is a run whose first scheduler dies at a write, and reports whether it came to that.
func ratesDieAt(t *testing.T, k int64, cut redistest.Cut) bool {
	t.Helper()
	server, prefix := redistest.Shared(t), redistest.Prefix(t)
	client := server.Client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	watchedBy(t, s, &policy.AnomalyRules{Forecast: true})
	points := counted(t, client, s)
	proxy := redistest.NewProxy(t, server.Addr())
	first, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: prefix, Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	var writes atomic.Int64
	var dead atomic.Bool
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if dead.Load() {
			return redistest.Action{Cut: redistest.CutBefore}
		}
		if !c.IsScript() || !strings.HasSuffix(c.Args[0], "_rates") || writes.Add(1) != k {
			return redistest.Action{}
		}
		dead.Store(true)
		return redistest.Action{Cut: cut}
	})
	leave := run(t, first, scheduler.Config{TimerLease: handOver})
	took := false
	await(t, "all points", func() bool {
		if dead.Load() && !took {
			leave()
			run(t, s, scheduler.Config{TimerLease: handOver})
			took = true
		}
		of := kept(t, s, "mail")
		for _, at := range points {
			if !of[at.UTC()].Known {
				return false
			}
		}
		return true
	})
	checkKept(t, s, points)
	return dead.Load()
}

// TestRatesAreKeptWhereThePolicySaysSo: anomalies alone have nobody keep them, and what is kept has a TTL.
func TestRatesAreKeptWhereThePolicySaysSo(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := open(t, client)
	watchedBy(t, s, &policy.AnomalyRules{})
	hour(t, client, s, true)
	stop := run(t, s, scheduler.Config{TimerLease: handOver})
	oddOnes(t, s, 3) // The hour was read.
	stop()
	keys := redisstore.KeysOf(s.Partitions()[0])
	now, err := s.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	today, _ := store.RateSlot(now)
	days := []string{keys.Rates(today - 1), keys.Rates(today)}
	if n := client.Exists(t.Context(), days...).Val(); n > 0 {
		t.Errorf("%d days of rates are kept though nobody asks for it", n)
	}
	watchedBy(t, s, &policy.AnomalyRules{Forecast: true})
	points := counted(t, client, s)
	run(t, s, scheduler.Config{TimerLease: handOver})
	await(t, "points", func() bool { return len(kept(t, s, "mail")) >= len(points) })
	for _, key := range days {
		if ttl := client.TTL(t.Context(), key).Val(); ttl >= 0 && ttl <= store.RateHistoryLife {
			t.Errorf("a day is kept for %v", ttl)
		}
	}
}
