package memory

import (
	"context"
	"crypto/rand"
	"maps"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/memory/internal/bank"
	"github.com/headgate/headgate/internal/memory/internal/counts"
	"github.com/headgate/headgate/store"
)

// Check asks for the tokens of all questions or none, as store.Partition.Check.
func (p *Partition) Check(_ context.Context, version int64, peek bool, questions []store.Question) (granted bool, answers []store.Answer, err error) {
	answers = make([]store.Answer, len(questions))
	p.write(func(m *model, now int64) { granted, _, err = m.check(now, version, peek, questions, answers) })
	if err != nil {
		return false, nil, err
	}
	return granted, answers, nil
}

// check answers questions, and returns the moment that a refund asks for.
func (m *model) check(now, version int64, peek bool, questions []store.Question, answers []store.Answer) (granted bool, at store.Moment, err error) {
	if err := m.stale(version, questionsRecords(questions)); err != nil {
		return false, at, err
	}
	c := m.charging(&m.bank, now)
	c.Enter(questions)
	granted = true
	for i := range questions {
		answers[i].Verdict = c.Take(c.WayOf(&questions[i]), questions[i].Cost)
		answers[i].Verdict.Scope = bank.Named(answers[i].Verdict.Scope)
		granted = granted && answers[i].Verdict.Decision == admission.Admitted
	}
	if !granted || peek {
		c.Back()
	}
	for i := range questions {
		q := &questions[i]
		for _, step := range c.WayOf(q) {
			if step.Scope == buckets.Others {
				answers[i].Others, _ = c.LevelOf(step)
				continue
			}
			if bank.IsOfType(&step, q) {
				continue
			}
			answers[i].Left[step.Scope.Level()], _ = c.LevelOf(step)
			answers[i].Shared = q.OfDimension() && step.Scope.Level() == admission.LevelTenant
		}
		if q.Measured {
			answers[i].Verdict.Pressure = m.pressureOf(q.Queue, now)
		}
	}
	if granted && !peek {
		for i := range questions {
			m.use(now, now, &questions[i], store.Used{Calls: 1, Reserved: questions[i].Cost})
		}
		c.Commit()
		m.advance(now)
	}
	return granted, store.Moment{Time: int64(c.At), Refunds: m.refunds}, nil
}

// use counts the usage of a question that was asked at some time.
func (m *model) use(now, at int64, q *store.Question, n store.Used) {
	m.usage.Add(now, m.over(now), at, q.Usage, q.Tenant, q.Queue, n)
}

// Take asks one question, as store.Partition.Take.
func (p *Partition) Take(_ context.Context, version int64, question store.Question) (verdict admission.Verdict, receipt store.Taken, err error) {
	questions, answers := [1]store.Question{question}, [1]store.Answer{}
	var granted bool
	var at store.Moment
	p.write(func(m *model, now int64) { granted, at, err = m.check(now, version, false, questions[:], answers[:]) })
	if granted {
		receipt = store.Taken{Question: question, Version: version, At: at, Shared: answers[0].Shared}
		for level, left := range answers[0].Left {
			receipt.Left[level] = int64(left)
		}
	}
	return answers[0].Verdict, receipt, err
}

// Refund gives back what Take took for work that did not begin, once for each id, as store.Partition.Refund.
func (p *Partition) Refund(ctx context.Context, id string, receipt store.Taken) (done store.Refund, err error) {
	return p.Commit(ctx, id, receipt, 0)
}

// Commit tells what work has cost in truth, once for each id, as store.Partition.Commit.
func (p *Partition) Commit(_ context.Context, id string, receipt store.Taken, actual admission.Tokens) (done store.Refund, err error) {
	return p.settle(id, &receipt, actual, true)
}

// CommitPart tells what work that goes on has used so far, as store.Partition.CommitPart.
func (p *Partition) CommitPart(_ context.Context, id string, receipt store.Taken, used admission.Tokens) (done store.Refund, err error) {
	return p.settle(id, &receipt, used, false)
}

