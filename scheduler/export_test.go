package scheduler

// Looked reports whether s has seen the clock of Redis.
func (s *Scheduler) Looked() bool {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return !s.clock.mu.last.redis.IsZero()
}
