package limiter

import (
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/admission"
)

// Stats is what a limiter has counted since its start, and the bound in force. No field grows with the scopes. Package
// telemetry shows it to Prometheus.
type Stats struct {
	// Calls is how many calls to Redis were answered.
	Calls uint64
	// Checks are those that were answered, but for blind ones.
	Checks []CheckCount
	// Blind are the checks to which Redis gave no answer, and BlindTokens the cost of those that were admitted.
	Blind       []BlindCount
	BlindTokens admission.Tokens
	// Grants is how often tokens of a scope were taken on lease, and Leased how many, of all scopes.
	Grants uint64
	Leased admission.Tokens
	// Returns is how many leases were given back on closing, and Returned how many tokens.
	Returns  uint64
	Returned admission.Tokens
	// Shared is how many checks found no room for the bucket of a dimension's key, and were answered by the one that such keys share.
	Shared uint64
	// Levels are those that have a limit, of which somebody has asked. Keys of dimensions count at admission.LevelQueue.
	Levels []LevelStats
}

// CheckCount is how many checks a source has answered in one way. Those that cost no call are there where Config.Count says so.
type CheckCount struct {
	Source   Source
	Admitted bool
	N        uint64
}

// BlindCount is how many checks were answered without Redis in one way; none are counted that did not happen.
type BlindCount struct {
	// Mode is that of the scope that decided, or empty where tokens on lease did.
	Mode     Outage
	Admitted bool
	N        uint64
}

// LevelStats is what is in force at a level: at the global one that is one scope, at others the sum of what is held and the
// largest bound. It is kept as scopes come and go, so reading it looks at none.
type LevelStats struct {
	Level admission.Level
	// Held is what is on lease as each scope last asked for some.
	Held admission.Tokens
	// Lost is what checks that were refused elsewhere had taken of it and could not put back, for Redis had been told meanwhile what was left.
	Lost admission.Tokens
	// Bound has the largest burst, rate and tokens on lease; Guarantee.Parts and the like are not set.
	Bound Guarantee
}

// Stats returns what was counted. It asks Redis for nothing.
func (l *Limiter) Stats() Stats {
	c := l.counts
	s := Stats{
		Calls: c.calls.Load(), Grants: c.grants.Load(), Leased: admission.Tokens(c.leased.Load()),
		Returns: c.returns.Load(), Returned: admission.Tokens(c.returned.Load()), BlindTokens: admission.Tokens(c.blindTokens.Load()),
		Shared: c.shared.Load(),
		Checks: []CheckCount{{Exact, true, c.exact[index(true)].Load()}, {Exact, false, c.exact[index(false)].Load()}},
	}
	if l.config.Count {
		s.Checks = append(s.Checks, CheckCount{Leased, true, c.byLease.Load()}, CheckCount{Cached, false, c.byDenial.Load()})
	}
	for i, mode := range blindModes {
		for _, admitted := range []bool{true, false} {
			if n := c.blind[i][index(admitted)].Load(); n > 0 {
				s.Blind = append(s.Blind, BlindCount{mode, admitted, n})
			}
		}
	}
	for i := range admission.Levels {
		if level := l.inForce(admission.Level(i)); level.Bound.Burst != 0 {
			s.Levels = append(s.Levels, level)
		}
	}
	return s
}

// Plus returns what two limiters have counted together: what is on lease adds up, of the bounds it has the larger.
func (s Stats) Plus(other Stats) Stats {
	sum := s
	sum.Calls += other.Calls
	sum.Grants += other.Grants
	sum.Leased += other.Leased
	sum.Returns += other.Returns
	sum.Returned += other.Returned
	sum.BlindTokens += other.BlindTokens
	sum.Shared += other.Shared
	sum.Checks = plus(s.Checks, other.Checks, func(a, b CheckCount) bool { return a.Source == b.Source && a.Admitted == b.Admitted },
		func(to *CheckCount, c CheckCount) { to.N += c.N })
	sum.Blind = plus(s.Blind, other.Blind, func(a, b BlindCount) bool { return a.Mode == b.Mode && a.Admitted == b.Admitted },
		func(to *BlindCount, c BlindCount) { to.N += c.N })
	sum.Levels = plus(s.Levels, other.Levels, func(a, b LevelStats) bool { return a.Level == b.Level }, (*LevelStats).add)
	return sum
}

// add adds what another limiter has at the level.
func (l *LevelStats) add(other LevelStats) {
	l.Held += other.Held
	l.Lost += other.Lost
	l.Bound.Burst, l.Bound.Rate = max(l.Bound.Burst, other.Bound.Burst), max(l.Bound.Rate, other.Bound.Rate)
	l.Bound.Leased = max(l.Bound.Leased, other.Bound.Leased)
}

// plus returns rows with others added to those that are the same, and behind them those that are new.
func plus[T any](rows, others []T, same func(a, b T) bool, add func(to *T, other T)) []T {
	rows = slices.Clone(rows)
	for _, other := range others {
		if i := slices.IndexFunc(rows, func(row T) bool { return same(row, other) }); i >= 0 {
			add(&rows[i], other)
		} else {
			rows = append(rows, other)
		}
	}
	return rows
}

// inForce returns the largest bound of a level, and what is on lease there and was lost.
func (l *Limiter) inForce(level admission.Level) LevelStats {
	if l.parts == nil {
		lent := &l.ways.lent[level]
		return LevelStats{level, admission.Tokens(lent.held.Load()), admission.Tokens(lent.lost.Load()), l.ways.bounds()[level]}
	}
	all := LevelStats{Level: level}
	for _, part := range l.parts {
		all.add(part.inForce(level))
	}
	return all
}

// blindModes are the modes of blind checks; the first stands for tokens on lease.
var blindModes = [...]Outage{"", OutageShare, OutageOpen, OutageClosed, OutageGrace}

// counts are what a limiter counts, in all of its partitions together.
type counts struct {
	calls, grants, returns atomic.Uint64
	// shared are the answers of buckets that keys of dimensions share, and sharedAt is when the log hears of them next, a breaker.Instant.
	shared                        atomic.Uint64
	sharedAt                      atomic.Int64
	leased, returned, blindTokens atomic.Int64 // tokens
	// byLease and byDenial are the checks that cost no call. All callers would write the same line of memory, so they are nil
	// where nobody would read them.
	byLease, byDenial *atomic.Uint64
	exact             [2]atomic.Uint64
	blind             [len(blindModes)][2]atomic.Uint64
}

func newCounts(config *Config) *counts {
	c := &counts{}
	if config.Count {
		c.byLease, c.byDenial = &atomic.Uint64{}, &atomic.Uint64{}
	}
	return c
}

func index(admitted bool) int {
	if admitted {
		return 1
	}
	return 0
}

func (c *counts) answered(admitted bool) { c.exact[index(admitted)].Add(1) }

// answeredBlind counts a check without Redis; no mode means that tokens on lease decided.
func (c *counts) answeredBlind(mode Outage, admitted bool, cost admission.Tokens) {
	for i := range blindModes {
		if blindModes[i] == mode {
			c.blind[i][index(admitted)].Add(1)
		}
	}
	if admitted {
		c.blindTokens.Add(int64(cost))
	}
}

func (c *counts) granted(tokens admission.Tokens) {
	if tokens > 0 {
		c.grants.Add(1)
		c.leased.Add(int64(tokens))
	}
}

func (c *counts) gaveBack(all []leftover) {
	for _, r := range all {
		c.returns.Add(1)
		c.returned.Add(int64(r.tokens))
	}
}