func (p *Partition) settle(id string, receipt *store.Taken, told admission.Tokens, final bool) (done store.Refund, err error) {
	if err := admission.ValidateName("id of a refund", id, false); err != nil {
		return "", err
	}
	p.write(func(m *model, now int64) {
		if err = m.stale(receipt.Version, questionsRecords([]store.Question{receipt.Question})); err != nil {
			if done = store.RefundStale; err == store.ErrStale { //nolint:errorlint // A StaleRecordsError goes on, for the caller to learn.
				err = nil
			}
			return
		}
		done = m.commit(now, id, receipt, told, final)
	})
	return done, err
}

func (m *model) commit(now int64, id string, receipt *store.Taken, actual admission.Tokens, final bool) store.Refund {
	q, elapsed, c := &receipt.Question, m.bucketTime(now)-receipt.At.Time, m.charging(&m.bank, now)
	c.Enter([]store.Question{*q}) // Also of one that comes late or again: the script has read the buckets by then.
	for _, over := range m.refunded.Passed(m.over(now)) {
		delete(m.parts, over)
	}
	until, known := m.refunded.Find(id)
	if known = known && until > m.over(now); !known {
		delete(m.parts, id)
	}
	told, goesOn := m.parts[id]
	switch {
	case known && !goesOn:
		return store.RefundedBefore
	case !known && elapsed > store.RefundWindow.Microseconds():
		return store.RefundLate
	}
	m.refunded.Put(id, now+store.RefundWindow.Microseconds())
	reserved := max(q.Cost, told)
	if actual = max(actual, told); final {
		delete(m.parts, id)
	} else {
		m.parts[id] = actual
		if _, known := m.reservation(now, receipt.Under); known {
			m.reserving.Put(receipt.Under, now+store.ReservationKept.Microseconds())
		}
		actual = max(actual, reserved) // What it has not used yet stays reserved.
	}
	since := buckets.MicroOf(admission.Tokens(m.refunds - receipt.At.Refunds))
	m.use(now, now-elapsed, q, counts.Settled(reserved, actual))
	if actual < reserved && c.Changed(q.Tenant, receipt.At.Time) { // Limits are others since: the buckets may have been others.
		m.advance(now)
		return store.Refunded
	}
	c.TrueUp(c.WayOf(q), reserved, actual, buckets.Span(elapsed), func(step buckets.LevelLimit) buckets.Micro {
		if step.Scope == buckets.Others || bank.IsOfType(&step, q) { // Nobody notes what was left in it.
			return 0
		}
		// What came in since may have found the bucket full had the tokens not been taken. Then it is not owed.
		return step.Limit.Burst - buckets.Micro(receipt.Left[step.Scope.Level()]) - step.Limit.Came(buckets.Span(elapsed)) - since
	})
	m.refunds += int64(max(0, reserved-actual))
	c.Commit()
	m.advance(now)
	return store.Refunded
}

// reserved is what an id has taken, and what that left.
type reserved struct {
	store.Reservation

	left [admission.Levels]admission.Micro
}

// Reserve takes tokens under an id, as store.Buckets.Reserve.
func (p *Partition) Reserve(_ context.Context, version int64, id string, q store.Question) (answer store.Answer, taken store.Reservation, err error) {
	if err := store.ValidateReservation(id); err != nil {
		return answer, taken, err
	}
	q.Measured = false
	p.write(func(m *model, now int64) { answer, taken, err = m.reserve(now, version, q.Tenant+":"+id, q) })
	return answer, taken, err
}

