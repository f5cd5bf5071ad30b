package gauge

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// What the design papers call by names of theirs, where it can be had with few labels.
var (
	queuedDesc  = prometheus.NewDesc("throttle_queued_requests", "Jobs that wait in the lanes of a queue.", []string{"queue_id"}, nil)
	systemDesc  = prometheus.NewDesc("system_queue_depth", "Jobs of a queue that wait or are ready.", []string{"service_id"}, nil)
	cpuDesc     = prometheus.NewDesc("system_cpu_utilization", "The most that a worker which serves a queue uses of its processors, 1 for all, where the policy has workers tell.", []string{"service_id"}, nil)
	memoryDesc  = prometheus.NewDesc("system_memory_utilization", "The same of its memory.", []string{"service_id"}, nil)
	errorDesc   = prometheus.NewDesc("system_error_rate", "Part of the runs of a queue's jobs that failed in the last minute, 0 to 1, where the policy has workers tell.", []string{"service_id"}, nil)
	runningDesc = prometheus.NewDesc("concurrent_requests", "Jobs that workers hold under the cap of a downstream, and permits that are held of a semaphore.", []string{"service_id"}, nil)
	capDesc     = prometheus.NewDesc("concurrent_limit", "The cap of a downstream, 0 while it is paused, and the limit of a semaphore.", []string{"service_id"}, nil)
	editsDesc   = prometheus.NewDesc("rate_limit_config_changes_total", "Changes of the policy: its version.", nil, nil)
	activeDesc  = prometheus.NewDesc("rate_limit_active_buckets", "Scopes of which something was counted in the last full minute, of the 1,000 with the most and those that the policy observes.", nil, nil)
	pressDesc   = prometheus.NewDesc("backpressure_level", "How much a queue is pressed that the policy has measured: 1 none, 2 low, 3 medium, 4 high, 5 critical.", []string{"service_id"}, nil)
	linksDesc   = prometheus.NewDesc("rate_limit_redis_connections", "Connections that this process has to Redis.", nil, nil)
)

// named is what is read for the metrics of the papers.
type named struct {
	gates   []store.GateState
	version int64
	active  int64
	links   int
	samples []load.Sample
	// loads says that the policy has workers tell how busy they are.
	loads bool
}

func readNamed(ctx context.Context, store store.Deployment) (n named, err error) {
	if n.gates, err = store.Gates(ctx); err != nil {
		return n, err
	}
	if n.version, err = store.PolicyInForce(ctx); err != nil {
		return n, err
	}
	if n.active, err = store.CountedScopes(ctx); err != nil {
		return n, err
	}
	n.links = store.Connections()
	told, err := store.WorkerLoads(ctx)
	n.samples, n.loads = shown.SamplesOf(told), told != nil
	return n, err
}

// collect shows them beside what queues, in the order of their names, have waiting, and what semaphores, running and most, hold and may hold.
func (n *named) collect(to chan<- prometheus.Metric, queues []store.QueueState, running, most map[string]int) {
	waiting, depths := map[string]int64{}, map[string]int64{}
	for i := range queues {
		name := queues[i].Name
		if i >= MaxQueues {
			name = Other
		}
		waiting[name] += queues[i].Waiting()
		depths[name] += queues[i].Waiting() + queues[i].Ready
	}
	for name, jobs := range waiting {
		gaugeOf(to, queuedDesc, float64(jobs), name)
		gaugeOf(to, systemDesc, float64(depths[name]), name)
	}
	downstreams := 0
	slices.SortFunc(n.gates, func(a, b store.GateState) int { return cmp.Compare(a.Name, b.Name) })
	for _, g := range n.gates {
		name, is := strings.CutPrefix(string(g.Name), string(store.DownstreamGate("")))
		if _, ofAccount := admission.ServiceOf(name); !is || ofAccount || g.Burst > 0 {
			continue
		}
		if downstreams++; downstreams > MaxDownstreams {
			name = Other
		}
		running[name] += g.Held
		most[name] += g.Limit
	}
	for name := range running {
		gaugeOf(to, runningDesc, float64(running[name]), name)
		gaugeOf(to, capDesc, float64(most[name]), name)
	}
	to <- prometheus.MustNewConstMetric(editsDesc, prometheus.CounterValue, float64(n.version))
	gaugeOf(to, activeDesc, float64(n.active))
	gaugeOf(to, linksDesc, float64(n.links))
}

// collectPressure shows how much queues are pressed, those that are measured; a policy has up to 256 of them.
func collectPressure(to chan<- prometheus.Metric, queues []store.QueueState, now time.Time) {
	for i := range queues {
		if p := queues[i].Pressure; p != nil {
			gaugeOf(to, pressDesc, float64(p.At(now).Level), queues[i].Name)
		}
	}
}

// collectLoad shows what workers told of the queues that they serve, the first by name: what they use, and how runs ended.
func collectLoad(to chan<- prometheus.Metric, queues []store.QueueState, samples []load.Sample) {
	if len(samples) == 0 {
		return
	}
	for i := range queues[:min(len(queues), MaxQueues)] {
		f := load.Of(queues[i].Name, 0, samples)
		for desc, part := range map[*prometheus.Desc]float64{cpuDesc: f.CPU, memoryDesc: f.Memory, errorDesc: f.ErrorRate} {
			if part >= 0 {
				gaugeOf(to, desc, part, queues[i].Name)
			}
		}
	}
}

// decisions times what is decided without a job.
type decisions struct{ took, waits prometheus.Histogram }

func newDecisions() decisions {
	return decisions{
		took: prometheus.NewHistogram(native("rate_limit_decision_duration_seconds", "Time of a decision without a job, its round trip to Redis included.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5})),
		waits: prometheus.NewHistogram(native("rate_limit_wait_time_seconds", "What decisions without a job told their callers to wait: 0 of those that were allowed; refusals for good are left out.",
			[]float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600})),
	}
}

// Took counts how long a decision took. wait is what it told its caller to wait, negative for no use.
func (d *decisions) Took(took, wait time.Duration) {
	d.took.Observe(took.Seconds())
	if wait >= 0 {
		d.waits.Observe(wait.Seconds())
	}
}
