package limiter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// errShut is the outcome of a call that the breaker did not let through.
var errShut = errors.Join(errors.New("the breaker of redis is open"), admission.ErrUnavailable)

// halfTime is the time of an outage after which a share is half of what it was.
const halfTime = time.Minute

// maxDebts is how many debts a call pays at the most.
const maxDebts = 16

// newBreaker returns the one on Redis: three failures in a row open it, one call that passes closes it.
func newBreaker(now breaker.Instant, timeout time.Duration) (*breaker.Breaker, error) {
	return breaker.NewAt(now, breaker.Config{
		Window: time.Second, MinCalls: 6, FailureThreshold: 3, SuccessThreshold: 1, SlowCallDuration: 24 * time.Hour,
		ProbeTimeout: 2 * timeout, OpenBase: 250 * time.Millisecond, OpenMax: 5 * time.Second, ResetAfter: 30 * time.Second,
	})
}

// isAway reports an error by which nobody knows whether Redis has heard of the call, or by which it has not.
func isAway(err error) bool {
	return errors.Is(err, admission.ErrUnavailable) || store.InDoubt(err) || errors.Is(err, context.DeadlineExceeded)
}

// guarded calls Redis from a goroutine of the limiter's own. A panic, by a hook of the client's, say, would end the process: it is an answer that did not come.
func (l *Limiter) guarded(call func() error) error {
	err := callback.Try(call)
	if _, ok := errors.AsType[*callback.PanicError](err); ok {
		l.config.Logger.Error().Err(err).Msg("a call of redis panicked")
		err = errors.Join(err, admission.ErrUnavailable)
	}
	return err
}

// notIn notes for how long the breaker lets nothing through.
func (l *Limiter) notIn(now breaker.Instant) {
	if l.breaker.State() != breaker.Open {
		return // A probe is under way.
	}
	if wait, ok := l.breaker.NextChangeAt(now); ok {
		l.shut.Store(int64(now.Add(wait)))
	}
}

// leave tells the breaker how a call ended.
func (l *Limiter) leave(call *breaker.Call, err error) {
	now := l.clock.now()
	if isAway(err) {
		l.tell(call.FailureAt(now))
		l.blind.begin(now)
		return
	}
	l.tell(call.SuccessAt(now))
	l.blind.end()
}

func (l *Limiter) tell(change breaker.Transition) {
	switch {
	case change == breaker.Transition{}:
	case change.To == breaker.Open:
		l.config.Logger.Warn().Stringer("cause", change.Cause).Msg("redis is away")
	case change.To == breaker.Closed:
		l.shut.Store(0)
		l.config.Logger.Info().Msg("redis is back")
	}
}

// blind is what happens while Redis is away.
type blind struct {
	mu struct {
		sync.Mutex
		// since is when the outage began; away says that there is one.
		since breaker.Instant
		away  bool
		// shares are the buckets of this process alone.
		shares buckets.Set
		debts  []debt
	}
}

// debt is a scope of which something was admitted blind that Redis has not heard of.
type debt struct {
	way   *way
	scope *scope
}

func (b *blind) begin(now breaker.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.away {
		b.mu.since, b.mu.away = now, true
	}
}

func (b *blind) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.away || b.mu.shares.Len() > 0 {
		b.mu.away, b.mu.shares = false, buckets.Set{}
	}
}

// collect adds what is owed under the policy in force to a call, but for what a call under way pays. A debt under another one is of another bucket and forgotten.
func (b *blind) collect(f *flight, inForce *policy.Compiled) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.mu.debts[:0]
	for _, d := range b.mu.debts {
		if d.scope.paying.Load() {
			kept = append(kept, d)
			continue
		}
		owed := d.scope.owes()
		if owed == 0 || !d.way.current(inForce) {
			d.scope.acquit()
			continue
		}
		kept = append(kept, d)
		if len(f.owed) == maxDebts || len(f.grant.Questions) == store.MaxBatchJobs {
			continue
		}
		d.scope.paying.Store(true)
		f.owed = append(f.owed, d.scope)
		f.grant.Accounts = append(f.grant.Accounts, store.Account{Question: len(f.grant.Questions), Level: d.scope.level, Owed: owed})
		f.grant.Questions = append(f.grant.Questions, d.way.question(0))
	}
	clear(b.mu.debts[len(kept):])
	b.mu.debts = kept
}

func (b *blind) paid(s *scope, tokens admission.Tokens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.owed = max(0, s.mu.owed-tokens)
}

func (s *scope) owes() admission.Tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.owed
}

func (s *scope) acquit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.owed, s.mu.indebted = 0, false
}

// owe notes what was admitted blind, up to one burst. more is by how much that is more; first says that the scope stands among the debts
// from now on.
func (s *scope) owe(cost, burst admission.Tokens) (more admission.Tokens, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owed := min(burst, s.mu.owed+cost)
	more, s.mu.owed = max(0, owed-s.mu.owed), owed
	first = !s.mu.indebted
	s.mu.indebted = true
	return more, first
}

