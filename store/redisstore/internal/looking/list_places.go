package looking

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// stepReady goes on in the ready streams, pool by pool.
func (l *lister) stepReady(ctx context.Context, n int) error {
	if l.spans == nil {
		ids, err := redisconn.Client(l.store.conn).HGet(ctx, l.store.conn.Partition.State(), "pools").Result()
		if err != nil && !redisconn.IsNil(err) {
			return fmt.Errorf("read pools: %w", redisconn.Unread(err))
		}
		l.spans = slices.Sorted(strings.FieldsSeq(ids))
	}
	at, ok := slices.BinarySearch(l.spans, l.at.Span)
	if !ok {
		l.at.Entry = "" // The pool that the cursor was in is closed, and all its entries are elsewhere.
	}
	if at == len(l.spans) {
		l.end = true
		return nil
	}
	l.at.Span = l.spans[at]
	rows, last, err := l.store.entries(ctx, l.at.Span, l.at.Entry, n)
	if err != nil {
		return err
	}
	l.at.Entry = last
	if len(rows) < n {
		l.at.Span, l.at.Entry = l.at.Span+"\x00", "" // The next one by name.
	}
	all := len(rows)
	rows = slices.DeleteFunc(rows, func(row store.Listed) bool { return row.Place != l.query.Place })
	l.looked += all - len(rows)
	return l.keep(ctx, rows)
}

// entries returns up to n entries of a pool's ready stream after one of them, and the last one's id. Fewer means that
// there are no more.
func (s *Looking) entries(ctx context.Context, pool, after string, n int) (rows []store.Listed, last string, err error) {
	from, ready := "-", s.conn.Partition.Ready(pool)
	if after != "" {
		from = "(" + after
	}
	messages, err := redisconn.Client(s.conn).XRangeN(ctx, ready, from, "+", int64(n)).Result()
	if err != nil {
		return nil, "", fmt.Errorf("list pool %s: %w", pool, redisconn.Unread(err))
	}
	if len(messages) == 0 {
		return nil, after, nil
	}
	last = messages[len(messages)-1].ID
	pending, err := redisconn.Client(s.conn).XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: ready, Group: redisconn.Group, Start: messages[0].ID, End: last, Count: int64(2 * n),
	}).Result()
	if err != nil && !redisconn.IsPoolGone(err) {
		return nil, "", fmt.Errorf("list pool %s: %w", pool, redisconn.Unread(err))
	}
	holders := map[string]string{}
	for _, p := range pending {
		holders[p.ID] = p.Consumer
	}
	for _, m := range messages {
		raw, _ := m.Values["j"].(string)
		rec, _ := m.Values["r"].(string)
		row := listedOf(raw, rec)
		row.Place, row.Token = admission.PlaceReady, m.ID
		if holder, held := holders[m.ID]; held {
			row.Place, row.Worker = store.PlaceRunning, holder
		}
		rows = append(rows, row)
	}
	return rows, last, nil
}

// stepWaiting goes on in the lanes, by queue, class and tenant.
func (l *lister) stepWaiting(ctx context.Context, n int) error {
	l.looked++ // A step that lists nothing is work too.
	queue, config, ok, err := l.waitingQueue(ctx)
	if err != nil || !ok {
		return err
	}
	if l.at.Class >= len(config.classes) {
		l.at.Span, l.at.Class = queue+"\x00", 0
		return nil
	}
	cq := strconv.Itoa(l.at.Class) + ":" + queue
	if l.at.Tenant == "" {
		return l.nextTenant(ctx, cq)
	}
	if l.at.Lane == "" {
		return l.nextLane(ctx, cq)
	}
	members, err := l.store.after(ctx, l.store.laneKey(cq, l.at.Tenant, l.at.Lane), l.at.Set, n)
	if err != nil {
		return err
	}
	rows, err := l.store.waitingRows(ctx, l.at.Tenant, members)
	if err != nil {
		return err
	}
	if len(members) < n {
		l.at.Lane, l.at.Set = "", store.SetMark{}
	} else {
		m := members[n-1]
		l.at.Set = store.SetMark{At: m.at, Key: []byte(m.name)}
	}
	return l.keep(ctx, rows)
}

// waitingQueue returns the queue that the cursor is in, or the next one by name; ok is false at the end.
func (l *lister) waitingQueue(ctx context.Context) (queue string, config queueConfig, ok bool, err error) {
	if l.spans == nil {
		l.spans = []string{l.query.Queue}
		if l.query.Queue == "" {
			if l.spans, err = l.store.queueNames(ctx); err != nil {
				return "", queueConfig{}, false, err
			}
		}
	}
	at, found := slices.BinarySearch(l.spans, l.at.Span)
	if at == len(l.spans) {
		l.end = true
		return "", queueConfig{}, false, nil
	}
	if !found {
		l.at = store.ListCursor{Of: l.at.Of, Span: l.spans[at]}
	}
	config, err = l.config(ctx, l.at.Span)
	return l.at.Span, config, err == nil, err
}

