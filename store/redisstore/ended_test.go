package redisstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestASuspensionEndsToTheMicrosecond: it refuses until its end, and then nothing of it is left, in the count either.
func TestASuspensionEndsToTheMicrosecond(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	begun := ahead()
	at := func(us int64) { y.store.conn.Now = strconv.FormatInt(begun+us, 10) }
	at(0)
	check(t, y.store.Suspend(t.Context(), store.QueueGate("mail"), time.Second, store.Intervention{Reason: "test"}))
	at(999_999)
	if v := y.offerAt(0, mail("acme", "early")); v.Reason != admission.ReasonPaused || v.RetryAfter != time.Microsecond {
		t.Errorf("a microsecond before its end: %+v", v)
	}
	at(1_000_000)
	check(t, y.offerAt(0, mail("acme", "on-time")).Err())
	y.promoteAll()
	if counted := redistest.State(t, y.client, y.store.conn.Partition.State())["np"]; counted != "" {
		t.Errorf("%s suspensions are counted", counted)
	}
}

// TestAHistoryGoesOnAndEndsWithItsJob: a redriven job keeps what became of its deliveries, and when it ends nothing of it is left.
func TestAHistoryGoesOnAndEndsWithItsJob(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	log := y.store.conn.Partition.Base() + "log:acme:"
	y.kill("again", "purged")
	check(t, y.redrive(admission.Key{Tenant: "acme", ID: "again"}, store.Intervention{Author: "op"}, false))
	if sight := y.look("again"); len(sight.History) != 1 {
		t.Errorf("a redriven job has the history %+v", sight.History)
	}
	y.read(1)
	y.finish("again", store.Finish{Outcome: store.Complete})
	_, err := y.store.Purge(t.Context(), []admission.Key{{Tenant: "acme", ID: "purged"}}, store.Intervention{Author: "op"})
	check(t, err)
	if left := y.client.Exists(t.Context(), log+"again", log+"purged").Val(); left != 0 {
		t.Errorf("%d histories of jobs that ended are left", left)
	}
}

// TestALetterReleasesNoKeyOfAnother: its unique key's time was over before it died, and another job has taken it.
func TestALetterReleasesNoKeyOfAnother(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.register(1)
	holding := func(id string) admission.Job {
		j := mail("acme", id)
		j.Unique = admission.Unique{Key: "k", For: time.Hour}
		return j
	}
	y.admit(holding("first"))
	y.read(1)
	unique := y.store.conn.Partition.Base() + "unique:acme:k"
	check(t, y.client.Del(t.Context(), unique).Err()) // as Redis does when its time is over
	y.admit(holding("second"))
	y.finish("first", store.Finish{Outcome: store.Kill, Reason: "test"})
	if holder := y.client.Get(t.Context(), unique).Val(); holder != "acme:second" {
		t.Errorf("the key is held by %q", holder)
	}
	if v := y.offerAt(0, holding("third")); v.Reason != admission.ReasonUnique || v.Detail != "second" {
		t.Errorf("%+v", v)
	}
}
