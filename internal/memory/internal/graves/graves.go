package graves

import (
	"cmp"
	"fmt"

	"github.com/headgate/headgate/internal/sorted"
)

// Index keeps dead letters by time, of all and of each queue, and how many each tenant has.
type Index[J comparable] struct {
	byTime func(a, b J) int
	names  func(J) (tenant, queue string)
	all    *sorted.List[J]
	of     *ranking             // all of each tenant
	queues map[string]*grave[J] // by queue
	in     map[string]*ranking  // of a tenant, in each queue
}

// grave is what a queue has of them.
type grave[J comparable] struct {
	all     *sorted.List[J]
	of      *ranking
	tenants map[string]*sorted.List[J]
}

// New returns one that has none. byTime orders letters, and names says whose one is.
func New[J comparable](byTime func(a, b J) int, names func(J) (tenant, queue string)) Index[J] {
	return Index[J]{byTime: byTime, names: names, all: sorted.New(byTime), of: newRanking(), queues: map[string]*grave[J]{}, in: map[string]*ranking{}}
}

// Add adds a letter.
func (x *Index[J]) Add(j J) {
	tenant, queue := x.names(j)
	g := x.queues[queue]
	if g == nil {
		g = &grave[J]{all: sorted.New(x.byTime), of: newRanking(), tenants: map[string]*sorted.List[J]{}}
		x.queues[queue] = g
	}
	if g.tenants[tenant] == nil {
		g.tenants[tenant] = sorted.New(x.byTime)
	}
	if x.in[tenant] == nil {
		x.in[tenant] = newRanking()
	}
	x.all.Add(j)
	g.all.Add(j)
	g.tenants[tenant].Add(j)
	x.of.add(tenant, 1)
	g.of.add(tenant, 1)
	x.in[tenant].add(queue, 1)
}

// Remove removes one that is there.
func (x *Index[J]) Remove(j J) {
	tenant, queue := x.names(j)
	g := x.queues[queue]
	x.all.Remove(j)
	g.all.Remove(j)
	g.tenants[tenant].Remove(j)
	x.of.add(tenant, -1)
	g.of.add(tenant, -1)
	x.in[tenant].add(queue, -1)
	if g.tenants[tenant].Len() == 0 {
		delete(g.tenants, tenant)
	}
	if g.all.Len() == 0 {
		delete(x.queues, queue)
	}
	if len(x.in[tenant].counts) == 0 {
		delete(x.in, tenant)
	}
}

// All returns the letters, the oldest first.
func (x *Index[J]) All() *sorted.List[J] { return x.all }

// InQueue returns the letters of a queue, nil for none.
func (x *Index[J]) InQueue(queue string) *sorted.List[J] {
	if g := x.queues[queue]; g != nil {
		return g.all
	}
	return nil
}

// OfTenant returns how many a tenant has in each queue; it is not to be changed.
func (x *Index[J]) OfTenant(tenant string) map[string]int {
	if r := x.in[tenant]; r != nil {
		return r.counts
	}
	return nil
}

// Victim returns the letter that goes for that of a tenant that has just come, of a queue or, where that is empty, of all: the oldest of the
// tenant that has the most, the newcomer's own where none has more; of no tenant with one alone, unless more tenants have one than there is
// room for.
func (x *Index[J]) Victim(tenant, queue string) J {
	all, of := x.all, x.of
	if g := x.queues[queue]; queue != "" {
		all, of = g.all, g.of
	}
	oldest, _ := all.First()
	if most := of.most(); most.n > 1 {
		who := most.name
		if of.counts[tenant] == most.n {
			who = tenant
		}
		where := cmp.Or(queue, x.in[who].most().name)
		oldest, _ = x.queues[where].tenants[who].First()
	}
	return oldest
}

// Lines tells how many there are of whom, a line each, in no order.
func (x *Index[J]) Lines() (lines []string) {
	for tenant, n := range x.of.counts {
		lines = append(lines, fmt.Sprintf("deadof : %s %d", tenant, n))
	}
	for queue, g := range x.queues {
		for tenant, n := range g.of.counts {
			lines = append(lines, fmt.Sprintf("deadof %s: %s %d", queue, tenant, n), fmt.Sprintf("deadin %s: %s %d", tenant, queue, n))
		}
	}
	return lines
}
