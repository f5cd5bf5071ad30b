package gauge

import (
	"context"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/store"
)

// MaxSemaphores is the largest number of semaphores with a name of their own: the first that were asked for by this server, or named by the
// policy. The refusals of others count as those of Other.
const MaxSemaphores = 200

var rejectedDesc = prometheus.NewDesc("concurrent_requests_rejected_total", "Acquisitions of a semaphore that this server refused.", []string{"service_id"}, nil)

// permits are the semaphores that this server has heard of.
type permits struct {
	mu       sync.Mutex
	limits   map[string]int
	rejected map[string]uint64
}

// Acquired notes the limit of a semaphore, and counts an acquisition that was refused.
func (p *permits) Acquired(name string, limit int, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limits == nil {
		p.limits, p.rejected = map[string]int{}, map[string]uint64{}
	}
	if _, known := p.limits[name]; !known && len(p.limits) >= MaxSemaphores {
		name = Other
	} else {
		p.limits[name] = limit
	}
	if refused {
		p.rejected[name]++
	}
}

// collect shows them, and adds what they hold and may hold to running and most: one call of the store for each, none where none was heard of.
func (p *permits) collect(ctx context.Context, s store.Deployment, to chan<- prometheus.Metric, running, most map[string]int) error {
	p.mu.Lock()
	limits, rejected := maps.Clone(p.limits), maps.Clone(p.rejected)
	p.mu.Unlock()
	for name, limit := range limits {
		state, err := s.Semaphore(ctx, name)
		if err != nil {
			return err
		}
		running[name] += state.Held
		most[name] += limit
	}
	for name := range rejected {
		to <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(rejected[name]), name)
	}
	return nil
}
