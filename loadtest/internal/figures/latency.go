package figures

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Range and precision of the histograms.
const (
	lowest  = 1             // µs
	highest = 3_600_000_000 // µs
	digits  = 3
)

// Latency is a distribution of times. Times are in milliseconds; all are zero where nothing was counted.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

// histogram counts times.
type histogram struct{ *hdrhistogram.Histogram }

func newHistogram() histogram { return histogram{hdrhistogram.New(lowest, highest, digits)} }

func (h histogram) add(d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), lowest), highest)) // What is in range is taken.
}

func (h histogram) at(percentile float64) float64 {
	return float64(h.ValueAtPercentile(percentile)) / 1000
}

func (h histogram) latency() Latency {
	l := Latency{Count: h.TotalCount()}
	if l.Count > 0 {
		l.Mean, l.Max = h.Mean()/1000, float64(h.Max())/1000
		l.P50, l.P90, l.P95, l.P99, l.P999 = h.at(50), h.at(90), h.at(95), h.at(99), h.at(99.9)
	}
	return l
}

// Times counts times of several goroutines.
type Times struct {
	mu struct {
		sync.Mutex

		all histogram
	}
}

// NewTimes returns one that has none.
func NewTimes() *Times {
	t := &Times{}
	t.mu.all = newHistogram()
	return t
}

// Add counts a time.
func (t *Times) Add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.all.add(d)
}

// Latency is their distribution.
func (t *Times) Latency() Latency {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.all.latency()
}
