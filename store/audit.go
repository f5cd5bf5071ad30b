package store

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
)

// ErrUnknownVersion means that a version of the policy is not kept, or never was.
var ErrUnknownVersion = errors.New("unknown version of the policy")

// The actions of an AuditEntry that are about the policy and breakers; actions.go has the others.
const (
	// AuditPolicy is a version of the policy that was put in force.
	AuditPolicy = "policy"
	// AuditOpen and AuditClosed are breakers that were forced, AuditReset is one that was reset.
	AuditOpen   = "open"
	AuditClosed = "closed"
	AuditReset  = "reset"
)

// AuditActions are all of them.
var AuditActions = []string{
	AuditPolicy, AuditOpen, AuditClosed, AuditReset, AuditPause, AuditUnpause, AuditGate, AuditSuspend, AuditResume, AuditDrain,
	AuditCancel, AuditClear, AuditPurgeQueue, AuditPurge, AuditRedrive, AuditRedriveFree, AuditResetBucket,
}

// AuditEntry says who did what, when and why: put a version of the policy in force, changed a breaker, a gate, a suspension or a
// bucket, or ended or brought back jobs. The script that does so writes it; nothing changes it afterwards but more of the same act.
type AuditEntry struct {
	// At is Redis's time of it, of several calls that of the last.
	At     time.Time
	Action string
	// Name is what was acted on: the gate of a hold or of a queue whose jobs it was, a job, or the scope of a bucket. Jobs is to how
	// many jobs, of a pause how many had passed before.
	Name string
	Jobs int64
	// Downstream is that of the breaker. For is how long it was forced, or a hold lasts; zero until it is ended.
	Downstream string
	For        time.Duration
	// From is the version that was in force before, To the one since; 0 is the built-in policy.
	From, To int64
	// Author is who, Reason why.
	Author, Reason string
	// Restored is the version whose document To has; zero if it was a new one.
	Restored int64
	// Changes is the JSON of PolicyUpdate.Changes.
	Changes []byte
}

// AuditQuery says which entries to return. The zero AuditQuery returns the newest.
type AuditQuery struct {
	// Limit is the largest number of entries, 1 to MaxPage, zero for DefaultPage.
	Limit int
	// Cursor is that of the page before, of the same query; empty begins with the newest.
	Cursor string
	// Action, Author and Name leave out all others when not empty. An Action is one of AuditActions.
	Action, Author, Name string
}

// AuditPage are entries of the audit, the newest first. Those of a query that leaves some out may be fewer than its limit, even none,
// while Cursor says that there is more: a call looks at so many only.
type AuditPage struct {
	Entries []AuditEntry
	// Cursor goes on with the entries before these; empty at the end.
	Cursor string
	// Gone is how many entries have left: the last 10,000 of each partition are kept.
	Gone int64
}

// auditLook is how many entries of a partition a call of Audit looks at, in portions of auditPortion.
const (
	auditLook    = 2000
	auditPortion = 200
)

func (q AuditQuery) validate() error {
	var bad []error
	if q.Limit < 0 || q.Limit > MaxPage {
		bad = append(bad, &admission.FieldError{Field: "limit", Value: strconv.Itoa(q.Limit), Allowed: fmt.Sprintf("1 to %d entries", MaxPage)})
	}
	if q.Action != "" && !slices.Contains(AuditActions, q.Action) {
		bad = append(bad, &admission.FieldError{Field: "action", Value: strconv.Quote(q.Action), Allowed: strings.Join(AuditActions, ", ")})
	}
	return errors.Join(bad...)
}

func (q AuditQuery) wants(e *AuditEntry) bool {
	return (q.Action == "" || q.Action == e.Action) && (q.Author == "" || q.Author == e.Author) &&
		(q.Name == "" || q.Name == e.Name || q.Name == e.Downstream)
}

