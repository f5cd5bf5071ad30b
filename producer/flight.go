package producer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// flight is the tickets of one admit call, resent as often as need be. Only its pilot touches it, and failure, which is read
// under the line's lock.
type flight struct {
	tickets []*ticket
	// jobs is how many its tickets had when it was boarded.
	jobs int
	// few is the room for the tickets of a flight that has not many.
	few [4]*ticket
	// sentFirst is when the first attempt was made that may have arrived; zero before.
	sentFirst time.Time
	// doubted says that an attempt may have been carried out without an answer.
	doubted bool
	// failure is the error of the last attempt without an answer.
	failure error
}

// Pauses between attempts: even in [0, d), d doubling from the first to the last.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

// travel takes a ticket through the line, until end. A nil error means that each entry has a verdict or an error of its own.
func (p *Producer) travel(ctx context.Context, end time.Time, t *ticket) error {
	if ctx.Err() != nil {
		return notSent(context.Cause(ctx))
	}
	now, l := time.Now(), p.lineOf(t.bytes)
	first, start, err := l.join(t, now)
	if err != nil {
		return err
	}
	if start {
		go p.pilot(l, first) //nolint:contextcheck // Flights carry the tickets of many calls, and outlast the call that began them.
	} else {
		p.watch(l) //nolint:contextcheck // as above
	}
	timer := p.timer(end.Sub(now))
	defer p.timers.Put(timer)
	defer timer.Stop()
	select {
	case <-t.done:
		err = t.failure
	case <-timer.C:
		err = l.leave(t, p.overtime)
	case <-ctx.Done():
		err = l.leave(t, context.Cause(ctx))
	}
	if errors.Is(err, admission.ErrOutcomeUnknown) {
		p.doubts.note()
	}
	return err
}

// watchEvery is how long somebody waits, at most, for whom nobody has sent a call when it was due.
const watchEvery = 10 * time.Millisecond

// watch looks at a line while anybody waits, and starts a pilot where another call is due. Whether one is is asked when somebody joins and when a call ends, but the one
// that is under way may hang, and nobody may join after those who wait.
func (p *Producer) watch(l *line) {
	if l.watched.Load() || !l.watched.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(watchEvery, func() {
		l.watched.Store(false)
		pilot, waits := l.due(time.Now())
		if waits {
			p.watch(l)
		}
		if pilot {
			p.pilot(l, nil)
		}
	})
}

// timer returns one that is not in use, set.
func (p *Producer) timer(d time.Duration) *time.Timer {
	if timer, ok := p.timers.Get().(*time.Timer); ok {
		timer.Reset(d)
		return timer
	}
	return time.NewTimer(d)
}

// lineOf returns the line of a ticket of so many bytes: those that are large wait for each other, and nobody else for them.
func (p *Producer) lineOf(bytes int) *line {
	if bytes > largeBytes {
		return &p.large
	}
	return &p.small
}

// pilot makes calls until nobody waits, the first of them for a ticket that is not in the line, if that is not nil. It ends by
// itself, as each flight has a latest deadline.
func (p *Producer) pilot(l *line, first *ticket) {
	for f := l.board(first, time.Now()); f != nil; f = l.board(nil, time.Now()) {
		failure := callback.Try(func() error { return p.fly(l, f) })
		if _, ok := errors.AsType[*callback.PanicError](failure); ok { // By a hook of the client's, say: nobody may wait for ever.
			p.config.Logger.Error().Err(failure).Msg("admit call panicked")
			failure = unknown(failure)
		}
		if l.crowd.Load() == nil {
			l.land(f, failure)
		} else {
			go l.land(f, failure) // Under overload calls are full: the next goes out before this one's callers are told, for Redis would wait for that, too.
		}
	}
}

