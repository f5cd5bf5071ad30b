package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestAMovingSlotIsNeverWrittenInPart moves the slot of a partition key by key, in between sends jobs to it, and looks whether
// any of these has left a trace on one of the two nodes.
func TestAMovingSlotIsNeverWrittenInPart(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartNodes(t, 2, false)
	st, err := openMany(t.Context(), cluster.Client(t), Config{Partitions: 2})
	check(t, err)
	part := st.Partitions()[0]
	slot := keyspace.SlotOf("0")
	from, to := cluster.Masters[1], cluster.Masters[0] // 13907 is in the second half.
	sent := 0
	admit := func() error {
		sent++
		job := admission.NewJob("ann", "mail", "t", nil)
		job.ID, job.Priority = fmt.Sprintf("job-%d", sent), admission.Medium
		_, err := part.Admit(t.Context(), 0, []store.Candidate{{Job: &job, Class: 1, Limits: new([admission.Levels]admission.Limit{{Disabled: true}, {Disabled: true}, {Disabled: true}, {Disabled: true}})}})
		return err
	}
	for range 10 {
		check(t, admit())
	}
	cluster.BeginMove(t, slot, from, to)
	for more := true; more; more = cluster.MoveKeys(t, slot, 1, from, to) {
		if err := admit(); !errors.Is(err, admission.ErrUnavailable) || store.InDoubt(err) {
			t.Fatalf("a job sent while the slot moves: %v", err)
		}
		if _, err := part.Heartbeat(t.Context(), "nobody", time.Second, ""); !errors.Is(err, admission.ErrUnavailable) {
			t.Fatalf("a heartbeat sent while the slot moves: %v", err)
		}
		if _, err := part.Census(t.Context()); err != nil && !errors.Is(err, admission.ErrUnavailable) {
			t.Fatalf("a census while the slot moves: %v", err)
		}
	}
	cluster.EndMove(t, slot, to)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for err := admit(); err != nil; err = admit() {
		if !errors.Is(err, admission.ErrUnavailable) || ctx.Err() != nil {
			t.Fatalf("a job sent after the move: %v", err)
		}
	}
	census, err := part.Census(t.Context())
	check(t, err)
	if !census.Conserved() || census.Accepted != 11 {
		t.Errorf("of 10 jobs before and one after the move: %+v", census)
	}
	if left := from.Client(t).DBSize(t.Context()).Val(); left != 0 {
		t.Errorf("the old node has %d keys", left)
	}
}
