package asynqbridge_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

const pendingKey = "asynq:{mail}:pending"

// TestATaskReachesAsynqAsItWasEnqueued compares what asynq has with what its own client would have made.
func TestATaskReachesAsynqAsItWasEnqueued(t *testing.T) {
	t.Parallel()
	everywhere(t, handOver)
}

func handOver(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(10))
	deadline := time.Now().Add(time.Hour).Truncate(time.Second)
	info, err := s.fair().Enqueue(asynq.NewTaskWithHeaders("send", []byte("payload"), map[string]string{"k": "v"}, asynq.Queue("mail"), asynq.MaxRetry(0)),
		asynqbridge.Tenant("acme"), asynq.TaskID("one"), asynq.Timeout(time.Minute), asynq.Deadline(deadline), asynq.Retention(time.Hour), asynq.ProcessIn(time.Second))
	must(t, err)
	if info.ID != "acme:one" || info.Queue != "mail" || info.State != asynq.TaskStateScheduled {
		t.Errorf("%+v", info)
	}
	defer s.release(asynqbridge.ReleaserConfig{Queues: []string{"mail"}})()
	var got *asynq.TaskInfo
	soon(t, "the hand-over", func() bool {
		got, err = s.inspector().GetTaskInfo("mail", "acme:one")
		return err == nil
	})
	if string(got.Payload) != "payload" || got.Type != "send" || len(got.Headers) != 2 || got.Headers["k"] != "v" || got.MaxRetry != 0 ||
		got.Timeout != time.Minute || !got.Deadline.Equal(deadline) || got.Retention != time.Hour || got.State != asynq.TaskStatePending {
		t.Errorf("%+v", got)
	}
}

func TestATaskIDIsInOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, enterOnce)
}

func enterOnce(t *testing.T, newSite siteOf) {
	t.Helper()
	f := newSite(t, daily(10)).fair()
	ctx := asynqbridge.WithTenant(t.Context(), "acme")
	_, err := f.EnqueueContext(ctx, asynq.NewTask("send", nil), asynq.TaskID("one"))
	must(t, err)
	if _, err := f.EnqueueContext(ctx, asynq.NewTask("send", nil), asynq.TaskID("one")); !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Errorf("the same id: %v", err)
	}
	if _, err := f.EnqueueContext(ctx, asynq.NewTask("send", nil), asynq.Unique(time.Hour)); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("unique: %v", err)
	}
	if _, err := f.EnqueueContext(ctx, asynq.NewTask("send", nil), asynqbridge.Cost(11)); !errors.Is(err, admission.ErrTooCostly) {
		t.Errorf("above the burst: %v", err)
	}
}

// TestFairnessSurvivesAsynqsFIFO: a tenant that comes behind a flood waits for what asynq already has and no more, and asynq
// never has more than the high mark.
func TestFairnessSurvivesAsynqsFIFO(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, newSite siteOf) {
		t.Helper()
		serveFairly(t, newSite, 400)
	})
}

// TestTheSizeOfTheFloodDoesNotMatter: behind 50,000 tasks a light tenant waits for as many as behind 400.
func TestTheSizeOfTheFloodDoesNotMatter(t *testing.T) {
	t.Parallel()
	serveFairly(t, onePartition, 50_000)
}

