package memory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/counts"
	"github.com/headgate/headgate/store"
)

// dispatched follows a job out of its lane into a pool's stream.
func (m *model) dispatched(d fairqueue.Dispatch, now int64) {
	j := jobOf(d.Job)
	m.outOfLane(j)
	j.where, j.pool, j.entry, j.token = inReady, m.room.Pools[d.Pool], d.Entry, m.newToken(now)
	m.tokens[j.token] = j
	if j.release == admission.ReleaseAtStart {
		m.releaseUnique(j)
	}
	if d.Entry.Period != 0 {
		j.began = m.filled
		m.probes[j.Service()] = append(m.probes[j.Service()], j)
	}
	m.happened[readyTopic+d.Pool] = true
	if m.onDispatch != nil {
		m.onDispatch(d)
	}
}

// release takes a job out of its pool's stream and gives back what it held there.
func (m *model) release(c *fairqueue.Pass, j *modelJob) {
	delete(m.tokens, j.token)
	j.pool.Remove(j.entry)
	if worker := j.entry.Worker; worker != "" {
		m.letGo(holder{j.pool.ID, worker}, j)
	}
	if j.entry.Period != 0 {
		left := slices.DeleteFunc(m.probes[j.Service()], func(other *modelJob) bool { return other == j })
		if m.probes[j.Service()] = left; len(left) == 0 {
			delete(m.probes, j.Service())
		}
	}
	m.forgetStart(j)
	c.Release(j.pool, j.entry)
	c.Refill(j.pool.ID)
	j.pool, j.entry, j.token, j.since = nil, nil, "", 0
}

// hold gives an entry that nobody has read to a worker.
func (m *model) hold(h holder, j *modelJob, now int64) {
	j.entry.Worker, j.since = h.worker, now
	m.holding[h] = append(m.holding[h], j)
}

func (m *model) letGo(h holder, j *modelJob) {
	held := m.holding[h]
	at, ok := slices.BinarySearchFunc(held, j.entry.Number, func(other *modelJob, number uint64) int {
		return int(int64(other.entry.Number) - int64(number))
	})
	if !ok {
		return
	}
	if held = slices.Delete(held, at, at+1); len(held) == 0 {
		delete(m.holding, h)
	} else {
		m.holding[h] = held
	}
}

// heldBy returns the job that a worker of a pool holds by a token; nil for none.
func (m *model) heldBy(pool, worker, token string) *modelJob {
	j := m.tokens[token]
	if j == nil || j.pool.ID != pool || j.entry.Worker != worker {
		return nil
	}
	return j
}

// unread is where the entries of a pool begin that nobody has read.
func (m *model) unread(p *fairqueue.Pool) int {
	at, _ := slices.BinarySearchFunc(p.Ready, true, func(e *fairqueue.Entry, _ bool) int {
		if e.Worker != "" {
			return -1
		}
		return 1
	})
	return at
}

// leaseOf is a job as its worker has it.
func (m *model) leaseOf(j *modelJob) store.Lease {
	lease := store.Lease{Token: j.token, Period: j.entry.Period, Record: m.recordOf(j)}
	lease.Plain = lease.Plain && lease.Period == 0
	if lease.Large {
		lease.Job.Payload = slices.Clone(j.stored.Payload)
	}
	return lease
}

// Read takes up to count jobs for a worker from its pool's stream, as store.Partition.Read.
func (p *Partition) Read(ctx context.Context, worker, pool string, count int, block time.Duration, history bool) (leases []store.Lease, err error) {
	if history {
		block = -1
	}
	waited := p.await(ctx, readyTopic+pool, block, func(m *model, now int64) bool {
		of := m.room.Pools[pool]
		switch {
		case of == nil:
			err = fmt.Errorf("read ready stream: %w", store.ErrPoolGone)
		case history:
			leases = m.again(holder{pool, worker}, count, now)
		default:
			leases = m.take(of, worker, count, now)
		}
		return err != nil || len(leases) > 0
	})
	if waited != nil {
		err = fmt.Errorf("read ready stream: %w", waited)
	}
	return leases, err
}

