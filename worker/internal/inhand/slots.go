package inhand

import (
	"context"
	"sync"
)

// Slots counts the jobs that may run at a time. One goroutine waits, many give back. A slot is taken from when a job is in hand until Redis knows
// how it ended; another job may come for it as soon as the call that tells Redis is under way.
type Slots struct {
	// freed holds a token when a slot was left or given back since the last look.
	freed chan struct{}

	mu struct {
		sync.Mutex
		size  int
		shut  bool
		taken int
		left  int           // jobs whose ends are on their way: another may have the slot
		empty chan struct{} // closed when no job is in hand any more; nil if nobody waits for it
	}
}

// NewSlots returns n that are free.
func NewSlots(n int) *Slots {
	s := &Slots{freed: make(chan struct{}, 1)}
	s.mu.size = n
	return s
}

// Resize changes how many there are. Those that are taken stay so.
func (s *Slots) Resize(n int) {
	s.mu.Lock()
	s.mu.size = n
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// Count returns how many there are, and how many are taken, which may be more.
func (s *Slots) Count() (size, taken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.size, s.mu.taken
}

// Full reports whether all are taken.
func (s *Slots) Full() bool {
	size, taken := s.Count()
	return taken >= size
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

// Wait returns for how many slots a job may come as soon as there is one; false when ctx ended first.
func (s *Slots) Wait(ctx context.Context) (int, bool) {
	for {
		s.mu.Lock()
		free, shut := s.mu.size-s.mu.taken, s.mu.shut
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
	s.mu.taken++
}

// Leave says that the ends of so many jobs are on their way.
func (s *Slots) Leave(n int) {
	s.mu.Lock()
	s.mu.taken -= n
	s.mu.left += n
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// Give gives one back; left says that it was left before.
func (s *Slots) Give(left bool) {
	s.mu.Lock()
	if left {
		s.mu.left--
	} else {
		s.mu.taken--
	}
	if s.mu.taken+s.mu.left == 0 && s.mu.empty != nil {
		close(s.mu.empty)
		s.mu.empty = nil
	}
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// AllFree returns a channel that is closed once no job is in hand.
func (s *Slots) AllFree() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.taken+s.mu.left == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if s.mu.empty == nil {
		s.mu.empty = make(chan struct{})
	}
	return s.mu.empty
}

// InHand returns the number of jobs in hand, those whose ends are on their way too.
func (s *Slots) InHand() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.taken + s.mu.left
}
