package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
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
	} else if !peek {
		m.keepTime(now)
	}
	return granted, store.Moment{Time: int64(c.At), Refunds: m.refunds}, nil
}

// use counts the usage of a question that was asked at some time.
func (m *model) use(now, at int64, q *store.Question, n store.Used) {
	m.usage.Add(now, m.over(now), at, q.Usage, q.Tenant, q.Queue, n)
}

// Take asks one question and those of dimensions beside it, as store.Partition.Take.
func (p *Partition) Take(_ context.Context, version int64, question store.Question, beside ...store.Question) (verdict admission.Verdict, receipt store.Taken, err error) {
	own, answered := [1]store.Question{question}, [1]store.Answer{}
	questions, answers := own[:], answered[:]
	if len(beside) > 0 {
		questions, answers = append(questions, beside...), make([]store.Answer, 1+len(beside))
	}
	var granted bool
	var at store.Moment
	p.write(func(m *model, now int64) { granted, at, err = m.check(now, version, false, questions, answers) })
	if !granted {
		return store.Worst(answers), receipt, err
	}
	return answers[0].Verdict, store.NewTaken(version, at, questions, answers), nil
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
		if err = m.stale(receipt.Version, questionsRecords(receipt.Questions())); err != nil {
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
	c.Enter(receipt.Questions()) // Also of one that comes late or again: the script has read the buckets by then.
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
	case !known && elapsed > receipt.Expiry().Microseconds():
		return store.RefundLate
	}
	m.refunded.Put(id, now+receipt.Expiry().Microseconds())
	reserved := max(q.Cost, told)
	if actual = max(actual, told); final {
		delete(m.parts, id)
	} else {
		m.parts[id] = actual
		if _, known := m.reservation(now, receipt.Under); known {
			m.reserving.Put(receipt.Under, now+receipt.Kept().Microseconds())
		}
		actual = max(actual, reserved) // What it has not used yet stays reserved.
	}
	since := buckets.MicroOf(admission.Tokens(m.refunds - receipt.At.Refunds))
	m.use(now, now-elapsed, q, counts.Settled(reserved, actual))
	settled := m.settleWay(c, receipt, reserved, actual, elapsed, since)
	for i := range receipt.Beside {
		settled = m.settleWay(c, &receipt.Beside[i], reserved, actual, elapsed, since) || settled
	}
	if settled {
		m.refunds += int64(max(0, reserved-actual))
	}
	c.Commit()
	m.advance(now)
	return store.Refunded
}

// settleWay has the buckets on the way of a receipt hold what work has cost, and reports whether it does: not where limits are others since and less goes back,
// for the buckets may have been others.
func (m *model) settleWay(c *bank.Charge, of *store.Taken, reserved, actual admission.Tokens, elapsed int64, since buckets.Micro) bool {
	q := &of.Question
	if actual < reserved && c.Changed(q.Tenant, of.At.Time) {
		return false
	}
	c.TrueUp(c.WayTaken(q, of.Shared), reserved, actual, buckets.Span(elapsed), func(step buckets.LevelLimit) buckets.Micro {
		if step.Scope == buckets.Others || bank.IsOfType(&step, q) { // Nobody notes what was left in it.
			return 0
		}
		level := step.Scope.Level()
		if q.OfDimension() && !of.Shared { // It may be the shared one by now: then the key's own has become full since.
			level = admission.LevelQueue
		}
		// What came in since may have found the bucket full had the tokens not been taken. Then it is not owed.
		return step.Limit.Burst - buckets.Micro(of.Left[level]) - step.Limit.Came(buckets.Span(elapsed)) - since
	})
	return true
}

// Reserve takes tokens under an id, as store.Buckets.Reserve.
func (p *Partition) Reserve(_ context.Context, version int64, id string, expireAfter time.Duration, q store.Question, beside ...store.Question) (answer store.Answer, taken store.Reservation, err error) {
	if err := store.ValidateReservation(id); err != nil {
		return answer, taken, err
	}
	q.Measured = false
	p.write(func(m *model, now int64) {
		answer, taken, err = m.reserve(now, version, q.Tenant+":"+id, expireAfter, q, beside)
	})
	return answer, taken, err
}