// take gives a worker what nobody has read.
func (m *model) take(p *fairqueue.Pool, worker string, count int, now int64) (leases []store.Lease) {
	for _, e := range p.Ready[m.unread(p):] {
		if count > 0 && len(leases) == count {
			break
		}
		j := jobOf(e.Job)
		m.hold(holder{p.ID, worker}, j, now)
		leases = append(leases, m.leaseOf(j))
	}
	return leases
}

// again gives a worker what it holds.
func (m *model) again(h holder, count int, now int64) (leases []store.Lease) {
	for _, j := range m.holding[h] {
		if count > 0 && len(leases) == count {
			break
		}
		j.since = now
		leases = append(leases, m.leaseOf(j))
	}
	return leases
}

// Pending returns the tokens of jobs that a worker of a pool holds for so long, as store.Partition.Pending.
func (p *Partition) Pending(_ context.Context, worker, pool string, count int, since time.Duration) (tokens []string, err error) {
	tokens = []string{}
	p.read(func(m *model, now int64) {
		if m.room.Pools[pool] == nil {
			tokens, err = nil, fmt.Errorf("read what %q holds: %w", worker, store.ErrPoolGone)
			return
		}
		for _, j := range m.holding[holder{pool, worker}] {
			if len(tokens) < count && now/1000-j.since/1000 >= since.Milliseconds() {
				tokens = append(tokens, j.token)
			}
		}
	})
	return tokens, err
}

// Held returns the lease of a job that a worker of a pool holds, as store.Partition.Held.
func (p *Partition) Held(_ context.Context, pool, worker, token string, key admission.Key) (lease store.Lease, err error) {
	err = fmt.Errorf("lease %s of %s: %w", token, key, admission.ErrLeaseLost)
	p.read(func(m *model, _ int64) {
		if j := m.heldBy(pool, worker, token); j != nil && j.key == key.String() {
			lease, err = store.Lease{Token: token, Period: j.entry.Period, Record: m.recordOf(j)}, nil
		}
	})
	return lease, err
}

// Payload returns a job's payload, as store.Partition.Payload.
func (p *Partition) Payload(_ context.Context, key admission.Key) (payload []byte, err error) {
	if err := store.ValidateKey(key); err != nil {
		return nil, err
	}
	err = fmt.Errorf("read payload of %s: %w", key, admission.ErrUnknownJob)
	p.read(func(m *model, _ int64) {
		if j := m.live[key.String()]; j != nil {
			payload, err = slices.Clone(j.stored.Payload), nil
		}
	})
	return payload, err
}

// begun is what handlers of a worker have begun of suspects: how many, of one group.
type begun struct {
	n     int
	group string
}

// Started notes that a worker's handler begins a suspect, as store.Partition.Started.
func (p *Partition) Started(_ context.Context, pool, worker, token string, key admission.Key) (err error) {
	p.write(func(m *model, _ int64) {
		j := m.heldBy(pool, worker, token)
		switch {
		case j == nil || j.key != key.String():
			err = fmt.Errorf("start %s: %w", key, admission.ErrLeaseLost)
		case j.startedBy == worker:
		case !m.start(j, worker):
			err = fmt.Errorf("start %s: %w", key, store.ErrBeside)
		}
	})
	return err
}

// start notes that a suspect was begun, and reports whether it may run beside what the worker has begun.
func (m *model) start(j *modelJob, worker string) bool {
	b := m.begun[worker]
	if b == nil {
		b = &begun{}
		m.begun[worker] = b
	} else if j.group == "" || j.group != b.group {
		return false
	}
	b.n, b.group, j.startedBy = b.n+1, j.group, worker
	return true
}

