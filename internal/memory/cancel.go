package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Cancel ends a job wherever it waits, as store.Partition.Cancel.
func (p *Partition) Cancel(_ context.Context, key admission.Key, by store.Intervention) (running, more bool, err error) {
	by.Own = by.Own || by.Author == ""
	if err := by.Validate(); err != nil {
		return false, false, err
	}
	p.write(func(m *model, now int64) {
		running, err = m.cancel(now, key, store.AuditCancel, key.String(), by)
		more = err == nil && !running && m.more
	})
	return running, more, err
}

// cancel is Cancel as the audit is to name it.
func (m *model) cancel(now int64, key admission.Key, action, name string, by store.Intervention) (running bool, err error) {
	j := m.live[key.String()]
	switch {
	case j == nil && m.remembers(key.String()):
		return false, fmt.Errorf("cancel %s: %w", key, admission.ErrEnded)
	case j == nil:
		return false, fmt.Errorf("cancel %s: %w", key, admission.ErrUnknownJob)
	case j.where == amongDead:
		return false, fmt.Errorf("cancel %s: %w: it is a dead letter", key, admission.ErrEnded)
	}
	c := m.begin(now)
	m.record(now, by, action, name, 1, 0)
	switch j.where {
	case inLater:
		m.later.Remove(j)
	case inLane:
		c.Remove(&j.Job)
		m.outOfLane(j)
	case inSpill:
		m.unspill(j)
		m.tidy(tenantQueue{j.Tenant, j.Queue})
	case inReady:
		if j.entry.Worker != "" {
			if !j.cancelled {
				m.cancelling++
			}
			j.cancelled, j.because = true, by.Reason
			return true, nil
		}
		m.release(c, j)
	case amongDead:
	}
	m.leave(j, "cancelled")
	c.WakeFreed()
	m.fill(c, now)
	return false, nil
}

// Purge ends dead letters for good, as store.Partition.Purge.
func (p *Partition) Purge(_ context.Context, keys []admission.Key, by store.Intervention) (purged []bool, err error) {
	if err := by.Validate(); err != nil {
		return nil, err
	}
	by = by.Named()
	purged = make([]bool, len(keys))
	p.write(func(m *model, now int64) {
		m.advance(now)
		queues := map[string]int{}
		for i, key := range keys {
			if j := m.live[key.String()]; j != nil && j.where == amongDead {
				purged[i] = true
				queues[j.Queue]++
				m.endLetter(j, "purged")
			}
		}
		for _, queue := range sortedNames(queues) {
			m.record(now, by, store.AuditPurge, string(store.QueueGate(queue)), queues[queue], 0)
		}
	})
	return purged, nil
}

// PurgeQueue cancels a page of the live jobs of a queue, as store.Partition.PurgeQueue. They go in the order of their arrival.
func (p *Partition) PurgeQueue(_ context.Context, queue, cursor string, by store.Intervention) (done store.PurgedPage, err error) {
	by = by.Named()
	if err := errors.Join(admission.ValidateName("queue", queue, true), by.Validate()); err != nil {
		return done, err
	}
	after, err := purgeCursor(cursor)
	if err != nil {
		return done, err
	}
	p.write(func(m *model, now int64) {
		page := m.arrivedAfter(queue, after)
		if len(page) > store.PurgePage {
			page = page[:store.PurgePage]
			done.Cursor = strconv.FormatUint(page[len(page)-1].Seq, 10)
		}
		for _, j := range page {
			running, err := m.cancel(now, admission.Key{Tenant: j.Tenant, ID: j.ID}, store.AuditPurgeQueue, string(store.QueueGate(queue)), by)
			switch {
			case err != nil: // It is a dead letter.
			case running:
				done.Cancelling++
			default:
				done.Cancelled++
			}
		}
	})
	return done, nil
}

// purgeCursor reads after which job, by arrival, a purge goes on.
func purgeCursor(cursor string) (after uint64, err error) {
	if cursor == "" {
		return 0, nil
	}
	if after, err = strconv.ParseUint(cursor, 10, 64); err != nil {
		shown := strconv.Quote(cursor[:min(len(cursor), admission.MaxNameLength)])
		return 0, &admission.FieldError{Field: "cursor", Value: shown, Allowed: "what the page before ended with, or nothing to begin"}
	}
	return after, nil
}

// arrivedAfter returns the jobs of a queue that follow one by arrival, in order.
func (m *model) arrivedAfter(queue string, after uint64) (jobs []*modelJob) {
	for _, j := range m.live {
		if j.Queue == queue && j.Seq > after {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, byArrival)
	return jobs
}

// ClearTenant cancels jobs of a tenant that wait in a queue, as store.Partition.ClearTenant.
func (p *Partition) ClearTenant(_ context.Context, tenant, queue string, by store.Intervention) (cancelled int, more bool, err error) {
	err = errors.Join(admission.ValidateTenant(tenant), admission.ValidateName("queue", queue, true), by.Validate())
	if err != nil {
		return 0, false, err
	}
	p.write(func(m *model, now int64) { cancelled, more = m.clear(now, tenantQueue{tenant, queue}, by) })
	return cancelled, more, nil
}

func (m *model) clear(now int64, of tenantQueue, by store.Intervention) (cancelled int, more bool) {
	c := m.begin(now)
	for _, j := range m.spilledIn(of.tenant, of.queue).Head(c.MovesLeft) {
		m.unspill(j)
		c.MovesLeft--
		m.leave(j, "cancelled")
	}
	for class := range m.classesOf(of.queue) {
		for c.MovesLeft > 0 {
			taken := c.Take(of.queue, class, of.tenant, c.MovesLeft)
			if len(taken) == 0 {
				break
			}
			for _, waiting := range taken {
				j := jobOf(waiting)
				c.MovesLeft--
				m.outOfLane(j)
				m.leave(j, "cancelled")
			}
		}
	}
	stopped := c.MovesLeft == 0
	if cancelled = m.moves - c.MovesLeft; cancelled > 0 {
		m.record(now, by, store.AuditClear, string(store.TenantQueueGate(of.tenant, of.queue)), cancelled, 0)
	}
	m.tidy(of)
	c.WakeFreed()
	m.fill(c, now)
	return cancelled, m.more || stopped
}

// SetGate sets, changes or removes a gate, as store.Partition.SetGate.
func (p *Partition) SetGate(_ context.Context, g store.Gate) (held int, more bool, err error) {
	if err := g.By.Validate(); err != nil {
		return 0, false, err
	}
	p.write(func(m *model, now int64) {
		c := m.begin(now)
		m.obeyed = false
		held = m.limited(c, string(g.Name), g.Limit, g.For, max(g.Then, store.Unlimited), g.By, now)
		m.record(now, g.By, store.AuditGate, string(g.Name), held, g.For)
		c.WakeFreed()
		m.fill(c, now)
		more = m.more
		if set := m.room.Gates[string(g.Name)]; set != nil && !set.Default && g.Limit != store.Unlimited {
			held = set.Held // What the change let run is among them.
		}
	})
	return held, more, nil
}