func (m *model) reserve(now, version int64, id string, q store.Question) (answer store.Answer, taken store.Reservation, err error) {
	if known, ok := m.reservation(now, id); ok {
		if kept := &known.Taken.Question; kept.Scope() != q.Scope() || kept.Cost != q.Cost && !q.Estimated {
			return answer, taken, store.ErrReservationOther
		}
		known.Taken.Question.Limits, known.Taken.Question.Usage, known.Taken.Question.Record, known.Again = q.Limits, q.Usage, q.Record, true
		return store.Answer{Verdict: admission.Verdict{Decision: admission.Admitted}, Left: known.left}, known.Reservation, nil
	}
	answers := [1]store.Answer{}
	granted, at, err := m.check(now, version, false, []store.Question{q}, answers[:])
	answers[0].Others = 0
	if !granted || err != nil {
		return answers[0], taken, err
	}
	taken = store.Reservation{Taken: store.Taken{Question: q, Version: version, At: at, Under: id}, Ref: "h-" + rand.Text()}
	for level, left := range answers[0].Left {
		taken.Taken.Left[level] = int64(left)
	}
	taken.Counted = q.Usage > 0
	kept := reserved{taken, answers[0].Left}
	kept.Taken.Question.Limits, kept.Taken.Question.Usage, kept.Taken.Question.Record = [admission.Levels]admission.Limit{}, 0, 0
	for _, over := range m.reserving.Passed(m.over(now)) {
		delete(m.reserved, over)
	}
	m.reserved[id] = kept
	m.reserving.Put(id, now+store.ReservationKept.Microseconds())
	return answers[0], taken, nil
}

// reservation returns what an id, of a tenant, has taken.
func (m *model) reservation(now int64, id string) (known reserved, ok bool) {
	until, ok := m.reserving.Find(id)
	return m.reserved[id], ok && until > m.over(now)
}

// Reserved returns what an id has taken, as store.Buckets.Reserved.
func (p *Partition) Reserved(_ context.Context, tenant, id string) (taken store.Reservation, err error) {
	if err := store.ValidateReservation(id); err != nil {
		return taken, err
	}
	err = store.ErrNoReservation
	p.read(func(m *model, now int64) {
		if known, ok := m.reservation(now, tenant+":"+id); ok {
			taken, err = known.Reservation, nil
			taken.Again = true
		}
	})
	return taken, err
}

// ResetBucket fills the bucket of a scope, as store.Partition.ResetBucket.
func (p *Partition) ResetBucket(_ context.Context, tenant, queue string, class admission.Priority, by store.Intervention) (was bool, err error) {
	if err := by.Validate(); err != nil {
		return false, err
	}
	scope := admission.Global
	if tenant != "" {
		scope = admission.Scope(strings.TrimRight(tenant+":"+queue+":"+string(class), ":"))
	}
	p.write(func(m *model, now int64) {
		m.bank.Forget(m.over(now))
		if scope == admission.Global {
			was = m.bank.RemoveGlobal()
		} else {
			was = m.bank.Remove(scope)
		}
		if was {
			m.advance(now)
			m.record(now, by, store.AuditResetBucket, string(scope), 0, 0)
		}
	})
	return was, nil
}

// BucketsTTL returns after what time without a decision the buckets of a tenant are forgotten, as store.Partition.BucketsTTL.
func (p *Partition) BucketsTTL(_ context.Context, tenant string) (left time.Duration, err error) {
	p.read(func(m *model, now int64) {
		left = time.Duration(m.bank.Left(tenant, now)) * time.Microsecond
	})
	return left.Truncate(time.Millisecond), nil
}

// shadow is what is asked and counted of a candidate.
type shadow struct {
	counts store.ShadowCounts
	// bank has the buckets of tenants by the candidate as well: one that comes again soon finds them.
	bank bank.Bank
}

// Shadow asks questions of a candidate, and counts its answers, as store.Partition.Shadow.
func (p *Partition) Shadow(_ context.Context, version int64, id string, questions []store.Question) (err error) {
	p.write(func(m *model, now int64) {
		if err = m.stale(version, questionsRecords(questions)); err != nil {
			return
		}
		if m.shadow.counts.ID != id {
			m.shadow.counts = store.ShadowCounts{ID: id, Since: time.UnixMicro(now)}
			m.shadow.bank.RemoveGlobal()
		}
		counts, c, of := &m.shadow.counts, m.charging(&m.shadow.bank, now), strings.ReplaceAll(id, ":", "\n")+"\n"
		for i := range questions {
			q := &questions[i]
			switch v := c.Take(c.PathOfType(&q.Limits, q.TypeLimit, of+q.Tenant, q.Queue, q.Class), q.Cost); v.Decision {
			case admission.Admitted:
				counts.Allowed++
			default:
				counts.Refused[v.Scope.Level()]++
			}
		}
		c.Commit()
		m.advance(now)
	})
	return err
}

