package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
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

// DownstreamHistory is under which name the history of a downstream stands beside those of queues, of which no name has a space.
func DownstreamHistory(service string) string { return "downstream " + service }

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
	f := Figures{Use: Unknown, Depth: depth, ErrorRate: -1, Average: -1, P95: -1, WaitP95: -1}
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

// Text is what ParseFigures reads, with times in whole microseconds.
func (f Figures) Text() string {
	micros := func(d time.Duration) float64 {
		if d < 0 {
			return -1
		}
		return float64(d.Microseconds())
	}
	text, _ := json.Marshal([figures]float64{ // Its numbers are finite.
		rounded(f.CPU), rounded(f.Memory), float64(f.Depth), float64(f.Running), rounded(f.ErrorRate), micros(f.Average), micros(f.P95),
		micros(f.WaitP95),
	})
	return string(text)
}

// figures is how many numbers there are.
const figures = 8

var errFigures = errors.New("there are not as many numbers as figures")

// ParseFigures reads a Text.
func ParseFigures(text string) (Figures, error) {
	var n []float64
	err := json.Unmarshal([]byte(text), &n)
	if err == nil && len(n) != figures {
		err = errFigures
	}
	if err != nil {
		return Figures{}, fmt.Errorf("read figures: %w", err)
	}
	micros := func(n float64) time.Duration {
		if n < 0 {
			return -1
		}
		return time.Duration(n) * time.Microsecond
	}
	return Figures{
		Use: Use{CPU: n[0], Memory: n[1]}, Depth: int64(n[2]), Running: int64(n[3]), ErrorRate: n[4], Average: micros(n[5]), P95: micros(n[6]),
		WaitP95: micros(n[7]),
	}, nil
}
