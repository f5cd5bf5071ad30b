package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// figure names what a benchmark reports in one unit.
type figure struct{ benchmark, unit string }

// bound is what a value may be: at least or at most. The zero bound is none.
type bound struct {
	sign  string
	value float64
}

func atLeast(value float64) bound { return bound{"≥", value} }
func atMost(value float64) bound  { return bound{"≤", value} }

func (b bound) holds(value float64) bool {
	if b.sign == "≥" {
		return value >= b.value
	}
	return value <= b.value
}

// judge reports whether a median is within the bound, and has one that is not printed with as many digits as tell.
func (b bound) judge(s *spread) bool {
	reached := b.holds(s.Median)
	for digits := 4; digits < 17; digits++ {
		if printed, err := strconv.ParseFloat(s.text, 64); err != nil || b.holds(printed) == reached {
			break
		}
		s.text = strconv.FormatFloat(s.Median, 'g', digits, 64)
	}
	return reached
}

func (b bound) String() string {
	return b.sign + " " + strconv.FormatFloat(b.value, 'g', -1, 64)
}

// target is what Headgate is to reach: Ours itself, or divided by To.
type target struct {
	name, measure string
	ours, to      figure
	// peer is shown beside Ours where it is not what Ours is divided by.
	peer  figure
	bound bound
}

