package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// auditLook is how many entries of a partition a call of Audit looks at, in portions of auditPortion.
const (
	auditLook    = 2000
	auditPortion = 200
)

// Audit returns the entries that a query asks for. What was done in all partitions at once is told once.
func (s *Policies) Audit(ctx context.Context, q store.AuditQuery) (store.AuditPage, error) {
	return AuditOf(ctx, []*redisconn.Conn{s.conn}, q)
}

// AuditOf returns the entries of all partitions that a query asks for. What was done in all at once is told once.
func AuditOf(ctx context.Context, parts []*redisconn.Conn, q store.AuditQuery) (store.AuditPage, error) {
	if err := q.Validate(); err != nil {
		return store.AuditPage{}, err
	}
	if q.Limit == 0 {
		q.Limit = store.DefaultPage
	}
	at := strings.Split(q.Cursor, ",")
	if q.Cursor == "" {
		at = make([]string, len(parts))
	}
	if len(at) != len(parts) || !allFunc(at, func(id string) bool { return id == "" || len(at) > 1 && id == auditEnd || isStreamID(id) }) {
		return store.AuditPage{}, &admission.FieldError{Field: "cursor", Value: strconv.Quote(q.Cursor), Allowed: "that of a page, as it is"}
	}
	readers := make([]*auditReader, len(parts))
	page := store.AuditPage{Entries: []store.AuditEntry{}}
	for i, part := range parts {
		readers[i] = &auditReader{conn: part, at: at[i], first: i == 0, left: auditLook}
		gone, err := redisconn.Client(part).HGet(ctx, part.Partition.State(), "al").Result()
		if err != nil && !redisconn.IsNil(err) {
			return store.AuditPage{}, fmt.Errorf("read audit: %w", redisconn.Unread(err))
		}
		page.Gone += redisconn.Whole(gone)
	}
	for len(page.Entries) < q.Limit {
		latest, err := latestOf(ctx, readers)
		if err != nil {
			return store.AuditPage{}, err
		}
		if latest == nil {
			break
		}
		entry := latest.take()
		if q.Wants(&entry) {
			page.Entries = append(page.Entries, entry)
		}
	}
	return page, goOn(ctx, &page, readers)
}

// goOn writes the cursor, unless nothing is left.
func goOn(ctx context.Context, p *store.AuditPage, readers []*auditReader) error {
	ids, more := make([]string, len(readers)), false
	for i, r := range readers {
		if err := r.peek(ctx); err != nil {
			return err
		}
		if ids[i] = r.at; r.end && len(r.ahead) == 0 {
			ids[i] = auditEnd
		} else {
			more = true
		}
	}
	if more {
		p.Cursor = strings.Join(ids, ",")
	}
	return nil
}

// auditEnd is where a partition's audit ends, in a cursor.
const auditEnd = "-"

// auditReader goes back through a partition's audit.
type auditReader struct {
	conn  *redisconn.Conn
	at    string // the id of the last entry that was taken
	first bool   // whether the policy's entries are told of it: each partition has them
	ahead []redis.XMessage
	left  int // how many more it may look at
	end   bool
}

// peek reads on where nothing is ahead.
func (r *auditReader) peek(ctx context.Context) error {
	if len(r.ahead) > 0 || r.end || r.at == auditEnd || r.left <= 0 {
		r.end = r.end || r.at == auditEnd
		return nil
	}
	from := "+"
	if r.at != "" {
		from = "(" + r.at
	}
	found, err := redisconn.Client(r.conn).XRevRangeN(ctx, r.conn.Partition.Audit(), from, "-", auditPortion).Result()
	if err != nil {
		return fmt.Errorf("read audit: %w", redisconn.Unread(err))
	}
	r.left -= len(found)
	r.ahead, r.end = found, len(found) < auditPortion
	return nil
}

// take returns what is ahead.
func (r *auditReader) take() store.AuditEntry {
	message := r.ahead[0]
	r.at, r.ahead = message.ID, r.ahead[1:]
	return auditEntry(message.Values)
}

