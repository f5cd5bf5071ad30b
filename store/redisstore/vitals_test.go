package redisstore

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

func TestVitals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	check(t, client.ConfigSet(t.Context(), "maxmemory", "64mb").Err())
	st, err := openOnly(t.Context(), client, Config{})
	check(t, err)
	due := func(after time.Duration) store.Vitals {
		t.Helper()
		now, err := st.Time(t.Context())
		check(t, err)
		check(t, client.ZAdd(t.Context(), st.Keys().Due(), redis.Z{Score: float64(now.Add(after).UnixMicro()), Member: "g"}).Err())
		v, err := st.Vitals(t.Context())
		check(t, err)
		return v
	}
	v, err := st.Vitals(t.Context())
	check(t, err)
	if v.Late != 0 || v.Memory <= 0 || v.Memory >= v.MaxMemory || v.MaxMemory != 64<<20 {
		t.Errorf("got %+v", v)
	}
	check(t, client.HSet(t.Context(), st.Keys().State(), "nq", 7, "nd", 8).Err())
	if v = due(time.Hour); !slices.Equal(v.Bounds, []store.BoundUse{{Bound: "queues", Used: 7, Most: store.MaxQueues}, {Bound: "dead letters", Used: 8, Most: store.MaxLetters}, {Bound: "lanes", Used: 0, Most: store.MaxLanes}, {Bound: "breakers", Used: 0, Most: store.MaxBreakers}}) {
		t.Errorf("bounds %+v", v.Bounds)
	}
	if v := due(time.Hour); v.Late != 0 {
		t.Errorf("a timer of the future is late by %s", v.Late)
	}
	if v := due(-time.Hour); v.Late < time.Hour || v.Late > time.Hour+time.Minute {
		t.Errorf("a timer of an hour ago is late by %s", v.Late)
	}
}

// TestTheFullestRedisIsTold of those that have a maxmemory: one that has none is not the fullest, whichever of them has the first partition.
func TestTheFullestRedisIsTold(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartNodes(t, 2, false)
	s, err := openMany(t.Context(), cluster.Client(t), Config{Partitions: 4})
	check(t, err)
	for _, c := range [][2]int64{{0, 0}, {64 << 20, 0}, {0, 64 << 20}, {64 << 20, 1 << 30}, {1 << 30, 64 << 20}} {
		for i, most := range c {
			check(t, cluster.Masters[i].Client(t).ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(most, 10)).Err())
		}
		want := c[0]
		if c[0] == 0 || c[1] != 0 && c[1] < c[0] {
			want = c[1]
		}
		if v, err := s.Vitals(t.Context()); err != nil || v.MaxMemory != want || v.Memory <= 0 {
			t.Errorf("%v: %d of %d, %v, want of %d", c, v.Memory, v.MaxMemory, err, want)
		}
		if used, most, err := s.Memory(t.Context()); err != nil || most != want || used <= 0 {
			t.Errorf("%v: alone %d of %d, %v, want of %d", c, used, most, err, want)
		}
	}
}
