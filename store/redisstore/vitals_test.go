package redisstore

import (
	"slices"
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