// forgetStart takes a suspect from those that a worker's handlers have begun.
func (m *model) forgetStart(j *modelJob) {
	if j.startedBy == "" {
		return
	}
	if b := m.begun[j.startedBy]; b != nil {
		if b.n--; b.n == 0 {
			delete(m.begun, j.startedBy)
		}
	}
	j.startedBy = ""
}

// errToken is what Redis says to a token that is none.
var errToken = errors.New("run script finish: ERR Invalid stream ID specified as stream command argument")

// Finish ends jobs that a worker holds, as store.Partition.Finish.
func (p *Partition) Finish(_ context.Context, pool, worker string, jobs []store.Finish) (ends []store.Ended, more bool, err error) {
	for i := range jobs {
		if !store.IsToken(jobs[i].Token) {
			return nil, false, errToken
		}
	}
	p.write(func(m *model, now int64) {
		for i := range jobs {
			if spent := jobs[i].Spent; spent != nil && spent.Version != m.version {
				err = store.ErrStale
				return
			}
		}
		if err = m.stale(m.version, spentRecords(jobs)); err != nil {
			return
		}
		ends = m.finish(now, pool, worker, jobs)
		more = m.more
	})
	return ends, more, err
}

func (m *model) finish(now int64, pool, worker string, jobs []store.Finish) []store.Ended {
	m.more = false
	ends := slices.Repeat([]store.Ended{store.EndedLost}, len(jobs))
	if m.room.Pools[pool] == nil {
		return ends
	}
	c := m.begin(now)
	held := make([]*modelJob, len(jobs))
	for i := range jobs {
		j := m.tokens[jobs[i].Token]
		if j == nil || j.pool.ID != pool || j.entry.Worker == "" || j.key != jobs[i].Key.String() {
			continue
		}
		held[i] = j
		m.release(c, j)
	}
	m.rotate()
	for i, j := range held {
		if j != nil {
			ends[i] = m.outcome(c, j, &jobs[i], worker, now)
		}
	}
	m.trueUp(c, held, jobs, ends, now)
	c.WakeFreed()
	c.Refill(pool)
	m.fill(c, now)
	return ends
}

// trueUp charges what jobs that have left cost beyond what they had reserved, and gives back what they did not need of it; so it does with the tags of
// their tenants.
func (m *model) trueUp(p *fairqueue.Pass, left []*modelJob, jobs []store.Finish, ends []store.Ended, now int64) {
	if !slices.ContainsFunc(jobs, func(f store.Finish) bool { return f.Spent != nil }) {
		return
	}
	c := m.charging(&m.bank, now)
	for i, j := range left {
		f := &jobs[i]
		if j == nil || f.Spent == nil || !ends[i].Ends() || j.uncharged {
			continue
		}
		if m.onRendered != nil {
			m.onRendered(&j.Job, f.Spent.Cost)
		}
		p.Rendered(&j.Job, f.Spent.Cost)
		if m.usedFrom >= 0 && j.arrival >= m.usedFrom {
			m.usage.Add(now, m.over(now), j.arrival, f.Spent.Usage, j.Tenant, j.Queue, counts.Settled(j.Cost, f.Spent.Cost))
		}
		back := j.Cost - f.Spent.Cost
		if back > 0 && c.Changed(j.Tenant, j.arrival) {
			continue // Under other limits the buckets may have been others.
		}
		way, elapsed := c.PathOfType(f.Spent.Limits, f.Spent.TypeLimit, j.Tenant, j.Queue, f.Spent.Class), buckets.Span(max(0, now-j.arrival))
		if bypass := c.BypassOf(f.Spent.Limits, j.Tenant); len(bypass) > 0 {
			// Nobody notes which way it went: what it did not need goes back to the buckets of both ways, and what it lacks is taken of all.
			if share := len(bypass) - 1; back > 0 {
				way = bypass[:share]
			} else {
				c.TrueUp(bypass[share:], j.Cost, f.Spent.Cost, elapsed, nil)
			}
		}
		c.TrueUp(way, j.Cost, f.Spent.Cost, elapsed, nil)
		m.refunds += int64(max(0, back))
	}
	c.Commit()
}

