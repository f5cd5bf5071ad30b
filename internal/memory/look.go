package memory

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/counts"
	"github.com/headgate/headgate/internal/sorted"
	"github.com/headgate/headgate/store"
)

// Look tells where a job is and what it waits for, as store.Partition.Look.
func (p *Partition) Look(_ context.Context, key admission.Key) (sight store.Sighting, err error) {
	if err := store.ValidateKey(key); err != nil {
		return store.Sighting{}, err
	}
	p.read(func(m *model, now int64) {
		m.asOf(now, func() { sight, err = m.look(key, now) })
	})
	return sight, err
}

func (m *model) look(key admission.Key, now int64) (store.Sighting, error) {
	sight := store.Sighting{Key: key}
	j := m.live[key.String()]
	switch {
	case j == nil && m.remembers(key.String()):
		sight.Place = store.PlaceEnded
		return sight, nil
	case j == nil:
		return store.Sighting{}, fmt.Errorf("look at %s: %w", key, admission.ErrUnknownJob)
	}
	sight.Place, sight.Record, sight.History = placeOf(j), m.shown(j), slices.Clone(j.history)
	sight.PayloadBytes = int64(len(j.stored.Payload))
	standing := store.WaitFacts{Pools: m.poolsOf(j.Queue), Breaker: m.breakerSeen(j.Service(), now)}
	switch sight.Place {
	case admission.PlaceWaiting:
		at, _ := m.room.Standing(&j.Job)
		sight.Position, standing.Tenant, standing.Blocked = at.Position, string(at.Mode), at.Blocked
		sight.EstimatedWait = time.Duration(m.room.Guess(&j.Job, sight.Position)) * time.Microsecond
		for _, name := range m.room.Shut(&j.Job) {
			standing.Gates = append(standing.Gates, m.shutGate(name, now))
		}
	case admission.PlaceSpilled:
		sight.Position, sight.At = m.spilledIn(j.Tenant, j.Queue).Rank(j)+1, microTime(j.at)
	case admission.PlaceLater:
		sight.At = time.UnixMicro(j.at)
	case store.PlaceDead:
		sight.At, sight.Reason, sight.Text = time.UnixMicro(j.at), j.reason, j.text
	case admission.PlaceReady:
		sight.Pool = j.pool.ID
	case store.PlaceRunning:
		sight.Pool, sight.Worker, sight.Token, sight.Since = j.pool.ID, j.entry.Worker, j.token, time.UnixMicro(j.since)
		if sight.Cancelled = j.cancelled; j.cancelled {
			sight.Reason = j.because
		}
	}
	sight.AddWaits(standing)
	return sight, nil
}

// breakerSeen is what a wait tells of a breaker, the zero state where there is none.
func (m *model) breakerSeen(downstream string, now int64) (b store.BreakerState) {
	of := m.breakers[downstream]
	if of == nil {
		return b
	}
	s := of.SnapshotAt(m.instant())
	b.State, b.Cause, b.Forced, b.Reason = s.State, s.Cause, s.Forced, s.Reason
	if s.Ends {
		b.Until = time.UnixMicro(int64(s.Until)/1000 - (m.filled - max(m.last, now))) // The breakers' clock is ahead by so much.
	}
	return b
}

// shutGate is a closed gate as it stands; of a rate it tells when the next may pass.
func (m *model) shutGate(name string, now int64) store.GateState {
	g := m.room.Gates[name]
	if rate := m.room.RateAt(name); g == nil && rate != nil { // That of each account.
		g = &fairqueue.Gate{Rate: rate}
	}
	if g == nil { // That of all, which nothing stands under yet.
		limit, _ := m.room.LimitOf(name)
		return store.GateState{Name: store.GateName(name), Limit: limit, Then: store.Unlimited}
	}
	state := m.gateState(name, g)
	if g.Rate != nil {
		state.Until = time.UnixMicro(now + g.Rate.Wait())
	}
	return state
}

// Letters reads dead letters, in the order of their keys, as store.Partition.Letters.
func (p *Partition) Letters(_ context.Context, keys []admission.Key) ([]store.Letter, error) {
	letters := make([]store.Letter, len(keys))
	p.read(func(m *model, _ int64) {
		for i, key := range keys {
			letters[i].Key = key
			if j := m.live[key.String()]; j != nil && j.where == amongDead {
				letters[i] = store.Letter{Listed: m.rowOf(j), Dead: true, PayloadBytes: int64(len(j.stored.Payload))}
			}
		}
	})
	return letters, nil
}

// Census counts every job, all at one time.
func (p *Partition) Census(context.Context) (c store.Census, err error) {
	p.read(func(m *model, _ int64) {
		c = store.Census{
			Accepted: m.accepted, Waiting: int64(m.room.Waiting()), Later: int64(m.later.Len()), Dead: int64(m.letters.All().Len()), Live: int64(len(m.live)),
			Left: maps.Clone(m.left), Died: maps.Clone(m.died),
		}
		for _, b := range m.backlogs {
			c.Spilled += int64(b.spilled.Len())
		}
		for _, pool := range m.room.Pools {
			c.Ready += int64(len(pool.Ready))
		}
	})
	return c, nil
}