func (m *model) reserve(now, version int64, id string, expireAfter time.Duration, q store.Question, beside []store.Question) (answer store.Answer, taken store.Reservation, err error) {
	questions := append([]store.Question{q}, beside...)
	if known, ok := m.reservation(now, id); ok {
		known.Again, known.Taken.Beside = true, slices.Clone(known.Taken.Beside)
		return known.Answered(questions)
	}
	answers := make([]store.Answer, len(questions))
	granted, at, err := m.check(now, version, false, questions, answers)
	answers[0].Others = 0
	if len(beside) > 0 && err == nil {
		taken.Beside = answers[1:]
	}
	if !granted || err != nil {
		return answers[0], taken, err
	}
	taken.Taken, taken.Ref, taken.Counted = store.NewTaken(version, at, questions, answers), "h-"+rand.Text(), q.Usage > 0
	taken.Taken.Under, taken.Taken.ExpireAfter = id, cmp.Or(expireAfter, store.RefundWindow)
	kept := taken
	kept.Beside, kept.Taken.Beside = nil, slices.Clone(taken.Taken.Beside)
	withoutLimits(&kept.Taken)
	for i := range kept.Taken.Beside {
		withoutLimits(&kept.Taken.Beside[i])
	}
	for _, over := range m.reserving.Passed(m.over(now)) {
		delete(m.reserved, over)
	}
	m.reserved[id] = kept
	m.reserving.Put(id, now+kept.Taken.Kept().Microseconds())
	return answers[0], taken, nil
}

// withoutLimits takes out of a receipt what is not kept of it.
func withoutLimits(t *store.Taken) {
	q := &t.Question
	q.Limits, q.Usage, q.Record, q.MaxKeys = [admission.Levels]admission.Limit{}, 0, 0, 0
}

// reservation returns what an id, of a tenant, has taken.
func (m *model) reservation(now int64, id string) (known store.Reservation, ok bool) {
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
			taken, err = known, nil
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
		} else {
			m.keepTime(now)
		}
		switch {
		case g.Beat == 0:
		case g.Edited != 0:
			m.tellEdits(&granted, g.Edited)
		default:
			granted.Changed = max(granted.Changed, m.recorded)
		}
	})
	return granted, err
}

// edit is one of a record: its version, that of the one before, and whose record it is.
type edit struct {
	at, before int64
	tenant     string
}

// noteEdit notes that a record is edited.
func (m *model) noteEdit(tenant string) {
	before := max(m.recorded, store.NoRecord)
	m.recorded = max(m.filled, m.recorded+1)
	m.edits = append(m.edits, edit{m.recorded, before, tenant})
	m.edits = m.edits[max(0, len(m.edits)-store.EditsKept):]
}

// tellEdits tells the latest edit of a record, and whose were edited since one that is known, as far as that is known of all.
func (m *model) tellEdits(granted *store.Granted, heard int64) {
	granted.Edited = max(m.recorded, store.NoRecord)
	at := heard
	for _, e := range m.edits {
		if e.at <= heard {
			continue
		}
		if e.before != at {
			break
		}
		if at = e.at; !slices.Contains(granted.Renewed, e.tenant) {
			granted.Renewed = append(granted.Renewed, e.tenant)
		}
	}
	if granted.AllRenewed = at != granted.Edited; granted.AllRenewed {
		granted.Renewed = nil
	}
}

// rerates notes what a record says of its tenant's dispatches, and reports whether that is another rate.
func (m *model) rerates(tenant string, text []byte) bool {
	was, said := m.rated[tenant]
	limit := store.RecordDispatchOf(text)
	if limit == nil {
		delete(m.rated, tenant)
		return said
	}
	var is buckets.Limit
	if !limit.Disabled {
		is = buckets.LimitOf(*limit)
	}
	if m.rated == nil {
		m.rated = map[string]buckets.Limit{}
	}
	m.rated[tenant] = is
	return !said || was != is
}

// rerated puts the rate of a tenant's dispatches in force: that of its record, or else the policy's.
func (m *model) rerated(c *fairqueue.Pass, tenant string) {
	name := string(store.TenantRateGate(tenant))
	limit, said := m.rated[tenant]
	if !said {
		limit = m.caps[name].rate
	}
	m.setRate(name, limit, limit.Burst > 0)
	c.Freed(name)
}

// asideOf reports whether a gate is the rate of a tenant whose record says what it is.
func (m *model) asideOf(name string) bool {
	kind, tenant := store.GateName(name).Split()
	_, said := m.rated[tenant]
	return said && kind == store.KindTenantRate
}
