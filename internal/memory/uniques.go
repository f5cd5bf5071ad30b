package memory

import (
	"github.com/headgate/headgate/internal/memory/internal/times"
	"github.com/headgate/headgate/store"
)

// A tenant has at most mostUniques unique keys that stay after their jobs, each counted as uniqueBytes of what it has; and mostLanes lanes
// in a class of a queue, and downstreams of jobs that are put off.
const (
	mostUniques = 1_000_000
	uniqueBytes = 300
	mostLanes   = 4096
)

// extendIn extends a name of those of a tenant.
func extendIn(all map[string]*times.Times, tenant, name string, until, now int64) {
	if all[tenant] == nil {
		all[tenant] = times.New()
	}
	all[tenant].Extend(name, until, now)
}

// uniqueKeys are the unique keys that jobs hold, TENANT:KEY.
type uniqueKeys struct {
	holders map[string]string // keys of jobs
	until   *times.Times
}

func newUniqueKeys() uniqueKeys { return uniqueKeys{map[string]string{}, times.New()} }

// holder returns the key of the job that holds one, empty for none, and until when. The job may have left.
func (u *uniqueKeys) holder(name string, now int64) (key string, until int64) {
	if until = u.until.At(name); until <= now {
		return "", 0
	}
	return u.holders[name], until
}

func (u *uniqueKeys) hold(name, key string, until, now int64) {
	for _, over := range u.until.Passed(now) {
		delete(u.holders, over)
	}
	u.holders[name] = key
	u.until.Put(name, until)
}

// releaseUnique gives the key back that a job is to release.
func (m *model) releaseUnique(j *modelJob) {
	if j.releases == "" {
		return
	}
	if m.unique.holders[j.releases] == j.key {
		delete(m.unique.holders, j.releases)
		m.unique.until.Remove(j.releases)
	}
	j.releases = ""
}

// madeQueues are the queues that jobs have made: no worker serves them, and the policy does not name them.
type madeQueues struct {
	by  map[string]*madeQueue
	of  map[string]int // how many each tenant made
	all []*madeQueue   // in no order; next is the one that is looked at next
	at  int
}

// madeQueue is one that a tenant's job has made.
type madeQueue struct {
	name, tenant string
	// until is when the last job starts that was put off there.
	until int64
	index int
}

const (
	mostQueues    = 4096
	mostMade      = 256
	looksAtQueues = 64
)

func newMadeQueues() madeQueues { return madeQueues{by: map[string]*madeQueue{}, of: map[string]int{}} }

// note keeps that a queue is there which a tenant's job made, and until when one is put off there.
func (q *madeQueues) note(name, tenant string, until int64) {
	one := q.by[name]
	if one == nil {
		one = &madeQueue{name: name, tenant: tenant, index: len(q.all)}
		q.by[name], q.all = one, append(q.all, one)
		q.of[tenant]++
	}
	one.until = max(one.until, until)
}

func (q *madeQueues) forget(one *madeQueue) {
	last := len(q.all) - 1
	q.all[one.index] = q.all[last]
	q.all[one.index].index = one.index
	q.all[last] = nil
	q.all = q.all[:last]
	delete(q.by, one.name)
	if q.of[one.tenant]--; q.of[one.tenant] == 0 {
		delete(q.of, one.tenant)
	}
}

// forgetQueues looks at some queues that jobs have made, and forgets those that nobody knows and that hold nothing. Each call goes on
// where the last one ended. Those that the call under way is about are left alone.
func (m *model) forgetQueues(about func(queue string) bool, now int64) {
	q := &m.made
	for range min(looksAtQueues, len(q.all)) {
		if q.at--; q.at < 0 || q.at >= len(q.all) {
			q.at = len(q.all) - 1
		}
		one := q.all[q.at]
		switch name := one.name; {
		case about(name) || !m.room.Empty(name):
		case m.knows(name):
			q.forget(one)
		case one.until < now && m.letters.inQueue(name).Len() == 0 && m.room.Gates[string(store.QueueGate(name))] == nil && !m.isSuspended(store.QueueGate(name)):
			q.forget(one)
			m.room.Forget(name)
		}
		if len(q.all) == 0 {
			return
		}
	}
}

func (m *model) isSuspended(name store.GateName) bool {
	_, suspended := m.suspended[string(name)]
	return suspended
}

// knows reports whether the policy names a queue or a worker serves it.
func (m *model) knows(queue string) bool {
	if _, named := m.queues[queue]; named {
		return true
	}
	return m.room.Served(queue)
}