func serveFairly(t *testing.T, newSite siteOf, flood int) {
	t.Helper()
	const low, high, slots, light, seen = 4, 8, 4, 10, 400
	s := newSite(t, admission.PerSecond(1_000_000))
	f := s.fair()
	send := func(tenant string, n int) {
		var wg sync.WaitGroup
		const senders = 64
		for k := range senders {
			wg.Go(func() {
				for i := k; i < n; i += senders {
					if _, err := f.Enqueue(asynq.NewTask("send", []byte(tenant), asynq.Queue("mail")), asynqbridge.Tenant(tenant)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	send("flood", flood)
	slow := *s // hand-overs take longer than the next look at the list
	proxy := redistest.NewProxy(t, s.asynq.Addr)
	proxy.Decide(func(command redistest.Command) redistest.Action {
		if command.Name == "EVALSHA" {
			return redistest.Action{Delay: 5 * time.Millisecond}
		}
		return redistest.Action{}
	})
	slow.asynq.Addr = proxy.Addr()
	defer slow.release(asynqbridge.ReleaserConfig{Queues: []string{"mail"}, Low: low, High: high, Concurrency: slots, Every: time.Millisecond})()
	soon(t, "the high mark", func() bool { return s.redis.LLen(t.Context(), pendingKey).Val() == high })
	send("light", light)
	var mu sync.Mutex
	var order []string
	most := int64(0)
	s.serve(asynq.Config{Concurrency: 1, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 20 * time.Millisecond}, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		pending := s.redis.LLen(ctx, pendingKey).Val()
		mu.Lock()
		defer mu.Unlock()
		order, most = append(order, string(task.Payload())), max(most, pending)
		return nil
	}))
	soon(t, "the light tenant's tasks, and many of the flood's", func() bool {
		mu.Lock()
		defer mu.Unlock()
		ran := 0
		for _, tenant := range order {
			if tenant == "light" {
				ran++
			}
		}
		return ran == light && len(order) >= seen
	})
	mu.Lock()
	defer mu.Unlock()
	last := 0
	for i, tenant := range order {
		if tenant == "light" {
			last = i
		}
	}
	// What asynq and the releaser's slots held, then one of the flood's for each of the light tenant's, and one task that
	// may be read out of turn by each slot.
	bound := high + slots + 2*light + slots
	if s.store.PartitionOf("flood") != s.store.PartitionOf("light") {
		bound += 3 * 80 // The slots are shared out anew every 100 ms, in which these hand-overs are 80 at most.
	}
	if last >= bound || most > high {
		t.Errorf("the light tenant's last task ran as number %d, want below %d; asynq had up to %d pending, want %d at most", last, bound, most, high)
	}
}

// watched returns a site whose Releasers reach asynq's Redis by a proxy, which counts their looks at its lists: they look while a
// task waits for room there.
func (s *site) watched() (through *site, looks *atomic.Int64) {
	s.tb.Helper()
	proxy := redistest.NewProxy(s.tb, s.asynq.Addr)
	looks = new(atomic.Int64)
	proxy.Decide(func(command redistest.Command) redistest.Action {
		if command.Name == "LLEN" {
			looks.Add(1)
		}
		return redistest.Action{}
	})
	own := *s
	own.asynq.Addr = proxy.Addr()
	return &own, looks
}

// TestAReleaserWaitsForTheLowMark: it fills asynq's list up to the high mark, and then looks on until no more than the low mark are
// left.
func TestAReleaserWaitsForTheLowMark(t *testing.T) {
	t.Parallel()
	const low, high = 4, 8
	s := newSite(t, 1, daily(1000))
	f := s.fair()
	for range 2 * high {
		_, err := f.Enqueue(asynq.NewTask("send", nil, asynq.Queue("mail")), asynqbridge.Tenant("acme"))
		must(t, err)
	}
	through, looks := s.watched()
	defer through.release(asynqbridge.ReleaserConfig{Queues: []string{"mail"}, Low: low, High: high, Every: time.Millisecond})()
	pending := func() int64 { return s.redis.LLen(t.Context(), pendingKey).Val() }
	soon(t, "the high mark", func() bool { return pending() == high })
	must(t, s.redis.LPopCount(t.Context(), pendingKey, high-low-1).Err())
	seen := looks.Load()
	soon(t, "some looks", func() bool { return looks.Load() > seen+20 })
	if n := pending(); n != low+1 {
		t.Errorf("%d tasks are pending above the low mark, want the %d that were left", n, low+1)
	}
	must(t, s.redis.LPop(t.Context(), pendingKey).Err())
	soon(t, "the high mark again", func() bool { return pending() == high })
}

// TestALostHandOverIsMadeOnce: the replies to hand-overs are lost one after the other.
func TestALostHandOverIsMadeOnce(t *testing.T) {
	t.Parallel()
	handOverOnce(t, onePartition)
}

func handOverOnce(t *testing.T, newSite siteOf) {
	t.Helper()
	const tasks = 20
	s := newSite(t, daily(1000))
	f := s.fair()
	for i := range tasks {
		_, err := f.Enqueue(asynq.NewTask("send", nil, asynq.Queue("mail")), asynqbridge.Tenant("acme"), asynq.TaskID(strconv.Itoa(i)))
		must(t, err)
	}
	var mu sync.Mutex
	runs := map[string]int{}
	s.serve(asynq.Config{Concurrency: 4, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 20 * time.Millisecond}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		defer mu.Unlock()
		runs[id]++
		return nil
	}))
	client := asynq.NewClient(s.asynq)
	defer func() { _ = client.Close() }()
	_, err := client.Enqueue(asynq.NewTask("send", nil, asynq.Queue("other"))) // so that Redis knows the script, and does it
	must(t, err)
	proxy := redistest.NewProxy(t, s.asynq.Addr)
	seen := map[string]bool{}
	proxy.Decide(func(command redistest.Command) redistest.Action {
		if command.Name != "EVALSHA" || len(command.Args) < 3 || seen[command.Args[2]] {
			return redistest.Action{}
		}
		seen[command.Args[2]] = true // by task key: the first hand-over of each loses its reply
		return redistest.Action{Cut: redistest.CutAfter}
	})
	s.asynq.Addr = proxy.Addr()
	defer s.release(asynqbridge.ReleaserConfig{Queues: []string{"mail"}})()
	soon(t, "all jobs to complete", func() bool {
		census, err := s.store.Census(t.Context())
		return err == nil && census.Left["completed"] == tasks
	})
	soon(t, "all tasks to run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(runs) == tasks
	})
	mu.Lock()
	defer mu.Unlock()
	for id, n := range runs {
		if n != 1 || !strings.HasPrefix(id, "acme:") {
			t.Errorf("%s ran %d times", id, n)
		}
	}
	if proxy.Cuts() < tasks {
		t.Errorf("%d replies were lost, want one of each task", proxy.Cuts())
	}
}

// TestATaskIsNotLostToAnotherOfItsID: that which was archived is there for weeks, and Headgate has forgotten its id long before.
func TestATaskIsNotLostToAnotherOfItsID(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, daily(1000))
	text, err := policy.Marshal(policy.Policy{Version: 2, DedupWindow: time.Second})
	must(t, err)
	must(t, s.store.PutPolicy(t.Context(), store.PolicyUpdate{Expected: 1, Version: 2, Text: text, Window: time.Second}))
	f := s.fair()
	defer s.release(asynqbridge.ReleaserConfig{Queues: []string{"mail"}})()
	send := func() error {
		_, err := f.Enqueue(asynq.NewTask("send", nil, asynq.Queue("mail")), asynqbridge.Tenant("acme"), asynq.TaskID("daily"))
		return err
	}
	must(t, send())
	soon(t, "the hand-over, and an operator to archive the task", func() bool { return s.inspector().ArchiveTask("mail", "acme:daily") == nil })
	soon(t, "the id to be forgotten", func() bool { return send() == nil })
	census := store.Census{}
	soon(t, "the second job to leave the Releaser", func() bool {
		census, err = s.store.Census(t.Context())
		return err == nil && census.Left["completed"]+census.Dead == 2
	})
	if census.Dead != 1 {
		t.Errorf("asynq has not taken the second task, and nobody is told: %+v", census)
	}
	sight, err := s.store.Look(t.Context(), admission.Key{Tenant: "acme", ID: "daily"})
	if err != nil || sight.Place != store.PlaceDead || !strings.Contains(sight.Text, "another task of this id") {
		t.Errorf("%+v, %v", sight, err)
	}
}

func TestABadReleaserConfigSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, daily(1))
	_, err := asynqbridge.NewReleaser(s.asynq, s.store, asynqbridge.ReleaserConfig{Queues: []string{"a:b"}, Low: 5, High: 5, Every: time.Hour, Retention: 1, Concurrency: -1})
	for _, field := range []string{"Queues[0]", "High", "Every", "Retention", "Concurrency"} {
		if !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
