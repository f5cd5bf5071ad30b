package asynqbridge_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// TestTheClientIsAsynqs: whatever the options, those of NewTask among them, the answers and what asynq then has are those of
// asynq's own client.
func TestTheClientIsAsynqs(t *testing.T) {
	t.Parallel()
	own, plain := newSite(t, 1, admission.PerSecond(1_000_000)), newSite(t, 1, daily(1))
	gated, bare := own.client(), asynq.NewClient(plain.asynq)
	t.Cleanup(func() { _ = bare.Close() })
	ownInspector, plainInspector := own.inspector(), plain.inspector()
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	all := []asynq.Option{
		asynq.MaxRetry(3), asynq.MaxRetry(-1), asynq.Queue("low"), asynq.Queue(" "), asynq.TaskID("one"), asynq.TaskID("two"), asynq.TaskID(""),
		asynq.Timeout(time.Minute), asynq.Deadline(at), asynq.Unique(time.Hour), asynq.Unique(time.Millisecond), asynq.ProcessAt(at), asynq.Retention(time.Minute),
		asynq.Group("g"), asynq.Group(""), nil,
	}
	errorOf := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	shown := func(i *asynq.TaskInfo, byClient bool) asynq.TaskInfo {
		if i == nil {
			return asynq.TaskInfo{}
		}
		s := *i
		if len(s.ID) == 36 { // made up by asynq
			s.ID = ""
		}
		if byClient && s.State == asynq.TaskStatePending { // the time of the call
			s.NextProcessAt = time.Time{}
		}
		return s
	}
	rapid.Check(t, func(rt *rapid.T) {
		options := rapid.SliceOfN(rapid.SampledFrom(all), 0, 4)
		name, payload := rapid.SampledFrom([]string{"mail", "hook", " "}).Draw(rt, "type"), rapid.SampledFrom([]string{"", "x"}).Draw(rt, "payload")
		task := asynq.NewTaskWithHeaders(name, []byte(payload), map[string]string{"k": "v"}, options.Draw(rt, "of the task")...)
		given := options.Draw(rt, "of the call")
		want, wantErr := bare.EnqueueContext(t.Context(), task, given...)
		got, err := gated.EnqueueContext(t.Context(), task, append(given, asynqbridge.Tenant("acme"))...)
		if errorOf(err) != errorOf(wantErr) || errors.Is(err, asynq.ErrDuplicateTask) != errors.Is(wantErr, asynq.ErrDuplicateTask) || errors.Is(err, asynq.ErrTaskIDConflict) != errors.Is(wantErr, asynq.ErrTaskIDConflict) {
			rt.Fatalf("error %v, asynq's %v", err, wantErr)
		}
		same(rt, shown(got, true), shown(want, true))
		if want == nil {
			return
		}
		kept, err := ownInspector.GetTaskInfo(got.Queue, got.ID)
		must(t, err)
		wantKept, err := plainInspector.GetTaskInfo(want.Queue, want.ID)
		must(t, err)
		same(rt, shown(kept, true), shown(wantKept, true))
	})
}

func same(rt *rapid.T, got, want asynq.TaskInfo) {
	rt.Helper()
	if string(got.Payload) != string(want.Payload) || got.Headers["k"] != want.Headers["k"] || len(got.Headers) != len(want.Headers) {
		rt.Fatalf("payload and headers %q %v, want %q %v", got.Payload, got.Headers, want.Payload, want.Headers)
	}
	if got.ID != want.ID || got.Queue != want.Queue || got.Type != want.Type || got.State != want.State || got.MaxRetry != want.MaxRetry ||
		got.Timeout != want.Timeout || !got.Deadline.Equal(want.Deadline) || got.Group != want.Group || !got.NextProcessAt.Equal(want.NextProcessAt) || got.Retention != want.Retention {
		rt.Fatalf("task %+v, want %+v", got, want)
	}
}

func TestARefusalNamesItsScopeAndItsWaitAndLeavesNothing(t *testing.T) {
	t.Parallel()
	everywhere(t, refuse)
}

