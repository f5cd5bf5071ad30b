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
	// buckets has how many took how long.
	buckets map[int]int64
}

// perOctave is how many buckets there are from a time to twice that time.
const perOctave = 8

func bucketOf(took time.Duration) int {
	return int(math.Floor(perOctave * math.Log2(float64(max(took.Microseconds(), 1)))))
}

// middle is the time in the middle of a bucket, from which no other in it is further away than 4.5 %.
func middle(bucket int) time.Duration {
	return time.Duration(math.Exp2((float64(bucket)+0.5)/perOctave) * float64(time.Microsecond))
}

// end adds one run.
func (r *Runs) end(took time.Duration, failed bool) {
	r.Ended++
	r.Took += took
	if failed {
		r.Failed++
	}
	if r.buckets == nil {
		r.buckets = map[int]int64{}
	}
	r.buckets[bucketOf(took)]++
}

// add adds what ran elsewhere.
func (r *Runs) add(o Runs) {
	r.Running, r.Ended, r.Failed, r.Took = r.Running+o.Running, r.Ended+o.Ended, r.Failed+o.Failed, r.Took+o.Took
	if r.buckets == nil && len(o.buckets) > 0 {
		r.buckets = map[int]int64{}
	}
	for bucket, n := range o.buckets {
		r.buckets[bucket] += n
	}
}

// Percentile returns the time that a part of the runs, above 0 and at most 1, took no longer than; negative where none has ended.
func (r *Runs) Percentile(part float64) time.Duration {
	all := int64(0)
	for _, n := range r.buckets {
		all += n
	}
	seen, want := int64(0), int64(math.Ceil(part*float64(all)))
	for _, bucket := range slices.Sorted(maps.Keys(r.buckets)) {
		if seen += r.buckets[bucket]; seen >= want {
			return middle(bucket)
		}
	}
	return -1
}

// Window counts how jobs ended, by queue, over the last minute. The zero Window is ready; several goroutines may use it.
type Window struct {
	mu struct {
		sync.Mutex

		slots [slots]slot
	}
}

// slot is what ended in one slotTime, by its number since the Unix epoch.
type slot struct {
	number int64
	queues map[string]*Runs
}

// Ended counts a run that ended now.
func (w *Window) Ended(now time.Time, queue string, took time.Duration, failed bool) {
	number := now.UnixNano() / int64(slotTime)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.mu.slots[number%slots]
	if s.number != number || s.queues == nil {
		*s = slot{number: number, queues: map[string]*Runs{}}
	}
	if s.queues[queue] == nil {
		s.queues[queue] = &Runs{}
	}
	s.queues[queue].end(took, failed)
}

// Sum returns what ended in the minute before now, by queue.
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
