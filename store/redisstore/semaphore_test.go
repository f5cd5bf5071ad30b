package redisstore_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// semaphores are calls of semaphores in Redis and in memory, in a time that the test says.
type semaphores struct {
	records map[store.Partition]int64 // the version of ann's
	rt      *rapid.T
	t       *testing.T
	r       *rand.Rand
	redis   *redisstore.Partition
	memory  *memory.Partition
	now     time.Time
	log     []string
	heard   map[string]int
}

// TestSemaphoresEqualTheModel: long sequences of few tokens of few semaphores, with leases that end, places that are lost, clocks that step
// and limits that change, in which both answer alike, word for word.
func TestSemaphoresEqualTheModel(t *testing.T) {
	t.Parallel()
	client, prefix, run := redistest.Shared(t).Client(t), redistest.Prefix(t), 0
	heard := map[string]int{}
	for range 3 { // What is asked for below is rare.
		rapid.Check(t, func(rt *rapid.T) {
			run++
			part, err := redisstore.NewStore(client, redisstore.Config{Prefix: fmt.Sprint(prefix, run)}, "")
			check(t, err)
			seed := rapid.Uint64().Draw(rt, "seed")
			w := &semaphores{rt: rt, t: t, r: rand.New(rand.NewPCG(seed, 1)), redis: part, now: time.UnixMicro(1_800_000_000_000_000), heard: heard, records: map[store.Partition]int64{}} //nolint:gosec // a test's own
			w.memory = memory.New(memory.Config{Now: func() time.Time { return w.now }})
			for range 300 {
				w.step()
			}
		})
	}
	for _, answer := range []string{"stale", "granted", "waiting", "refused", "large", "other", "extended", "ended", "back", "gone"} {
		if heard[answer] < 20 {
			t.Errorf("%s was heard %d times, of %v", answer, heard[answer], heard)
		}
	}
}

func (w *semaphores) step() {
	switch w.r.IntN(24) {
	case 0:
		w.now = w.now.Add(time.Duration(w.r.IntN(60_000)) * time.Millisecond) // Counts as five seconds.
	case 1:
		w.now = w.now.Add(-time.Duration(w.r.IntN(20_000)) * time.Millisecond)
	case 2, 3, 4, 5:
		w.now = w.now.Add(time.Duration(w.r.IntN(5_000_000)) * time.Microsecond)
	default:
		w.now = w.now.Add(time.Duration(w.r.IntN(300_000)) * time.Microsecond)
	}
	w.redis.SetTime(w.now)
	name, token := []string{"gpu", "gpu", "gpu", "ann:gpu"}[w.r.IntN(4)], fmt.Sprint("t", w.r.IntN(9))
	lease := time.Duration(1000+w.r.IntN(20_000)) * time.Millisecond
	ctx := w.t.Context()
	switch w.r.IntN(9) {
	case 8:
		text := fmt.Appendf(nil, `{"semaphores":{"gpu":{"max":%d}}}`, w.r.IntN(2))
		w.same("another record of ann", func(s store.Partition) redistest.Reply {
			version, err := s.PutRecord(ctx, store.RecordEdit{Tenant: "ann", Text: text, By: store.Intervention{Own: true}})
			w.records[s] = version // Of a time that goes back they are not the same.
			return redistest.Replied(err)
		})
	case 0, 1:
		reply := w.same("release "+token+" of "+name, func(s store.Partition) redistest.Reply {
			return redistest.Replied(ended(s.Release(ctx, name, token)), nil)
		})
		w.heard[map[any]string{"": "back", "ended": "gone"}[reply.Values[0]]]++
	case 2:
		reply := w.same("extend "+token+" of "+name, func(s store.Partition) redistest.Reply {
			permit, err := s.Extend(ctx, name, token, lease)
			return redistest.Replied(permit, ended(err), nil)
		})
		w.heard[map[any]string{"": "extended", "ended": "ended"}[reply.Values[1]]]++
	case 3:
		w.same("look at "+name, func(s store.Partition) redistest.Reply { return redistest.Replied(s.Semaphore(ctx, name)) })
		w.same("names", func(s store.Partition) redistest.Reply { return redistest.Replied(s.SemaphoreNames(ctx)) })
	default:
		ask := store.Acquire{
			Name: name, Token: token, Permits: []int{1, 1, 1, 2, 3}[w.r.IntN(5)], Lease: lease,
			Max: []int{4, 4, 4, 4, 4, 4, 5, 2}[w.r.IntN(8)], Queue: w.r.IntN(4) > 0,
		}
		if ask.Tenant() != "" && w.r.IntN(4) > 0 { // Who knows of no records, as an older release, says nothing.
			ask.Record = 1
			if w.r.IntN(8) == 0 {
				ask.Record = 2
			}
		}
		reply := w.same(fmt.Sprintf("acquire %+v", ask), func(s store.Partition) redistest.Reply {
			ask := ask
			if known, is := w.records[s]; is && ask.Record > 0 {
				ask.Record += known - 1
			}
			permit, err := s.Acquire(ctx, ask)
			if stale, is := errors.AsType[*store.StaleRecordsError](err); is {
				stale.Records[0].Version = 0
			}
			return redistest.Replied(permit, err)
		})
		permit, _ := reply.Values[0].(store.Permit)
		if w.heard[string(permit.Answer)]++; reply.Err != "" {
			w.heard["stale"]++
		}
	}
}

