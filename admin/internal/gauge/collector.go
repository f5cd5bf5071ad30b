package gauge

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/circuits"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// Bounds of labels: what is beyond them goes to Other.
const (
	// MaxQueues is the largest number of queues with a name of their own, the first by name.
	MaxQueues = 500
	// MaxDownstreams is that of downstreams: those whose breakers are not closed come first, then by name.
	MaxDownstreams = circuits.Most
	maxClasses     = 16 // of a queue
	maxReasons     = 50
	// Other is the label of all others.
	Other = "other"
)

// collectTimeout bounds the reads of one scrape.
const collectTimeout = 5 * time.Second

var (
	depthDesc = prometheus.NewDesc("throttle_queue_depth", "Jobs that wait in the lanes of a queue, by class.", []string{"queue_id", "priority"}, nil)
	jobsDesc  = prometheus.NewDesc("headgate_queue_jobs", "Jobs of a queue by place: waiting, ready, running, later, spilled, dead.", []string{"queue_id", "place"}, nil)
	paceDesc  = prometheus.NewDesc("headgate_queue_pace_seconds", "Time from one dispatch of a queue to the next while jobs wait.", []string{"queue_id"}, nil)
	shutDesc  = prometheus.NewDesc("headgate_queue_paused", "Whether a queue is paused (dispatch) or suspended (enqueue).", []string{"queue_id", "what"}, nil)
	holdsDesc = prometheus.NewDesc("headgate_holds", "Pauses (dispatch) and suspensions (enqueue) in force, by what they are about: queue, tenant, tenant_queue, downstream.", []string{"kind", "what"}, nil)
	oldDesc   = prometheus.NewDesc("headgate_holds_oldest_seconds", "Age of the oldest pause or suspension that does not end by itself, 0 where there is none.", nil, nil)
	scaleDesc = prometheus.NewDesc("headgate_limit_scale", "Part of the policy's limits that is in force, by whose: all, global, and of tenants the least; 1 where they are not scaled.", []string{"of"}, nil)
	inDesc    = prometheus.NewDesc("headgate_jobs_accepted_total", "Jobs that were admitted.", nil, nil)
	leftDesc  = prometheus.NewDesc("headgate_jobs_left_total", "Jobs that left, by reason.", []string{"reason"}, nil)
	diedDesc  = prometheus.NewDesc("headgate_dead_letters_total", "Jobs that became dead letters, by reason.", []string{"reason"}, nil)
	oddDesc   = prometheus.NewDesc("headgate_anomalies_total", "Rates that were not usual, by kind: surge, silence, refusal_surge, scope_scan, near_limit.", []string{"kind"}, nil)
	againDesc = prometheus.NewDesc("headgate_retries_total", "Runs that failed and whose jobs came back.", nil, nil)
	typeDesc  = prometheus.NewDesc("headgate_unknown_type_total", "Jobs that workers handed back because they have no handler for their type, by queue.", []string{"queue_id"}, nil)
	lostDesc  = prometheus.NewDesc("headgate_jobs_unaccounted", "Accepted jobs that have neither a record nor left for a reason that was counted: 0 where all is well, absent where it is not known.", nil, nil)
	staffDesc = prometheus.NewDesc("headgate_workers", "Workers that are registered.", nil, nil)
	slotsDesc = prometheus.NewDesc("headgate_worker_slots", "Slots of registered workers, by whether a job is in them.", []string{"state"}, nil)
	lateDesc  = prometheus.NewDesc("headgate_timers_late_seconds", "For how long the timer that is due first has been, 0 where none is.", nil, nil)
	memDesc   = prometheus.NewDesc("headgate_redis_memory_bytes", "Memory that Redis uses, and its maxmemory, 0 for none.", []string{"kind"}, nil)
	boundDesc = prometheus.NewDesc("headgate_bound_used_ratio", "Part that is used of what the store keeps at most: names of queues, dead letters, circuit breakers, lanes of a tenant in a class of a queue (0 below 3072).", []string{"bound"}, nil)
	upDesc    = prometheus.NewDesc("headgate_redis_up", "Whether Redis answered this scrape.", nil, nil)
)