// ShadowCounts returns what was counted for the last candidate in shadow.
func (p *Partition) ShadowCounts(context.Context) (counts store.ShadowCounts, err error) {
	p.read(func(m *model, _ int64) { counts = m.shadow.counts })
	return counts, nil
}

// Count adds to the counts of this minute, as store.Partition.Count.
func (p *Partition) Count(_ context.Context, scopes []store.ScopeCount) (done int, err error) {
	if len(scopes) == 0 {
		return 0, nil
	}
	p.write(func(m *model, now int64) { m.counts.Add(scopes, now, m.over(now)) })
	return len(scopes), nil
}

// Minutes returns what was counted of a scope in the last hour, as store.Partition.Minutes.
func (p *Partition) Minutes(_ context.Context, scope admission.Scope) (all []store.Minute, err error) {
	all = []store.Minute{}
	p.read(func(m *model, now int64) {
		last := counts.MinuteAt(now)
		for minute := last - counts.HourMinutes + 1; minute <= last; minute++ {
			if one, ok := m.counts.Minute(minute)[scope]; ok {
				all = append(all, one)
			}
		}
	})
	return all, nil
}

// LastHour is LastMinutes of the hour that is kept.
func (p *Partition) LastHour(ctx context.Context, budget time.Duration) ([]store.Recorded, error) {
	return p.LastMinutes(ctx, int(counts.HourMinutes), budget)
}

// LastMinutes returns those of the last minutes in which something was counted, as store.Partition.LastMinutes.
func (p *Partition) LastMinutes(_ context.Context, minutes int, budget time.Duration) (all []store.Recorded, err error) {
	if budget <= 0 {
		return nil, nil
	}
	p.read(func(m *model, now int64) {
		last := counts.MinuteAt(now)
		for minute := max(last-int64(minutes), last-counts.HourMinutes) + 1; minute <= last; minute++ {
			if of := m.counts.Minute(minute); len(of) > 0 {
				at := time.Unix(minute*60, 0)
				lasted := max(min(time.UnixMicro(now).Sub(at), time.Minute), time.Microsecond)
				all = append(all, store.Recorded{At: at, Lasted: lasted, Scopes: maps.Clone(of)})
			}
		}
	})
	return all, nil
}

// CountedScopes returns of how many scopes something was counted in the last full minute.
func (p *Partition) CountedScopes(context.Context) (n int64, err error) {
	p.read(func(m *model, now int64) { n = int64(len(m.counts.Minute(counts.MinuteAt(now) - 1))) })
	return n, nil
}

// Rates returns what was decided in a minute, as store.Partition.Rates.
func (p *Partition) Rates(_ context.Context, minute time.Time) (r store.Rates, err error) {
	p.read(func(m *model, _ int64) { r = m.counts.Rates(minute.Unix() / 60) })
	return r, nil
}

// Distincts returns how many different names queues had, as store.Partition.Distincts.
func (p *Partition) Distincts(_ context.Context, queue string) (all map[string]store.Distinct, err error) {
	p.read(func(m *model, now int64) { all = m.counts.Distincts(now, queue) })
	return all, nil
}

// Grant makes one call for the callers of a limiter, as store.Partition.Grant.
func (p *Partition) Grant(_ context.Context, g *store.Grant) (granted store.Granted, err error) {
	p.write(func(m *model, now int64) {
		if err = m.stale(g.Version, questionsRecords(g.Questions)); err != nil {
			return
		}
		var refunded int64
		var changed bool
		granted, refunded, changed = m.leases.Grant(m.charging(&m.bank, now), m.over(now), g)
		if m.refunds += refunded; changed {
			m.advance(now)
		}
		if g.Beat != 0 {
			granted.Changed = max(granted.Changed, m.recorded)
		}
	})
	return granted, err
}
