package worker

import "github.com/headgate/headgate/internal/guard"

// MeasuredBy returns the config with another sampler for its guard.
func (c Config) MeasuredBy(sampler guard.Sampler) Config {
	c.sampler = sampler
	return c
}

// EndsWaiting returns how many ends of jobs wait for the call that is under way.
func (w *Worker) EndsWaiting() int {
	f := w.finisher
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.waiting)
}