// collector reads Redis at each scrape: what it shows is as old as the scrape.
type collector struct {
	store   store.Deployment
	permits *permits
	outlook outlook
}

// Describe sends nothing, so that a scrape without Redis is not one with metrics missing.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads counters, queues, workers, breakers, vitals and shares, some ten round trips and one for each partition.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout) //nolint:forbidigo // a Collector is given no ctx
	defer cancel()
	counters, err := c.store.Counters(ctx)
	var queues []store.QueueState
	if err == nil {
		queues, err = c.store.Queues(ctx)
	}
	var workers []store.WorkerState
	if err == nil {
		workers, err = c.store.Workers(ctx)
	}
	var breakers []store.BreakerState
	if err == nil {
		breakers, err = c.store.Breakers(ctx)
	}
	var vitals store.Vitals
	if err == nil {
		vitals, err = c.store.Vitals(ctx)
	}
	var shares []store.Share
	if err == nil {
		shares, err = c.store.Shares(ctx)
	}
	var holds []store.Hold
	var now time.Time
	if err == nil {
		holds, err = c.store.Holds(ctx)
	}
	var scales []store.Scale
	if err == nil {
		scales, err = c.store.Scales(ctx)
	}
	if err == nil {
		now, err = c.store.Time(ctx)
	}
	var papers named
	if err == nil {
		papers, err = readNamed(ctx, c.store)
	}
	var adaptive []store.Adaptation
	if err == nil {
		adaptive, err = readAdaptive(ctx, c.store, papers.gates, queues)
	}
	var triggers []store.TriggerState
	if err == nil && papers.loads { // Without them no policy has triggers.
		triggers, err = c.store.Triggers(ctx)
	}
	var distinct map[string]store.Distinct
	if err == nil {
		distinct, err = readDistinct(ctx, c.store, counters)
	}
	var second []store.SpillState
	if err == nil {
		second, err = readSecond(ctx, c.store)
	}
	var foreseen []shown.Forecast
	if err == nil {
		foreseen, err = c.outlook.read(ctx, c.store, counters, now)
	}
	running, most := map[string]int{}, map[string]int{}
	if err == nil {
		err = c.permits.collect(ctx, c.store, to, running, most)
	}
	up := 0.0
	if err == nil {
		up = 1
		collectShares(to, shares)
		collectAdaptive(to, adaptive)
		collectTriggers(to, triggers, now)
		circuits.Collect(to, breakers)
		gaugeOf(to, lateDesc, vitals.Late.Seconds())
		gaugeOf(to, memDesc, float64(vitals.Memory), "used")
		gaugeOf(to, memDesc, float64(vitals.MaxMemory), "limit")
		for _, u := range vitals.Bounds {
			gaugeOf(to, boundDesc, float64(u.Used)/float64(u.Most), strings.ReplaceAll(u.Bound, " ", "_"))
		}
		collectCounters(to, counters)
		collectDistinct(to, distinct)
		collectForecasts(to, foreseen)
		collectQueues(to, queues)
		papers.collect(to, queues, running, most)
		collectPressure(to, queues, now)
		collectLoad(to, queues, papers.samples)
		collectWorkers(to, workers)
		collectHolds(to, holds, now)
		collectScales(to, scales)
		collectSecond(to, second, now)
	}
	gaugeOf(to, upDesc, up)
}

// collectHolds shows every kind, also those of which there are none, so that an alert can tell nothing from no answer.
func collectHolds(to chan<- prometheus.Metric, holds []store.Hold, now time.Time) {
	counts, oldest := map[cell]int{}, time.Duration(0)
	for _, kind := range []string{"queue", "tenant", "tenant_queue", "downstream"} {
		counts[cell{kind, string(store.HeldDispatch)}] = 0
		if kind != "downstream" {
			counts[cell{kind, string(store.HeldEnqueue)}] = 0
		}
	}
	for _, h := range holds {
		counts[cell{h.Kind(), string(h.What)}]++
		if h.Until.IsZero() && !h.Since.IsZero() {
			oldest = max(oldest, now.Sub(h.Since))
		}
	}
	for c, n := range counts {
		gaugeOf(to, holdsDesc, float64(n), c.name, c.label)
	}
	gaugeOf(to, oldDesc, oldest.Seconds())
}

