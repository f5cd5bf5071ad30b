package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// droppingYard has a queue in which a tenant has two jobs, its latest, and one that a worker was given whose record is gone. It is a dead letter then, or still
// with its worker.
func droppingYard(t *testing.T, ended bool) *goneYard {
	t.Helper()
	y := newEdge(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
		Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxDead: 100, Overflow: store.Overflow{Policy: store.DropOldest, MaxJobs: 2},
	}}}))
	y.admitAt(1, mail("acme", "gone"))
	check(t, y.client.HDel(t.Context(), y.store.Keys().Jobs(), "acme:gone").Err())
	y.register(1)
	for _, l := range y.take() {
		if ended {
			y.end(l, store.Kill)
		}
	}
	return y
}

// countAgain has the job count that ran without its record, as a release before left it.
func (y *goneYard) countAgain() {
	y.tb.Helper()
	base := y.store.Keys().Base()
	check(y.tb, y.client.ZAdd(y.tb.Context(), base+"old:acme:mail", redis.Z{Score: 1, Member: "acme:gone"}).Err())
	check(y.tb, y.client.HSet(y.tb.Context(), base+"depth", "acme:mail", "1|100", "acme:", "1|100").Err())
}

// enter lets jobs of the tenant acme in one by one, and returns how many each drops.
func (y *goneYard) enter(ids ...string) (dropped []int) {
	y.tb.Helper()
	for _, id := range ids {
		j := mail("acme", id)
		verdicts, err := y.store.Admit(y.tb.Context(), 1, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
		check(y.tb, err)
		check(y.tb, verdicts[0].Err())
		dropped = append(dropped, verdicts[0].Dropped)
	}
	return dropped
}

// TestAJobWithoutItsRecordCountsNoMoreOnceItRuns: a job that a worker is given whose record is gone is none that waits, nor one that may be dropped for another.
func TestAJobWithoutItsRecordCountsNoMoreOnceItRuns(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		y := droppingYard(t, ended)
		base := y.store.Keys().Base()
		if n := y.client.Exists(t.Context(), base+"depth", base+"old:acme:mail").Val(); n != 0 {
			t.Errorf("ended %t: it counts in %d places", ended, n)
		}
		_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.QueueGate("mail")})
		check(t, err)
		if got, want := fmt.Sprint(y.enter("a", "b", "c", "d")), "[0 0 1 1]"; got != want {
			t.Errorf("ended %t: dropped are %s, want %s", ended, got, want)
		}
		c, err := y.store.Census(t.Context())
		check(t, err)
		if c.Waiting != 2 || c.Died["dropped"] != 2 || !c.Conserved() {
			t.Errorf("ended %t: %+v", ended, c)
		}
	}
}

// TestWhatCountedWithoutItsRecordIsDroppedOnce: a release before let the job count on that a worker had been given. For the first newcomer that finds no room it
// counts no more, and no job is told to have been dropped; each after that drops the one that waits, and none is lost.
func TestWhatCountedWithoutItsRecordIsDroppedOnce(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprint("ended ", ended), func(t *testing.T) {
			t.Parallel()
			y := droppingYard(t, ended)
			y.countAgain()
			_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.QueueGate("mail")})
			check(t, err)
			if got, want := fmt.Sprint(y.enter("a", "b", "c", "d")), "[0 0 1 1]"; got != want {
				t.Errorf("dropped are %s, want %s", got, want)
			}
			c, err := y.store.Census(t.Context())
			check(t, err)
			if c.Waiting != 2 || c.Died["dropped"] != 2 || c.Left["record_gone"] != 0 || !c.Conserved() {
				t.Errorf("got %+v", c)
			}
			if depth := y.client.HGet(t.Context(), y.store.Keys().Base()+"depth", "acme:mail").Val(); depth[:2] != "2|" {
				t.Errorf("the depth is %s, want 2 jobs", depth)
			}
		})
	}
}

// TestAJobThatStoodInIsDroppedWhereItWaits: its worker has handed it back.
func TestAJobThatStoodInIsDroppedWhereItWaits(t *testing.T) {
	t.Parallel()
	y := droppingYard(t, false)
	_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.QueueGate("mail")})
	check(t, err)
	_, err = y.store.Reclaim(t.Context(), "w1")
	check(t, err)
	y.countAgain()
	if got, want := fmt.Sprint(y.enter("a", "b", "c")), "[0 1 1]"; got != want {
		t.Errorf("dropped are %s, want %s", got, want)
	}
	c, err := y.store.Census(t.Context())
	check(t, err)
	if c.Waiting != 2 || c.Died["dropped"] != 2 || !c.Conserved() {
		t.Errorf("got %+v", c)
	}
}
