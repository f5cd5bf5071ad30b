package memory

import (
	"cmp"
	"strings"

	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/sorted"
)

// letters are the dead letters by time, of all and of each queue, and how many each tenant has.
type letters struct {
	all    *sorted.List[*modelJob]
	of     *ranking            // all of each tenant
	queues map[string]*grave   // by queue
	in     map[string]*ranking // of a tenant, in each queue
}

// grave is what a queue has of them.
type grave struct {
	all     *sorted.List[*modelJob]
	of      *ranking
	tenants map[string]*sorted.List[*modelJob]
}

func newLetters() letters {
	return letters{all: sorted.New(byTime), of: newRanking(), queues: map[string]*grave{}, in: map[string]*ranking{}}
}

func (l *letters) add(j *modelJob) *grave {
	g := l.queues[j.Queue]
	if g == nil {
		g = &grave{all: sorted.New(byTime), of: newRanking(), tenants: map[string]*sorted.List[*modelJob]{}}
		l.queues[j.Queue] = g
	}
	if g.tenants[j.Tenant] == nil {
		g.tenants[j.Tenant] = sorted.New(byTime)
	}
	if l.in[j.Tenant] == nil {
		l.in[j.Tenant] = newRanking()
	}
	l.all.Add(j)
	g.all.Add(j)
	g.tenants[j.Tenant].Add(j)
	l.of.add(j.Tenant, 1)
	g.of.add(j.Tenant, 1)
	l.in[j.Tenant].add(j.Queue, 1)
	return g
}

func (l *letters) remove(j *modelJob) {
	g := l.queues[j.Queue]
	l.all.Remove(j)
	g.all.Remove(j)
	g.tenants[j.Tenant].Remove(j)
	l.of.add(j.Tenant, -1)
	g.of.add(j.Tenant, -1)
	l.in[j.Tenant].add(j.Queue, -1)
	if g.tenants[j.Tenant].Len() == 0 {
		delete(g.tenants, j.Tenant)
	}
	if g.all.Len() == 0 {
		delete(l.queues, j.Queue)
	}
	if len(l.in[j.Tenant].counts) == 0 {
		delete(l.in, j.Tenant)
	}
}

// inQueue returns the letters of a queue, nil for none.
func (l *letters) inQueue(queue string) *sorted.List[*modelJob] {
	if g := l.queues[queue]; g != nil {
		return g.all
	}
	return nil
}

// ranking counts names, and knows which of them has the most.
type ranking struct {
	counts map[string]int
	order  *sorted.List[rank]
}

type rank struct {
	n    int
	name string
}

func newRanking() *ranking {
	return &ranking{counts: map[string]int{}, order: sorted.New(func(a, b rank) int {
		return cmp.Or(cmp.Compare(a.n, b.n), strings.Compare(a.name, b.name))
	})}
}

func (r *ranking) add(name string, n int) {
	was := r.counts[name]
	r.order.Remove(rank{was, name})
	if was+n <= 0 {
		delete(r.counts, name)
		return
	}
	r.counts[name] = was + n
	r.order.Add(rank{was + n, name})
}

// most returns who has the most, of several the last by name.
func (r *ranking) most() rank {
	top, _ := r.order.Last()
	return top
}

// bury makes a dead letter of a job, for which another may go.
func (m *model) bury(j *modelJob, reason, text string, now int64) {
	m.uncount(j)
	m.died[reason]++
	m.releaseUnique(j)
	j.group, j.where, j.at, j.reason, j.text = "", amongDead, now, reason, text
	grave, settings := m.letters.add(j), m.settingsOf(j.Queue)
	if settings.KeepDead > 0 && grave.all.Len() == 1 {
		m.arm("r"+j.Queue, now+settings.KeepDead.Microseconds())
	}
	switch {
	case grave.all.Len() > settings.MaxDead:
		m.evict(grave.all, grave.of, j.Tenant, j.Queue)
	case m.letters.all.Len() > m.deadCap:
		m.evict(m.letters.all, m.letters.of, j.Tenant, "")
	}
}

// evict ends a letter of those for that of a tenant that has just come: the oldest of the tenant that has the most, the newcomer's own
// where none has more; of no tenant with one alone, unless more tenants have one than there is room for.
func (m *model) evict(all *sorted.List[*modelJob], of *ranking, tenant, queue string) {
	oldest, _ := all.First()
	if most := of.most(); most.n > 1 {
		who := most.name
		if of.counts[tenant] == most.n {
			who = tenant
		}
		where := cmp.Or(queue, m.letters.in[who].most().name)
		oldest, _ = m.letters.queues[where].tenants[who].First()
	}
	m.endLetter(oldest, "evicted")
}

// endLetter ends a dead letter for good.
func (m *model) endLetter(j *modelJob, counter string) {
	m.letters.remove(j)
	m.leave(j, counter)
}

// lettersPurge ends what a queue has kept for long enough.
func (m *model) lettersPurge(c *fairqueue.Pass, queue string, now int64) {
	keep := m.queues[queue].KeepDead.Microseconds()
	if keep == 0 {
		return
	}
	for c.MovesLeft > 0 {
		oldest, ok := m.letters.inQueue(queue).First()
		if !ok || oldest.at > now-keep {
			break
		}
		c.MovesLeft--
		m.endLetter(oldest, "purged")
	}
	if oldest, ok := m.letters.inQueue(queue).First(); ok {
		m.arm("r"+queue, oldest.at+keep)
	}
}
