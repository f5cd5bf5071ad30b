package memory

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/sorted"
	"github.com/headgate/headgate/store"
)

// List returns a page of jobs, as store.Partition.List: all by key, waiting ones of a tenant lane by lane.
func (p *Partition) List(_ context.Context, q store.ListQuery) (page store.ListPage, err error) {
	at, err := q.Begin()
	if err != nil {
		return store.ListPage{}, err
	}
	p.read(func(m *model, _ int64) {
		l := &lister{model: m, query: q, at: at}
		for !l.end && len(l.found) < q.Limit && l.looked < store.ListWork {
			l.step(min(store.ListPortion, q.Limit-len(l.found)))
		}
		page.Jobs = l.found
		if !l.end {
			page.Cursor = l.at.Encode()
		}
	})
	if q.Place == admission.PlaceSpilled { // They are looked for among all.
		page.Jobs = slices.DeleteFunc(page.Jobs, func(row store.Listed) bool { return row.Place != q.Place })
	}
	return page, err
}

// lister is one call of List. at moves with what was looked at.
type lister struct {
	model  *model
	query  store.ListQuery
	at     store.ListCursor
	found  []store.Listed
	looked int
	end    bool
	// ahead are those of all jobs that may be looked at yet; nil before they are known.
	ahead []*modelJob
}

// step looks at about n jobs and keeps those that the query asks for.
func (l *lister) step(n int) {
	m := l.model
	switch l.query.Place {
	case store.PlaceDead:
		list := m.letters.all
		if l.query.Queue != "" {
			list = m.letters.inQueue(l.query.Queue)
		}
		l.stepTimes(list, n)
	case admission.PlaceLater:
		l.stepTimes(m.later, n)
	case admission.PlaceReady, store.PlaceRunning:
		l.stepReady(n)
	case admission.PlaceWaiting:
		l.stepWaiting(n)
	default:
		l.stepAll(n)
	}
}

// keep adds those jobs that the query asks for.
func (l *lister) keep(jobs ...*modelJob) {
	l.looked += len(jobs)
	for _, j := range jobs {
		if row := l.model.rowOf(j); l.query.Keeps(&row) {
			l.found = append(l.found, row)
		}
	}
}

// stepAll goes on among all jobs, by raw key.
func (l *lister) stepAll(n int) {
	if l.ahead == nil {
		most := store.ListWork + store.ListPortion
		if l.query == (store.ListQuery{Limit: l.query.Limit, Cursor: l.query.Cursor}) {
			most = l.query.Limit
		}
		l.ahead = l.model.jobsAfter(string(l.at.Jobs.After), most+1)
	}
	jobs := l.ahead[:min(n, len(l.ahead))]
	l.ahead = l.ahead[len(jobs):]
	l.end = len(l.ahead) == 0
	for _, j := range jobs {
		l.at.Jobs.After = []byte(j.raw)
	}
	l.keep(jobs...)
}

// stepTimes goes on in a list of jobs by time.
func (l *lister) stepTimes(list *sorted.List[*modelJob], n int) {
	mark := &l.at.Set
	jobs := timedAfter(list, mark.At, mark.Key, n)
	l.end = len(jobs) < n
	for _, j := range jobs {
		if !l.query.Before.IsZero() && j.at >= l.query.Before.UnixMicro() {
			l.end = true
			return
		}
		mark.At, mark.Key = j.at, []byte(j.raw)
		l.keep(j)
	}
}

// stepReady goes on in the ready streams, pool by pool.
func (l *lister) stepReady(n int) {
	pools := l.model.room.Made()
	slices.SortFunc(pools, func(a, b *fairqueue.Pool) int { return strings.Compare(a.ID, b.ID) })
	at, ok := slices.BinarySearchFunc(pools, l.at.Span, func(p *fairqueue.Pool, id string) int { return strings.Compare(p.ID, id) })
	if !ok {
		l.at.Entry = "" // The pool that the cursor was in is closed, and all its entries are elsewhere.
	}
	if at == len(pools) {
		l.end = true
		return
	}
	p := pools[at]
	l.at.Span = p.ID
	jobs := entriesAfter(p, l.at.Entry, n)
	for _, j := range jobs {
		l.at.Entry = j.token
		if placeOf(j) == l.query.Place {
			l.keep(j)
		} else {
			l.looked++
		}
	}
	if len(jobs) < n {
		l.at.Span, l.at.Entry = p.ID+"\x00", "" // The next one by name.
	}
}

// stepWaiting goes on in the lanes, by queue, class, tenant and lane.
func (l *lister) stepWaiting(n int) {
	l.looked++ // A step that lists nothing is work too.
	queue, ok := l.waitingQueue()
	at, room := &l.at, l.model.room
	switch {
	case !ok:
		l.end = true
	case at.Class >= len(l.model.classesOf(queue)):
		*at = store.ListCursor{Of: at.Of, Span: queue + "\x00"}
	case at.Tenant == "":
		tenants := room.Tenants(queue, at.Class)
		if l.query.Tenant != "" {
			tenants = []string{l.query.Tenant}
		}
		if at.Tenant, ok = nextName(tenants, string(at.Tenants.After)); !ok {
			*at = store.ListCursor{Of: at.Of, Span: queue, Class: at.Class + 1}
		}
	case at.Lane == "":
		if at.Lane, ok = nextName(room.Lanes(queue, at.Class, at.Tenant), string(at.Lanes.After)); !ok {
			at.Tenants.After, at.Lanes.After = []byte(at.Tenant), nil
			at.Tenant = ""
		}
	default:
		l.stepLane(queue, n)
	}
}

// waitingQueue returns the queue that the cursor is in, or the next one by name; ok is false at the end.
func (l *lister) waitingQueue() (queue string, ok bool) {
	queues := []string{l.query.Queue}
	if l.query.Queue == "" {
		queues = l.model.queueNames()
	}
	at, found := slices.BinarySearch(queues, l.at.Span)
	if at == len(queues) {
		return "", false
	}
	if !found {
		l.at = store.ListCursor{Of: l.at.Of, Span: queues[at]}
	}
	return queues[at], true
}

// stepLane goes on in the lane of the cursor.
func (l *lister) stepLane(queue string, n int) {
	at := &l.at
	score, seq := int64(math.MinInt64), uint64(0)
	if at.Set.Key != nil {
		score, seq = at.Set.At, binary.BigEndian.Uint64(append(at.Set.Key, make([]byte, 8)...))
	}
	jobs := l.model.room.LaneAfter(queue, at.Class, at.Tenant, at.Lane, score, seq, n)
	for _, waiting := range jobs {
		l.keep(jobOf(waiting))
		at.Set.At, at.Set.Key = waiting.Score, binary.BigEndian.AppendUint64(nil, waiting.Seq)
	}
	if len(jobs) < n {
		at.Lanes.After = []byte(at.Lane)
		at.Lane, at.Set.At, at.Set.Key = "", 0, nil
	}
}

// nextName returns the first of sorted names that follows one.
func nextName(names []string, after string) (name string, ok bool) {
	at, found := slices.BinarySearch(names, after)
	if found {
		at++
	}
	if at == len(names) {
		return "", false
	}
	return names[at], true
}
