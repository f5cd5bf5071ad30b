package gauge

import (
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Range and precision of times, in microseconds: up to ten minutes, within a hundredth.
const (
	lowest  = 1
	highest = 600_000_000
	digits  = 2
)

const (
	// Recent is over how long the figures of the last minutes are, up to a slice more; a slice is the part of it that is dropped at once.
	Recent     = 5 * time.Minute
	sliceTime  = 30 * time.Second
	sliceCount = int64(Recent/sliceTime) + 1
	// seconds is over how many the calls of a minute are counted.
	seconds = 60
)

// span is what was called in some time.
type span struct {
	took                            *hdrhistogram.Histogram
	failed, invalid, rejected, sums int64
}

func newSpan() span { return span{took: hdrhistogram.New(lowest, highest, digits)} }

func (s *span) add(status int, took time.Duration) {
	us := took.Microseconds()
	_ = s.took.RecordValue(min(max(us, lowest), highest)) // What is in range is taken.
	s.sums += us
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests, status == http.StatusUnauthorized, status == http.StatusForbidden:
		s.rejected++
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnsupportedMediaType, status == http.StatusUnprocessableEntity:
		s.invalid++
	case status >= http.StatusInternalServerError:
		s.failed++
	}
}

func (s *span) merge(o *span) {
	s.took.Merge(o.took)
	s.failed, s.invalid, s.rejected, s.sums = s.failed+o.failed, s.invalid+o.invalid, s.rejected+o.rejected, s.sums+o.sums
}

// Performance is how calls went. Times are in milliseconds, and absent without a call.
type Performance struct {
	Total int64 `json:"total_requests"`
	// Failed are those that the server could not answer, 5xx but for 503; Successful are all others, refusals included.
	Successful int64    `json:"successful_requests"`
	Failed     int64    `json:"failed_requests"`
	Average    *float64 `json:"avg_response_time_ms,omitempty"`
	P50        *float64 `json:"p50_response_time_ms,omitempty"`
	P95        *float64 `json:"p95_response_time_ms,omitempty"`
	P99        *float64 `json:"p99_response_time_ms,omitempty"`
	PerSecond  float64  `json:"requests_per_second"`
	// ErrorRate is Failed over Total, 0 without a call.
	ErrorRate float64 `json:"error_rate"`
}

// performance is that of a span that lasted so long.
func (s *span) performance(lasted time.Duration) Performance {
	n := s.took.TotalCount()
	p := Performance{Total: n, Successful: n - s.failed, Failed: s.failed}
	if n == 0 {
		return p
	}
	at := func(percentile float64) *float64 { return new(float64(s.took.ValueAtPercentile(percentile)) / 1e3) }
	p.Average, p.P50, p.P95, p.P99 = new(float64(s.sums)/float64(n)/1e3), at(50), at(95), at(99)
	p.PerSecond, p.ErrorRate = float64(n)/max(lasted.Seconds(), 1), float64(s.failed)/float64(n)
	return p
}

// calls are the calls of a server. Its methods may be called from several goroutines.
type calls struct {
	began time.Time
	mu    struct {
		sync.Mutex

		all    span
		slices [sliceCount]struct {
			span

			number int64
		}
		// counts has how many there were in each of the last seconds, stamps which second that is.
		counts, stamps [seconds]int64
	}
}

func newCalls(now time.Time) *calls {
	c := &calls{began: now}
	c.mu.all = newSpan()
	for i := range c.mu.slices {
		c.mu.slices[i].span = newSpan()
	}
	return c
}

func (c *calls) note(now time.Time, status int, took time.Duration) {
	number, second := now.UnixNano()/int64(sliceTime), now.Unix()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.all.add(status, took)
	s := &c.mu.slices[number%sliceCount]
	if s.number != number {
		s.took.Reset()
		s.span, s.number = span{took: s.took}, number
	}
	s.add(status, took)
	at := second % seconds
	if c.mu.stamps[at] != second {
		c.mu.stamps[at], c.mu.counts[at] = second, 0
	}
	c.mu.counts[at]++
}

// told is what there is to tell of calls.
type told struct {
	since, recent     Performance
	minute            int64
	invalid, rejected int64
}

func (c *calls) told(now time.Time) told {
	c.mu.Lock()
	defer c.mu.Unlock()
	recent, last := newSpan(), now.UnixNano()/int64(sliceTime)
	for i := range c.mu.slices {
		if s := &c.mu.slices[i]; s.number > last-sliceCount && s.number <= last {
			recent.merge(&s.span)
		}
	}
	t := told{since: c.mu.all.performance(now.Sub(c.began)), invalid: c.mu.all.invalid, rejected: c.mu.all.rejected}
	begun := time.Unix(0, (last-sliceCount+1)*int64(sliceTime)) // of the earliest slice
	if c.began.After(begun) {
		begun = c.began
	}
	t.recent = recent.performance(now.Sub(begun))
	for i, stamp := range c.mu.stamps {
		if stamp > now.Unix()-seconds && stamp <= now.Unix() {
			t.minute += c.mu.counts[i]
		}
	}
	return t
}
