package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
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
		m.probes[j.Downstream] = append(m.probes[j.Downstream], j)
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
		left := slices.DeleteFunc(m.probes[j.Downstream], func(other *modelJob) bool { return other == j })
		if m.probes[j.Downstream] = left; len(left) == 0 {
			delete(m.probes, j.Downstream)
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

// recordOf is a job as it is stored. A large payload is left out.
func (m *model) recordOf(j *modelJob) store.Record {
	r := store.Record{
		Job: j.stored, Class: j.Class, Attempts: j.attempts, Lost: j.lost, Suspect: j.suspect, Seq: j.Seq, Arrival: time.UnixMicro(j.arrival),
		Large: len(j.stored.Payload) > store.LargePayload, Timed: j.timed,
	}
	if r.Large {
		r.Job.Payload = []byte{}
	}
	r.Plain = !r.Large && !j.counted && j.release == "" && len(j.history) == 0 && !j.suspect
	return r
}

// leaseOf is a job as its worker has it.
func (m *model) leaseOf(j *modelJob) store.Lease {
	lease := store.Lease{Token: j.token, Period: j.entry.Period, Record: m.recordOf(j)}
	lease.Plain = lease.Plain && lease.Period == 0
	lease.Job.Payload = slices.Clone(j.stored.Payload)
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