// nextTenant moves the cursor to the next tenant of a class, or to the next class after the last.
func (l *lister) nextTenant(ctx context.Context, cq string) error {
	if l.query.Tenant != "" {
		l.at.Tenant = l.query.Tenant
		return nil
	}
	if l.at.Tenants.Begun && l.at.Tenants.Scan == 0 && len(l.at.Tenants.Rest) == 0 {
		l.at.Tenants = store.HashMark{}
		l.at.Class++
		return nil
	}
	found, next, end, err := l.store.fields(ctx, l.store.conn.Partition.Base()+"ten:"+cq, l.at.Tenants, 1)
	if err != nil {
		return err
	}
	l.at.Tenants = next
	switch {
	case len(found) > 0:
		l.at.Tenant = found[0].name
	case end:
		l.at.Tenants = store.HashMark{}
		l.at.Class++
	}
	return nil
}

func (s *Looking) laneKey(cq, tenant, lane string) string {
	return s.conn.Partition.Base() + "lane:" + cq + ":" + tenant + ":" + lane
}

// nextLane moves the cursor to the next lane of a tenant, or behind the tenant after the last. A tenant may have any number of them,
// so they are walked as the fields of a hash are; the one that ten:CQ names beside them comes first.
func (l *lister) nextLane(ctx context.Context, cq string) error {
	if !l.at.Lanes.Begun {
		l.at.Lanes.Begun = true
		value, err := redisconn.Client(l.store.conn).HGet(ctx, l.store.conn.Partition.Base()+"ten:"+cq, l.at.Tenant).Result()
		switch {
		case redisconn.IsNil(err) || err == nil && len(value) <= tenantHeader:
			l.leaveTenant()
			return nil
		case err != nil:
			return fmt.Errorf("read tenant %s: %w", l.at.Tenant, redisconn.Unread(err))
		}
		own, others, err := laneNamed(l.at.Tenant, value)
		if err != nil {
			return err
		}
		if !others {
			l.at.Lanes.Scan = lanesEnd
		}
		if l.at.Lane = own; own != "" {
			return nil
		}
	}
	return l.otherLane(ctx, cq)
}

// lanesEnd is a cursor that stands for the end: ZSCAN begins and ends with 0.
const lanesEnd = ^uint64(0)

// otherLane moves the cursor to the next of a tenant's lanes in lanes:CQ:TENANT: few go by name, many by ZSCAN.
func (l *lister) otherLane(ctx context.Context, cq string) error {
	key, at := l.store.conn.Partition.Base()+"lanes:"+cq+":"+l.at.Tenant, &l.at.Lanes
	for len(at.Rest) == 0 {
		if at.Scan == lanesEnd {
			l.leaveTenant()
			return nil
		}
		if at.Scan == 0 {
			few, err := redisconn.Client(l.store.conn).ZRange(ctx, key, 0, SmallHash).Result()
			if err != nil {
				return fmt.Errorf("read lanes of %s: %w", l.at.Tenant, redisconn.Unread(err))
			}
			if len(few) <= SmallHash {
				few = slices.DeleteFunc(few, func(name string) bool { return name <= string(at.After) })
				if len(few) == 0 {
					at.Scan = lanesEnd
					continue
				}
				l.at.Lane = slices.Min(few)
				at.After = []byte(l.at.Lane)
				return nil
			}
		}
		pairs, next, err := redisconn.Client(l.store.conn).ZScan(ctx, key, at.Scan, "", laneBatch).Result()
		if err != nil {
			return fmt.Errorf("read lanes of %s: %w", l.at.Tenant, redisconn.Unread(err))
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			at.Rest = append(at.Rest, []byte(pairs[i]))
		}
		if at.Scan = next; next == 0 {
			at.Scan = lanesEnd
		}
	}
	l.at.Lane, at.Rest = string(at.Rest[0]), at.Rest[1:]
	return nil
}

// laneBatch is about how many lanes ZSCAN names at a time: those that are not listed yet stand in the cursor of the page.
const laneBatch = 4

// leaveTenant moves the cursor behind the tenant.
func (l *lister) leaveTenant() {
	l.at.Tenant, l.at.Lane, l.at.Lanes, l.at.Set = "", "", store.HashMark{}, store.SetMark{}
	if l.query.Tenant != "" {
		l.at.Class++
	}
}

// laneNamed reads what ten:CQ says of a tenant's lanes: the only one, "+" and the only open one beside others, or "*" for others.
func laneNamed(tenant, value string) (own string, others bool, err error) {
	if len(value) < tenantHeader {
		return "", false, fmt.Errorf("read tenant %s: %w", tenant, redisconn.ErrUnknownReply)
	}
	own, others = strings.CutPrefix(value[tenantHeader:], "+")
	if own == "*" {
		return "", true, nil
	}
	return own, others, nil
}

// LanesIn names the lanes of a tenant in a class, some of them where there are more than most.
func (s *Looking) LanesIn(ctx context.Context, cq, tenant, value string, most int) (lanes []string, partial bool, err error) {
	own, others, err := laneNamed(tenant, value)
	if err != nil {
		return nil, false, err
	}
	if others {
		lanes, err = redisconn.Client(s.conn).ZRange(ctx, s.conn.Partition.Base()+"lanes:"+cq+":"+tenant, 0, int64(most)).Result()
		if err != nil {
			return nil, false, fmt.Errorf("read lanes of %s: %w", tenant, redisconn.Unread(err))
		}
	}
	if own != "" {
		lanes = append(lanes, own)
	}
	return lanes, len(lanes) > most, nil
}

