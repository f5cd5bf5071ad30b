package counts

import (
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Usage is what jobs and reservations used, by day.
type Usage map[int64]*day

// day is one of them. queues are those of each tenant that are counted by themselves.
type day struct {
	queues map[string][]string
	used   map[use]*store.Used
}

// use names a tenant in a queue.
type use struct{ tenant, queue string }

// dayMicros is how long a day takes.
const dayMicros = int64(24 * time.Hour / time.Microsecond)

// dayAt is the day of a time in microseconds.
func dayAt(at int64) int64 { return store.DayOf(time.UnixMicro(at)) }

// Add adds what was used in a queue by what came in at some time, where usage is kept of so many tenants. It forgets days that are over by a
// time.
func (u Usage) Add(now, over, at int64, most int, tenant, queue string, n store.Used) {
	if most == 0 || dayAt(at) < dayAt(now)-store.UsageDays {
		return
	}
	for old := range u {
		if (old+store.UsageDays+1)*dayMicros <= over {
			delete(u, old)
		}
	}
	of := u[dayAt(at)]
	if of == nil {
		of = &day{queues: map[string][]string{}, used: map[use]*store.Used{}}
		u[dayAt(at)] = of
	}
	where := of.place(most, use{tenant, queue}, n.Jobs+n.Calls > 0)
	if of.used[where] == nil {
		of.used[where] = &store.Used{}
	}
	of.used[where].Add(&n)
}

// place is where something is counted: what came in, or what is told of it, which is counted where that was.
func (d *day) place(most int, of use, came bool) use {
	rest := use{of.tenant, store.UsageRest}
	if of.queue == "" {
		of = rest
	}
	queues, known := d.queues[of.tenant]
	switch {
	case d.used[of] != nil:
		return of
	case !came && d.used[rest] != nil:
		return rest
	case !came, !known && len(d.queues) >= most:
		return use{store.UsageRest, store.UsageRest}
	case of == rest:
		d.queues[of.tenant] = queues
	case len(queues) >= store.UsageQueues:
		return rest
	default:
		d.queues[of.tenant] = append(queues, of.queue)
	}
	return of
}

// Of returns what was used in a day, as store.Buckets.Usage.
func (u Usage) Of(q *store.UsageQuery) []store.DayUsage {
	all := []store.DayUsage{}
	of := u[store.DayOf(q.Day)]
	if of == nil {
		return all
	}
	at := time.Unix(store.DayOf(q.Day)*24*60*60, 0).UTC()
	for of, used := range of.used {
		if (q.Tenant == "" || q.Tenant == of.tenant) && (q.Queue == "" || q.Queue == of.queue) {
			all = append(all, store.DayUsage{Day: at, Tenant: of.tenant, Queue: of.queue, Used: *used})
		}
	}
	slices.SortFunc(all, func(a, b store.DayUsage) int { return store.CompareUsage(&a, &b) })
	return all
}

// Settled is what is told of work that had reserved tokens, and has cost others.
func Settled(reserved, cost admission.Tokens) store.Used {
	return store.Used{Refunded: max(0, reserved-cost), Added: max(0, cost-reserved)}
}
