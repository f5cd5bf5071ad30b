package tally

import (
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
)

// sampleEvery is how often a refusal for the same reason is told.
const sampleEvery = time.Second

// Sampler picks one refusal a second for each reason to be told, with how many there were of that reason since the one before. Its
// zero value is ready; several goroutines may use it.
type Sampler struct {
	mu struct {
		sync.Mutex

		by map[admission.Reason]*sample
	}
}

// sample is what was refused for one reason since it was last told.
type sample struct {
	count int64
	next  time.Time
}

// Count returns how many of a reason there are with this one, and whether they are to be told.
func (s *Sampler) Count(reason admission.Reason, now time.Time) (count int64, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.by == nil {
		s.mu.by = map[admission.Reason]*sample{}
	}
	of := s.mu.by[reason]
	if of == nil {
		of = &sample{}
		s.mu.by[reason] = of
	}
	of.count++
	if now.Before(of.next) {
		return 0, false
	}
	count, of.count, of.next = of.count, 0, now.Add(sampleEvery)
	return count, true
}