// tenantHeader is the length of the mode and the entry in a value of ten:CQ, memberHeader that of seq and cost in a
// member of a lane.
const (
	tenantHeader = 9
	memberHeader = 12
)

// waitingRows reads the jobs of a tenant's lane; those that have left it are left out.
func (s *Looking) waitingRows(ctx context.Context, tenant string, members []member) ([]store.Listed, error) {
	if len(members) == 0 {
		return nil, nil
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = tenant + ":" + m.name[min(memberHeader, len(m.name)):]
	}
	rows, err := s.records(ctx, names)
	if err != nil {
		return nil, err
	}
	kept := rows[:0]
	for i, row := range rows {
		if row.Place = admission.PlaceWaiting; row.Key.Tenant != "" {
			row.At = time.UnixMicro(members[i].at)
			kept = append(kept, row)
		}
	}
	return kept, nil
}

// findPlaces looks up where each job is.
func (s *Looking) findPlaces(ctx context.Context, rows []store.Listed) error {
	if len(rows) == 0 {
		return nil
	}
	pipe := redisconn.Client(s.conn).Pipeline()
	found := make([][4]*redis.FloatCmd, len(rows))
	why := make([]*redis.StringCmd, len(rows))
	for i := range rows {
		raw, r := store.EncodeKey(rows[i].Key), &rows[i].Record
		why[i] = pipe.HGet(ctx, s.conn.Partition.Why(), raw)
		found[i][0] = pipe.ZScore(ctx, s.conn.Partition.Dead(), raw)
		found[i][1] = pipe.ZScore(ctx, s.conn.Partition.Later(), raw)
		cq := strconv.Itoa(r.Class) + ":" + r.Job.Queue
		found[i][2] = pipe.ZScore(ctx, s.laneKey(cq, r.Job.Tenant, laneOf(r)), memberOf(r))
		found[i][3] = pipe.ZScore(ctx, s.spillKey(r.Job.Tenant, r.Job.Queue), raw)
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return fmt.Errorf("find places: %w", redisconn.Unread(err))
	}
	missing := map[admission.Key]*store.Listed{}
	for i := range rows {
		row := &rows[i]
		for k, place := range []admission.Place{store.PlaceDead, admission.PlaceLater, admission.PlaceWaiting, admission.PlaceSpilled} {
			if found[i][k].Err() == nil {
				row.Place = place
				if place != admission.PlaceSpilled { // whose score is no time
					row.At = time.UnixMicro(int64(found[i][k].Val()))
				}
				break
			}
		}
		if row.Place == "" {
			row.Place = store.PlaceUnknown
			missing[row.Key] = row
		}
		row.Reason, row.Text, _ = strings.Cut(why[i].Val(), "|")
	}
	if len(missing) == 0 {
		return nil
	}
	return s.findEntries(ctx, func(entry store.Listed) {
		if row, ok := missing[entry.Key]; ok {
			row.Place, row.Worker, row.Token = entry.Place, entry.Worker, entry.Token
		}
	})
}

// findEntries calls see for each entry of every ready stream. They are never longer than the workers' slots.
func (s *Looking) findEntries(ctx context.Context, see func(store.Listed)) error {
	ids, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.State(), "pools").Result()
	if err != nil && !redisconn.IsNil(err) {
		return fmt.Errorf("read pools: %w", redisconn.Unread(err))
	}
	for id := range strings.FieldsSeq(ids) {
		for after, more := "", true; more; {
			rows, last, err := s.entries(ctx, id, after, store.ListPortion)
			if err != nil {
				return err
			}
			for _, row := range rows {
				see(row)
			}
			after, more = last, len(rows) == store.ListPortion
		}
	}
	return nil
}

// lane names a job's lane, and member is it there: what fragments/record.lua says.
func laneOf(r *store.Record) string {
	if r.Timed || !r.Job.Deadline.IsZero() {
		return "d" + r.Job.Downstream
	}
	return "n" + r.Job.Downstream
}

func memberOf(r *store.Record) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, memberHeader+len(r.Job.ID)), r.Seq)
	b = binary.BigEndian.AppendUint32(b, uint32(r.Job.Cost))
	return string(b) + store.EncodeID(r.Job.ID)
}

// queueNames names every queue that the store knows, sorted: those with dynamics, settings or workers.
func (s *Looking) queueNames(ctx context.Context) ([]string, error) {
	fields, err := redisconn.Client(s.conn).HKeys(ctx, s.conn.Partition.State()).Result()
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", redisconn.Unread(err))
	}
	names := map[string]bool{}
	for _, f := range fields {
		kind, queue, ok := strings.Cut(f, ":")
		if ok && queue != store.Every && (kind == "q" || kind == "cfg" || kind == "pools") {
			names[queue] = true
		}
	}
	return slices.SortedFunc(maps.Keys(names), cmp.Compare[string]), nil
}
