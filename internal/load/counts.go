package load

import (
	"time"

	"github.com/headgate/headgate/admission"
)

// Counts are how runs began and ended over the last minute, by queue and by downstream. The zero Counts are ready; several goroutines may use them.
type Counts struct{ queues, downstreams Window }

// Began counts a run that begins now, so long after its job was admitted. A job without a downstream has "".
func (c *Counts) Began(now time.Time, queue, downstream string, wait time.Duration) {
	c.queues.Began(now, queue, wait)
	if service, _ := admission.ServiceOf(downstream); service != "" {
		c.downstreams.Began(now, service, wait)
	}
}

// Ended counts a run that completed or failed now. A job without a downstream has "".
func (c *Counts) Ended(now time.Time, queue, downstream string, took time.Duration, failed bool) {
	c.queues.Ended(now, queue, took, failed)
	if service, _ := admission.ServiceOf(downstream); service != "" {
		c.downstreams.Ended(now, service, took, failed)
	}
}

// Sample returns what there is to tell of them now, of whoever serves these queues.
func (c *Counts) Sample(now time.Time, use Use, queues []string) Sample {
	s := Sample{Use: use, Queues: c.queues.Sum(now), Downstreams: c.downstreams.Sum(now)}
	for _, queue := range queues {
		if _, ran := s.Queues[queue]; !ran {
			s.Queues[queue] = Runs{} // Those of which nothing ran, too.
		}
	}
	return s
}

// AddRunning adds jobs of a queue that are in hand. Those without a downstream have "".
func (s *Sample) AddRunning(queue, downstream string, n int64) {
	addRunning(s.Queues, queue, n)
	if service, _ := admission.ServiceOf(downstream); service != "" {
		addRunning(s.Downstreams, service, n)
	}
}

func addRunning(of map[string]Runs, name string, n int64) {
	runs := of[name]
	runs.Running += n
	of[name] = runs
}