// undo takes an answer back; nil where there is nothing to take back.
type undo func()

// answerBlind answers a ticket that Redis has not, by a way if one is known.
func (l *Limiter) answerBlind(ctx context.Context, t *ticket, w *way, now breaker.Instant) Verdict {
	var verdict Verdict
	mode := l.config.Outage
	switch {
	case w != nil:
		verdict, mode = l.blind.answer(w, t.cost, now, l.members.Load(), l.config.MaxScopes)
		l.noteVerdict(ctx, w, &verdict, t.cost)
	case l.config.Outage == OutageOpen: // The policy was never read.
		verdict.Admitted = true
	default:
		verdict.Reason = admission.ReasonUnavailable
	}
	verdict.Source = Blind
	if verdict.Reason == admission.ReasonUnavailable {
		verdict.RetryAfter = max(l.config.Timeout, breaker.Instant(l.shut.Load()).Sub(now))
	}
	l.counts.answeredBlind(mode, verdict.Admitted, t.cost)
	return verdict
}

// answer takes cost at every scope of the way or at none, each by what is on lease, else by its mode. It returns the mode that
// decided: the refusing scope's, or the one that lets the most through; none where what is on lease did.
func (b *blind) answer(w *way, cost admission.Tokens, now breaker.Instant, members int64, maxShares int) (Verdict, Outage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	verdict, mode, _ := b.answerLocked(w, cost, now, members, maxShares)
	return verdict, mode
}

// answerLocked also returns what takes the answer back where it admits, as long as the lock is held.
func (b *blind) answerLocked(w *way, cost admission.Tokens, now breaker.Instant, members int64, maxShares int) (Verdict, Outage, undo) {
	if !b.mu.away {
		b.mu.since = now // One answer was late, so far.
	}
	var leased row
	decided := Outage("")
	var steps [admission.Levels + 1]buckets.LevelLimit
	shared, owing := steps[:0], make([]*scope, 0, admission.Levels)
	for _, s := range w.scopes {
		has := s.has(now, cost)
		if !has {
			decided = looser(decided, s.mode)
		}
		switch {
		case has || s.mode == OutageGrace && s.held.tokens() >= cost:
			leased = append(leased, s)
			continue
		case s.mode == OutageClosed || s.mode == OutageGrace || b.mu.shares.Len() >= maxShares:
			return Verdict{Reason: admission.ReasonUnavailable, Scope: s.told()}, s.mode, nil
		case s.mode == OutageShare:
			shared = append(shared, buckets.LevelLimit{Scope: s.name, Limit: b.shareLocked(w.limit(s.level), now, members)})
		}
		owing = append(owing, s)
	}
	var at epochs
	_, ok := leased.take(anyLease, cost, &at)
	if !ok { // Somebody else was quicker.
		return Verdict{Reason: admission.ReasonUnavailable}, "", nil
	}
	micros := buckets.Instant(time.Duration(now).Microseconds())
	before := make([]buckets.Bucket, len(shared))
	for i, step := range shared {
		before[i] = b.mu.shares.Bucket(step.Scope)
	}
	if verdict := b.mu.shares.Take(micros, 0, shared, cost); verdict.Decision != admission.Admitted {
		leased.putBack(cost, 0, &at)
		if verdict.Reason == admission.ReasonTooCostly { // Of the share, not of the limit.
			return Verdict{Reason: admission.ReasonUnavailable, Scope: buckets.Named(verdict.Scope)}, OutageShare, nil
		}
		verdict.Scope = buckets.Named(verdict.Scope)
		return verdictOf(&verdict), OutageShare, nil
	}
	more := make([]admission.Tokens, len(owing))
	for i, s := range owing {
		var first bool
		if more[i], first = s.owe(cost, w.limit(s.level).Burst); first {
			b.mu.debts = append(b.mu.debts, debt{w, s})
		}
	}
	return Verdict{Admitted: true}, decided, func() {
		leased.putBack(cost, 0, &at)
		for i, step := range shared {
			b.mu.shares.Put(step.Scope, before[i])
		}
		for i, s := range owing {
			b.paid(s, more[i])
		}
	}
}

// looser returns the mode that lets more through.
func looser(one, other Outage) Outage {
	for _, mode := range []Outage{OutageOpen, OutageShare, OutageGrace} {
		if one == mode || other == mode {
			return mode
		}
	}
	return one
}

// shareLocked is the part of a limit that is this limiter's, at least a token of burst.
func (b *blind) shareLocked(limit *admission.Limit, now breaker.Instant, members int64) buckets.Limit {
	halvings := max(0, min(40, int(now.Sub(b.mu.since)/halfTime)))
	part := 1 / float64(members)
	burst := max(1, admission.Tokens(float64(limit.Burst)*part))
	return buckets.Limit{
		Rate: admission.TokensPerSecond(float64(limit.Rate()) * part / float64(int64(1)<<halvings)), Burst: buckets.MicroOf(burst),
	}
}
