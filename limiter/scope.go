package limiter

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
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
	// A scope that is asked again within stockTime has a stock of as much as it uses in so long, from leastStock tokens on. Of what all may hold
	// it is a stockPart, divided by the limiters that live, and no more than the limit gains in stockGain: so it does not matter what becomes
	// of it. With more than mostStocks limiters there is none.
	stockTime                   = time.Minute
	stockGain                   = stockTime / 10
	stockPart                   = 16
	leastStock admission.Tokens = 2
	mostStocks                  = 128
)

// scope is what this process knows of one scope. It outlives a change of policy.
type scope struct {
	// What a check looks at stands together: until is when the tokens held end, a breaker.Instant; low is how many are left when more are fetched.
	held       held
	until, low atomic.Int64
	denial     atomic.Pointer[denial]

	name  admission.Scope
	level admission.Level
	mode  Outage
	// lent is what is lent to the level.
	lent *lent
	// gone says that the scope is forgotten, and holds nothing. It is written with the lock.
	gone atomic.Bool
	// fetching says that a refill is on its way; accounting that a call has the scope's account, so that no other counts it; paying that one has what is
	// owed, so that no other pays it.
	fetching, accounting, paying atomic.Bool

	mu struct {
		sync.Mutex
		use meter
		// stock says that what is held is a stock, listed that the ways have it among those with one or with a denial, and swept how much of it
		// was left when somebody last looked whether it is in use.
		stock, listed bool
		swept         admission.Tokens
		// dry is until when there is no stock to be had.
		dry breaker.Instant
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

// told is the scope as callers know it.
func (s *scope) told() admission.Scope { return buckets.Named(s.name) }

// tenant is whose scope it is, "" of all.
func (s *scope) tenant() string {
	if s.level == admission.LevelGlobal || s.level == store.LevelOthers {
		return ""
	}
	tenant, _, _ := strings.Cut(string(s.name), ":")
	return tenant
}

// lent is what is lent to the scopes of a level: held as each was last counted, and lost what a refused check took and could not put back.
type lent struct{ held, lost atomic.Int64 }

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

// at is the rate at a time, where so many tokens were used since it was last measured: the last one, unless that is long ago or there is none.
func (m *meter) at(now breaker.Instant, used admission.Tokens) float64 {
	if passed := now.Sub(m.since); passed > stockTime || m.rate == 0 && passed >= meterTime {
		return float64(m.sum+used) / passed.Seconds()
	}
	return float64(m.rate)
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
	s.lent.held.Add(int64(tokens - s.mu.counted))
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

// chunk is what this process should hold, as part of what all may hold on lease or as stock; zero where that is too little to be worth it.
func (s *scope) chunk(now breaker.Instant, most, mostStock admission.Tokens) (chunk admission.Tokens, stock bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := s.mu.use.at(now, max(0, s.mu.counted-s.held.tokens()))
	chunk = s.busyLocked(use, most)
	if n := min(mostStock, admission.Tokens(math.Ceil(use*stockTime.Seconds()))); n >= max(chunk, leastStock) && now >= s.mu.dry {
		return n, true
	}
	return chunk, false
}

// busyLocked is the chunk to lease.
func (s *scope) busyLocked(use float64, most admission.Tokens) admission.Tokens {
	if use*leaseLife.Seconds() < float64(leastChunk) {
		return 0
	}
	chunk := max(leastChunk, admission.Tokens(use*chunkTime.Seconds()))
	if chunk = min(chunk, most/admission.Tokens(max(1, s.mu.holders))); chunk < leastChunk {
		return 0
	}
	return chunk
}

// lease puts granted tokens beside the held ones, which were counted before the call at sent: on lease, or as stock.
func (s *scope) lease(sent breaker.Instant, granted store.Leased, stock bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone.Load() {
		return
	}
	lost := admission.Tokens(0)
	if s.ended(sent) {
		lost = s.held.drain()
	}
	s.countedLocked(max(0, s.mu.counted-lost) + granted.Tokens)
	low := max(1, s.mu.counted/4)
	if granted.Tokens == 0 {
		low = 0 // There is nothing to fetch: what is left is spent first.
	}
	s.low.Store(int64(low))
	until := sent.Add(leaseLife)
	if s.mu.stock = stock; !stock {
		s.mu.holders = granted.Holders
	} else if until = math.MaxInt64; granted.Tokens == 0 {
		s.mu.dry = sent.Add(leaseLife)
	}
	s.until.Store(int64(until))
	s.held.add(granted.Tokens)
}

// list reports whether the caller is the one to list the scope as one with a stock or a denial.
func (s *scope) list() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.mu.listed && (s.mu.stock || s.denial.Load() != nil)
	s.mu.listed = s.mu.listed || first
	return first
}

// cut ends a stock and a denial.
func (s *scope) cut(now breaker.Instant, listed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.listed = s.mu.listed && listed
	s.denial.Store(nil)
	if s.mu.stock {
		s.until.Store(min(s.until.Load(), int64(now)))
	}
}

// renewed ends what is held of a tenant's scope, and its denial: the tenant's limits are others.
func (s *scope) renewed(now breaker.Instant) {
	if s.told() == admission.Global {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denial.Store(nil)
	s.until.Store(min(s.until.Load(), int64(now)))
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
	s.mu.Lock()
	chunk, holders := s.busyLocked(float64(s.mu.use.rate), most), max(1, s.mu.holders)
	s.mu.Unlock()
	all := min(float64(chunk)*float64(holders), float64(limit.Burst)/4)
	return min(chunkTime, time.Duration(all/float64(limit.Rate())*float64(time.Second)))
}

// forget reports whether the scope is not in use, and then holds nothing any more. A stock is in use if less of it is left than when it was last
// looked at.
func (s *scope) forget(now breaker.Instant, after time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.mu.seen) <= after || s.mu.owed != 0 {
		return false
	}
	if left := s.held.tokens(); !s.ended(now) && (!s.mu.stock || left != s.mu.swept) {
		s.mu.swept = left
		return false
	}
	s.gone.Store(true)
	s.countedLocked(0)
	s.held.drain()
	return true
}

func (s *scope) isStock() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stock
}

// held is the tokens of one scope that are on lease, to be spent without a lock. The word is an epoch above a count. What was
// taken can be put back only in the epoch in which it was taken: a count that was told to Redis never grows afterwards.
type held struct{ word atomic.Uint64 }

// tokenBits hold more than the largest burst.
const (
	tokenBits = 40
	tokenMask = 1<<tokenBits - 1
)

func (h *held) tokens() admission.Tokens { return admission.Tokens(h.word.Load() & tokenMask) }

// take spends cost if there is as much. It returns what is left, and the epoch for putBack.
func (h *held) take(cost admission.Tokens) (left admission.Tokens, epoch uint64, ok bool) {
	for {
		word := h.word.Load()
		left = admission.Tokens(word&tokenMask) - cost
		if left < 0 {
			return 0, 0, false
		}
		if h.word.CompareAndSwap(word, word-uint64(cost)) {
			return left, word >> tokenBits, true
		}
	}
}

// putBack undoes a take, and reports whether it has: not where the tokens have been counted since.
func (h *held) putBack(cost admission.Tokens, epoch uint64) bool {
	for {
		word := h.word.Load()
		if word>>tokenBits != epoch {
			return false
		}
		if h.word.CompareAndSwap(word, word+uint64(cost)) {
			return true
		}
	}
}

// count returns how many there are and begins a new epoch.
func (h *held) count() admission.Tokens {
	return admission.Tokens((h.word.Add(1<<tokenBits) - 1<<tokenBits) & tokenMask)
}

// add puts new tokens beside those that are there.
func (h *held) add(tokens admission.Tokens) { h.word.Add(uint64(tokens)) }

// drain takes all and begins a new epoch.
func (h *held) drain() admission.Tokens {
	for {
		word := h.word.Load()
		if h.word.CompareAndSwap(word, (word>>tokenBits+1)<<tokenBits) {
			return admission.Tokens(word & tokenMask)
		}
	}
}
