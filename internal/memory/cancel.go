package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
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

// releaseUnique gives the key back that a job is to release.
func (m *model) releaseUnique(j *modelJob) {
	if j.releases != "" {
		m.unique.Release(j.releases, j.key)
		j.releases = ""
	}
}

// bury makes a dead letter of a job, for which another may go.
func (m *model) bury(j *modelJob, reason, text string, now int64) {
	m.uncount(j)
	m.died[reason]++
	m.releaseUnique(j)
	j.group, j.where, j.at, j.reason, j.text = "", amongDead, now, reason, text
	m.letters.Add(j)
	settings, inQueue := m.settingsOf(j.Queue), m.letters.InQueue(j.Queue).Len()
	if _, armed := m.timers.Find("r" + j.Queue); settings.KeepDead > 0 && inQueue == 1 {
		m.arm("r"+j.Queue, now+settings.KeepDead.Microseconds())
	} else if !armed {
		m.lettersArm(j.Queue) // Those before it came when letters were kept for ever.
	}
	switch {
	case inQueue > settings.MaxDead:
		m.endLetter(m.letters.Victim(j.Tenant, j.Queue), "evicted")
	case m.letters.All().Len() > m.deadCap:
		m.endLetter(m.letters.Victim(j.Tenant, ""), "evicted")
	}
}

// endLetter ends a dead letter for good.
func (m *model) endLetter(j *modelJob, counter string) {
	m.letters.Remove(j)
	m.leave(j, counter)
}

// lettersPurge ends what a queue has kept for long enough.
func (m *model) lettersPurge(c *fairqueue.Pass, queue string, now int64) {
	keep := m.settingsOf(queue).KeepDead.Microseconds()
	if keep == 0 {
		return
	}
	for c.MovesLeft > 0 {
		oldest, ok := m.letters.InQueue(queue).First()
		if !ok || oldest.at > now-keep {
			break
		}
		c.MovesLeft--
		m.endLetter(oldest, "purged")
	}
	m.lettersArm(queue)
}

// lettersArm sets the timer by which a queue's oldest letter goes, if they are kept for a time.
func (m *model) lettersArm(queue string) {
	keep := m.settingsOf(queue).KeepDead.Microseconds()
	if oldest, ok := m.letters.InQueue(queue).First(); ok && keep > 0 {
		m.arm("r"+queue, oldest.at+keep)
	}
}

// lettersDue has the letters of a queue looked at, or those of all that have no settings of their own.
func (m *model) lettersDue(queue string, now int64) {
	if queue == store.Every || m.letters.InQueue(queue).Len() > 0 {
		m.arm("r"+queue, now)
	}
}

// lettersLook sets the timers of queues without settings of their own.
func (m *model) lettersLook() {
	for _, queue := range m.room.QueueNames() {
		if _, named := m.queues[queue]; !named {
			m.lettersArm(queue)
		}
	}
}

// Deaths returns dead letters from a time on, as store.Partition.Deaths.
func (p *Partition) Deaths(_ context.Context, from time.Time, count int) ([]store.Death, error) {
	deaths := []store.Death{}
	p.read(func(m *model, _ int64) {
		for j := range m.letters.All().From(&modelJob{at: from.UnixMicro()}) {
			if count > 0 && len(deaths) == count {
				break
			}
			deaths = append(deaths, j.death())
		}
	})
	return deaths, nil
}

// death is the place of a dead letter in the order of deaths.
func (j *modelJob) death() store.Death { return store.Death{At: time.UnixMicro(j.at), Member: j.raw} }

// DeadLetters returns the letters of some deaths, as store.Partition.DeadLetters.
func (p *Partition) DeadLetters(_ context.Context, deaths []store.Death) ([]store.DeadLetter, error) {
	if len(deaths) == 0 {
		return nil, nil
	}
	letters := make([]store.DeadLetter, 0, len(deaths))
	p.read(func(m *model, _ int64) {
		for _, d := range deaths {
			key, err := d.Key()
			if err != nil {
				continue
			}
			if j := m.live[key.String()]; j != nil && j.where == amongDead {
				letters = append(letters, store.DeadLetter{Death: d, Record: m.recordOf(j), Reason: j.reason, Text: j.text})
			}
		}
	})
	return letters, nil
}

// Followed returns how far a follower of the dead letters is, as store.Partition.Followed.
func (p *Partition) Followed(_ context.Context, follower string) (last store.Death, err error) {
	p.read(func(m *model, _ int64) {
		var begun bool
		if last, begun = m.followed[follower]; !begun {
			last.At = time.UnixMicro(0)
		}
	})
	return last, nil
}

// NoteFollowed notes how far a follower is.
func (p *Partition) NoteFollowed(_ context.Context, follower string, last store.Death) error {
	last.At = time.UnixMicro(last.At.UnixMicro())
	p.write(func(m *model, _ int64) { m.followed[follower] = last })
	return nil
}
