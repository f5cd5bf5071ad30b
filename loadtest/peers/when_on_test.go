package peers

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// costly is one kind of what a policy may have against overload.
type costly struct {
	name string
	on   func(*policy.Policy)
}

// whenOn are what is measured against the same policy without it. No job is refused for any: their bounds are far away.
var whenOn = []costly{
	{"off", func(*policy.Policy) {}},
	{"pressure", pressed},
	{"pressure-shedding", func(p *policy.Policy) { pressed(p); sheds(p) }},
	{"adaptive", adapts},
	{"pressure-shedding-adaptive", func(p *policy.Policy) { pressed(p); sheds(p); adapts(p) }},
	{"all-and-doomed-and-reserved", func(p *policy.Policy) {
		pressed(p)
		sheds(p)
		adapts(p)
		q := p.Queues["bench"]
		q.DoomedPercent, q.Reserved = 1000, &policy.Reserved{Classes: []admission.Priority{admission.High}, Percent: 20, Lend: true}
		p.Queues["bench"] = q
	}},
}

const whenOnDownstream = "receiver"

func pressed(p *policy.Policy) {
	q := p.Queues["bench"]
	q.Pressure = &policy.PressureRules{TargetWait: time.Hour, MaxDepth: 10_000_000}
	p.Queues["bench"] = q
}

func sheds(p *policy.Policy) {
	p.Shedding = &policy.Shedding{
		Order: []admission.Priority{admission.Low, admission.Medium}, Reserve: []admission.Priority{admission.High},
		At: map[string][]string{"MEDIUM": {"low:over"}, "HIGH": {"low", "medium:over"}, "CRITICAL": {"low", "medium"}},
	}
}

func adapts(p *policy.Policy) {
	p.Adaptive = map[string]policy.Adaptive{"receiver": {Of: "downstream " + whenOnDownstream, Min: 1000, Max: 10_000}}
}

// BenchmarkWhenOn: what of that costs Redis a job from its admission to its end, in batches as in WholeWay, and what the looks cost that do not
// depend on jobs. Each turn has all kinds, the next one in the other order; what it gives are medians of the differences from off of each turn.
func BenchmarkWhenOn(b *testing.B) {
	const turns = 9
	jobs, looks := map[string][]float64{}, map[string][]float64{}
	for turn := range turns {
		order := slices.Clone(whenOn)
		if turn%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			job, look := costOf(b, c)
			jobs[c.name], looks[c.name] = append(jobs[c.name], job), append(looks[c.name], look)
		}
	}
	for _, c := range whenOn {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(quantile(jobs[c.name], 0.5), "redis-us/job")
				b.ReportMetric(0, "ns/op")
				if c.name == "off" {
					continue
				}
				more := make([]float64, turns)
				for i := range more {
					more[i] = jobs[c.name][i] - jobs["off"][i]
				}
				b.ReportMetric(quantile(more, 0.5), "more-us/job")
				b.ReportMetric(quantile(more, 0.25), "more-us-lower-quarter")
				b.ReportMetric(quantile(more, 0.75), "more-us-upper-quarter")
				b.ReportMetric(quantile(looks[c.name], 0.5)-quantile(looks["off"], 0.5), "looks-us/s")
			}
		})
	}
}

// quantile returns the value that a part of all is at most, of those given.
func quantile(values []float64, part float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[int(part*float64(len(values)-1))]
}

// costOf returns microseconds of the processor of Redis: a job's, and those of a second in which no job is there.
func costOf(b *testing.B, c costly) (job, look float64) {
	b.Helper()
	const jobs = 20_000
	server := redistest.Start(b, redistest.Options{})
	queue := openCostly(b, server, c)
	var ended atomic.Int64
	done := make(chan struct{})
	stop := queue.work(b, 128, func(string, int) {
		if ended.Add(1) == jobs {
			close(done)
		}
	})
	defer stop()
	const idle = 2 * time.Second
	time.Sleep(idle / 4) //nolint:forbidigo // Until the worker has the policy.
	before := spendingOf(b, server)
	time.Sleep(idle) //nolint:forbidigo // What is spent meanwhile is measured.
	idled := spendingOf(b, server)
	queue.enqueueMany(b, tenantOf, 0, jobs)
	<-done
	after := spendingOf(b, server)
	return 1e6 * (after.seconds - idled.seconds) / jobs, 1e6 * (idled.seconds - before.seconds) / idle.Seconds()
}

// costlyQueue is a queue whose jobs go to a downstream, by a policy that the store has, too.
type costlyQueue struct{ *headgateQueue }

func openCostly(b *testing.B, server *redistest.Server, c costly) *costlyQueue {
	b.Helper()
	s, err := redisstore.Open(b.Context(), newClient(b, server.Options()), redisstore.Config{})
	check(b, err)
	limits := policy.Unlimited()
	plenty := admission.PerSecond(100_000_000)
	limits.Global = plenty
	limits.Tiers[policy.StandardTier] = policy.Tier{Limit: plenty}
	limits.Queues = map[string]policy.Queue{"bench": {MaxWait: time.Hour}}
	limits.Downstreams = map[string]policy.Downstream{whenOnDownstream: {MaxRunning: 10_000}}
	c.on(&limits)
	stored, err := rollout.Put(b.Context(), s, limits, rollout.Edit{Author: "bench", Expected: rollout.AnyVersion})
	check(b, err)
	limits.Version = stored.To
	p, err := producer.New(s, producer.Config{Policy: &limits, Timeout: 30 * time.Second})
	check(b, err)
	return &costlyQueue{&headgateQueue{store: s, producer: p}}
}

func (q *costlyQueue) enqueueMany(b *testing.B, tenant func(int) string, first, last int) {
	b.Helper()
	for ; first < last; first += store.MaxBatchJobs {
		var jobs []admission.Job
		for n := first; n < min(first+store.MaxBatchJobs, last); n++ {
			j := q.job(tenant(n), n)
			j.Downstream = whenOnDownstream
			jobs = append(jobs, j)
		}
		results, err := q.producer.EnqueueBatch(b.Context(), jobs)
		check(b, err)
		for _, r := range results {
			check(b, r.Err)
		}
	}
}
