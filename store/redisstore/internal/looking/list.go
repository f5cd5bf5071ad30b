package looking

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// List returns a page of jobs: dead and later ones by time, ready and running ones by pool and entry, waiting ones by
// queue, class and tenant, and all in no order. A job that stays in its place while the pages are read is listed; one
// that moves may be listed twice, or not at all. Bad fields of the query are *headgate.FieldErrors.
func (s *Looking) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	at, err := q.Begin()
	if err != nil {
		return store.ListPage{}, err
	}
	return s.ListFrom(ctx, q, at)
}

// ListFrom returns a page of one partition.
func (s *Looking) ListFrom(ctx context.Context, q store.ListQuery, at store.ListCursor) (store.ListPage, error) {
	l := &lister{store: s, query: q, at: at, configs: map[string]queueConfig{}}
	for !l.end && len(l.found) < q.Limit && l.looked < store.ListWork {
		if err := l.step(ctx, min(store.ListPortion, q.Limit-len(l.found))); err != nil {
			return store.ListPage{}, err
		}
	}
	if q.Place == "" || q.Place == admission.PlaceSpilled {
		if err := s.findPlaces(ctx, l.found); err != nil {
			return store.ListPage{}, err
		}
	}
	if q.Place == admission.PlaceSpilled {
		l.found = slices.DeleteFunc(l.found, func(row store.Listed) bool { return row.Place != q.Place })
	}
	page := store.ListPage{Jobs: l.found}
	if !l.end {
		l.at.Part = at.Part
		page.Cursor = l.at.EncodeFor(q.Tenant)
	}
	return page, nil
}

// lister is one call of List. at moves with what was looked at.
type lister struct {
	store   *Looking
	query   store.ListQuery
	at      store.ListCursor
	configs map[string]queueConfig
	found   []store.Listed
	looked  int
	end     bool
	// spans are the pools or queues that are walked, sorted; nil before they are read.
	spans []string
}

// step looks at about n jobs and keeps those that the query asks for.
func (l *lister) step(ctx context.Context, n int) error {
	switch l.query.Place {
	case store.PlaceDead:
		key := l.store.conn.Partition.Dead()
		if l.query.Queue != "" {
			key += ":" + l.query.Queue
		}
		return l.stepSet(ctx, key, n)
	case admission.PlaceLater:
		return l.stepSet(ctx, l.store.conn.Partition.Later(), n)
	case admission.PlaceReady, store.PlaceRunning:
		return l.stepReady(ctx, n)
	case admission.PlaceWaiting:
		return l.stepWaiting(ctx, n)
	case admission.PlaceSpilled: // among all
	}
	fields, next, end, err := l.store.fields(ctx, l.store.conn.Partition.Jobs(), l.at.Jobs, n)
	if err != nil {
		return err
	}
	rows := make([]store.Listed, len(fields))
	for i, f := range fields {
		rows[i] = listedOf(f.name, f.value)
	}
	l.at.Jobs, l.end = next, end
	return l.keep(ctx, rows)
}

// stepSet goes on in a sorted set of keys.
func (l *lister) stepSet(ctx context.Context, key string, n int) error {
	members, err := l.store.after(ctx, key, l.at.Set, n)
	if err != nil {
		return err
	}
	l.end = len(members) < n
	for i, m := range members {
		if !l.query.Before.IsZero() && m.at >= l.query.Before.UnixMicro() {
			members, l.end = members[:i], true
			break
		}
	}
	if len(members) == 0 {
		return nil
	}
	last := members[len(members)-1]
	l.at.Set = store.SetMark{At: last.at, Key: []byte(last.name)}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	rows, err := l.store.records(ctx, names)
	if err != nil {
		return err
	}
	kept := rows[:0]
	for i, row := range rows {
		if row.Place = l.query.Place; row.Key.Tenant != "" {
			row.At = time.UnixMicro(members[i].at)
			kept = append(kept, row)
		}
	}
	return l.keep(ctx, kept)
}

// records reads the jobs of raw keys, with why they are dead. One that has left is a Listed without a Key.
func (s *Looking) records(ctx context.Context, names []string) ([]store.Listed, error) {
	pipe := redisconn.Client(s.conn).Pipeline()
	records := pipe.HMGet(ctx, s.conn.Partition.Jobs(), names...)
	why := pipe.HMGet(ctx, s.conn.Partition.Why(), names...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read jobs: %w", redisconn.Unread(err))
	}
	rows := make([]store.Listed, len(names))
	for i, name := range names {
		if rec := redisconn.TextAt(records.Val(), i); rec != "" {
			rows[i] = listedOf(name, rec)
			rows[i].Reason, rows[i].Text, _ = strings.Cut(redisconn.TextAt(why.Val(), i), "|")
		}
	}
	return rows, nil
}

func listedOf(raw, rec string) store.Listed {
	row := store.Listed{}
	row.Record, row.Err = codec.DecodeRecord(raw, rec)
	row.Key = admission.Key{Tenant: row.Record.Job.Tenant, ID: row.Record.Job.ID}
	if row.Err != nil {
		row.Key, _ = store.DecodeKey(raw)
	}
	return row
}

// keep adds the rows that the query asks for, with the names of their classes.
func (l *lister) keep(ctx context.Context, rows []store.Listed) error {
	l.looked += len(rows)
	for _, row := range rows {
		job := &row.Record.Job
		if l.query.Queue != "" && job.Queue != l.query.Queue || l.query.Tenant != "" && row.Key.Tenant != l.query.Tenant ||
			l.query.Type != "" && job.Type != l.query.Type || l.query.Reason != "" && row.Reason != l.query.Reason {
			continue
		}
		config, err := l.config(ctx, job.Queue)
		if err != nil {
			return err
		}
		job.Priority = store.ClassName(config.classes, row.Record.Class)
		l.found = append(l.found, row)
	}
	return nil
}

// config returns a queue's settings, read once a call.
func (l *lister) config(ctx context.Context, queue string) (queueConfig, error) {
	if c, ok := l.configs[queue]; ok {
		return c, nil
	}
	texts, err := redisconn.Client(l.store.conn).HMGet(ctx, l.store.conn.Partition.State(), "cfg:"+queue, "cfg:*").Result()
	if err != nil {
		return queueConfig{}, fmt.Errorf("read queue %s: %w", queue, redisconn.Unread(err))
	}
	l.configs[queue] = parseQueueConfig(redisconn.TextAt(texts, 0), redisconn.TextAt(texts, 1))
	return l.configs[queue], nil
}
