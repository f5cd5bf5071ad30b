package shown

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
)

// ErrNoLoad means that no worker has told of a downstream.
var ErrNoLoad = errors.New("no worker has told of downstream")

// Load is how busy a queue or a downstream is. What is not known is absent: workers tell it only where the policy has a load, and what one told counts
// for 300 s.
type Load struct {
	// Service is the queue, or the downstream's service.
	Service string `json:"service"`
	// CPU and Memory are the most that a worker which serves it uses of what it may have, 1 for all.
	CPU    *float64 `json:"cpu_utilization,omitempty"`
	Memory *float64 `json:"memory_utilization,omitempty"`
	// Depth is how many of its jobs wait, Running how many workers have in hand.
	Depth   int64  `json:"queue_depth"`
	Running *int64 `json:"concurrent_requests,omitempty"`
	// ErrorRate is the part of the runs of the last minute that failed, 0 to 1; Average and P95 are of their times in milliseconds.
	ErrorRate *float64 `json:"error_rate,omitempty"`
	Average   *float64 `json:"avg_response_time_ms,omitempty"`
	P95       *float64 `json:"p95_response_time_ms,omitempty"`
	// WaitP95 is how long, in milliseconds, all but one in twenty waited of the jobs of which a first run began in the last minute.
	WaitP95 *float64 `json:"p95_wait_time_ms,omitempty"`
	// Wait is how long, in milliseconds, the waiting jobs of a queue take at the pace of now, Level how much it is pressed: 1 (NONE) to 5 (CRITICAL), 1 also of
	// one that nobody measures. A downstream has neither.
	Wait  *float64  `json:"wait_ms,omitempty"`
	Level *int      `json:"backpressure_level,omitempty"`
	At    time.Time `json:"timestamp"`
}

// Loads are those of all queues, and of the downstreams of which workers told.
type Loads struct {
	// Workers is how many told of themselves within 300 s.
	Workers     int    `json:"workers"`
	Loads       []Load `json:"loads"`
	Downstreams []Load `json:"downstreams"`
}

// LoadHistory is a load, with what it was before.
type LoadHistory struct {
	Load

	// History has a point each 10 s, the earliest first; absent where nobody asked for it.
	History []Load `json:"history,omitempty"`
}

// Bounds of a history.
const (
	LeastLoadHistory = store.LoadStep
	MostLoadHistory  = store.LoadHistoryLife
)

// ReadLoads returns how busy each queue is, and each downstream, by name.
func ReadLoads(ctx context.Context, s store.Deployment) (Loads, error) {
	names, err := s.QueueNames(ctx)
	if err != nil {
		return Loads{}, err
	}
	loads, samples, err := loadsOf(ctx, s, names)
	if err != nil {
		return Loads{}, err
	}
	downstreams, err := downstreamLoads(ctx, s, load.Downstreams(samples), samples)
	return Loads{len(samples), loads, downstreams}, err
}

// downstreamLoads returns how busy downstreams are.
func downstreamLoads(ctx context.Context, s store.Deployment, names []string, samples []load.Sample) ([]Load, error) {
	loads := make([]Load, len(names))
	if len(names) == 0 {
		return loads, nil
	}
	now, err := s.Time(ctx)
	if err != nil {
		return nil, err
	}
	depths, err := s.WaitingFor(ctx, names)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		loads[i] = loadOf(name, load.OfDownstream(name, depths[i], samples), now)
	}
	return loads, nil
}

// ReadLoad returns how busy a queue is, and was so long ago; 0 leaves the history out. One that nobody knows is store.ErrUnknownQueue.
func ReadLoad(ctx context.Context, s store.Deployment, queue string, back time.Duration) (v LoadHistory, err error) {
	names, err := s.QueueNames(ctx)
	if err != nil {
		return v, err
	}
	if !slices.Contains(names, queue) {
		return v, fmt.Errorf("%w %s", store.ErrUnknownQueue, queue)
	}
	loads, _, err := loadsOf(ctx, s, []string{queue})
	if err != nil {
		return v, err
	}
	v.Load = loads[0]
	if back > 0 {
		v.History, err = historyOf(ctx, s, queue, queue, v.At.Add(-back))
	}
	return v, err
}

// ReadDownstreamLoad is ReadLoad of a downstream. One of which no worker tells, nor has within the hour, is ErrNoLoad.
func ReadDownstreamLoad(ctx context.Context, s store.Deployment, service string, back time.Duration) (v LoadHistory, err error) {
	if err := admission.ValidateName("downstream", service, true); err != nil {
		return v, err
	}
	told, err := s.WorkerLoads(ctx)
	if err != nil {
		return v, err
	}
	samples := SamplesOf(told)
	loads, err := downstreamLoads(ctx, s, []string{service}, samples)
	if err != nil {
		return v, err
	}
	v.Load = loads[0]
	history, err := historyOf(ctx, s, service, load.DownstreamHistory(service), v.At.Add(-MostLoadHistory))
	if err != nil {
		return v, err
	}
	if len(history) == 0 && !slices.Contains(load.Downstreams(samples), service) {
		return v, fmt.Errorf("%w %s", ErrNoLoad, service)
	}
	if back > 0 {
		since := v.At.Add(-back)
		v.History = slices.DeleteFunc(history, func(l Load) bool { return l.At.Before(since) })
	}
	return v, nil
}

// historyOf returns the points of the history under a name since a time, as loads of a service.
func historyOf(ctx context.Context, s store.Deployment, service, name string, since time.Time) ([]Load, error) {
	points, err := s.LoadHistory(ctx, name, since)
	history := make([]Load, 0, len(points))
	for _, p := range points {
		if figures, err := load.ParseFigures(p.Text); err == nil { // Of a release to come it may not.
			history = append(history, loadOf(service, figures, p.At))
		}
	}
	return history, err
}

func loadsOf(ctx context.Context, s store.Deployment, names []string) (loads []Load, samples []load.Sample, err error) {
	now, err := s.Time(ctx)
	if err != nil {
		return nil, nil, err
	}
	told, err := s.WorkerLoads(ctx)
	if err != nil {
		return nil, nil, err
	}
	seen := []store.QueueLoad{}
	if len(names) > 0 {
		if seen, err = s.Loads(ctx, names); err != nil {
			return nil, nil, err
		}
	}
	samples = SamplesOf(told)
	loads = make([]Load, len(names))
	for i, name := range names {
		loads[i] = loadOf(name, load.Of(name, seen[i].Waiting, samples).Seen(seen[i].Wait, seen[i].Level), now)
	}
	return loads, samples, nil
}

// SamplesOf reads what workers told.
func SamplesOf(told []store.WorkerLoad) []load.Sample {
	return load.ParseAll(told, func(l *store.WorkerLoad) string { return l.Text })
}

func loadOf(queue string, f load.Figures, at time.Time) Load {
	v := Load{
		Service: queue, CPU: known(f.CPU), Memory: known(f.Memory), Depth: f.Depth, ErrorRate: known(f.ErrorRate),
		Average: knownMillis(f.Average), P95: knownMillis(f.P95), WaitP95: knownMillis(f.WaitP95), Wait: knownMillis(f.Wait), At: Moment(at),
	}
	if f.Level > 0 {
		v.Level = new(int(f.Level))
	}
	if f.Running >= 0 {
		v.Running = new(f.Running)
	}
	return v
}

// known is a part to four digits, nil for what is not known.
func known(x float64) *float64 {
	if !(x >= 0) {
		return nil
	}
	return new(math.Round(x*1e4) / 1e4)
}

func knownMillis(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	return new(Millis(d))
}
