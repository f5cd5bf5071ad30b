package migrate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestLimitsThatMoveStandWhereTheyStood: one that an operator has frozen, or set for a time, is that wherever the deployment is and however it is
// divided, and over all partitions no more is in force; once that has ended it moves, in all of them.
func TestLimitsThatMoveStandWhereTheyStood(t *testing.T) {
	t.Parallel()
	for from, to := range map[int]int{1: 3, 3: 1, 2: 2} {
		for _, elsewhere := range []bool{false, true} {
			if from == to && !elsewhere {
				continue // There is nothing to move.
			}
			t.Run(fmt.Sprintf("%d to %d, elsewhere %t", from, to, elsewhere), func(t *testing.T) {
				t.Parallel()
				moveAdaptive(t, from, to, elsewhere)
			})
		}
	}
}

// adaptivePolicy has limits that move between 6 and 90.
func adaptivePolicy(version int64) store.PolicyUpdate {
	u := store.PolicyUpdate{Expected: version - 1, Version: version, Text: fmt.Appendf(nil, `{"version":%d}`, version), Window: time.Hour, Edit: strconv.FormatInt(version, 10)}
	for _, name := range []string{"frozen", "set", "free"} {
		u.Caps = append(u.Caps, store.Cap{Gate: store.DownstreamGate(name), Limit: 90, Least: 6, Most: 90, Loop: name + "-out"})
	}
	u.Caps = append(u.Caps, store.Cap{Gate: store.GlobalLimitGate, Limit: store.PartWhole, Least: 1, Most: store.PartWhole, Loop: "in"})
	return u
}

func moveAdaptive(t *testing.T, from, to int, elsewhere bool) {
	t.Helper()
	here, prefix := redistest.Shared(t).Client(t), redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), here, redisstore.Config{Prefix: prefix, Partitions: from})
	check(t, err)
	check(t, s.PutPolicy(t.Context(), adaptivePolicy(1)))
	adaptAll(t, s, 1, 24) // Two and three partitions divide all of these.
	_, err = s.Adapt(t.Context(), store.Adapt{Owner: "one", Version: 1, Gate: store.GlobalLimitGate, Limit: store.PartWhole / 2, Cause: "gain"})
	check(t, err)
	by := store.Intervention{Author: "ada", Reason: "their maintenance"}
	_, err = s.Freeze(t.Context(), store.DownstreamGate("frozen"), true, by)
	check(t, err)
	_, err = s.Override(t.Context(), store.DownstreamGate("set"), 12, time.Hour, by)
	check(t, err)

	there, target := redis.UniversalClient(here), ""
	if elsewhere {
		other := redistest.Start(t, redistest.Options{})
		there, target = other.Client(t), other.URL()
	}
	update := func(_ []byte, version int64) (store.PolicyUpdate, error) { return adaptivePolicy(version), nil }
	m, err := Open(t.Context(), here, there, Config{Prefix: prefix, Partitions: to, Target: target, Wait: time.Minute, Update: update})
	check(t, err)
	_, err = m.Run(t.Context())
	check(t, err)
	moved, err := redisstore.Open(t.Context(), there, redisstore.Config{Prefix: prefix})
	check(t, err)

	inForce(t, moved, "after it", map[string]int{"frozen": 24, "set": 12, "free": 24})
	all, err := moved.Adaptations(t.Context())
	check(t, err)
	for i, part := range inRedis(moved) {
		if half, err := there.HGet(t.Context(), part.Keys().Base()+"scales", string(store.GlobalLimitGate)).Result(); err != nil || !strings.HasPrefix(half, "0.5|") {
			t.Errorf("partition %d has the global limit at %q, %v", i, half, err)
		}
	}
	for _, a := range all {
		if held := a.Gate != store.DownstreamGate("free") && a.Gate != store.GlobalLimitGate; held != (a.Frozen != nil) || held && (a.Frozen.Author != "ada" || a.Frozen.Reason != "their maintenance") {
			t.Errorf("of %s is told %+v", a.Gate, a.Frozen)
		}
	}
	adaptAll(t, moved, 2, 18)
	inForce(t, moved, "moved", map[string]int{"frozen": 24, "set": 12, "free": 18})
	_, err = moved.Freeze(t.Context(), store.DownstreamGate("frozen"), false, by)
	check(t, err)
	_, err = moved.Override(t.Context(), store.DownstreamGate("set"), 0, 0, by)
	check(t, err)
	adaptAll(t, moved, 2, 6)
	inForce(t, moved, "let go", map[string]int{"frozen": 6, "set": 6, "free": 6})
}

// adaptAll moves all limits, as far as they may be.
func adaptAll(t *testing.T, s store.Deployment, version int64, limit int) {
	t.Helper()
	_, err := s.Partitions()[0].Promote(t.Context(), "one", time.Second)
	check(t, err)
	for _, name := range []string{"frozen", "set", "free"} {
		_, err := s.Adapt(t.Context(), store.Adapt{Owner: "one", Version: version, Gate: store.DownstreamGate(name), Limit: limit, Cause: "gain"})
		check(t, err)
	}
}

// inForce fails unless so much of each is in force over all partitions.
func inForce(t *testing.T, s store.Deployment, when string, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for _, part := range s.Partitions() {
		gates, err := part.Gates(t.Context())
		check(t, err)
		for _, g := range gates {
			for name := range want {
				if g.Name == store.DownstreamGate(name) {
					got[name] += g.Limit
				}
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s %v are in force, want %v", when, got, want)
	}
}
