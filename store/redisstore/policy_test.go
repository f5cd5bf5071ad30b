package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestPolicyReplacesOnlyWhatWasExpected: two operators at once must not undo one another, waiting jobs keep their class,
// and what a new policy does not name has its default again.
func TestPolicyReplacesOnlyWhatWasExpected(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s, err := openOnly(t.Context(), client, Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	first := store.PolicyUpdate{Version: 1, Text: []byte(`{"a":1}`), Window: time.Minute, Queues: []store.QueueSettings{
		{Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Minute, DropExpired: true},
	}}
	check(t, s.PutPolicy(t.Context(), first))
	if err := s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte(`{"b":1}`), Window: time.Minute}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second policy in place of none: %v", err)
	}
	j := admission.NewJob("acme", "mail", "t", nil)
	j.ID, j.Priority = "j", admission.Low
	verdicts, err := s.Admit(t.Context(), 1, []store.Candidate{{Job: &j, Class: 2, Limits: &[admission.Levels]admission.Limit{}}})
	check(t, err)
	check(t, verdicts[0].Err())
	fewer := store.PolicyUpdate{Expected: 1, Version: 2, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{
		{Queue: "mail", Classes: admission.DefaultClasses()[:2], Horizon: time.Minute},
	}}
	if err := s.PutPolicy(t.Context(), fewer); !errors.Is(err, store.ErrClassInUse) {
		t.Errorf("a policy without the class of a waiting job: %v", err)
	}
	text, err := s.Policy(t.Context())
	check(t, err)
	if string(text) != string(first.Text) {
		t.Errorf("after two refusals the policy is %s", text)
	}
	fewer.Queues = nil
	check(t, s.PutPolicy(t.Context(), fewer))
	if kept, err := client.HExists(t.Context(), s.conn.Partition.State(), "cfg:mail").Result(); err != nil || kept {
		t.Errorf("settings of a queue that the policy no longer names are kept: %t, %v", kept, err)
	}
}