// Audit returns the entries that a query asks for. What was done in all partitions at once is told once.
func (s *Store) Audit(ctx context.Context, q AuditQuery) (AuditPage, error) {
	if err := q.validate(); err != nil {
		return AuditPage{}, err
	}
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	parts := s.all
	if parts == nil {
		parts = []*Store{s}
	}
	at := strings.Split(q.Cursor, ",")
	if q.Cursor == "" {
		at = make([]string, len(parts))
	}
	if len(at) != len(parts) || !allFunc(at, func(id string) bool { return id == "" || len(at) > 1 && id == auditEnd || isStreamID(id) }) {
		return AuditPage{}, &admission.FieldError{Field: "cursor", Value: strconv.Quote(q.Cursor), Allowed: "that of a page, as it is"}
	}
	readers := make([]*auditReader, len(parts))
	page := AuditPage{Entries: []AuditEntry{}}
	for i, part := range parts {
		readers[i] = &auditReader{store: part, at: at[i], first: i == 0, left: auditLook}
		gone, err := connection(part).HGet(ctx, part.partition.State(), "al").Result()
		if err != nil && !redisconn.IsNil(err) {
			return AuditPage{}, fmt.Errorf("read audit: %w", redisconn.Unread(err))
		}
		page.Gone += redisconn.Whole(gone)
	}
	for len(page.Entries) < q.Limit {
		latest, err := latestOf(ctx, readers)
		if err != nil {
			return AuditPage{}, err
		}
		if latest == nil {
			break
		}
		entry := latest.take()
		if q.wants(&entry) {
			page.Entries = append(page.Entries, entry)
		}
	}
	return page, page.goOn(ctx, readers)
}

// goOn writes the cursor, unless nothing is left.
func (p *AuditPage) goOn(ctx context.Context, readers []*auditReader) error {
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
	store *Store
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
	found, err := connection(r.store).XRevRangeN(ctx, r.store.partition.Audit(), from, "-", auditPortion).Result()
	if err != nil {
		return fmt.Errorf("read audit: %w", redisconn.Unread(err))
	}
	r.left -= len(found)
	r.ahead, r.end = found, len(found) < auditPortion
	return nil
}

// take returns what is ahead.
func (r *auditReader) take() AuditEntry {
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
			if len(r.ahead) == 0 || r.first || auditEntry(r.ahead[0].Values).Action != AuditPolicy {
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

func auditEntry(values map[string]any) AuditEntry {
	text := func(name string) string {
		value, _ := values[name].(string)
		return value
	}
	return AuditEntry{
		At: time.UnixMicro(redisconn.Whole(text("at"))), Action: cmp.Or(text("action"), AuditPolicy), Downstream: text("downstream"),
		Name: text("name"), Jobs: redisconn.Whole(text("n")),
		For: time.Duration(redisconn.Whole(text("for"))) * time.Microsecond, From: redisconn.Whole(text("from")), To: redisconn.Whole(text("to")), Author: text("author"),
		Reason: text("reason"), Restored: redisconn.Whole(text("restored")), Changes: []byte(text("changes")),
	}
}

// PolicyVersions returns the versions that are kept, the newest first, as the audit tells of them. Of one that an older
// program stored only To is known.
func (s *Store) PolicyVersions(ctx context.Context) ([]AuditEntry, error) {
	kept, err := connection(s).HKeys(ctx, s.partition.Policies()).Result()
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", redisconn.Unread(err))
	}
	told := map[int64]AuditEntry{}
	for q := (AuditQuery{Limit: MaxPage, Action: AuditPolicy}); len(told) < len(kept); {
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
	versions := make([]AuditEntry, len(kept))
	for i, text := range kept {
		version := redisconn.Whole(text)
		versions[i] = told[version]
		versions[i].To = version
	}
	slices.SortFunc(versions, func(a, b AuditEntry) int { return int(b.To - a.To) })
	return versions, nil
}

// PolicyVersion returns the text of a version, to the byte as it was stored. One that is not kept is ErrUnknownVersion.
func (s *Store) PolicyVersion(ctx context.Context, version int64) ([]byte, error) {
	text, err := connection(s).HGet(ctx, s.partition.Policies(), strconv.FormatInt(version, 10)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%w: %d", ErrUnknownVersion, version)
	}
	if err != nil {
		return nil, fmt.Errorf("read version %d: %w", version, redisconn.Unread(err))
	}
	return text, nil
}
