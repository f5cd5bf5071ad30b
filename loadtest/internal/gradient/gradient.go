package gradient

import (
	"sync"
	"time"
)

// The defaults.
const (
	least, most = 20, 200
	queue       = 4
	smoothing   = 0.2
	// longWindow is how many means the long-term mean remembers, about; it is the mean of all of the first ones.
	longWindow, longWarmUp = 600, 10
	// A mean is of as much time, and of as many samples.
	window     = time.Second
	windowSize = 10
	// Where work has become more than twice as quick as it was, the long-term mean is brought down at once.
	drift, driftTo = 2, 0.9
)

// Limit bounds work under way. Its methods may be called from several goroutines.
type Limit struct {
	mu       sync.Mutex
	limit    float64
	underWay int

	long  float64
	means int

	began time.Time
	sum   time.Duration
	taken int
	peak  int
}

// New returns a limit that begins with so much work under way, 20 to 200, at a time.
func New(initial int) *Limit {
	return &Limit{limit: float64(max(least, min(most, initial))), began: time.Now()}
}

// Acquire reports whether work may begin. What has begun is to be released, with whether how long it took counts.
func (l *Limit) Acquire() (release func(counts bool), ok bool) {
	if !l.acquire() {
		return nil, false
	}
	began := time.Now()
	return func(counts bool) { l.release(time.Since(began), counts, time.Now()) }, true
}

func (l *Limit) acquire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underWay >= int(l.limit) {
		return false
	}
	l.underWay++
	l.peak = max(l.peak, l.underWay)
	return true
}

func (l *Limit) release(took time.Duration, counts bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay--
	if !counts {
		return
	}
	l.sum += took
	l.taken++
	if l.taken < windowSize || now.Sub(l.began) < window {
		return
	}
	l.update((l.sum / time.Duration(l.taken)).Seconds(), l.peak)
	l.began, l.sum, l.taken, l.peak = now, 0, 0, l.underWay
}

func (l *Limit) update(short float64, peak int) {
	l.means++
	part := 2.0 / (longWindow + 1)
	if l.means <= longWarmUp {
		part = 1 / float64(l.means)
	}
	l.long += (short - l.long) * part
	long := l.long
	if long > drift*short {
		l.long *= driftTo
	}
	if float64(peak) < l.limit/2 {
		return
	}
	slope := max(0.5, min(1, long/short))
	l.limit = max(least, min(most, l.limit*(1-smoothing)+(l.limit*slope+queue)*smoothing))
}
