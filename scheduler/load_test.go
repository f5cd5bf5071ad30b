package scheduler_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestOneSchedulerKeepsTheHistory: of two that run, the holder of the timer lease notes a point of each queue, at most 200 with the most to
// do, with a TTL; nobody else may, and nobody does once the policy no longer asks.
func TestOneSchedulerKeepsTheHistory(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := open(t, client)
	part := s.Partitions()[0]
	put := func(rules *policy.LoadRules) int64 {
		t.Helper()
		p := policy.Unlimited()
		p.Load = rules
		if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
		version, err := s.PolicyInForce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	version := put(&policy.LoadRules{})
	none := admission.Limit{Disabled: true}
	for i := range store.MaxLoadServices + 5 {
		for n := range 1 + i/store.MaxLoadServices { // The last five have one job more.
			j := admission.NewJob("acme", fmt.Sprintf("queue-%03d", i), "send", nil)
			j.ID = fmt.Sprint(i, "-", n)
			limits := [admission.Levels]admission.Limit{none, none, none, none}
			if _, err := part.Admit(t.Context(), version, []store.Candidate{{Job: &j, Class: 1, Limits: &limits}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "other", Weight: 1}}}
	if _, err := part.Register(t.Context(), "w", pool, 4, time.Minute); err != nil {
		t.Fatal(err)
	}
	told := load.Sample{Use: load.Use{CPU: .5, Memory: .25}, Queues: map[string]load.Runs{"queue-204": {Running: 2}}}
	if beat, err := part.Heartbeat(t.Context(), "w", time.Minute, told.Text()); err != nil || beat.Load != policy.DefaultLoadEvery {
		t.Fatalf("a heartbeat is answered by %+v, %v", beat, err)
	}
	run(t, s, scheduler.Config{TimerLease: handOver})
	run(t, s, scheduler.Config{TimerLease: handOver})
	history := func(queue string) []store.LoadPoint {
		t.Helper()
		points, err := s.LoadHistory(t.Context(), queue, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return points
	}
	await(t, "a point", func() bool { return len(history("queue-204")) > 0 })
	point := history("queue-204")[0]
	figures, err := load.ParseFigures(point.Text)
	if want := load.Of("queue-204", 2, []load.Sample{told}).Seen(-1, admission.PressureNone); err != nil || figures != want {
		t.Errorf("a point says %+v, %v, want %+v", figures, err, want)
	}
	if now, err := s.Time(t.Context()); err != nil || !point.At.Equal(store.LoadSlot(point.At)) || now.Sub(point.At) > time.Minute {
		t.Errorf("a point is of %v at %v, %v", point.At, now, err)
	}
	if left := history("other"); len(left) > 0 {
		t.Error("a queue without work has a point, though others with some have none")
	}
	key := redisstore.KeysOf(part).Loads(point.At.Unix() / 60)
	fields, ttl := client.HKeys(t.Context(), key).Val(), client.TTL(t.Context(), key).Val()
	of := map[string]int{}
	for _, field := range fields {
		slot, _, _ := strings.Cut(field, ":")
		of[slot]++
	}
	for slot, n := range of {
		if n != store.MaxLoadServices {
			t.Errorf("point %s has %d queues", slot, n)
		}
	}
	if len(of) == 0 || ttl < store.LoadHistoryLife || ttl > store.LoadHistoryLife+3*time.Minute {
		t.Errorf("%d points are kept for %v", len(of), ttl)
	}
	note := store.LoadNote{Owner: "nobody", Services: map[string]string{"mail": "[]"}}
	if err := part.NoteLoad(t.Context(), note); !errors.Is(err, store.ErrNotHolder) {
		t.Errorf("who has no timer lease is told %v", err)
	}
	put(nil)
	if note.Owner, _, err = part.TimerLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := part.NoteLoad(t.Context(), note); !errors.Is(err, store.ErrNotMeasured) {
		t.Errorf("where nobody asks it is told %v", err)
	}
}

// TestAPointTakesLittleOfRedis: 100 bytes where there are 20 busy queues, which Redis keeps without an entry each, and 150 where there are 200.
func TestAPointTakesLittleOfRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	busy := load.Figures{
		Use: load.Use{CPU: .1234, Memory: .1234}, Depth: 1234, Running: 100, ErrorRate: .0123, Average: 123 * time.Millisecond, P95: time.Second, WaitP95: 12 * time.Second,
	}.Seen(12*time.Second, admission.PressureMedium).Text()
	for queues, most := range map[int]int64{20: 100, store.MaxLoadServices: 150} {
		s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: redistest.Prefix(t) + strconv.Itoa(queues)})
		if err != nil {
			t.Fatal(err)
		}
		p := policy.Unlimited()
		p.Load = &policy.LoadRules{}
		if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
		part, note := s.Partitions()[0], store.LoadNote{Owner: "s1", Services: map[string]string{}}
		if _, err := part.Promote(t.Context(), "s1", time.Minute); err != nil {
			t.Fatal(err)
		}
		all := queues * int(time.Minute/store.LoadStep) // A minute of points is a hash, whose fields are all alike.
		for i := range all {
			note.Services[fmt.Sprintf("queue-%03d", i)] = busy
		}
		if err := part.NoteLoad(t.Context(), note); err != nil {
			t.Fatal(err)
		}
		points, err := s.LoadHistory(t.Context(), "queue-007", time.Time{})
		if err != nil || len(points) != 1 || points[0].Text != busy {
			t.Fatalf("the history has %+v, %v", points, err)
		}
		used, err := client.MemoryUsage(t.Context(), redisstore.KeysOf(part).Loads(points[0].At.Unix()/60), 0).Result()
		if err != nil || used > most*int64(all) {
			t.Errorf("points of %d queues take %d bytes each, %v", queues, used/int64(all), err)
		}
		t.Logf("a point of %d bytes takes %d where there are %d queues", len(busy), used/int64(all), queues)
	}
}

