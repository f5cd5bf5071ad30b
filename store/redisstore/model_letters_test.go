package redisstore

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/store"
)

// bury makes a dead letter of a job, for which another may go.
func (m *model) bury(key, reason string, now int64) {
	queue := m.live[key].Queue
	m.live[key].group = ""
	m.uncount(m.live[key])
	m.dead[key], m.letters[key] = now, queue
	m.died[reason]++
	m.releaseUnique(key)
	of := m.lettersOf(queue)
	if keep := m.queues[queue].KeepDead; keep > 0 && len(of) == 1 {
		m.timers["r"+queue] = now + keep.Microseconds()
	}
	tenant := m.live[key].Tenant
	if len(of) > cmp.Or(m.queues[queue].MaxDead, store.DefaultMaxDead) {
		m.evict(of, tenant, queue)
	} else if len(m.dead) > m.deadCap {
		m.evict(sortedByTime(m.dead, modelNoTimers, len(m.dead)), tenant, "")
	}
}

// evict ends a letter of those, the oldest first, for one of a tenant that has just come.
func (m *model) evict(of []string, tenant, queue string) {
	byTenant := map[string]int{}
	for _, key := range of {
		byTenant[m.live[key].Tenant]++
	}
	who := most(byTenant)
	if byTenant[who] == byTenant[tenant] {
		who = tenant
	}
	if byTenant[who] == 1 {
		m.endLetter(of[0], "evicted")
		return
	}
	of = slices.DeleteFunc(of, func(key string) bool { return m.live[key].Tenant != who })
	if queue == "" {
		byQueue := map[string]int{}
		for _, key := range of {
			byQueue[m.letters[key]]++
		}
		queue = most(byQueue)
	}
	m.endLetter(of[slices.IndexFunc(of, func(key string) bool { return m.letters[key] == queue })], "evicted")
}

// most returns the name with the highest count, of several the last.
func most(counts map[string]int) (name string) {
	for other, n := range counts {
		if n > counts[name] || n == counts[name] && other > name {
			name = other
		}
	}
	return name
}

// lettersOf returns a queue's dead letters, the oldest first.
func (m *model) lettersOf(queue string) []string {
	times := map[string]int64{}
	for key, of := range m.letters {
		if of == queue {
			times[key] = m.dead[key]
		}
	}
	return sortedByTime(times, modelNoTimers, len(times))
}

func (m *model) endLetter(key, counter string) {
	delete(m.dead, key)
	delete(m.letters, key)
	m.leave(key, counter)
}

func (m *model) dumpLetters(add func(string, ...any)) {
	counts := map[[3]string]int{}
	for key, queue := range m.letters {
		tenant := m.live[key].Tenant
		add("dead %s: %s %d", queue, key, m.dead[key])
		add("letters %s:%s: %s %d", tenant, queue, key, m.dead[key])
		counts[[3]string{"deadof", "", tenant}]++
		counts[[3]string{"deadof", queue, tenant}]++
		counts[[3]string{"deadin", tenant, queue}]++
	}
	for of, n := range counts {
		add("%s %s: %s %d", of[0], of[1], of[2], n)
	}
}