// targets are those of the project.
var targets = []target{
	{name: "T1", measure: "exact 4-level checks/s, 64 goroutines ÷ redis_rate's one level", ours: figure{"Check/callers=64/headgate", "checks/s"}, to: figure{"Check/callers=64/redis_rate", "checks/s"}, bound: atLeast(1.8)},
	{name: "T2", measure: "the same of 1 goroutine, p50 ms", ours: figure{"Check/callers=1/headgate", "p50-ms"}, to: figure{"Check/callers=1/redis_rate", "p50-ms"}, bound: atMost(1.2)},
	{name: "T3", measure: "leased check, 4 levels, ns ÷ x/time/rate's", ours: figure{"Local/check=admitted/by=lease", "ns/op"}, to: figure{"Local/check=admitted/by=time-rate", "ns/op"}, bound: atMost(0.2)},
	{name: "T3", measure: "the same, allocations", ours: figure{"Local/check=admitted/by=lease", "allocs/op"}, bound: atMost(0)},
	{name: "T4", measure: "denied check from the cache, ns ÷ x/time/rate's check", ours: figure{"Local/check=denied/by=cache", "ns/op"}, to: figure{"Local/check=admitted/by=time-rate", "ns/op"}, bound: atMost(0.2)},
	{name: "T4", measure: "the same, allocations", ours: figure{"Local/check=denied/by=cache", "allocs/op"}, bound: atMost(0)},
	{name: "T5", measure: "Enqueue, 64 producers, jobs/s ÷ asynq's", ours: figure{"Enqueue/producers=64/headgate", "jobs/s"}, to: figure{"Enqueue/producers=64/asynq", "jobs/s"}, bound: atLeast(1)},
	{name: "T5", measure: "Enqueue, 1 producer, jobs/s ÷ asynq's", ours: figure{"Enqueue/producers=1/headgate", "jobs/s"}, to: figure{"Enqueue/producers=1/asynq", "jobs/s"}, bound: atLeast(0.8)},
	{name: "T5", measure: "EnqueueBatch(64), 1 producer, jobs/s ÷ asynq's 1 producer", ours: figure{"EnqueueBatch/headgate", "jobs/s"}, to: figure{"Enqueue/producers=1/asynq", "jobs/s"}, bound: atLeast(5)},
	{name: "T6", measure: "drain, 1,000 tenants × 3 classes, jobs/s ÷ asynq's one queue", ours: figure{"Drain/headgate", "jobs/s"}, to: figure{"Drain/asynq", "jobs/s"}, bound: atLeast(4.5)},
	{name: "T7", measure: "Enqueue to handler, 200 jobs/s, p50 ms", ours: figure{"EnqueueToHandler/rate=200/headgate", "p50-ms"}, peer: figure{"EnqueueToHandler/rate=200/asynq", "p50-ms"}, bound: atMost(0.45)},
	{name: "T7", measure: "the same, p99 ms", ours: figure{"EnqueueToHandler/rate=200/headgate", "p99-ms"}, peer: figure{"EnqueueToHandler/rate=200/asynq", "p99-ms"}, bound: atMost(2)},
	{name: "T7", measure: "Enqueue to handler, 2,000 jobs/s, p50 ms", ours: figure{"EnqueueToHandler/rate=2000/headgate", "p50-ms"}, peer: figure{"EnqueueToHandler/rate=2000/asynq", "p50-ms"}, bound: atMost(0.45)},
	{name: "T7", measure: "the same, p99 ms", ours: figure{"EnqueueToHandler/rate=2000/headgate", "p99-ms"}, peer: figure{"EnqueueToHandler/rate=2000/asynq", "p99-ms"}, bound: atMost(2)},
	{name: "T8", measure: "light tenant's wait behind a flood of 50,000 jobs, p99 ms", ours: figure{"LightTenant/headgate", "p99-ms"}, peer: figure{"LightTenant/asynq", "p99-ms"}, bound: atMost(20)},
	{name: "T9", measure: "drain rate with 10,000 tenants ÷ with 10", ours: figure{"DrainByTenants/tenants=10000/headgate", "jobs/s"}, to: figure{"DrainByTenants/tenants=10/headgate", "jobs/s"}, bound: atLeast(0.85)},
	{name: "T9", measure: "asynq, a queue a tenant: with 1,000 ÷ with 10", ours: figure{"DrainByTenants/tenants=1000/asynq-queues", "jobs/s"}, to: figure{"DrainByTenants/tenants=10/asynq-queues", "jobs/s"}},
	{name: "T10", measure: "a waiting job, lanes of 1,000, B ÷ asynq's", ours: figure{"Memory/lane=1000/headgate", "B/job"}, to: figure{"Memory/lane=1000/asynq", "B/job"}, bound: atMost(0.7)},
	{name: "T10", measure: "a waiting job, lanes of 30, B ÷ asynq's", ours: figure{"Memory/lane=30/headgate", "B/job"}, to: figure{"Memory/lane=30/asynq", "B/job"}, bound: atMost(0.6)},
	{name: "T10", measure: "a bucket, B", ours: figure{"BucketMemory/headgate", "B/bucket"}, peer: figure{"BucketMemory/redis_rate", "B/bucket"}, bound: atMost(48)},
	{name: "T10", measure: "1M buckets, MB", ours: figure{"BucketMemory/headgate", "MB/1M"}, bound: atMost(60)},
	{name: "T11", measure: "breaker, success, ns ÷ failsafe-go's", ours: figure{"Success/serial/headgate-clock", "ns/op"}, to: figure{"Success/serial/failsafe-time", "ns/op"}, bound: atMost(1.2)},
	{name: "T11", measure: "the same, allocations", ours: figure{"Success/serial/headgate-clock", "allocs/op"}, peer: figure{"Success/serial/gobreaker", "allocs/op"}, bound: atMost(0)},
	{name: "T12", measure: "a killed worker's job runs again, longest s, lease 1.5 s", ours: figure{"Recovery/headgate", "longest-s"}, peer: figure{"Recovery/asynq", "longest-s"}, bound: atMost(2.5)},
	{name: "T13", measure: "Jain's index, 1,000 tenants of equal weight", ours: figure{"Fairness/weights=equal/headgate", "Jain"}, bound: atLeast(0.999)},
	{name: "T13", measure: "Jain's index, weights 4:2:1", ours: figure{"Fairness/weights=4:2:1/headgate", "Jain"}, bound: atLeast(0.999)},
	{name: "T14", measure: "checks/s of one process, 16 callers, 10,000 tenants, 1M scopes, Zipf", ours: figure{"Zipf/callers=16", "checks/s"}, bound: atLeast(1e6)},
	{name: "T14", measure: "the same, p99 µs", ours: figure{"Zipf/callers=16", "p99-us"}, bound: atMost(1000)},
	{name: "T14", measure: "checks/s of 128 callers", ours: figure{"Zipf/callers=128", "checks/s"}},
	{name: "T14", measure: "the same, p99 µs", ours: figure{"Zipf/callers=128", "p99-us"}},
	{name: "T15", measure: "a job's whole way, s of Redis' processor a million ÷ a bare stream's", ours: figure{"WholeWay/headgate", "redis-s/1M"}, to: figure{"WholeWay/stream", "redis-s/1M"}, bound: atMost(3)},
	{name: "T15", measure: "the same, asynq's ÷ a bare stream's", ours: figure{"WholeWay/asynq", "redis-s/1M"}, to: figure{"WholeWay/stream", "redis-s/1M"}},
	{name: "T15", measure: "the same, commands a job ÷ a bare stream's, those in scripts included", ours: figure{"WholeWay/headgate", "commands/job"}, to: figure{"WholeWay/stream", "commands/job"}, bound: atMost(3)},
	{name: "T15", measure: "the same, asynq's ÷ a bare stream's", ours: figure{"WholeWay/asynq", "commands/job"}, to: figure{"WholeWay/stream", "commands/job"}},
	{name: "T15", measure: "a job's whole way where workers keep up, s of Redis' processor a million ÷ a bare stream's", ours: figure{"KeptUp/headgate", "redis-s/1M"}, to: figure{"KeptUp/stream", "redis-s/1M"}, bound: atMost(3)},
	{name: "T15", measure: "the same, commands a job ÷ a bare stream's", ours: figure{"KeptUp/headgate", "commands/job"}, to: figure{"KeptUp/stream", "commands/job"}, bound: atMost(3)},
	{name: "T16", measure: "Enqueue asked for 10 × its capacity, Redis 30 ms away, let in ÷ capacity", ours: figure{"Overload/headgate-30ms", "of-capacity"}, peer: figure{"Overload/asynq-30ms", "of-capacity"}, bound: atLeast(0.9)},
	{name: "T16", measure: "the same, slowest answer after the time-out of 2 s, ms", ours: figure{"Overload/headgate-30ms", "late-ms"}, peer: figure{"Overload/asynq-30ms", "late-ms"}, bound: atMost(50)},
	{name: "T16", measure: "the same with Redis on the machine of the callers, let in ÷ capacity", ours: figure{"Overload/headgate", "of-capacity"}, peer: figure{"Overload/asynq", "of-capacity"}, bound: atLeast(0.9)},
	{name: "T16", measure: "the same, let in ÷ capacity beside as many callers that ask nobody", ours: figure{"Overload/headgate", "of-capacity-beside-idle"}, peer: figure{"Overload/asynq", "of-capacity-beside-idle"}},
	{name: "T16", measure: "the same, asked for 10 × what 2,000 callers have, not 64", ours: figure{"Overload/headgate-of-2000", "of-capacity"}, peer: figure{"Overload/asynq-of-2000", "of-capacity"}},
	{name: "T16", measure: "the same, let in ÷ what the 2,000 have beside as many callers that ask nobody", ours: figure{"Overload/headgate-of-2000", "of-capacity-beside-idle"}, peer: figure{"Overload/asynq-of-2000", "of-capacity-beside-idle"}},
	{name: "T16", measure: "the same with 64, slowest answer, ms", ours: figure{"Overload/headgate", "late-ms"}, peer: figure{"Overload/asynq", "late-ms"}, bound: atMost(50)},
	{name: "T17", measure: "a neighbour's check p99 with an attacker on each route ÷ alone, worst of 21 (make neighbour)", ours: figure{"Neighbour", "check-ratio"}, bound: atMost(3)},
	{name: "T17", measure: "the same, Enqueue", ours: figure{"Neighbour", "enqueue-ratio"}, bound: atMost(3)},
	{name: "T16", measure: "40,000 callers and no Redis, slowest answer after the time-out, ms", ours: figure{"Away/headgate", "late-ms"}, peer: figure{"Away/asynq", "late-ms"}, bound: atMost(50)},
}