// fly makes one attempt after the other, until there is an answer, no attempt is allowed any more, or nobody waits for one. An
// attempt has a ctx of its own, which ends with the latest deadline aboard: no caller that goes takes the others' answer along.
func (p *Producer) fly(l *line, f *flight) error {
	for {
		began := time.Now()
		latest, ok := l.takeOff(f, began)
		if !ok {
			return nil
		}
		ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(f.tickets[0].ctx), latest, p.overtime)
		err := p.attempt(ctx, f)
		cancel()
		took := time.Since(began)
		if err == nil || !p.mayRepeat(f, err) {
			if l.answered(took) {
				p.config.Logger.Info().Msg("admit calls are answered again")
			}
			return f.outcome(err)
		}
		back, failures, pilots := l.missed(f, took, err)
		if failures == 1 {
			p.config.Logger.Warn().Err(err).Bool("in_doubt", f.doubted).Msg("admit call got no answer")
		}
		pause(back, min(time.Duration(pilots)*pauseOf(failures), time.Until(latest)))
	}
}

// pauseOf is the pause after so many failures in a row. The jitter is full: all producers lost Redis in the same moment.
func pauseOf(failures int) time.Duration {
	return rand.N(min(lastPause, firstPause<<min(failures-1, 10)))
}

// pause waits before the next attempt, until another pilot's was answered at the longest. All pilots of a line dial as often as
// one would, and none stays for longer than its last caller.
func pause(back <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-back:
	}
}

// attempt makes one admit call for the jobs of the flight. Where the policy, or the record of a tenant, has changed since it was read, nothing
// was done: it is read anew and the call repeated, up to maxStale times.
func (p *Producer) attempt(ctx context.Context, f *flight) error {
	r := rooms.Get().(*room) //nolint:forcetypeassert // It has no others.
	defer r.recycle()
	for stale := 0; ; stale++ {
		snapshot, err := p.limits.current(ctx)
		if err != nil {
			return err
		}
		entries, candidates := f.candidates(snapshot, r)
		if len(entries) == 0 {
			return nil
		}
		p.limits.clamp(entries, candidates)
		if f.sentFirst.IsZero() {
			f.sentFirst = time.Now()
		}
		if err := p.checkWindow(f); err != nil {
			return err
		}
		verdicts, err := p.part.Admit(ctx, snapshot.Version(), candidates)
		now := time.Now()
		if err == nil && (p.doubts.answered(now) || f.doubted) {
			if err = p.askAgain(ctx, snapshot, candidates, verdicts); err != nil {
				f.doubted = true // What the first answer let in is in, whatever became of the question for the others.
			}
		}
		if errors.Is(err, store.ErrStale) && stale < maxStale {
			if err := p.refresh(ctx, snapshot, err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for i, e := range entries {
			e.verdict = spread(verdicts[i])
		}
		p.heard.note(candidates, verdicts, now)
		p.note(ctx, entries)
		p.shadow(ctx, snapshot, entries)
		return nil
	}
}

// spread makes what callers are told to wait for a queue that is pressed, or in which their jobs are doomed, longer by up to a half, at random:
// those that are told at one time are not to come back at one time.
func spread(v admission.Verdict) admission.Verdict {
	if v.Reason == admission.ReasonDoomed {
		v.RetryAfter += time.Duration(rand.Int64N(int64(v.RetryAfter)/2 + 1)) //nolint:gosec // no secret
	}
	if told := v.Pressure.RetryAfter; told > 0 {
		v.Pressure.RetryAfter += time.Duration(rand.Int64N(int64(told)/2 + 1)) //nolint:gosec // no secret
		if v.Reason == admission.ReasonShed {
			v.RetryAfter = v.Pressure.RetryAfter
		}
	}
	return v
}

// maxStale is how often an admit call is repeated because the policy has changed.
const maxStale = 2

// refresh reads anew what an answer says is stale: the records that it brings, or the policy. If snapshot is the latest all the
// same, the partition is behind, and is brought up.
func (p *Producer) refresh(ctx context.Context, snapshot *policy.Compiled, answer error) error {
	if learned, err := store.Learn(answer, snapshot); learned || err != nil {
		return err
	}
	if err := p.limits.reload(ctx, snapshot); err != nil {
		return err
	}
	if p.limits.snapshot.Load().Version() != snapshot.Version() {
		return nil
	}
	return p.store.SpreadPolicy(ctx)
}
