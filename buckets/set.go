package buckets

import (
	"maps"

	"github.com/headgate/headgate/admission"
)

// Set is a store of buckets in memory, with the answers that the admission script gives for a store in Redis. The
// zero Set is empty: every bucket is full. There is no lock inside, so a Set that several goroutines use needs
// one around each call.
type Set struct {
	stored map[admission.Scope]Bucket
}

// Charge is what one job asks of a Set.
type Charge struct {
	// Path holds the limits on the job's way, outermost first, each scope once, at most a bucket at each level, Others and
	// that of the job's type.
	Path []LevelLimit
	// Cost is taken from every bucket of the path, 1 to headgate.MaxCost.
	Cost admission.Tokens
}

// Take admits a job that costs cost if every bucket of the path holds as much, and charges them all; otherwise it
// changes nothing. The path is outermost first, holds each scope once, and is at most headgate.Levels, Others and the job's type long: a
// longer one panics. An empty path admits. changed is the time of the latest policy change.
//
// A cost above a burst, of a limit that is scaled above the policy's, is a permanent refusal that names the outermost such scope. Any other refusal names the
// scope with the longest wait, the outermost of equals, with what its bucket holds and that wait, after which
// every bucket of the path would hold enough if nobody else took from it.
func (s *Set) Take(now, changed Instant, path []LevelLimit, cost admission.Tokens) admission.Verdict {
	var way settledPath
	verdict := s.judge(&way, now, changed, path, cost)
	if verdict.Decision != admission.Admitted {
		return verdict
	}
	if s.stored == nil {
		s.stored = make(map[admission.Scope]Bucket)
	}
	for i, step := range path {
		s.stored[step.Scope] = step.Limit.Store(now, changed, s.stored[step.Scope], way[i].level-MicroOf(cost), way[i].stamp)
	}
	return verdict
}

// TakeBatch takes the charges one after the other at one time, each all or nothing, so that a batch may be
// admitted in part. The verdicts are in the order of the charges.
func (s *Set) TakeBatch(now, changed Instant, charges []Charge) []admission.Verdict {
	verdicts := make([]admission.Verdict, len(charges))
	for i, charge := range charges {
		verdicts[i] = s.Take(now, changed, charge.Path, charge.Cost)
	}
	return verdicts
}

// Peek returns the verdict that Take would give, and changes nothing.
func (s *Set) Peek(now, changed Instant, path []LevelLimit, cost admission.Tokens) admission.Verdict {
	var way settledPath
	return s.judge(&way, now, changed, path, cost)
}

// Debit takes cost, 1 or more, from the bucket of one scope whatever it holds: for what was given before anybody knew what it costs.
// What the bucket lacks is a level below zero, a debt that is refilled before it holds anything again.
func (s *Set) Debit(now, changed Instant, step LevelLimit, cost admission.Tokens) {
	before := s.stored[step.Scope]
	level, stamp := Settle(now, changed, before, step.Limit)
	s.Put(step.Scope, step.Limit.Store(now, changed, before, level-MicroOf(cost), stamp))
}

// LevelAt returns what the bucket of one scope holds at now.
func (s *Set) LevelAt(now, changed Instant, step LevelLimit) Micro {
	level, _ := Settle(now, changed, s.stored[step.Scope], step.Limit)
	return level
}

// Least returns the scope of a path whose bucket holds least at now, what it has in whole tokens, rounded down, and its burst; zeros for
// an empty path. Of equals it is the outermost.
func (s *Set) Least(now, changed Instant, path []LevelLimit) (scope admission.Scope, left, burst admission.Tokens) {
	var least Micro
	for i, step := range path {
		if level := s.LevelAt(now, changed, step); i == 0 || level < least {
			least, scope, left, burst = level, step.Scope, level.Tokens(), step.Limit.Burst.Tokens()
		}
	}
	return scope, left, burst
}

// Bucket returns the stored value of a scope; the absent Bucket when there is none.
func (s *Set) Bucket(scope admission.Scope) Bucket { return s.stored[scope] }

// Put stores a bucket, or removes the one stored when bucket is absent.
func (s *Set) Put(scope admission.Scope, bucket Bucket) {
	if bucket.Absent() {
		delete(s.stored, scope)
		return
	}
	if s.stored == nil {
		s.stored = make(map[admission.Scope]Bucket)
	}
	s.stored[scope] = bucket
}

// Len returns how many buckets are stored.
func (s *Set) Len() int { return len(s.stored) }

// Clone returns an independent copy.
func (s *Set) Clone() *Set { return &Set{stored: maps.Clone(s.stored)} }

// settledPath holds the settled buckets of a path between the decision and the charge.
type settledPath [mostSteps]settled

// mostSteps is how long a path may be: a bucket at each level, Others, and that of the job's type.
const mostSteps = admission.Levels + 2

type settled struct {
	level Micro
	stamp Instant
}

// judge fills way and decides, without storing anything. A refusal for good leaves way as it was.
func (s *Set) judge(way *settledPath, now, changed Instant, path []LevelLimit, cost admission.Tokens) admission.Verdict {
	needed := MicroOf(cost)
	for _, step := range path {
		if burst := step.Limit.policyBurst(); burst < needed {
			return admission.Verdict{Decision: admission.Refused, Reason: admission.ReasonTooCostly, Scope: step.Scope, Burst: burst.Tokens()}
		}
	}
	verdict := admission.Verdict{Decision: admission.Admitted}
	var longest Span
	for i, step := range path {
		level, stamp := Settle(now, changed, s.stored[step.Scope], step.Limit)
		way[i] = settled{level, stamp}
		needed := needed + step.Limit.Floor
		if level >= needed {
			continue
		}
		wait := step.Limit.wait(now, changed, s.stored[step.Scope], level, stamp, needed)
		if wait <= longest {
			continue
		}
		longest = wait
		verdict = admission.Verdict{
			Decision: admission.Refused, Reason: admission.ReasonLimited,
			Scope: step.Scope, TokensLeft: level.Tokens(), Burst: step.Limit.Burst.Tokens(), RetryAfter: wait.Duration(),
		}
		if step.Limit.Floor > 0 {
			verdict.Scope, verdict.TokensLeft, verdict.Burst = Others, max(0, level-step.Limit.Floor).Tokens(), (step.Limit.Burst - step.Limit.Floor).Tokens()
		}
		if step.Limit.Whole != nil {
			verdict.Detail = step.Limit.Whole.Words()
		}
	}
	return verdict
}
