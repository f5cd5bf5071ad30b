package asynqbridge_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/asynqbridge"
)

// TestARedrivePassesTheBuckets: what asynq has archived is charged again, up to the limit, and no task twice.
func TestARedrivePassesTheBuckets(t *testing.T) {
	t.Parallel()
	everywhere(t, redrive)
}

func redrive(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(10))
	client := asynq.NewClient(s.asynq)
	t.Cleanup(func() { _ = client.Close() })
	inspector := s.inspector()
	archive := func(id string, headers map[string]string) {
		t.Helper()
		_, err := client.Enqueue(asynq.NewTaskWithHeaders("send", nil, headers), asynq.Queue("mail"), asynq.TaskID(id))
		must(t, err)
		must(t, inspector.ArchiveTask("mail", id))
	}
	archive("-dear", map[string]string{asynqbridge.HeaderTenant: "acme", asynqbridge.HeaderCost: "11"}) // The first, and more than the burst.
	for i := range 150 {
		archive(strconv.Itoa(i), map[string]string{asynqbridge.HeaderTenant: "acme", asynqbridge.HeaderCost: "3"})
	}
	c := s.client()
	run, err := c.Redrive(t.Context(), "mail", 1000)
	refused, ok := errors.AsType[*admission.RefusedError](err)
	if run != 3 || !ok || refused.Verdict.Scope != "acme" || refused.Verdict.RetryAfter <= 0 {
		t.Errorf("%d tasks run, %v, want 3 and a refusal of acme", run, err)
	}
	must(t, inspector.DeleteTask("mail", "-dear"))
	archive("-odd", map[string]string{asynqbridge.HeaderTenant: "acme", asynqbridge.HeaderPriority: "nowhere"})
	archive("globex:order-1", nil)
	archive("nobody", nil)
	s.limit(2, admission.PerSecond(1_000_000))
	run, err = c.Redrive(t.Context(), "mail", 1000)
	if run != 148 || !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), "-odd") || !strings.Contains(err.Error(), "none of 1 tasks") {
		t.Errorf("%d tasks run, %v, want the 147 that are left, that of Fair, and a word about the one without a tenant and that of no class", run, err)
	}
	info, err := inspector.GetQueueInfo("mail")
	must(t, err)
	if info.Pending != 151 || info.Archived != 2 {
		t.Errorf("%d pending, %d archived, want 151 and 2", info.Pending, info.Archived)
	}
	for _, most := range []int{0, 10_001} {
		if _, err := c.Redrive(t.Context(), "mail", most); !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("most %d: %v", most, err)
		}
	}
}
