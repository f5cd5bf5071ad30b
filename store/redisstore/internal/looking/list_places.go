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
