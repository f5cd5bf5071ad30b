package inhand

import (
	"context"
	"sync"
)

// Slots counts the jobs that may be in hand at a time. One goroutine waits, many give back.
type Slots struct {
	// freed holds a token when a slot was given back since the last look.
	freed chan struct{}

	mu struct {
		sync.Mutex
		size  int
		shut  bool
		free  int // below 0 while more are taken than there are
		taken int
		empty chan struct{} // closed when nothing is taken any more; nil if nobody waits for it
	}
}

// NewSlots returns n that are free.
func NewSlots(n int) *Slots {
	s := &Slots{freed: make(chan struct{}, 1)}
	s.mu.size, s.mu.free = n, n
	return s
}

// Resize changes how many there are. Those that are taken stay so.
func (s *Slots) Resize(n int) {
	s.mu.Lock()
	s.mu.free += n - s.mu.size
	s.mu.size = n
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// Count returns how many there are, how many of them are free, and how many are taken.
func (s *Slots) Count() (size, free, taken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.size, s.mu.free, s.mu.taken
}

// Shut has Wait wait, whatever is free, or ends that.
func (s *Slots) Shut(shut bool) {
	s.mu.Lock()
	s.mu.shut = shut
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// IsShut reports whether Wait waits whatever is free.
func (s *Slots) IsShut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.shut
}

// Open returns how many there are, or, while they are shut, how many of them are taken.
func (s *Slots) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.shut {
		return min(s.mu.size, s.mu.taken)
	}
	return s.mu.size
}

// Wait returns the number of free slots as soon as there is one; false when ctx ended first.
func (s *Slots) Wait(ctx context.Context) (int, bool) {
	for {
		s.mu.Lock()
		free, shut := s.mu.free, s.mu.shut
		s.mu.Unlock()
		if free > 0 && !shut {
			return free, ctx.Err() == nil
		}
		select {
		case <-s.freed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// Take takes one, free or not.
func (s *Slots) Take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.free--
	s.mu.taken++
}

// Give gives one back.
func (s *Slots) Give() {
	s.mu.Lock()
	s.mu.free++
	s.mu.taken--
	if s.mu.taken == 0 && s.mu.empty != nil {
		close(s.mu.empty)
		s.mu.empty = nil
	}
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// AllFree returns a channel that is closed once no slot is taken.
func (s *Slots) AllFree() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.taken == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if s.mu.empty == nil {
		s.mu.empty = make(chan struct{})
	}
	return s.mu.empty
}

// InUse returns the number of slots that are taken.
func (s *Slots) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.taken
}
