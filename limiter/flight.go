package limiter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// A limiter says every beatEvery that it lives, where it is asked, and counts as live for beatLife.
const (
	beatEvery = 500 * time.Millisecond
	beatLife  = 6 * time.Second
	// heardLife is how long what a beat was told of the limits is good: without another one nothing is spent on lease.
	heardLife = time.Second
)

// flights are those that have landed, to be flown again.
var flights = sync.Pool{New: func() any { return &flight{} }}

// reset empties a flight, but for the room that it has.
func (f *flight) reset() {
	clear(f.grant.Questions)
	clear(f.asked)
	clear(f.leased)
	clear(f.owed)
	*f = flight{grant: store.Grant{Questions: f.grant.Questions[:0], Accounts: f.grant.Accounts[:0]}, asked: f.asked[:0], leased: f.leased[:0], owed: f.owed[:0]}
}

// recycle gives a flight back that has landed.
func (f *flight) recycle() {
	f.reset()
	flights.Put(f)
}

// flight is one call to Redis. Only its pilot touches it.
type flight struct {
	grant store.Grant
	// asked are the tickets whose questions cost something, in order.
	asked []*ticket
	// leased are the scopes of the first accounts, owed those of the rest.
	leased, owed []*scope
	sent         breaker.Instant
	// cuts is how often stocks and denials were ended before the call.
	cuts uint64
}

// serve answers tickets by one call, or says of all that Redis is away.
func (l *Limiter) serve(ctx context.Context, tickets []*ticket) {
	err := errShut
	now := l.clock.now()
	call, change, ok := l.breaker.TryAcquireAt(now)
	l.tell(change)
	if ok {
		ctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
		err = l.guarded(func() error { return l.fly(ctx, tickets) })
		cancel()
		l.leave(&call, err)
	} else {
		l.notIn(now)
	}
	for _, t := range tickets {
		switch {
		case t.err != nil || err == nil:
		case isAway(err):
			t.away = true
		case errors.Is(err, admission.ErrOutOfMemory):
			t.verdict = Verdict{Reason: admission.ReasonMemory, RetryAfter: time.Second}
		default:
			t.err = err
		}
		if t.cost == 0 {
			t.way.fetched()
			l.hearing.Store(false)
			l.line.recycle(t)
			continue
		}
		t.done <- struct{}{}
	}
}

// fly makes the call. Where the policy or a tenant's record has changed nothing was done: it is read anew and the call repeated, once.
func (l *Limiter) fly(ctx context.Context, tickets []*ticket) error {
	f := flights.Get().(*flight) //nolint:forcetypeassert // It has no others.
	defer f.recycle()
	for again := false; ; again = true {
		inForce, err := l.current(ctx)
		if err != nil {
			return err
		}
		l.board(f, inForce, tickets)
		if len(f.grant.Questions) == 0 {
			return nil
		}
		var granted store.Granted
		err = callback.Try(func() (err error) { // Or other calls would wait for this one to land.
			granted, err = l.part.Grant(ctx, &f.grant)
			return err
		})
		l.land(f, granted, err)
		if errors.Is(err, store.ErrStale) && !again {
			if err := l.renew(ctx, inForce, err); err != nil {
				return err
			}
			f.reset()
			continue
		}
		for _, t := range tickets {
			if err == nil && t.boarded != nil {
				l.freed(t.boarded, f.sent, f.cuts)
			}
		}
		return err
	}
}

// board makes a call of the tickets: their questions, the leases that they are to fill, and what is owed.
func (l *Limiter) board(f *flight, inForce *policy.Compiled, tickets []*ticket) {
	f.grant.Version, f.grant.Member, f.grant.Lease = inForce.Version(), l.member, leaseLife
	f.sent, f.cuts = l.clock.now(), l.cuts.Load()
	stocks := l.stocks(f.sent)
	if due := l.beatAt.Load(); int64(f.sent) >= due && l.beatAt.CompareAndSwap(due, int64(f.sent.Add(beatEvery))) {
		f.grant.Beat = beatLife
		if inForce.HasRecords() {
			f.grant.Edited = max(l.edited.Load(), policy.NoRecord)
		}
	}
	for _, t := range tickets {
		w := t.way
		if w == nil || !w.current(inForce) || w.isGone() {
			var err error
			if w, err = l.ways.open(f.sent, t.route, inForce); err != nil {
				t.err = err
				continue
			}
		}
		t.boarded = w
		w.seen.Store(int64(f.sent))
		if t.cost > 0 {
			f.asked = append(f.asked, t)
			f.grant.Left = f.grant.Left || t.tell
		}
		f.want(w, stocks)
		f.grant.Questions = append(f.grant.Questions, w.question(t.cost))
	}
	l.blind.collect(f, inForce)
}

