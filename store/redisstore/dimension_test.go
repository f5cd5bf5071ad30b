package redisstore_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestKeysThatAreFullMakeRoomAndOthersStay: in a shard without room a new key shares a bucket until others are full; those go, ten seconds apart at
// least, and what is not full stays as it is. In Redis and in memory.
func TestKeysThatAreFullMakeRoomAndOthersStay(t *testing.T) {
	t.Parallel()
	s, err := redisstore.NewStore(redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)}, "")
	check(t, err)
	now := time.Now().Add(24 * time.Hour).UnixMicro()
	inMemory := memory.New(memory.Config{Now: func() time.Time { return time.UnixMicro(now) }})
	for name, part := range map[string]store.Partition{"redis": s, "memory": inMemory} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // They have one time.
			at := now
			defer func() { now = at }()
			pass := func(d time.Duration) {
				now += d.Microseconds()
				s.Conn().Now = strconv.FormatInt(now, 10)
			}
			const room = 40
			question := func(key string, cost admission.Tokens) store.Question {
				limit := admission.PerSecond(1).WithBurst(10)
				return store.Question{Tenant: "+user", Queue: key, Cost: cost, MaxKeys: room, Limits: [admission.Levels]admission.Limit{{Disabled: true}, limit, limit, {Disabled: true}}}
			}
			take := func(key string, cost admission.Tokens) store.Answer {
				t.Helper()
				_, answers, err := part.Check(t.Context(), 0, false, []store.Question{question(key, cost)})
				check(t, err)
				return answers[0]
			}
			want := func(what, key string, shared bool, left admission.Tokens) {
				t.Helper()
				a := take(key, 1)
				if got := a.Left[admission.LevelQueue] + a.Left[admission.LevelTenant]; a.Shared != shared || got.Tokens() != left {
					t.Errorf("%s: %s shares a bucket: %t, want %t; %d left, want %d", what, key, a.Shared, shared, got.Tokens(), left)
				}
			}
			pass(0)
			for n := range room {
				take(fmt.Sprint("k", n), 5)
			}
			want("no room", "new", true, 9)
			want("no room for another", "newer", true, 8)
			granted, err := part.Grant(t.Context(), &store.Grant{Member: "m", Lease: time.Second, Questions: []store.Question{question("owing", 0)}, Accounts: []store.Account{{Level: admission.LevelQueue, Owed: 3}}})
			check(t, err)
			if granted.Leases[0].Paid != 3 {
				t.Errorf("a key without room has paid %d, want 3", granted.Leases[0].Paid)
			}
			want("and owed", "new", true, 4)
			pass(5 * time.Second)
			take("k0", 10)
			pass(5 * time.Second)
			want("the others are full", "new", false, 9)
			want("what is not full stays", "k0", false, 4)
			take("new", 9)
			for n := range room {
				take(fmt.Sprint("l", n), 1) // 38 of them have room, and are full in a second.
			}
			pass(5 * time.Second)
			want("looked at five seconds ago", "later", true, 9)
			pass(5 * time.Second)
			want("ten seconds ago", "later", false, 9)
		})
	}
}