// TestWithoutALoadNothingIsReadForTheHistory, nor written: a scheduler that measures a queue meanwhile sends neither an INFO nor a point.
func TestWithoutALoadNothingIsReadForTheHistory(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s := open(t, proxy.Client(t))
	var pressed, read atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		switch {
		case c.IsScript() && strings.HasSuffix(c.Args[0], "_pressure"):
			pressed.Add(1)
		case c.Name == "INFO", c.IsScript() && strings.HasSuffix(c.Args[0], "_load"):
			read.Add(1)
		}
		return redistest.Action{}
	})
	p := policy.Unlimited()
	p.Queues = map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 10, Interval: policy.MinAdaptiveInterval}}}
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	run(t, s, scheduler.Config{})
	await(t, "the queue to be measured", func() bool { return pressed.Load() > 3 })
	if n := read.Load(); n > 0 {
		t.Errorf("%d commands for a history that nobody asks for", n)
	}
	p.Load = &policy.LoadRules{}
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	await(t, "what is read for it where somebody does", func() bool { return read.Load() > 0 })
}

// TestWhatWorkersTellPressesAQueue: with weights for it, run times, failed runs and what the busiest worker uses count, and a queue of which
// none of them is told is pressed by the rest.
func TestWhatWorkersTellPressesAQueue(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	rules := &policy.PressureRules{
		MaxDepth: 10, TargetRun: 2 * time.Second, MaxFailed: .5, Interval: policy.MinAdaptiveInterval,
		Weights: map[string]float64{"depth": .2, "run_p95": .2, "failed": .2, "cpu": .2, "memory": .2},
	}
	p := policy.Unlimited()
	p.Load, p.Queues = &policy.LoadRules{}, map[string]policy.Queue{"mail": {Pressure: rules}, "post": {Pressure: rules}}
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	part, pool := s.Partitions()[0], store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	var ran load.Window
	for i := range 4 {
		ran.Ended(time.Now(), "mail", time.Second, i == 0)
	}
	for name, use := range map[string]load.Use{"calm": {CPU: .1, Memory: .75}, "busy": {CPU: .95, Memory: -1}} {
		if _, err := part.Register(t.Context(), name, pool, 4, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := part.Heartbeat(t.Context(), name, time.Minute, load.Sample{Use: use, Queues: ran.Sum(time.Now())}.Text()); err != nil {
			t.Fatal(err)
		}
	}
	run(t, s, scheduler.Config{TimerLease: handOver})
	for queue, want := range map[string]string{
		"mail": "cpu 0.95 of weight 0.2, depth 0 of weight 0.2, failed 0.5 of weight 0.2, memory 0.75 of weight 0.2, run_p95 0.4",
		"post": "cpu unknown of weight 0.2, depth 0 of weight 0.2, failed unknown of weight 0.2, memory unknown of weight 0.2, run_p95 unknown of weight 0.2",
	} {
		var said string
		await(t, "a score of "+queue, func() bool {
			q, err := s.Queue(t.Context(), queue)
			if err != nil || q.Pressure == nil {
				return false
			}
			said = q.Pressure.Parts
			return said != ""
		})
		if !strings.HasPrefix(said, want) && !strings.HasPrefix(said, strings.Replace(want, "run_p95 0.4", "run_p95 0.5", 1)) { // A bucket of run times is 9 % wide.
			t.Errorf("%s is pressed by %q, want %q", queue, said, want)
		}
	}
}
