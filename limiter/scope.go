package limiter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
)

const (
	// leaseLife is how long tokens on lease may be spent.
	leaseLife = time.Second
	// chunkTime is for how long a chunk lasts at the use of late.
	chunkTime = 100 * time.Millisecond
	// leastChunk is the smallest chunk worth a lease. Where less is used in leaseLife, or may be held, checks are exact.
	leastChunk admission.Tokens = 8
	// meterTime is the shortest span in which use is measured.
	meterTime = 20 * time.Millisecond
)

// scope is what this process knows of one scope. It outlives a change of policy.
type scope struct {
	name  admission.Scope
	level admission.Level
	mode  Outage

	held held
	// onLease sums up what is on lease at the level, as each scope was last counted.
	onLease *atomic.Int64
	// until is when the tokens on lease end, a breaker.Instant; low is how many are left when more are fetched.
	until, low atomic.Int64
	denial     atomic.Pointer[denial]
	// fetching says that a refill is on its way; accounting that a call has the scope's account, so that no other counts it.
	fetching, accounting atomic.Bool

	mu struct {
		sync.Mutex
		use meter
		// counted is what was on lease when it was last counted or granted.
		counted admission.Tokens
		// holders is how many limiters hold tokens of the scope, this one included, as last heard.
		holders int
		// seen is when a call last asked for the scope.
		seen breaker.Instant
		// owed is what was admitted blind and is not paid; indebted says that the scope stands among the debts.
		owed     admission.Tokens
		indebted bool
	}
}

// meter measures what a process uses of a scope.
type meter struct {
	since breaker.Instant
	sum   admission.Tokens
	rate  admission.TokensPerSecond
}

func (m *meter) add(now breaker.Instant, tokens admission.Tokens) {
	m.sum += tokens
	passed := now.Sub(m.since)
	if passed < meterTime {
		return
	}
	rate := admission.TokensPerSecond(float64(m.sum) / passed.Seconds())
	if passed < time.Second && m.rate > 0 {
		rate = (rate + m.rate) / 2
	}
	m.since, m.sum, m.rate = now, 0, rate
}

// has reports whether as many tokens are on lease.
func (s *scope) has(now breaker.Instant, cost admission.Tokens) bool {
	return s.held.tokens() >= cost && !s.ended(now)
}

// count returns what is on lease, in a new epoch. What has ended is not, but stays for OutageGrace until there is a new lease.
func (s *scope) count(now breaker.Instant) admission.Tokens {
	left := s.held.count()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.use.add(now, s.mu.counted-left)
	s.countedLocked(left)
	if s.ended(now) {
		return 0
	}
	return left
}

// countedLocked notes what is on lease.
func (s *scope) countedLocked(tokens admission.Tokens) {
	s.onLease.Add(int64(tokens - s.mu.counted))
	s.mu.counted = tokens
}

// drain takes all that is on lease.
func (s *scope) drain() admission.Tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countedLocked(0)
	return s.held.drain()
}

// putBack undoes drain.
func (s *scope) putBack(tokens admission.Tokens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.add(tokens)
	s.countedLocked(tokens)
}

// ended reports whether the lease has.
func (s *scope) ended(now breaker.Instant) bool { return now >= breaker.Instant(s.until.Load()) }

// chunk is what this process should hold, as part of what all may hold; zero where that is too little to be worth it.
func (s *scope) chunk(most admission.Tokens) admission.Tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := float64(s.mu.use.rate)
	if use*leaseLife.Seconds() < float64(leastChunk) {
		return 0
	}
	chunk := max(leastChunk, admission.Tokens(use*chunkTime.Seconds()))
	if chunk = min(chunk, most/admission.Tokens(max(1, s.mu.holders))); chunk < leastChunk {
		return 0
	}
	return chunk
}

// lease puts granted tokens beside the held ones, which were counted before the call at sent.
func (s *scope) lease(sent breaker.Instant, tokens admission.Tokens, holders int) {
	lost := admission.Tokens(0)
	if s.ended(sent) {
		lost = s.held.drain()
	}
	s.mu.Lock()
	s.mu.holders = holders
	s.countedLocked(max(0, s.mu.counted-lost) + tokens)
	low := s.mu.counted / 4
	s.mu.Unlock()
	if tokens == 0 {
		low = 0 // There is nothing to fetch: what is left is spent first.
	}
	s.low.Store(int64(low))
	s.until.Store(int64(sent.Add(leaseLife)))
	s.held.add(tokens)
}

// used notes what an exact call took, or that one asked at all.
func (s *scope) used(now breaker.Instant, tokens admission.Tokens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.seen = now
	s.mu.use.add(now, tokens)
}

// pause is how long a busy scope that was refused waits beyond what it must: until there is a chunk for each holder, but no
// longer than a quarter of the time in which the bucket fills.
func (s *scope) pause(most admission.Tokens, limit *admission.Limit) time.Duration {
	chunk := s.chunk(most)
	s.mu.Lock()
	holders := max(1, s.mu.holders)
	s.mu.Unlock()
	all := min(float64(chunk)*float64(holders), float64(limit.Burst)/4)
	return min(chunkTime, time.Duration(all/float64(limit.Rate())*float64(time.Second)))
}

// idle reports whether the scope may be forgotten.
func (s *scope) idle(now breaker.Instant, after time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.mu.seen) > after && s.mu.owed == 0 && s.ended(now)
}