// want adds the accounts of the way's scopes that need more tokens, as the next question's. Stocks are divided among so many limiters, zero for none.
func (f *flight) want(w *way, stocks admission.Tokens) {
	if !w.wants(f.sent, stocks) {
		return
	}
	for i, s := range w.scopes {
		if !s.accounting.CompareAndSwap(false, true) {
			continue
		}
		held := s.count(f.sent)
		most := w.most[i]
		chunk, stock := s.chunk(f.sent, most, w.stockOf(i, stocks))
		if stock {
			most = chunk
		}
		if chunk == 0 || 2*held > chunk {
			s.accounting.Store(false)
			continue
		}
		f.leased = append(f.leased, s)
		f.grant.Accounts = append(f.grant.Accounts, store.Account{
			Question: len(f.grant.Questions), Level: s.level, Want: chunk - held, Held: held, Cap: most, Stock: stock,
		})
	}
}

// land shares out what the call has brought.
func (l *Limiter) land(f *flight, granted store.Granted, err error) {
	landed := l.clock.now()
	if err == nil && granted.Members >= 0 {
		l.hear(f, &granted)
	}
	for i, s := range f.leased {
		if err == nil {
			stock := f.grant.Accounts[i].Stock
			s.lease(f.sent, granted.Leases[i], stock)
			if stock {
				l.stocked(s, landed, f.cuts)
			}
			l.counts.granted(granted.Leases[i].Tokens)
		}
		s.accounting.Store(false)
	}
	for i, s := range f.owed {
		if err == nil {
			l.blind.paid(s, granted.Leases[len(f.leased)+i].Paid)
		}
		s.paying.Store(false)
	}
	if err != nil {
		return
	}
	l.counts.calls.Add(1)
	for i, t := range f.asked {
		verdict := granted.Verdicts[i]
		t.verdict = t.boarded.verdictOf(verdict, t.tell)
		took := admission.Tokens(0)
		if t.verdict.Admitted {
			took = t.cost
		} else if verdict.Reason == admission.ReasonLimited || verdict.Reason == admission.ReasonTooCostly {
			l.denied(t.boarded.deny(landed, t.cost, verdict), f.cuts)
		}
		for _, s := range t.boarded.scopes {
			s.used(landed, took)
		}
	}
}

// stocked lists a scope with a stock that Redis gave after so many cuts, and ends it where there was one meanwhile.
func (l *Limiter) stocked(s *scope, landed breaker.Instant, cuts uint64) {
	if l.ways.list(s); l.cuts.Load() != cuts {
		s.cut(landed, true)
	}
}

// freed notes that the tenant of a way has no limits, as a call was answered after so many cuts.
func (l *Limiter) freed(w *way, landed breaker.Instant, cuts uint64) {
	if s := w.free(); s != nil {
		s.lease(landed, store.Leased{}, true)
		l.stocked(s, landed, cuts)
	}
}

// denied lists a scope with a denial that Redis gave after so many cuts; nil is none. Where there was one meanwhile it is of limits from before that.
func (l *Limiter) denied(s *scope, cuts uint64) {
	if s == nil {
		return
	}
	if l.ways.list(s); l.cuts.Load() != cuts {
		s.denial.Store(nil)
	}
}

// hear notes what a beat was told. Stocks are of the limits that were in force until then, and shared by the limiters that lived. Where records of some tenants
// were edited theirs end alone, and what other calls bring that are under way.
func (l *Limiter) hear(f *flight, granted *store.Granted) {
	l.members.Store(int64(max(1, granted.Members)))
	last := breaker.Instant(l.heardUntil.Swap(int64(f.sent.Add(heardLife)))).Add(-heardLife)
	if l.changed.Swap(granted.Changed) != granted.Changed || granted.AllRenewed || f.sent.Sub(last) >= beatLife {
		l.cut()
	} else if len(granted.Renewed) > 0 {
		if l.cuts.Add(1) == f.cuts+1 {
			f.cuts++ // What this call brings is of the records that it was told of.
		}
		l.ways.renewed(l.clock.now(), granted.Renewed)
	}
	if granted.Edited != 0 {
		l.edited.Store(granted.Edited)
	}
}

// unheard reports whether the caller is the one to send for what a beat is told: of a new policy, or of limits that are scaled.
func (l *Limiter) unheard(now breaker.Instant) bool {
	return l.beatDue(now) && l.hearing.CompareAndSwap(false, true)
}

// beatDue reports whether the next call says that the limiter lives.
func (l *Limiter) beatDue(now breaker.Instant) bool { return int64(now) >= l.beatAt.Load() }

// stocks is among how many limiters stocks are divided; zero where there are none.
func (l *Limiter) stocks(now breaker.Instant) admission.Tokens {
	members := l.members.Load()
	if int64(now) >= l.heardUntil.Load() || members > mostStocks {
		return 0
	}
	return admission.Tokens(members)
}

// cut ends all stocks and denials: limits are others, and they are of those from before. What is granted or denied meanwhile is cut as it lands.
func (l *Limiter) cut() {
	l.cuts.Add(1)
	l.ways.cut(l.clock.now())
}