// latestOf returns the reader whose next entry is the newest of all, nil where there is none, or where one has looked at enough.
func latestOf(ctx context.Context, readers []*auditReader) (latest *auditReader, err error) {
	var newest time.Time
	for _, r := range readers {
		for {
			if err := r.peek(ctx); err != nil {
				return nil, err
			}
			if len(r.ahead) == 0 || r.first || auditEntry(r.ahead[0].Values).Action != store.AuditPolicy {
				break
			}
			r.take()
		}
		if len(r.ahead) == 0 {
			if !r.end {
				return nil, nil //nolint:nilnil // as it says
			}
			continue
		}
		if at := auditEntry(r.ahead[0].Values).At; latest == nil || at.After(newest) {
			latest, newest = r, at
		}
	}
	return latest, nil
}

func allFunc(texts []string, ok func(string) bool) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !ok(text) })
}

// isStreamID reports whether a text is "MILLISECONDS-N" as an entry can have it: none has 0-0, and Redis reads nothing before it.
func isStreamID(text string) bool {
	ms, n, ok := strings.Cut(text, "-")
	high, first := strconv.ParseUint(ms, 10, 64)
	low, second := strconv.ParseUint(n, 10, 64)
	return ok && first == nil && second == nil && (high > 0 || low > 0)
}

func auditEntry(values map[string]any) store.AuditEntry {
	text := func(name string) string {
		value, _ := values[name].(string)
		return value
	}
	return store.AuditEntry{
		At: time.UnixMicro(redisconn.Whole(text("at"))), Action: cmp.Or(text("action"), store.AuditPolicy), Downstream: text("downstream"),
		Name: text("name"), Jobs: redisconn.Whole(text("n")),
		For: time.Duration(redisconn.Whole(text("for"))) * time.Microsecond, From: redisconn.Whole(text("from")), To: redisconn.Whole(text("to")), Author: text("author"),
		Reason: text("reason"), Restored: redisconn.Whole(text("restored")), Changes: []byte(text("changes")),
	}
}

// AuditAfter returns entries of the audit after a position, the earliest first, as store.Following says.
func (s *Policies) AuditAfter(ctx context.Context, after string, count int) (of store.Stretch[store.AuditRecord], err error) {
	pipe := redisconn.Client(s.conn).TxPipeline()
	gone := pipe.HGet(ctx, s.conn.Partition.State(), "al")
	kept := pipe.XLen(ctx, s.conn.Partition.Audit())
	found := pipe.XRangeN(ctx, s.conn.Partition.Audit(), redisconn.Behind(after), "+", int64(count))
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return of, fmt.Errorf("read audit: %w", redisconn.Unread(err))
	}
	of.Position, of.Gone, of.Kept = after, redisconn.Whole(gone.Val()), kept.Val()
	for _, m := range found.Val() {
		act, _ := m.Values["act"].(string)
		of.Entries, of.Position = append(of.Entries, store.AuditRecord{ID: m.ID, Act: act, AuditEntry: auditEntry(m.Values)}), m.ID
	}
	return of, nil
}

// PolicyVersions returns the versions that are kept, the newest first, as the audit tells of them. Of one that an older
// program stored only To is known.
func (s *Policies) PolicyVersions(ctx context.Context) ([]store.AuditEntry, error) {
	kept, err := redisconn.Client(s.conn).HKeys(ctx, s.conn.Partition.Policies()).Result()
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", redisconn.Unread(err))
	}
	told := map[int64]store.AuditEntry{}
	for q := (store.AuditQuery{Limit: store.MaxPage, Action: store.AuditPolicy}); len(told) < len(kept); {
		page, err := s.Audit(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, entry := range page.Entries {
			if slices.Contains(kept, strconv.FormatInt(entry.To, 10)) {
				told[entry.To] = entry
			}
		}
		if q.Cursor = page.Cursor; q.Cursor == "" {
			break
		}
	}
	versions := make([]store.AuditEntry, len(kept))
	for i, text := range kept {
		version := redisconn.Whole(text)
		versions[i] = told[version]
		versions[i].To = version
	}
	slices.SortFunc(versions, func(a, b store.AuditEntry) int { return int(b.To - a.To) })
	return versions, nil
}

// PolicyVersion returns the text of a version, to the byte as it was stored. One that is not kept is ErrUnknownVersion.
func (s *Policies) PolicyVersion(ctx context.Context, version int64) ([]byte, error) {
	text, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.Policies(), strconv.FormatInt(version, 10)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%w: %d", store.ErrUnknownVersion, version)
	}
	if err != nil {
		return nil, fmt.Errorf("read version %d: %w", version, redisconn.Unread(err))
	}
	return text, nil
}