func refuse(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(2))
	c := s.client()
	ctx := asynqbridge.WithTenant(t.Context(), "acme")
	task := asynq.NewTask("send", nil, asynq.Queue("mail"))
	for range 2 {
		_, err := c.EnqueueContext(ctx, task)
		must(t, err)
	}
	_, err := c.EnqueueContext(ctx, task)
	refused, ok := errors.AsType[*admission.RefusedError](err)
	if !ok || !errors.Is(err, admission.ErrLimited) || refused.Verdict.Scope != "acme" || refused.Verdict.RetryAfter < 11*time.Hour || refused.Verdict.RetryAfter > 12*time.Hour {
		t.Fatalf("%v", err)
	}
	if _, err := c.Enqueue(task, asynqbridge.Tenant("acme"), asynqbridge.Cost(3)); !errors.Is(err, admission.ErrTooCostly) {
		t.Errorf("above the burst: %v", err)
	}
	pending, err := s.inspector().ListPendingTasks("mail")
	must(t, err)
	if len(pending) != 2 {
		t.Errorf("asynq has %d tasks, want 2", len(pending))
	}
}

// TestTasksAreLimitedByTheirType: by the names that asynq has, and one that is none is refused where types have limits.
func TestTasksAreLimitedByTheirType(t *testing.T) {
	t.Parallel()
	everywhere(t, limitTypes)
}

func limitTypes(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(100))
	p := policy.Unlimited()
	p.Queues = map[string]policy.Queue{"mail": {EachTenant: policy.EachTenant{TypeLimits: map[string]admission.Limit{"email:welcome": daily(1), policy.Every: daily(2)}}}}
	_, err := rollout.Put(t.Context(), s.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	c := s.client()
	ctx := asynqbridge.WithTenant(t.Context(), "acme")
	for i, row := range []struct{ taskType, scope string }{
		{"email:welcome", ""}, {"email:welcome", "acme:mail:type=email:welcome"}, {"send", ""}, {"send", ""}, {"send", "acme:mail:type=send"},
	} {
		_, err := c.EnqueueContext(ctx, asynq.NewTask(row.taskType, nil, asynq.Queue("mail")))
		refused, _ := errors.AsType[*admission.RefusedError](err)
		if (row.scope == "") != (err == nil) || err != nil && (refused == nil || string(refused.Verdict.Scope) != row.scope) {
			t.Errorf("task %d of type %s: %v, want it refused by %q", i, row.taskType, err, row.scope)
		}
	}
	if _, err := c.EnqueueContext(ctx, asynq.NewTask("no name", nil, asynq.Queue("mail"))); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("a type that is no name: %v", err)
	}
	if _, err := c.EnqueueContext(ctx, asynq.NewTask("no name", nil, asynq.Queue("hook"))); err != nil {
		t.Errorf("in a queue that has no limits of types: %v", err)
	}
	must(t, c.Close())
	for scope, want := range map[admission.Scope][2]int64{"acme:mail:type=send": {2, 1}, "acme:mail": {3, 2}, "acme:hook:type=no name": {}} {
		minutes, err := s.store.Minutes(t.Context(), scope)
		must(t, err)
		var got [2]int64
		for _, m := range minutes {
			got[0], got[1] = got[0]+m.Allowed, got[1]+m.Refused
		}
		if got != want {
			t.Errorf("%s: %v were allowed and refused, want %v", scope, got, want)
		}
	}
}

func TestTheTenantIsOfTheOptionThenTheCtxThenTheHeader(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, daily(4))
	c := s.client()
	task := asynq.NewTaskWithHeaders("send", nil, map[string]string{asynqbridge.HeaderTenant: "header", asynqbridge.HeaderCost: "3"})
	ctx := asynqbridge.WithTenant(t.Context(), "ctx")
	_, err := c.Enqueue(task)
	must(t, err)
	_, err = c.EnqueueContext(ctx, task, asynqbridge.Cost(2))
	must(t, err)
	_, err = c.EnqueueContext(ctx, task, asynqbridge.Tenant("option"), asynqbridge.Cost(1), asynqbridge.Priority(admission.High))
	must(t, err)
	for tenant, want := range map[string]admission.Tokens{"header": 1, "ctx": 2, "option": 3} {
		if left := s.left(tenant, daily(4)); left != want {
			t.Errorf("%s has %d tokens left, want %d", tenant, left, want)
		}
	}
	for name, err := range map[string]error{
		"no tenant":    second(c.Enqueue(asynq.NewTask("send", nil))),
		"bad tenant":   second(c.Enqueue(task, asynqbridge.Tenant("a:b"))),
		"bad cost":     second(c.Enqueue(task, asynqbridge.Cost(0))),
		"bad queue":    second(c.Enqueue(task, asynq.Queue("a:b"))),
		"bad priority": second(c.Enqueue(task, asynqbridge.Priority("urgent"))),
	} {
		if !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestABadClientConfigIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, daily(1))
	if _, err := asynqbridge.NewClient(s.asynq, s.store, asynqbridge.ClientConfig{Timeout: time.Hour}); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func second(_ *asynq.TaskInfo, err error) error { return err }