// collectScales shows what is left of limits, also where nothing is scaled.
func collectScales(to chan<- prometheus.Metric, scales []store.Scale) {
	least := map[string]float64{string(store.ScaleAll): 1, string(store.ScaleGlobal): 1, "tenant": 1}
	for _, s := range scales {
		of := string(s.Target)
		if _, ofTenant := s.Target.Tenant(); ofTenant {
			of = "tenant"
		}
		least[of] = min(least[of], s.Part)
	}
	for of, part := range least {
		gaugeOf(to, scaleDesc, part, of)
	}
}

func gaugeOf(to chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func collectCounters(to chan<- prometheus.Metric, c store.Counters) {
	to <- prometheus.MustNewConstMetric(inDesc, prometheus.CounterValue, float64(c.Accepted))
	if n, known := c.Unaccounted(); known {
		gaugeOf(to, lostDesc, float64(n))
	}
	to <- prometheus.MustNewConstMetric(againDesc, prometheus.CounterValue, float64(c.Retried))
	for desc, counts := range map[*prometheus.Desc]map[string]int64{leftDesc: c.Left, diedDesc: c.Died} {
		for reason, n := range bounded(counts, maxReasons) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), reason)
		}
	}
	for kind, n := range c.Anomalies {
		to <- prometheus.MustNewConstMetric(oddDesc, prometheus.CounterValue, float64(n), kind)
	}
	unknown := make(map[string]int64, len(c.Unknown))
	for queue, u := range c.Unknown {
		unknown[queue] = u.Count
	}
	for queue, n := range bounded(unknown, MaxQueues) {
		to <- prometheus.MustNewConstMetric(typeDesc, prometheus.CounterValue, float64(n), queue)
	}
}

// bounded keeps the first names and adds the others up.
func bounded(counts map[string]int64, most int) map[string]int64 {
	kept := map[string]int64{}
	for i, name := range slices.Sorted(maps.Keys(counts)) {
		if i >= most {
			kept[Other] += counts[name]
		} else {
			kept[name] += counts[name]
		}
	}
	return kept
}

// cell is a pair of labels.
type cell struct{ name, label string }

func collectQueues(to chan<- prometheus.Metric, queues []store.QueueState) {
	slices.SortFunc(queues, func(a, b store.QueueState) int { return cmp.Compare(a.Name, b.Name) })
	depth, places, paused := map[cell]int64{}, map[cell]int64{}, map[cell]int64{}
	for i := range queues {
		q := &queues[i]
		name := q.Name
		if i >= MaxQueues {
			name = Other
		}
		for k, class := range q.Classes {
			label := string(class.Name)
			if k >= maxClasses {
				label = Other
			}
			depth[cell{name, label}] += class.Waiting
		}
		for place, n := range map[admission.Place]int64{
			admission.PlaceWaiting: q.Waiting(), admission.PlaceReady: q.Ready, store.PlaceRunning: q.Running, admission.PlaceLater: q.Later,
			admission.PlaceSpilled: q.Spilled, store.PlaceDead: q.Dead,
		} {
			places[cell{name, string(place)}] += n
		}
		paused[cell{name, "dispatch"}] += count(q.Paused())
		paused[cell{name, "enqueue"}] += count(q.Suspended != nil)
		if q.Pace > 0 && name != Other {
			gaugeOf(to, paceDesc, q.Pace.Seconds(), name)
		}
	}
	for desc, cells := range map[*prometheus.Desc]map[cell]int64{depthDesc: depth, jobsDesc: places, shutDesc: paused} {
		for c, n := range cells {
			gaugeOf(to, desc, float64(n), c.name, c.label)
		}
	}
}

func count(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

func collectWorkers(to chan<- prometheus.Metric, workers []store.WorkerState) {
	held, slots := 0, 0
	for _, w := range workers {
		held += w.Held
		slots += w.Slots
	}
	gaugeOf(to, staffDesc, float64(len(workers)))
	gaugeOf(to, slotsDesc, float64(held), "held")
	gaugeOf(to, slotsDesc, float64(slots-held), "free")
}