// spread is a median with the least and the most.
type spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	// text is the median as it is printed.
	text string
}

func spreadOf(values []float64) *spread {
	if len(values) == 0 {
		return nil
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	median := (values[(n-1)/2] + values[n/2]) / 2
	return &spread{Median: median, Least: values[0], Most: values[n-1], text: number(median)}
}

func (s *spread) String() string {
	if s == nil {
		return "-"
	}
	if s.Least == s.Most {
		return s.text
	}
	return fmt.Sprintf("%s (%s-%s)", s.text, number(s.Least), number(s.Most))
}

// number prints three significant digits, and more only of what has more before the point.
func number(x float64) string {
	switch {
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 0.999 && x < 1:
		return strconv.FormatFloat(x, 'f', 4, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// row is what became of a target. Ratio is nil where Ours is what is bounded, Reached where there is no bound or nothing
// was measured.
type row struct {
	Target  string  `json:"target"`
	Measure string  `json:"measure"`
	Rounds  int     `json:"rounds"`
	Ours    *spread `json:"ours"`
	Peer    *spread `json:"peer"`
	Ratio   *spread `json:"ratio"`
	Bound   string  `json:"bound"`
	Reached *bool   `json:"reached"`
}

func judge(targets []target, found measured) []row {
	rows := make([]row, len(targets))
	for i, t := range targets {
		ours := found[t.ours]
		r := row{Target: t.name, Measure: t.measure, Rounds: len(ours), Ours: spreadOf(ours), Peer: spreadOf(found[t.peer])}
		judged := r.Ours
		if t.to != (figure{}) {
			to := found[t.to]
			r.Peer = spreadOf(to)
			ratios := make([]float64, min(len(ours), len(to)))
			for k := range ratios {
				ratios[k] = ours[k] / to[k]
			}
			r.Ratio = spreadOf(ratios)
			judged = r.Ratio
		}
		if t.bound != (bound{}) {
			r.Bound = t.bound.String()
			if judged != nil {
				reached := t.bound.judge(judged)
				r.Reached = &reached
			}
		}
		rows[i] = r
	}
	return rows
}

func write(to io.Writer, rows []row) error {
	var text strings.Builder
	text.WriteString("| | measure | Headgate | beside | ratio | target | |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		reached := ""
		switch {
		case r.Ours == nil:
			reached = "not measured"
		case r.Reached != nil && *r.Reached:
			reached = "reached"
		case r.Reached != nil:
			reached = "**missed**"
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s | %s |\n", r.Target, r.Measure, r.Ours, r.Peer, r.Ratio, r.Bound, reached)
	}
	_, err := io.WriteString(to, text.String())
	return err
}