func TestTokensComeBackWhenAsynqRefuses(t *testing.T) {
	t.Parallel()
	everywhere(t, refund)
}

func refund(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(10))
	c := s.client()
	tenant := asynqbridge.Tenant("acme")
	_, err := c.Enqueue(asynq.NewTask("send", nil), tenant, asynq.TaskID("one"), asynq.Unique(time.Hour))
	must(t, err)
	for range 5 {
		if _, err := c.Enqueue(asynq.NewTask("send", nil), tenant, asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) || errors.Is(err, asynqbridge.ErrNotRefunded) {
			t.Fatal(err)
		}
		if _, err := c.Enqueue(asynq.NewTask("other", nil), tenant, asynq.TaskID("one")); !errors.Is(err, asynq.ErrTaskIDConflict) || errors.Is(err, asynqbridge.ErrNotRefunded) {
			t.Fatal(err)
		}
	}
	if left := s.left("acme", daily(10)); left != 9 {
		t.Errorf("%d tokens left, want 9", left)
	}
}

// TestALostReplyOfAsynqIsNotRefunded: a cut before the command cannot be told from one after it.
func TestALostReplyOfAsynqIsNotRefunded(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, daily(10))
	proxy := redistest.NewProxy(t, s.asynq.Addr)
	direct := s.asynq
	s.asynq.Addr = proxy.Addr()
	c := s.client()
	tenant := asynqbridge.Tenant("acme")
	_, err := c.Enqueue(asynq.NewTask("send", nil), tenant)
	must(t, err)
	proxy.Decide(func(command redistest.Command) redistest.Action {
		if command.Name == "EVALSHA" {
			return redistest.Action{Cut: redistest.CutAfter}
		}
		return redistest.Action{}
	})
	if _, err = c.Enqueue(asynq.NewTask("send", nil), tenant); !errors.Is(err, asynqbridge.ErrNotRefunded) {
		t.Errorf("a lost reply: %v", err)
	}
	s.asynq = direct
	pending, err := s.inspector().ListPendingTasks("default")
	must(t, err)
	if left := s.left("acme", daily(10)); left != 8 || len(pending) != 2 {
		t.Errorf("%d tokens left and %d tasks, want 8 and 2", left, len(pending))
	}
	s.asynq.Addr = "127.0.0.1:1" // nobody listens
	if _, err = s.client().Enqueue(asynq.NewTask("send", nil), tenant); err == nil || errors.Is(err, asynqbridge.ErrNotRefunded) {
		t.Errorf("asynq's redis away: %v", err)
	}
	if left := s.left("acme", daily(10)); left != 8 {
		t.Errorf("%d tokens left after what was never sent, want 8", left)
	}
}

// TestAPartitionThatIsBehindIsBroughtUp: where the process of an edit has died after the first partition, a client goes on.
func TestAPartitionThatIsBehindIsBroughtUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, daily(10))
	c := s.client()
	s.limit(2, daily(20))
	for i, part := range s.store.Partitions()[1:] { // The first is never behind.
		must(t, s.redis.HSet(t.Context(), redisstore.KeysOf(part).State(), "pv", 1, "pe", "").Err())
		tenant := "tenant-0"
		for n := 1; s.store.PartitionOf(tenant) != i+1; n++ {
			tenant = "tenant-" + strconv.Itoa(n)
		}
		_, err := c.Enqueue(asynq.NewTask("send", nil), asynqbridge.Tenant(tenant), asynqbridge.Cost(15))
		must(t, err)
	}
}

// TestTheGateIsCounted once it is closed: two tasks that the buckets let through, and one that they refused.
func TestTheGateIsCounted(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, newSite siteOf) {
		t.Helper()
		s := newSite(t, daily(2))
		c := s.client()
		for range 3 {
			_, err := c.EnqueueContext(t.Context(), asynq.NewTask("mail", nil), asynqbridge.Tenant("acme"), asynqbridge.Priority("10"))
			if err != nil && !errors.Is(err, admission.ErrLimited) {
				t.Fatal(err)
			}
		}
		must(t, c.Close())
		for _, scope := range []admission.Scope{"acme", "acme:default", "acme:default:high"} {
			minutes, err := s.store.Minutes(t.Context(), scope)
			must(t, err)
			var allowed, refused int64
			for _, m := range minutes {
				allowed, refused = allowed+m.Allowed, refused+m.Refused
			}
			if allowed != 2 || refused != 1 {
				t.Errorf("%s: %d allowed and %d refused, want 2 and 1", scope, allowed, refused)
			}
		}
	})
}
