package load

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Span is over how long a Window remembers, up to a slot more or less; slotTime is how long a slot of it is.
const (
	Span     = time.Minute
	slotTime = 5 * time.Second
	slots    = int64(Span / slotTime)
)

// Runs is how the jobs of a queue ran.
type Runs struct {
	// Running is how many are in a worker's hands.
	Running int64
	// Ended is how many runs completed or failed, Failed how many of these failed, Took the sum of their times.
	Ended, Failed int64
	Took          time.Duration
	// took has how many took how long, waited how many began how long after their jobs were admitted.
	took, waited histogram
}

// add adds what ran elsewhere.
func (r *Runs) add(o Runs) {
	r.Running, r.Ended, r.Failed, r.Took = r.Running+o.Running, r.Ended+o.Ended, r.Failed+o.Failed, r.Took+o.Took
	r.took.merge(o.took)
	r.waited.merge(o.waited)
}

// Percentile returns the time that a part of the runs, above 0 and at most 1, took no longer than; negative where none has ended.
func (r *Runs) Percentile(part float64) time.Duration { return r.took.percentile(part) }

// Waited returns the time that a part of the jobs, above 0 and at most 1, waited no longer than for a run to begin; negative where none has begun.
func (r *Runs) Waited(part float64) time.Duration { return r.waited.percentile(part) }

// histogram has how many times are in which bucket.
//
//nolint:recvcheck // The map is made with its first entry.
type histogram map[int]int64

// perOctave is how many buckets there are from a time to twice that time.
const perOctave = 8

func bucketOf(t time.Duration) int {
	return int(math.Floor(perOctave * math.Log2(float64(max(t.Microseconds(), 1)))))
}

// middle is the time in the middle of a bucket, from which no other in it is further away than 4.5 %.
func middle(bucket int) time.Duration {
	return time.Duration(math.Exp2((float64(bucket)+0.5)/perOctave) * float64(time.Microsecond))
}

func (h *histogram) add(bucket int, n int64) {
	if *h == nil {
		*h = histogram{}
	}
	(*h)[bucket] += n
}

func (h *histogram) merge(o histogram) {
	for bucket, n := range o {
		h.add(bucket, n)
	}
}

func (h histogram) percentile(part float64) time.Duration {
	all := int64(0)
	for _, n := range h {
		all += n
	}
	seen, want := int64(0), int64(math.Ceil(part*float64(all)))
	for _, bucket := range slices.Sorted(maps.Keys(h)) {
		if seen += h[bucket]; seen >= want {
			return middle(bucket)
		}
	}
	return -1
}

// Window counts how runs began and ended, by queue, over the last minute. The zero Window is ready; several goroutines may use it.
type Window struct {
	mu struct {
		sync.Mutex

		slots [slots]slot
	}
}

// slot is what began and ended in one slotTime, by its number since the Unix epoch.
type slot struct {
	number int64
	queues map[string]*Runs
}

// Began counts a run that begins now, so long after its job was admitted.
func (w *Window) Began(now time.Time, queue string, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs(now, queue).waited.add(bucketOf(wait), 1)
}

// Ended counts a run that ended now.
func (w *Window) Ended(now time.Time, queue string, took time.Duration, failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.runs(now, queue)
	r.Ended++
	r.Took += took
	if failed {
		r.Failed++
	}
	r.took.add(bucketOf(took), 1)
}

// runs returns what is counted of a queue now.
func (w *Window) runs(now time.Time, queue string) *Runs {
	number := now.UnixNano() / int64(slotTime)
	s := &w.mu.slots[number%slots]
	if s.number != number || s.queues == nil {
		*s = slot{number: number, queues: map[string]*Runs{}}
	}
	if s.queues[queue] == nil {
		s.queues[queue] = &Runs{}
	}
	return s.queues[queue]
}

// Sum returns what began and ended in the minute before now, by queue.
func (w *Window) Sum(now time.Time) map[string]Runs {
	last := now.UnixNano() / int64(slotTime)
	sums := map[string]Runs{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.mu.slots {
		s := &w.mu.slots[i]
		if s.number <= last-slots || s.number > last {
			continue
		}
		for queue, runs := range s.queues {
			sum := sums[queue]
			sum.add(*runs)
			sums[queue] = sum
		}
	}
	return sums
}
