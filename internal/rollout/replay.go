package rollout

import (
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// stream is a bucket through which demand flows that is spread evenly over a minute. Amounts are tokens, and fractions of
// them: beside a bucket that jobs ask it is off by the cost of one a minute at most, where the burst is that of two.
type stream struct {
	// level may be above the burst: what is too much goes with the next refill.
	level float64
	at    time.Time // zero before the first minute: then it is full
	// flowed is what counts in a sliding window, oldest first.
	flowed []flowed
}

// pass lets demand through from a time on, for so long, and returns how much.
func (s *stream) pass(limit admission.Limit, from time.Time, lasts time.Duration, demand float64) float64 {
	switch {
	case limit.Window.Grain() > 0:
		return s.passSliding(limit, from, lasts, demand)
	case !limit.Window.IsZero():
		return s.passWindows(limit, from, lasts, demand)
	}
	rate, burst := float64(limit.Rate()), float64(limit.Burst)
	if s.at.IsZero() {
		s.level = burst
	} else {
		s.level = min(burst, s.level+rate*from.Sub(s.at).Seconds())
	}
	reach := s.level + rate*lasts.Seconds()
	passed := min(demand, reach)
	s.level, s.at = reach-passed, from.Add(lasts)
	return passed
}

// passWindows is pass for a limit of fixed windows: what one has left is gone with it.
func (s *stream) passWindows(limit admission.Limit, from time.Time, lasts time.Duration, demand float64) (passed float64) {
	if start, _ := limit.Window.Bounds(from); s.at.Before(start) {
		s.level = float64(limit.Burst)
	}
	stop := from.Add(lasts)
	for from.Before(stop) {
		_, end := limit.Window.Bounds(from)
		until := end
		if until.After(stop) {
			until = stop
		}
		part := min(s.level, demand*until.Sub(from).Seconds()/lasts.Seconds())
		passed, s.level = passed+part, s.level-part
		if until.Equal(end) {
			s.level = float64(limit.Burst)
		}
		from = until
	}
	s.at = stop
	return passed
}

// replay is a policy through which what was recorded flows: from the lowest scopes to the global one. What a limit refuses
// asks for nothing above it, and of what a limit lets through each scope below has its part.
type replay struct {
	policy  *policy.Compiled
	streams map[admission.Scope]*stream
	// allowed is what passed, by scope, in tokens.
	allowed map[admission.Scope]float64
}

func newReplay(compiled *policy.Compiled) *replay {
	return &replay{compiled, map[admission.Scope]*stream{}, map[admission.Scope]float64{}}
}

// part is what becomes of the demand of a scope in one minute.
type part struct {
	// refused is by the scope and those below it, passed by neither; share is the part of what asks that the scope passes.
	refused, passed, share float64
	// classes is, of a queue, the part of what its types pass that its classes do.
	classes float64
}

// minute replays one. Levels are the scopes that were counted in it, by level. A job asks its type beside its class, and of which classes the jobs of a
// type were nobody has counted: what the types of a queue refuse is taken evenly from its classes, and what these refuse evenly from the types.
func (r *replay) minute(m *store.Recorded, levels *[admission.Levels][]admission.Scope) {
	parts := make(map[admission.Scope]*part, len(m.Scopes))
	types, below := map[admission.Scope]float64{}, map[admission.Scope]float64{}
	for _, scope := range levels[admission.LevelPriority] {
		if isOfType(scope) {
			p := r.through(scope, admission.LevelPriority, m, 0)
			parts[scope] = p
			queue, _ := parent(scope)
			types[queue] += p.refused
		}
	}
	for level := admission.LevelPriority; level >= admission.LevelGlobal; level-- {
		for _, scope := range levels[level] {
			if isOfType(scope) {
				continue
			}
			above, ok := parent(scope)
			tokens, before := float64(m.Scopes[scope].Tokens), below[scope]
			switch level {
			case admission.LevelPriority:
				before = tokens * partOf(types[above], float64(m.Scopes[above].Tokens))
			case admission.LevelQueue:
				before += types[scope]
			case admission.LevelGlobal, admission.LevelTenant:
			}
			p := r.through(scope, level, m, before)
			if level == admission.LevelQueue {
				p.classes = 1 - partOf(below[scope], tokens-types[scope])
			}
			if parts[scope] = p; !ok {
				continue
			}
			below[above] += p.refused
			if level == admission.LevelPriority {
				below[above] -= before // It is among what the types refuse.
			}
		}
	}
	for scope, p := range parts {
		passed := p.passed
		if queue := parts[queueOf(scope)]; queue != nil {
			passed *= queue.classes
		}
		for above, ok := parent(scope); ok; above, ok = parent(above) {
			if a := parts[above]; a != nil {
				passed *= a.share
			}
		}
		r.allowed[scope] += passed
	}
}

// through asks the limit of a scope for what was not refused before.
func (r *replay) through(scope admission.Scope, level admission.Level, m *store.Recorded, before float64) *part {
	count := m.Scopes[scope]
	asks := max(0, float64(count.Tokens)-before)
	p := &part{refused: before, classes: 1}
	p.passed, p.share = r.ask(scope, level, m, asks, meanCost(count))
	p.refused += asks - p.passed
	return p
}

// isOfType reports whether a scope is that of a type of jobs.
func isOfType(scope admission.Scope) bool { return queueOf(scope) != "" }

// queueOf returns the scope of the queue of a type; empty for other scopes.
func queueOf(scope admission.Scope) admission.Scope {
	if !strings.Contains(string(scope), ":"+admission.TypeMark) { // Most are none.
		return ""
	}
	tenant, queue, class, err := scope.Parts()
	if _, ofType := class.JobType(); err != nil || !ofType {
		return ""
	}
	return admission.ScopeAt(admission.LevelQueue, tenant, queue, "")
}

// partOf is the part of a whole, 0 to 1; that of nothing is 0.
func partOf(of, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return min(1, of/whole)
}

// ask asks the limit of a scope.
func (r *replay) ask(scope admission.Scope, level admission.Level, m *store.Recorded, asks, cost float64) (passed, share float64) {
	tenant, queue, class, err := scope.Parts()
	if err != nil {
		return asks, 1 // No policy limits what is no scope.
	}
	limit := r.policy.LimitsFor(tenant, queue, class)[level]
	if limit.Disabled || limit == (admission.Limit{}) {
		return asks, 1
	}
	if cost > float64(limit.Burst) {
		return 0, 0
	}
	s := r.streams[scope]
	if s == nil {
		s = &stream{}
		r.streams[scope] = s
	}
	passed = s.pass(limit, m.At, m.Lasted, asks)
	if asks == 0 {
		return passed, 1
	}
	return passed, passed / asks
}

// meanCost is what a decision asked for.
func meanCost(m store.Minute) float64 {
	return float64(m.Tokens) / float64(max(1, m.Allowed+m.Refused))
}

// parent returns the scope above; false for the global one.
func parent(scope admission.Scope) (admission.Scope, bool) {
	tenant, queue, class, err := scope.Parts()
	level := scope.Level()
	if err != nil || level == admission.LevelGlobal {
		return "", false
	}
	return admission.ScopeAt(level-1, tenant, queue, class), true
}
