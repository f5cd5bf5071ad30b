package lua

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

	"github.com/headgate/headgate"
)

// ErrUnknownVersion means that a version of the policy is not kept, or never was.
var ErrUnknownVersion = errors.New("unknown version of the policy")

// The actions of an AuditEntry.
const (
	// AuditPolicy is a version of the policy that was put in force.
	AuditPolicy = "policy"
	// AuditOpen and AuditClosed are breakers that were forced, AuditReset is one that was reset.
	AuditOpen   = "open"
	AuditClosed = "closed"
	AuditReset  = "reset"
)

// AuditEntry says who put a version of the policy in force, or changed a breaker. The script that does so writes it;
// nothing changes it afterwards.
type AuditEntry struct {
	// At is Redis's time of it.
	At     time.Time
	Action string
	// Downstream is that of the breaker, For how long it was forced, zero until a reset.
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

// AuditPage are entries of the audit, the newest first.
type AuditPage struct {
	Entries []AuditEntry
	// Cursor goes on with the entries before these; empty at the end.
	Cursor string
	// Gone is how many entries have left: the last 10,000 are kept.
	Gone int64
}

// Audit returns up to limit entries of the audit, 1 to MaxPage, zero for DefaultPage. An empty cursor begins with the
// newest; that of a page goes on.
func (s *Store) Audit(ctx context.Context, limit int, cursor string) (AuditPage, error) {
	if limit < 0 || limit > MaxPage {
		return AuditPage{}, &headgate.FieldError{Field: "limit", Value: strconv.Itoa(limit), Allowed: fmt.Sprintf("1 to %d entries", MaxPage)}
	}
	if limit == 0 {
		limit = DefaultPage
	}
	from := "+"
	if cursor != "" {
		if !isStreamID(cursor) {
			return AuditPage{}, &headgate.FieldError{Field: "cursor", Value: strconv.Quote(cursor), Allowed: "that of a page, as it is"}
		}
		from = "(" + cursor
	}
	pipe := connection(s).Pipeline()
	messages := pipe.XRevRangeN(ctx, s.partition.Audit(), from, "-", int64(limit)+1)
	gone := pipe.HGet(ctx, s.partition.State(), "al")
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return AuditPage{}, fmt.Errorf("read audit: %w", unread(err))
	}
	page := AuditPage{Entries: []AuditEntry{}}
	if text, err := gone.Result(); err == nil {
		page.Gone = whole(text)
	}
	found := messages.Val()
	if len(found) > limit {
		found = found[:limit]
		page.Cursor = found[limit-1].ID
	}
	for _, m := range found {
		page.Entries = append(page.Entries, auditEntry(m.Values))
	}
	return page, nil
}

// isStreamID reports whether a text is "MILLISECONDS-N" as an entry can have it: none has 0-0, and Redis reads nothing before it.
func isStreamID(text string) bool {
	ms, n, ok := strings.Cut(text, "-")
	high, first := strconv.ParseUint(ms, 10, 64)
	low, second := strconv.ParseUint(n, 10, 64)
	return ok && first == nil && second == nil && (high > 0 || low > 0)
}

// whole reads what a script wrote; empty is zero.
func whole(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func auditEntry(values map[string]any) AuditEntry {
	text := func(name string) string {
		value, _ := values[name].(string)
		return value
	}
	return AuditEntry{
		At: time.UnixMicro(whole(text("at"))), Action: cmp.Or(text("action"), AuditPolicy), Downstream: text("downstream"),
		For: time.Duration(whole(text("for"))) * time.Microsecond, From: whole(text("from")), To: whole(text("to")), Author: text("author"),
		Reason: text("reason"), Restored: whole(text("restored")), Changes: []byte(text("changes")),
	}
}

// PolicyVersions returns the versions that are kept, the newest first, as the audit tells of them. Of one that an older
// program stored only To is known.
func (s *Store) PolicyVersions(ctx context.Context) ([]AuditEntry, error) {
	kept, err := connection(s).HKeys(ctx, s.partition.Policies()).Result()
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", unread(err))
	}
	audit, err := s.Audit(ctx, MaxPage, "")
	if err != nil {
		return nil, err
	}
	told := map[int64]AuditEntry{}
	for _, entry := range audit.Entries {
		told[entry.To] = entry // Breakers' entries name no version, and none that is kept is 0.
	}
	versions := make([]AuditEntry, len(kept))
	for i, text := range kept {
		version := whole(text)
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
		return nil, fmt.Errorf("read version %d: %w", version, unread(err))
	}
	return text, nil
}
