package load

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
)

// Figures are how busy a queue or a downstream is. What is negative is not known.
type Figures struct {
	// Use is the most that a worker which serves the queue uses, or calls the downstream.
	Use

	// Depth is how many jobs wait, Running how many are in workers' hands.
	Depth, Running int64
	// ErrorRate is the part of the runs of the last minute that failed, 0 to 1; Average and P95 are of their times.
	ErrorRate    float64
	Average, P95 time.Duration
	// WaitP95 is how long all but one in twenty waited of the jobs of which a run began in the last minute that is no retry: since they were admitted.
	WaitP95 time.Duration
	// Wait is how long the waiting jobs of a queue take at the pace of now, Level how much it is pressed; zero is not known.
	Wait  time.Duration
	Level admission.PressureLevel
}

// Seen returns the figures with what the store has seen of the queue.
func (f Figures) Seen(wait time.Duration, level admission.PressureLevel) Figures {
	f.Wait, f.Level = wait, max(level, admission.PressureNone)
	return f
}

// Of returns the figures of a queue of which so many jobs wait, by what workers told.
func Of(queue string, depth int64, samples []Sample) Figures {
	return figuresOf(depth, samples, queuesOf, func(name string) bool { return name == queue })
}

// OfDownstream returns the same of a downstream's service.
func OfDownstream(service string, depth int64, samples []Sample) Figures {
	return figuresOf(depth, samples, downstreamsOf, func(name string) bool { return name == service })
}

// Downstreams are those of which workers tell, by name.
func Downstreams(samples []Sample) []string { return namesIn(samples, downstreamsOf) }

func namesIn(samples []Sample, of func(*Sample) map[string]Runs) (names []string) {
	for i := range samples {
		names = slices.AppendSeq(names, maps.Keys(of(&samples[i])))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func queuesOf(s *Sample) map[string]Runs { return s.Queues }

func downstreamsOf(s *Sample) map[string]Runs { return s.Downstreams }

// OfAll returns the figures of all queues together.
func OfAll(depth int64, samples []Sample) Figures {
	return figuresOf(depth, samples, queuesOf, func(string) bool { return true })
}

// Total is how jobs of all queues ran.
func Total(samples []Sample) (all Runs) {
	for _, s := range samples {
		for _, runs := range s.Queues {
			all.add(runs)
		}
	}
	return all
}

func figuresOf(depth int64, samples []Sample, of func(*Sample) map[string]Runs, counts func(name string) bool) Figures {
	f := Figures{Use: Unknown, Depth: depth, ErrorRate: -1, Average: -1, P95: -1, WaitP95: -1, Wait: -1}
	var all Runs
	told := false
	for _, s := range samples {
		serves := false
		for name, runs := range of(&s) {
			if counts(name) {
				serves = true
				all.add(runs)
			}
		}
		if serves {
			f.CPU, f.Memory, told = max(f.CPU, s.CPU), max(f.Memory, s.Memory), true
		}
	}
	f.Running = all.Running
	if !told {
		f.Running = -1
	}
	if all.Ended > 0 {
		f.ErrorRate, f.Average, f.P95 = float64(all.Failed)/float64(all.Ended), all.Took/time.Duration(all.Ended), all.Percentile(.95)
	}
	f.WaitP95 = all.Waited(.95)
	return f
}

// Metric returns one of the figures by its name, times in seconds; NaN for what is not known, or is none of them.
func (f Figures) Metric(name string) float64 {
	value := -1.0
	switch name {
	case "cpu_utilization":
		value = f.CPU
	case "memory_utilization":
		value = f.Memory
	case "queue_depth":
		value = float64(f.Depth)
	case "error_rate":
		value = f.ErrorRate
	case "run_p95":
		value = f.P95.Seconds()
	case "wait_p95":
		value = f.WaitP95.Seconds()
	case "wait":
		value = f.Wait.Seconds()
	case "backpressure_level":
		if f.Level > 0 {
			value = float64(f.Level)
		}
	}
	if value < 0 {
		return math.NaN()
	}
	return value
}

// MetricOf returns a metric of a queue or of a downstream, where both are empty the most of any queue; NaN for what is not known, or is none of
// those of Metric.
func MetricOf(name, queue, downstream string, samples []Sample) float64 {
	switch {
	case downstream != "":
		return OfDownstream(downstream, 0, samples).Metric(name)
	case queue != "":
		return Of(queue, 0, samples).Metric(name)
	}
	most := math.NaN()
	for _, queue := range namesIn(samples, queuesOf) {
		if value := Of(queue, 0, samples).Metric(name); !(value <= most) && !math.IsNaN(value) {
			most = value
		}
	}
	return most
}
