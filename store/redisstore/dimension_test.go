package redisstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// both are a partition in Redis and one in memory, whose time is ahead of the clock and passes by the third alone.
func both(t *testing.T) (inRedis *redisstore.Partition, inMemory *memory.Partition, pass func(d time.Duration)) {
	t.Helper()
	s, err := redisstore.NewStore(redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)}, "")
	check(t, err)
	now := time.Now().Add(24 * time.Hour)
	pass = func(d time.Duration) {
		now = now.Add(d)
		s.SetTime(now)
	}
	pass(0)
	return s, memory.New(memory.Config{Now: func() time.Time { return now }}), pass
}

// bucketsOf tells which buckets a dump has, and when a dimension's are looked at.
func bucketsOf(dump []string) (lines []string) {
	for _, line := range dump {
		if strings.HasPrefix(line, "bucket ") || strings.HasPrefix(line, "+") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// TestARefundThatChangesNothingMakesRoomToo: one that comes again reads the buckets of its way like any call, and takes out what is full.
func TestARefundThatChangesNothingMakesRoomToo(t *testing.T) {
	t.Parallel()
	inRedis, inMemory, pass := both(t)
	limit := admission.PerSecond(1).WithBurst(100)
	question := func(key string, cost admission.Tokens) store.Question {
		return store.Question{Tenant: "+user", Queue: key, Cost: cost, MaxKeys: 100, Limits: [admission.Levels]admission.Limit{{Disabled: true}, limit, limit, {Disabled: true}}}
	}
	each := func(do func(s store.Partition)) {
		do(inRedis)
		do(inMemory)
	}
	fill := func(name string) { // The first of them is full after 100 seconds, the others after one.
		for n := range 40 {
			each(func(s store.Partition) {
				_, _, err := s.Check(t.Context(), 0, false, []store.Question{question(fmt.Sprint(name, n), admission.Tokens(max(1, 100-100*n)))})
				check(t, err)
			})
		}
	}
	var receipts []store.Taken
	each(func(s store.Partition) {
		_, receipt, err := s.Take(t.Context(), 0, question("k", 1))
		check(t, err)
		receipts = append(receipts, receipt)
	})
	refund := func(want store.Refund) {
		for i, s := range []store.Partition{inRedis, inMemory} {
			done, err := s.Refund(t.Context(), "r", receipts[i])
			check(t, err)
			if done != want {
				t.Errorf("%s, want %s", done, want)
			}
		}
		if in, out := bucketsOf(dumpRedis(t.Context(), t, inRedis)), bucketsOf(inMemory.Dump()); !slices.Equal(in, out) {
			t.Errorf("redis  %q\nmemory %q", in, out)
		}
	}
	refund(store.Refunded)
	fill("a")
	pass(15 * time.Second)
	fill("b") // That takes out k and all others that are full.
	pass(15 * time.Second)
	refund(store.RefundedBefore)
	if left := bucketsOf(inMemory.Dump()); len(left) != 3 {
		t.Errorf("%q, want two buckets that are not full, and when they are looked at again", left)
	}
}

// TestACostToldAfterTheClockWasSetBackComesBack to the sliding window that it was taken of, in Redis as in memory.
func TestACostToldAfterTheClockWasSetBackComesBack(t *testing.T) {
	t.Parallel()
	inRedis, inMemory, pass := both(t)
	limit, err := admission.SlidingLog(10, "5s")
	check(t, err)
	limits := &[admission.Levels]admission.Limit{limit, {Disabled: true}, {Disabled: true}, {Disabled: true}}
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	var leases []store.Lease
	for _, s := range []store.Partition{inRedis, inMemory} {
		_, err := s.Register(t.Context(), "w", pool, 1, time.Hour)
		check(t, err)
		_, err = s.Admit(t.Context(), 0, []store.Candidate{{Job: &admission.Job{ID: "a", Tenant: "acme", Queue: "mail", Cost: 4}, Class: 1, Limits: limits}})
		check(t, err)
		read, err := s.Read(t.Context(), "w", pool.ID(), 1, -1, false)
		check(t, err)
		leases = append(leases, read...)
	}
	pass(-time.Second)
	for i, s := range []store.Partition{inRedis, inMemory} {
		f := leases[i].Finish(store.Complete)
		f.Spent = &store.Spent{Cost: 1, Limits: limits}
		_, _, err := s.Finish(t.Context(), pool.ID(), "w", []store.Finish{f})
		check(t, err)
		_, answers, err := s.Check(t.Context(), 0, true, []store.Question{{Cost: 1, Limits: *limits}})
		check(t, err)
		if left := answers[0].Left[admission.LevelGlobal].Tokens(); left != 9 {
			t.Errorf("%T has %d left, want 9", s, left)
		}
	}
}
