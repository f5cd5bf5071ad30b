package shown

import (
	"context"
	"math"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
)

// Stats is what there is to say of a whole deployment in one answer, in the blocks in which a server says it of itself. What is not known is
// absent: what a process uses, and how long jobs run, is told by workers where the policy has a load.
type Stats struct {
	Fleet       FleetInfo        `json:"daemon_info"`
	Resources   FleetResources   `json:"resource_status"`
	Performance FleetPerformance `json:"performance_metrics"`
	Security    FleetSecurity    `json:"security_summary"`
}

// FleetInfo is who is there.
type FleetInfo struct {
	// Workers are registrations, one in each partition for a worker; Telling is how many told how busy they are within 300 s.
	Workers    int       `json:"workers"`
	Telling    int       `json:"workers_telling"`
	Schedulers int       `json:"schedulers"`
	Partitions int       `json:"partitions"`
	Policy     int64     `json:"policy_version"`
	At         time.Time `json:"timestamp"`
}

// FleetResources are what is used.
type FleetResources struct {
	// CPU and Memory are the most that a worker uses of what it may have, 1 for all.
	CPU    *float64 `json:"cpu_utilization,omitempty"`
	Memory *float64 `json:"memory_utilization,omitempty"`
	// Redis is the memory of Redis in 2^20 bytes, RedisLimit its maxmemory, absent for none.
	Redis      float64  `json:"redis_memory_mb"`
	RedisLimit *float64 `json:"redis_memory_limit_mb,omitempty"`
	// PerMinute is how many jobs and checks were decided in the last full minute, Running how many jobs workers have in hand, of so many
	// Slots.
	PerMinute int64 `json:"requests_per_minute"`
	Running   int   `json:"concurrent_requests"`
	Slots     int   `json:"slots"`
	// Depth is how many jobs wait in lanes.
	Depth int64 `json:"queue_depth"`
}

// FleetPerformance is how jobs went. The counts are for ever, what follows them is of the runs that ended in the last minute, with times in
// milliseconds.
type FleetPerformance struct {
	// Total is how many jobs entered, Successful how many completed, Failed how many became dead letters, Retries how many runs failed and
	// were tried again.
	Total      int64    `json:"total_requests"`
	Successful int64    `json:"successful_requests"`
	Failed     int64    `json:"failed_requests"`
	Retries    int64    `json:"retries"`
	Average    *float64 `json:"avg_response_time_ms,omitempty"`
	P95        *float64 `json:"p95_response_time_ms,omitempty"`
	P99        *float64 `json:"p99_response_time_ms,omitempty"`
	PerSecond  *float64 `json:"requests_per_second,omitempty"`
	ErrorRate  *float64 `json:"error_rate,omitempty"`
}

// FleetSecurity is what was turned away.
type FleetSecurity struct {
	// Rejected is how many jobs and checks limits and bounds refused in the last hour.
	Rejected int64 `json:"requests_rejected"`
}

// hourBudget bounds how long counts of the last hour are read.
const hourBudget = 2 * time.Second

// ReadStats reads what there is to say of a deployment.
func ReadStats(ctx context.Context, s store.Deployment) (v Stats, err error) {
	v.Fleet.Partitions = len(s.Partitions())
	for _, part := range []func(context.Context, store.Deployment) error{v.fleet, v.counters, v.decisions, v.told} {
		if err = part(ctx, s); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (v *Stats) fleet(ctx context.Context, s store.Deployment) error {
	now, err := s.Time(ctx)
	if err != nil {
		return err
	}
	workers, err := s.Workers(ctx)
	if err != nil {
		return err
	}
	schedulers, err := s.Schedulers(ctx)
	if err != nil {
		return err
	}
	v.Fleet.At, v.Fleet.Workers, v.Fleet.Schedulers = Moment(now), len(workers), len(schedulers)
	for i := range workers {
		v.Resources.Running, v.Resources.Slots = v.Resources.Running+workers[i].Held, v.Resources.Slots+workers[i].Slots
	}
	v.Fleet.Policy, err = s.PolicyInForce(ctx)
	return err
}

func (v *Stats) counters(ctx context.Context, s store.Deployment) error {
	counters, err := s.Counters(ctx)
	if err != nil {
		return err
	}
	vitals, err := s.Vitals(ctx)
	if err != nil {
		return err
	}
	v.Performance.Total, v.Performance.Successful, v.Performance.Retries = counters.Accepted, counters.Left["completed"], counters.Retried
	for _, n := range counters.Died {
		v.Performance.Failed += n
	}
	v.Resources.Redis = megabytes(vitals.Memory)
	if vitals.MaxMemory > 0 {
		v.Resources.RedisLimit = new(megabytes(vitals.MaxMemory))
	}
	names, err := s.QueueNames(ctx)
	if err != nil || len(names) == 0 {
		return err
	}
	loads, err := s.Loads(ctx, names)
	for i := range loads {
		v.Resources.Depth += loads[i].Waiting
	}
	return err
}

func (v *Stats) decisions(ctx context.Context, s store.Deployment) error {
	minutes, err := s.LastHour(ctx, hourBudget)
	full := v.Fleet.At.Truncate(time.Minute).Add(-time.Minute)
	for _, m := range minutes {
		one := m.Scopes[admission.Global]
		v.Security.Rejected += one.Refused
		if m.At.Equal(full) {
			v.Resources.PerMinute = one.Allowed + one.Refused
		}
	}
	return err
}

func (v *Stats) told(ctx context.Context, s store.Deployment) error {
	told, err := s.WorkerLoads(ctx)
	if err != nil {
		return err
	}
	samples := SamplesOf(told)
	v.Fleet.Telling = len(samples)
	if len(samples) == 0 {
		return nil
	}
	figures, runs := load.OfAll(0, samples), load.Total(samples)
	v.Resources.CPU, v.Resources.Memory = known(figures.CPU), known(figures.Memory)
	v.Performance.Average, v.Performance.P95, v.Performance.P99 = knownMillis(figures.Average), knownMillis(figures.P95), knownMillis(runs.Percentile(.99))
	v.Performance.PerSecond, v.Performance.ErrorRate = new(math.Round(float64(runs.Ended)/load.Span.Seconds()*1e3)/1e3), known(figures.ErrorRate)
	return nil
}

func megabytes(bytes int64) float64 { return math.Round(float64(bytes)/(1<<20)*10) / 10 }