// Counters reads what was counted since the partition began.
func (p *Partition) Counters(context.Context) (c store.Counters, err error) {
	p.read(func(m *model, _ int64) {
		c = store.Counters{
			Accepted: m.accepted, Left: maps.Clone(m.left), Died: maps.Clone(m.died), Retried: m.retried, Unknown: maps.Clone(m.unknownTypes),
			Live: int64(len(m.live)), Anomalies: maps.Clone(m.alarms.ByKind()),
		}
		if m.watched {
			for _, kind := range store.AnomalyKinds {
				c.Anomalies[kind] += 0
			}
		}
	})
	return c, nil
}

// noteUnknown counts a job of a queue that was handed back because its worker has no handler for its type.
func (m *model) noteUnknown(queue, kind string, now int64) {
	m.unknownTypes[queue] = store.Unknown{Count: m.unknownTypes[queue].Count + 1, Last: time.UnixMicro(now), Type: kind}
}

// Vitals tells whether the timers are well and what is used of the bounds. Memory is not told.
func (p *Partition) Vitals(context.Context) (v store.Vitals, err error) {
	p.read(func(m *model, now int64) {
		if first := m.timers.First(); first < never {
			v.Late = time.Duration(max(0, now-first)) * time.Microsecond
		}
		lanes := m.room.WidestTenant()
		if lanes < store.CountedLanes {
			lanes = 0 // Few are not counted.
		}
		v.Bounds = store.BoundsUsed(int64(m.room.Used()), int64(m.letters.All().Len()), int64(lanes), int64(len(m.breakers)))
	})
	return v, nil
}

// Memory tells nothing: there is no Redis.
func (p *Partition) Memory(context.Context) (used, most int64, err error) { return 0, 0, nil }

// Time returns the clock.
func (p *Partition) Time(context.Context) (time.Time, error) {
	return time.UnixMicro(p.now().UnixMicro()), nil
}

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
			page.Cursor = l.at.EncodeFor(q.Tenant)
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
		list := m.letters.All()
		if l.query.Queue != "" {
			list = m.letters.InQueue(l.query.Queue)
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

// Count adds to the counts of this minute, as store.Partition.Count.
func (p *Partition) Count(_ context.Context, scopes []store.ScopeCount) (done int, err error) {
	if len(scopes) == 0 {
		return 0, nil
	}
	p.write(func(m *model, now int64) {
		for portion := range slices.Chunk(scopes, store.MaxBatchJobs) { // As many as of a call to Redis.
			m.counts.Add(portion, now, m.over(now))
		}
	})
	return len(scopes), nil
}

// Minutes returns what was counted of a scope in the last hour, as store.Partition.Minutes.
func (p *Partition) Minutes(_ context.Context, scope admission.Scope) (all []store.Minute, err error) {
	all = []store.Minute{}
	p.read(func(m *model, now int64) {
		last := counts.MinuteAt(now)
		for minute := last - counts.HourMinutes + 1; minute <= last; minute++ {
			if one, ok := m.counts.Minute(minute)[scope]; ok {
				all = append(all, one)
			}
		}
	})
	return all, nil
}

// LastHour is LastMinutes of the hour that is kept.
func (p *Partition) LastHour(ctx context.Context, budget time.Duration) ([]store.Recorded, error) {
	return p.LastMinutes(ctx, int(counts.HourMinutes), budget)
}

// LastMinutes returns those of the last minutes in which something was counted, as store.Partition.LastMinutes.
func (p *Partition) LastMinutes(_ context.Context, minutes int, budget time.Duration) (all []store.Recorded, err error) {
	if budget <= 0 {
		return nil, nil
	}
	p.read(func(m *model, now int64) {
		last := counts.MinuteAt(now)
		for minute := max(last-int64(minutes), last-counts.HourMinutes) + 1; minute <= last; minute++ {
			if of := m.counts.Minute(minute); len(of) > 0 {
				at := time.Unix(minute*60, 0)
				lasted := max(min(time.UnixMicro(now).Sub(at), time.Minute), time.Microsecond)
				all = append(all, store.Recorded{At: at, Lasted: lasted, Scopes: maps.Clone(of)})
			}
		}
	})
	return all, nil
}

// CountedScopes returns of how many scopes something was counted in the last full minute.
func (p *Partition) CountedScopes(context.Context) (n int64, err error) {
	p.read(func(m *model, now int64) { n = int64(len(m.counts.Minute(counts.MinuteAt(now) - 1))) })
	return n, nil
}

// Rates returns what was decided in a minute, as store.Partition.Rates.
func (p *Partition) Rates(_ context.Context, minute time.Time) (r store.Rates, err error) {
	p.read(func(m *model, _ int64) { r = m.counts.Rates(minute.Unix() / 60) })
	return r, nil
}

// Nearby returns what was decided of values of dimensions in a minute, as store.Partition.Nearby.
func (p *Partition) Nearby(_ context.Context, minute time.Time) (all map[admission.Scope]store.Minute, err error) {
	all = map[admission.Scope]store.Minute{}
	p.read(func(m *model, _ int64) { maps.Copy(all, m.counts.Values(minute.Unix()/60)) })
	return all, nil
}

// Distincts returns how many different names queues had, as store.Partition.Distincts.
func (p *Partition) Distincts(_ context.Context, queue string) (all map[string]store.Distinct, err error) {
	p.read(func(m *model, now int64) { all = m.counts.Distincts(now, queue) })
	return all, nil
}
