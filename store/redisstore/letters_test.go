package redisstore

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// bury makes dead letters of a tenant's jobs in a queue, each with a text.
func (y *yard) bury(tenant, queue string, ids ...string) {
	y.tb.Helper()
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: queue, Weight: 1}}}
	for _, id := range ids {
		j := mail(tenant, id)
		j.Queue = queue
		y.admit(j)
		_, err := y.store.Register(y.tb.Context(), "of "+queue, pool, 1, time.Minute)
		check(y.tb, err)
		leases, err := y.store.Read(y.tb.Context(), "of "+queue, pool.ID(), 1, -1, false)
		check(y.tb, err)
		end := store.Finish{Token: leases[0].Token, Key: admission.Key{Tenant: tenant, ID: id}, Outcome: store.Kill, Reason: "test"}
		_, _, err = y.store.Finish(y.tb.Context(), pool.ID(), "of "+queue, []store.Finish{end})
		check(y.tb, err)
	}
}

func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(prefix, i))
	}
	return ids
}

// TestATenantEvictsItsOwnLetters: of all letters, and of those of a queue, the tenant's go that has the most.
func TestATenantEvictsItsOwnLetters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, bound string
		queues      []string
	}{
		{"in queues of its own", "local DEAD_CAP = %d\n", []string{"noise", "din", "roar"}},
		{"in the queue of both", "|0|%d'\n", []string{"mail", "mail", "mail"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.store.conn.Scripts = maps.Clone(lua.Scripts("", lua.SingleLayout))
			lower(t, y.store.conn.Scripts, c.bound, store.MaxLetters, 10)
			y.bury("acme", "mail", numbered("mine", 4)...)
			for i, queue := range c.queues {
				y.bury("evil", queue, numbered(fmt.Sprint("of", i, "-"), 10)...)
			}
			y.bury("acme", "mail", "mine4")
			for _, id := range numbered("mine", 5) {
				if sight := y.look(id); sight.Place != store.PlaceDead {
					t.Errorf("%s is %s", id, sight.Place)
				}
			}
			census, err := y.store.Census(t.Context())
			check(t, err)
			if census.Dead != 10 || census.Left["evicted"] != 25 || census.Left["purged"] != 0 || !census.Conserved() {
				t.Errorf("%+v", census)
			}
		})
	}
}

// TestLettersOfAnOlderReleaseGoFirst: nobody has counted those, and taking one away counts nothing.
func TestLettersOfAnOlderReleaseGoFirst(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.store.conn.Scripts = maps.Clone(lua.Scripts("", lua.SingleLayout))
	lower(t, y.store.conn.Scripts, "local DEAD_CAP = %d\n", store.MaxLetters, 4)
	y.bury("acme", "mail", "old0", "old1")
	base := y.store.conn.Partition.Base()
	check(t, y.client.Del(t.Context(), base+"letters:acme:mail", base+"deadof", base+"deadof:mail", base+"deadin:acme").Err())
	y.bury("evil", "mail", "new0", "new1", "new2")
	y.bury("acme", "mail", "new3")
	for id, want := range map[string]admission.Place{"old0": store.PlaceEnded, "old1": store.PlaceEnded, "new3": store.PlaceDead} {
		if sight := y.look(id); sight.Place != want {
			t.Errorf("%s is %s", id, sight.Place)
		}
	}
	counts, err := y.client.ZRangeWithScores(t.Context(), base+"deadof", 0, -1).Result()
	check(t, err)
	if got := fmt.Sprint(counts); got != "[{1 acme} {3 evil}]" {
		t.Errorf("counted: %s", got)
	}
}

// TestOfTenantsWithAsManyLettersTheNewcomerLosesOne: whatever their names.
func TestOfTenantsWithAsManyLettersTheNewcomerLosesOne(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"acme", "zeta"}, {"zeta", "acme"}} {
		there, comes := names[0], names[1]
		y := newYard(t)
		y.store.conn.Scripts = maps.Clone(lua.Scripts("", lua.SingleLayout))
		lower(t, y.store.conn.Scripts, "local DEAD_CAP = %d\n", store.MaxLetters, 5)
		y.bury(there, "mail", "a", "b", "c")
		y.bury(comes, "hook", "d", "e", "f")
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			tenant := there
			if id > "c" {
				tenant = comes
			}
			sight, err := y.store.Look(t.Context(), admission.Key{Tenant: tenant, ID: id})
			check(t, err)
			if dead := sight.Place == store.PlaceDead; dead != (id != "d") {
				t.Errorf("%s comes when %s has as many: its %s is %s", comes, there, id, sight.Place)
			}
		}
	}
}
