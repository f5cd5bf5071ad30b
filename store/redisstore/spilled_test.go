package redisstore

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// TestLookAndListSeeSpilledJobs: a job that is kept aside is found like any other, and a drain waits for it. One with a time
// of its own goes on waiting for that when it comes back.
func TestLookAndListSeeSpilledJobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := openOnly(ctx, redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	check(t, s.PutPolicy(ctx, store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
		Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour,
		Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 2, LowWater: 50},
	}}}))
	var verdicts []admission.Verdict
	for _, id := range []string{"in", "aside", "aside too", "refused"} {
		j := admission.NewJob("acme", "mail", "t", nil)
		j.ID = strings.ReplaceAll(id, " ", "-")
		if id == "aside too" {
			j.Delay = time.Hour
		}
		v, err := s.Admit(ctx, 1, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
		check(t, err)
		verdicts = append(verdicts, v...)
	}
	if v := verdicts[2]; v.Place != admission.PlaceSpilled || v.Position != 2 {
		t.Errorf("third verdict %+v", v)
	}
	if v := verdicts[3]; v.Reason != admission.ReasonOverflow {
		t.Errorf("fourth verdict %+v", v)
	}
	sight, err := s.Look(ctx, admission.Key{Tenant: "acme", ID: "aside-too"})
	check(t, err)
	if sight.Place != admission.PlaceSpilled || sight.Position != 2 || kinds(sight) != "time depth" || !sight.Waits[0].Until.Equal(sight.At) {
		t.Errorf("look: %+v", sight)
	}
	due := sight.At
	if wait := time.Until(due); wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("due in %s", wait)
	}
	page, err := s.List(ctx, store.ListQuery{Place: admission.PlaceSpilled})
	check(t, err)
	if len(page.Jobs) != 2 {
		t.Errorf("listed: %+v", page)
	}
	left, err := s.Remaining(ctx, "mail")
	check(t, err)
	if left.Waiting != 1 || left.Spilled != 2 || left.Total() != 3 {
		t.Errorf("remaining: %+v", left)
	}
	_, _, err = s.Cancel(ctx, admission.Key{Tenant: "acme", ID: "in"}, store.Intervention{})
	check(t, err)
	if left, err = s.Remaining(ctx, "mail"); err != nil || left.Waiting != 1 || left.Spilled != 1 {
		t.Errorf("after the job in the lane has left: %+v, %v", left, err)
	}
	_, _, err = s.Cancel(ctx, admission.Key{Tenant: "acme", ID: "aside"}, store.Intervention{})
	check(t, err)
	if sight, err = s.Look(ctx, sight.Key); err != nil || sight.Place != admission.PlaceLater || !sight.At.Equal(due) {
		t.Errorf("after it has come back: %+v, %v", sight, err)
	}
}

// TestASpilledJobThatArrivesAloneComesBack: a migration finds a spilled job whose tenant has nothing else in the queue any more, since
// the calls that were to bring it back had no moves left. It comes back where it goes.
func TestASpilledJobThatArrivesAloneComesBack(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	j := mail("acme", "aside")
	_, err := y.store.conn.Run(t.Context(), "arrive", y.store.conn.Now, "acme:"+j.ID, storedRecord(&j), "spill", "0", "", "")
	check(t, err)
	y.register(1)
	if sight := y.look(j.ID); sight.Place != admission.PlaceSpilled {
		t.Errorf("it arrives as %+v", sight)
	}
	y.promoteAll()
	y.read(1)
	y.finish(j.ID, store.Finish{Outcome: store.Complete})
}

// storedRecord returns a job's record as admission leaves it.
func storedRecord(j *admission.Job) []byte {
	record, _ := codec.EncodeRecord(j, 1)
	binary.BigEndian.PutUint64(record[lua.AtSeq:], 1)
	binary.BigEndian.PutUint64(record[lua.AtScore:], uint64(time.Now().Add(time.Hour).UnixMicro()))
	return record
}
