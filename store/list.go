package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// Sizes of a page of a listing.
const (
	DefaultPage = 50
	MaxPage     = 1000
)

// ListQuery says which jobs to list. The zero ListQuery lists all that live.
type ListQuery struct {
	// Place is waiting, later, spilled, ready, running or dead; empty means all. Spilled ones are looked for among all.
	Place admission.Place
	// Queue, Tenant, Type and, of dead letters, Reason leave out all others when not empty.
	Queue, Tenant, Type, Reason string
	// Before, of dead letters, leaves out those that died at that time or later, unless zero.
	Before time.Time
	// Limit is the largest number of jobs of a page, 1 to MaxPage; zero means DefaultPage.
	Limit int
	// Cursor is the Cursor of the page before, of the same query; empty begins.
	Cursor string
}

// Listed is one job of a listing.
type Listed struct {
	Key   admission.Key
	Place admission.Place
	// Record is the job as stored, a Large payload left out. Err is set where it cannot be read.
	Record Record
	Err    error
	// At is when it is due (later), died (dead), or by when its lane orders it (waiting).
	At time.Time
	// Worker and Token tell who holds a running job.
	Worker, Token string
	// Reason and Text say why it is dead.
	Reason, Text string
}

// ListPage is a page of a listing. It may hold fewer jobs than the limit, even none, while Cursor says that there is
// more: a call looks at so many jobs only. Cursor is empty at the end.
type ListPage struct {
	Jobs   []Listed
	Cursor string
}

// listWork is how many jobs a call of List looks at, in portions of listPortion.
const (
	listWork    = 2000
	listPortion = 200
)

// List returns a page of jobs: dead and later ones by time, ready and running ones by pool and entry, waiting ones by
// queue, class and tenant, and all in no order. A job that stays in its place while the pages are read is listed; one
// that moves may be listed twice, or not at all. Bad fields of the query are *headgate.FieldErrors.
func (s *Store) List(ctx context.Context, q ListQuery) (ListPage, error) {
	if err := q.validate(); err != nil {
		return ListPage{}, err
	}
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	at, err := decodeCursor(q.Cursor, q.fingerprint())
	if err != nil {
		return ListPage{}, err
	}
	if s.all != nil {
		return s.listAll(ctx, q, at)
	}
	return s.list(ctx, q, at)
}

// list returns a page of one partition.
func (s *Store) list(ctx context.Context, q ListQuery, at cursor) (ListPage, error) {
	l := &lister{store: s, query: q, at: at, configs: map[string]queueConfig{}}
	for !l.end && len(l.found) < q.Limit && l.looked < listWork {
		if err := l.step(ctx, min(listPortion, q.Limit-len(l.found))); err != nil {
			return ListPage{}, err
		}
	}
	if q.Place == "" || q.Place == admission.PlaceSpilled {
		if err := s.findPlaces(ctx, l.found); err != nil {
			return ListPage{}, err
		}
	}
	if q.Place == admission.PlaceSpilled {
		l.found = slices.DeleteFunc(l.found, func(row Listed) bool { return row.Place != q.Place })
	}
	page := ListPage{Jobs: l.found}
	if !l.end {
		l.at.Part = at.Part
		page.Cursor = l.at.encode()
	}
	return page, nil
}

func (q ListQuery) validate() error {
	switch q.Place {
	case "", admission.PlaceWaiting, admission.PlaceLater, admission.PlaceSpilled, admission.PlaceReady, PlaceRunning, PlaceDead:
	default:
		return &admission.FieldError{Field: "place", Value: strconv.Quote(string(q.Place)), Allowed: "waiting, later, spilled, ready, running or dead, or nothing for all"}
	}
	for _, name := range []struct {
		field, value string
		separates    bool
	}{{"queue", q.Queue, true}, {"tenant", q.Tenant, true}, {"type", q.Type, false}} {
		if name.value == "" {
			continue
		}
		if err := admission.ValidateName(name.field, name.value, name.separates); err != nil {
			return err
		}
	}
	if q.Place != PlaceDead && (q.Reason != "" || !q.Before.IsZero()) {
		return &admission.FieldError{Field: "reason", Value: strconv.Quote(q.Reason), Allowed: "a reason or a time for dead letters only"}
	}
	if q.Limit < 0 || q.Limit > MaxPage {
		return &admission.FieldError{Field: "limit", Value: strconv.Itoa(q.Limit), Allowed: fmt.Sprintf("1 to %d jobs", MaxPage)}
	}
	return nil
}

// lister is one call of List. at moves with what was looked at.
type lister struct {
	store   *Store
	query   ListQuery
	at      cursor
	configs map[string]queueConfig
	found   []Listed
	looked  int
	end     bool
	// spans are the pools or queues that are walked, sorted; nil before they are read.
	spans []string
}

// step looks at about n jobs and keeps those that the query asks for.
func (l *lister) step(ctx context.Context, n int) error {
	switch l.query.Place {
	case PlaceDead:
		key := l.store.partition.Dead()
		if l.query.Queue != "" {
			key += ":" + l.query.Queue
		}
		return l.stepSet(ctx, key, n)
	case admission.PlaceLater:
		return l.stepSet(ctx, l.store.partition.Later(), n)
	case admission.PlaceReady, PlaceRunning:
		return l.stepReady(ctx, n)
	case admission.PlaceWaiting:
		return l.stepWaiting(ctx, n)
	case admission.PlaceSpilled: // among all
	}
	fields, next, end, err := l.store.fields(ctx, l.store.partition.Jobs(), l.at.Jobs, n)
	if err != nil {
		return err
	}
	rows := make([]Listed, len(fields))
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
	l.at.Set = setMark{At: last.at, Key: []byte(last.name)}
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
func (s *Store) records(ctx context.Context, names []string) ([]Listed, error) {
	pipe := connection(s).Pipeline()
	records := pipe.HMGet(ctx, s.partition.Jobs(), names...)
	why := pipe.HMGet(ctx, s.partition.Why(), names...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read jobs: %w", redisconn.Unread(err))
	}
	rows := make([]Listed, len(names))
	for i, name := range names {
		if rec := redisconn.TextAt(records.Val(), i); rec != "" {
			rows[i] = listedOf(name, rec)
			rows[i].Reason, rows[i].Text, _ = strings.Cut(redisconn.TextAt(why.Val(), i), "|")
		}
	}
	return rows, nil
}

func listedOf(raw, rec string) Listed {
	row := Listed{}
	row.Record, row.Err = decodeRecord(raw, rec)
	row.Key = admission.Key{Tenant: row.Record.Job.Tenant, ID: row.Record.Job.ID}
	if row.Err != nil {
		row.Key, _ = decodeKey(raw)
	}
	return row
}

// keep adds the rows that the query asks for, with the names of their classes.
func (l *lister) keep(ctx context.Context, rows []Listed) error {
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
		job.Priority = config.class(row.Record.Class)
		l.found = append(l.found, row)
	}
	return nil
}

// config returns a queue's settings, read once a call.
func (l *lister) config(ctx context.Context, queue string) (queueConfig, error) {
	if c, ok := l.configs[queue]; ok {
		return c, nil
	}
	text, err := connection(l.store).HGet(ctx, l.store.partition.State(), "cfg:"+queue).Result()
	if err != nil && !redisconn.IsNil(err) {
		return queueConfig{}, fmt.Errorf("read queue %s: %w", queue, redisconn.Unread(err))
	}
	l.configs[queue] = parseQueueConfig(text)
	return l.configs[queue], nil
}
