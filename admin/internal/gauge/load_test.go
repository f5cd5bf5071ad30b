package gauge

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestWhatWorkersTellIsExported by queue, 500 of them at most, and nothing while the policy has nobody tell.
func TestWhatWorkersTellIsExported(t *testing.T) {
	t.Parallel()
	s, registry := newStore(t), prometheus.NewPedanticRegistry()
	_, err := Register(registry, s)
	must(t, err)
	put := func(version int64, every time.Duration) {
		t.Helper()
		must(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Expected: version - 1, Version: version, Text: fmt.Appendf(nil, `{"version":%d}`, version), Window: time.Minute, Load: every}))
	}
	put(1, time.Second)
	part := s.Partitions()[0]
	for _, w := range []struct {
		name string
		use  load.Use
		runs func(w *load.Window)
	}{
		{"a", load.Use{CPU: .5, Memory: .25}, func(w *load.Window) {
			w.Ended(time.Now(), "mail", time.Second, true)
			w.Ended(time.Now(), "mail", time.Second, false)
		}},
		{"b", load.Use{CPU: .125, Memory: -1}, func(w *load.Window) {
			w.Ended(time.Now(), "mail", time.Second, false)
			w.Ended(time.Now(), "mail", time.Second, false)
		}},
	} {
		_, err := part.Register(t.Context(), w.name, store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 1, time.Minute)
		must(t, err)
		var window load.Window
		w.runs(&window)
		_, err = part.Heartbeat(t.Context(), w.name, time.Minute, load.Sample{Use: w.use, Queues: window.Sum(time.Now())}.Text())
		must(t, err)
	}
	names := []string{"system_cpu_utilization", "system_memory_utilization", "system_error_rate"}
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP system_cpu_utilization The most that a worker which serves a queue uses of its processors, 1 for all, where the policy has workers tell.
# TYPE system_cpu_utilization gauge
system_cpu_utilization{service_id="mail"} 0.5
# HELP system_error_rate Part of the runs of a queue's jobs that failed in the last minute, 0 to 1, where the policy has workers tell.
# TYPE system_error_rate gauge
system_error_rate{service_id="mail"} 0.25
# HELP system_memory_utilization The same of its memory.
# TYPE system_memory_utilization gauge
system_memory_utilization{service_id="mail"} 0.25
`), names...))
	queues := map[string]load.Runs{}
	for i := range MaxQueues + 7 {
		queues[fmt.Sprint("queue-", i)] = load.Runs{}
	}
	for name := range queues {
		_, err := part.Register(t.Context(), "w-"+name, store.Pool{Queues: []store.QueueWeight{{Queue: name, Weight: 1}}}, 1, time.Minute)
		must(t, err)
	}
	_, err = part.Heartbeat(t.Context(), "b", time.Minute, load.Sample{Use: load.Use{CPU: .5, Memory: .5}, Queues: queues}.Text())
	must(t, err)
	if n, err := testutil.GatherAndCount(registry, "system_cpu_utilization"); err != nil || n != MaxQueues {
		t.Errorf("%d queues have a metric, %v", n, err)
	}
	put(2, 0)
	if n, err := testutil.GatherAndCount(registry, names...); err != nil || n != 0 {
		t.Errorf("where nobody is asked there are %d, %v", n, err)
	}
}

// TestTriggersAreReadWhereThereMayBeAny: a scrape asks for them only where the policy has workers tell how busy they are, without which it has no triggers.
func TestTriggersAreReadWhereThereMayBeAny(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	registry := prometheus.NewPedanticRegistry()
	_, err = Register(registry, s)
	must(t, err)
	var asked atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if len(c.Args) > 0 && strings.HasSuffix(c.Args[0], ":triggers") {
			asked.Add(1)
		}
		return redistest.Action{}
	})
	for version, every := range []time.Duration{0, time.Second} {
		must(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Expected: int64(version), Version: int64(version) + 1, Text: []byte("{}"), Window: time.Minute, Load: every}))
		before := asked.Load()
		_, err := registry.Gather()
		must(t, err)
		if got := asked.Load() - before; (got > 0) != (every > 0) {
			t.Errorf("where workers tell each %v triggers are asked for %d times", every, got)
		}
	}
}
