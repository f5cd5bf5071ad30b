package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// keeping returns settings of a queue that keeps dead letters for so long, zero for ever.
func keeping(queue string, d time.Duration) store.QueueSettings {
	return store.QueueSettings{Queue: queue, Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxDead: 1000, KeepDead: d}
}

// TestLettersAreKeptAsLongAsTheirQueueIsTo: an edit of how long dead letters are kept holds for those that are there, and for those that
// follow them, also where it is of all queues without settings of their own, or a queue loses its own.
func TestLettersAreKeptAsLongAsTheirQueueIsTo(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		before, after []store.QueueSettings
		left          int64
	}{
		"of every queue":       {after: []store.QueueSettings{keeping(store.Every, time.Hour)}},
		"another of each":      {before: []store.QueueSettings{keeping(store.Every, time.Hour*24*30)}, after: []store.QueueSettings{keeping(store.Every, time.Hour)}},
		"no more its own":      {before: []store.QueueSettings{keeping("mail", 0), keeping(store.Every, time.Hour)}, after: []store.QueueSettings{keeping(store.Every, time.Hour)}},
		"no more its own long": {before: []store.QueueSettings{keeping("mail", time.Hour*24*30), keeping(store.Every, time.Hour)}, after: []store.QueueSettings{keeping(store.Every, time.Hour)}},
		"its own beside":       {before: []store.QueueSettings{keeping("mail", 0)}, after: []store.QueueSettings{keeping("mail", 0), keeping(store.Every, time.Hour)}, left: 3},
		"for ever":             {before: []store.QueueSettings{keeping(store.Every, time.Hour)}, left: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newEdge(t)
			version := int64(0)
			put := func(queues []store.QueueSettings) {
				check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Expected: version, Version: version + 1, Text: []byte("{}"), Window: time.Minute, Queues: queues}))
				version++
			}
			bury := func(ids ...string) {
				y.register(len(ids))
				for _, id := range ids {
					y.admitAt(version, mail("acme", id))
				}
				for _, l := range y.take() {
					y.end(l, store.Kill)
				}
			}
			put(row.before)
			bury("a", "b")
			put(row.after)
			bury("c")
			for range 3 {
				y.pass(time.Hour)
				y.promoteAll()
			}
			c, err := y.store.Census(t.Context())
			check(t, err)
			if c.Dead != row.left || c.Left["purged"] != 3-row.left || !c.Conserved() {
				t.Errorf("%d letters are left and %d purged, want %d left: %+v", c.Dead, c.Left["purged"], row.left, c)
			}
		})
	}
}

// TestLettersWithoutATimerGoWithTheNext: a release before left those so that were there when the edit came.
func TestLettersWithoutATimerGoWithTheNext(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{keeping("mail", time.Hour)}}))
	y.register(2)
	y.admitAt(1, mail("acme", "a"), mail("acme", "b"))
	leases := y.take()
	y.end(leases[0], store.Kill)
	check(t, y.client.ZRem(t.Context(), y.store.Keys().Due(), "rmail").Err())
	y.pass(2 * time.Hour)
	y.end(leases[1], store.Kill)
	y.promoteAll()
	c, err := y.store.Census(t.Context())
	check(t, err)
	if c.Dead != 1 || c.Left["purged"] != 1 {
		t.Errorf("%d letters are left and %d purged, want one each: %+v", c.Dead, c.Left["purged"], c)
	}
}

// TestLettersOfManyQueuesAreLookedAtInPortions: an edit of what holds for all queues costs no call more than the moves of one.
func TestLettersOfManyQueuesAreLookedAtInPortions(t *testing.T) {
	t.Parallel()
	const tenants, queues = 6, 100
	y := newEdge(t)
	for tenant := range tenants {
		jobs := make([]admission.Job, queues)
		for i := range jobs {
			jobs[i] = mail(fmt.Sprint("tenant-", tenant), fmt.Sprint("j", i))
			jobs[i].Queue, jobs[i].Deadline = fmt.Sprintf("queue-%d-%d", tenant, i), time.UnixMicro(y.now).Add(time.Second)
		}
		y.admit(jobs...)
	}
	y.pass(time.Minute)
	y.promoteAll()
	census := func() store.Census {
		c, err := y.store.Census(t.Context())
		check(t, err)
		return c
	}
	if c := census(); c.Dead != tenants*queues {
		t.Fatalf("%d letters, want %d", c.Dead, tenants*queues)
	}
	y.pass(2 * time.Hour)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{keeping(store.Every, time.Hour)}}))
	looked := y.client.ZCard(t.Context(), y.store.Keys().Due()).Val()
	if looked > fairqueue.Moves {
		t.Errorf("the edit has set %d timers", looked)
	}
	for more := true; more; {
		p, err := y.store.Promote(t.Context(), "s", time.Second)
		check(t, err)
		if more = p.More; p.Moved > fairqueue.Moves {
			t.Errorf("a call made %d moves", p.Moved)
		}
	}
	if c := census(); c.Dead != 0 || c.Left["purged"] != tenants*queues || !c.Conserved() {
		t.Errorf("%d letters are left: %+v", c.Dead, c)
	}
}

// TestALetterThatMovedHereIsFoundByAnEditOfAllQueues: it is the first that the partition hears of its queue.
func TestALetterThatMovedHereIsFoundByAnEditOfAllQueues(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	j := mail("acme", "moved")
	_, err := y.store.conn.Run(t.Context(), "arrive", y.store.conn.Now, "acme:"+j.ID, storedRecord(&j), "dead", y.store.conn.Now, "failed|", "")
	check(t, err)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{keeping(store.Every, time.Hour)}}))
	for range 2 {
		y.pass(time.Hour)
		y.promoteAll()
	}
	c, err := y.store.Census(t.Context())
	check(t, err)
	if c.Dead != 0 || c.Left["purged"] != 1 {
		t.Errorf("got %+v", c)
	}
}
