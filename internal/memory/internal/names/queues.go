package names

// Queues are the queues that jobs have made: no worker serves them, and the policy does not name them.
type Queues struct {
	by  map[string]*made
	of  map[string]int // how many each tenant made
	all []*made        // in no order; next is the one that is looked at next
	at  int
}

// made is one that a tenant's job has made.
type made struct {
	name, tenant string
	// until is when the last job starts that was put off there.
	until int64
	index int
}

// NewQueues returns none.
func NewQueues() Queues { return Queues{by: map[string]*made{}, of: map[string]int{}} }

// Note keeps that a queue is there which a tenant's job made, and until when one is put off there.
func (q *Queues) Note(name, tenant string, until int64) {
	one := q.by[name]
	if one == nil {
		one = &made{name: name, tenant: tenant, index: len(q.all)}
		q.by[name], q.all = one, append(q.all, one)
		q.of[tenant]++
	}
	one.until = max(one.until, until)
}

func (q *Queues) forget(one *made) {
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

// Made returns how many a tenant has made.
func (q *Queues) Made(tenant string) int { return q.of[tenant] }

// Visit looks at up to n of them, of which each goes that visit says. Each call goes on where the last one ended.
func (q *Queues) Visit(n int, visit func(name string, until int64) (goes bool)) {
	for range min(n, len(q.all)) {
		if q.at--; q.at < 0 || q.at >= len(q.all) {
			q.at = len(q.all) - 1
		}
		if one := q.all[q.at]; visit(one.name, one.until) {
			q.forget(one)
		}
		if len(q.all) == 0 {
			return
		}
	}
}