func (w *semaphores) same(what string, do func(s store.Partition) redistest.Reply) redistest.Reply {
	w.log = append(w.log, w.now.Format("04:05.000000 ")+what)
	one, other := do(w.redis), do(w.memory)
	if !reflect.DeepEqual(redistest.Scrubbed(one), redistest.Scrubbed(other)) {
		for _, line := range w.log {
			w.rt.Log(line)
		}
		w.rt.Fatalf("%s:\nRedis  %+v\nmemory %+v", what, one, other)
	}
	return one
}

// TestSemaphoresAreBounded, each by its own bound: who holds permits, who waits, semaphores in use, and those of a tenant. What is given back
// makes room, and what nobody came back to is forgotten when another is made.
func TestSemaphoresAreBounded(t *testing.T) {
	t.Parallel()
	scripts := maps.Clone(lua.Scripts("", lua.SingleLayout))
	const bounds = "local MAX_HOLDERS, MAX_LINE, MAX_SEMAPHORES, MAX_SEMAPHORES_OF_ONE = "
	redisstore.Lower(t, scripts, bounds+"%d, 1000, 10000, 1000", store.MaxSemaphoreHolders, 3)
	redisstore.Lower(t, scripts, bounds+"3, %d, 10000, 1000", store.MaxSemaphoreLine, 2)
	redisstore.Lower(t, scripts, bounds+"3, 2, %d, 1000", store.MaxSemaphores, 5)
	redisstore.Lower(t, scripts, bounds+"3, 2, 5, %d", store.MaxSemaphoresOfTenant, 2)
	s, err := redisstore.NewStore(redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)}, "")
	check(t, err)
	s.Conn().Scripts = scripts
	now := time.UnixMicro(1_800_000_000_000_000)
	s.SetTime(now)
	acquire := func(name, token string, want store.SemaphoreAnswer) {
		t.Helper()
		p, err := s.Acquire(t.Context(), store.Acquire{Name: name, Token: token, Permits: 1, Max: 100, Lease: time.Minute, Queue: true})
		check(t, err)
		if p.Answer != want {
			t.Errorf("%s of %s: %+v, want %s", token, name, p, want)
		}
	}
	names := func(want ...string) {
		t.Helper()
		if all, err := s.SemaphoreNames(t.Context()); err != nil || !slices.Equal(all, want) {
			t.Errorf("%v are in use, want %v (%v)", all, want, err)
		}
	}
	for _, token := range []string{"1", "2", "3"} {
		acquire("ann:a", token, store.SemaphoreGranted)
	}
	acquire("ann:a", "4", store.SemaphoreWaiting)
	acquire("ann:a", "5", store.SemaphoreWaiting)
	acquire("ann:a", "6", store.SemaphoreCrowded)
	check(t, s.Release(t.Context(), "ann:a", "2"))
	acquire("ann:a", "4", store.SemaphoreGranted)
	acquire("ann:a", "6", store.SemaphoreWaiting)

	acquire("ann:b", "1", store.SemaphoreGranted)
	acquire("ann:c", "1", store.SemaphoreNamed)
	acquire("a", "1", store.SemaphoreGranted)
	acquire("b", "1", store.SemaphoreGranted)
	acquire("c", "1", store.SemaphoreNamed)
	acquire("bob:a", "1", store.SemaphoreGranted)
	acquire("bob:b", "1", store.SemaphoreNamed) // Five are in use.
	names("a", "ann:a", "ann:b", "b", "bob:a")
	check(t, s.Release(t.Context(), "ann:b", "1"))
	acquire("c", "1", store.SemaphoreNamed)
	acquire("ann:c", "1", store.SemaphoreGranted)
	check(t, s.Release(t.Context(), "a", "1"))
	acquire("c", "1", store.SemaphoreGranted)
	names("ann:a", "ann:c", "b", "bob:a", "c")

	for range 60 { // Minutes go by, of which nobody hears anything but of one.
		now = now.Add(5 * time.Second)
		s.SetTime(now)
		acquire("c", "1", store.SemaphoreGranted)
	}
	acquire("bob:d", "1", store.SemaphoreGranted) // Two are forgotten, those that are over first, and two more with the next.
	names("b", "bob:a", "bob:d", "c")
	acquire("ann:a", "1", store.SemaphoreGranted)
	names("ann:a", "bob:d", "c")
	client, part := redistest.Shared(t).Client(t), s.Conn().Partition
	all := strings.TrimSuffix(part.State(), "state")
	check(t, client.Del(t.Context(), all+"sem:bob:d", all+"semends:bob:d").Err()) // Its time to live has ended.
	acquire("bob:d", "1", store.SemaphoreGranted)
	for _, name := range []string{"ann:a", "bob:d", "c"} {
		check(t, s.Release(t.Context(), name, "1"))
	}
	names()
	keys, err := client.Keys(t.Context(), all+"*").Result()
	check(t, err)
	left, err := client.HMGet(t.Context(), part.State(), "sems", "sems:ann", "sems:bob").Result()
	check(t, err)
	if !slices.Equal(keys, []string{part.State()}) || !slices.Equal(left, []any{nil, nil, nil}) {
		t.Errorf("%v are left, and %v of the state", keys, left)
	}
}
