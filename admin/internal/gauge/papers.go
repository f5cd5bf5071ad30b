package gauge

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/store"
)

// What the design papers call by names of theirs, where it can be had with few labels.
var (
	queuedDesc  = prometheus.NewDesc("throttle_queued_requests", "Jobs that wait in the lanes of a queue.", []string{"queue_id"}, nil)
	systemDesc  = prometheus.NewDesc("system_queue_depth", "Jobs that wait or are ready, of all queues.", nil, nil)
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
}

func readNamed(ctx context.Context, store store.Deployment) (n named, err error) {
	if n.gates, err = store.Gates(ctx); err != nil {
		return n, err
	}
	if n.version, err = store.PolicyInForce(ctx); err != nil {
		return n, err
	}
	n.active, err = store.CountedScopes(ctx)
	n.links = store.Connections()
	return n, err
}

// collect shows them beside what queues, in the order of their names, have waiting, and what semaphores, running and most, hold and may hold.
func (n *named) collect(to chan<- prometheus.Metric, queues []store.QueueState, running, most map[string]int) {
	waiting, all := map[string]int64{}, int64(0)
	for i := range queues {
		name := queues[i].Name
		if i >= MaxQueues {
			name = Other
		}
		waiting[name] += queues[i].Waiting()
		all += queues[i].Waiting() + queues[i].Ready
	}
	for name, jobs := range waiting {
		gaugeOf(to, queuedDesc, float64(jobs), name)
	}
	gaugeOf(to, systemDesc, float64(all))
	downstreams := 0
	slices.SortFunc(n.gates, func(a, b store.GateState) int { return cmp.Compare(a.Name, b.Name) })
	for _, g := range n.gates {
		name, is := strings.CutPrefix(string(g.Name), string(store.DownstreamGate("")))
		if !is || g.Burst > 0 {
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