// uncancel forgets that a job was cancelled while it ran, and reports whether it was.
func (m *model) uncancel(j *modelJob) bool {
	if !j.cancelled {
		return false
	}
	j.cancelled, j.because = false, ""
	m.cancelling--
	return true
}

// outcome is what becomes of a job that has left its worker's hands.
func (m *model) outcome(c *fairqueue.Pass, j *modelJob, f *store.Finish, worker string, now int64) store.Ended {
	cancelled := m.uncancel(j)
	text := f.Text[:min(len(f.Text), store.MaxFinishText)]
	switch {
	case f.Outcome == store.Complete:
		m.results.Keep(j.key, f.Result, f.KeepResult, now)
		m.leave(j, "completed")
		return store.EndedDone
	case cancelled:
		m.leave(j, "cancelled")
		return store.EndedCancelled
	case f.Outcome == store.Retry:
		return m.retry(j, f.Delay, f.Ran, worker, text, now)
	case f.Outcome == store.Kill:
		j.noted("failed", f.Ran, worker, text, now)
		m.bury(j, f.Reason, text, now)
		return store.EndedDead
	case f.Outcome == store.Expire:
		m.expire(j, now)
		return store.EndedExpired
	}
	if text != "suspect" { // One that waits for others may come often.
		j.noted("released", f.Ran, worker, text, now)
	}
	if delay := m.releaseDelay(j, f.Delay, text, now); delay > 0 {
		m.putOff(j, now+delay)
	} else {
		m.putBack(c, j, now)
	}
	return store.EndedReleased
}

// retry burns an attempt of a job.
func (m *model) retry(j *modelJob, delay, ran time.Duration, worker, text string, now int64) store.Ended {
	j.attempts++
	j.noted("failed", ran, worker, text, now)
	at := now + delay.Microseconds()
	switch {
	case j.attempts >= j.max:
		m.bury(j, "max_attempts", text, now)
		return store.EndedDead
	case j.Dated && at > j.Score:
		m.expire(j, now)
		return store.EndedExpired
	}
	m.putOff(j, at)
	m.retried++
	return store.EndedRetried
}

// mostUnknown is how many times its delay a job of a type that nobody knows stays away at most.
const mostUnknown = 300

// unknownType begins the text of what is handed back for its type, which follows.
const unknownType = store.UnknownType + " "

// releaseDelay is how long a job stays away that is handed back. One of a type that no worker knew that it came to stays longer each
// time in a row, twice as long every second time, but not beyond its deadline.
func (m *model) releaseDelay(j *modelJob, delay time.Duration, text string, now int64) int64 {
	kind, unknown := strings.CutPrefix(text, unknownType)
	if !unknown {
		return delay.Microseconds()
	}
	n := 0
	for _, d := range slices.Backward(j.history) {
		if d.Outcome != "released" || !strings.HasPrefix(d.Text, unknownType) {
			break
		}
		n++
	}
	m.noteUnknown(j.Queue, kind, now)
	us := int64(math.Floor(float64(delay.Microseconds()) * min(math.Pow(2, float64(n-1)/2), mostUnknown)))
	if j.Dated {
		us = max(0, min(us, j.Score-now))
	}
	return us
}

// Result returns what a completed job left, as store.Partition.Result.
func (p *Partition) Result(_ context.Context, key admission.Key) (result []byte, err error) {
	err = fmt.Errorf("read result of %s: %w", key, admission.ErrUnknownJob)
	p.read(func(m *model, now int64) {
		if kept, ok := m.results.Find(key.String(), now); ok {
			result, err = kept, nil
		}
	})
	return result, err
}
