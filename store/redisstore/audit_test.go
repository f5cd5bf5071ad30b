package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

func openAudit(t *testing.T) *Partition {
	t.Helper()
	s, err := openOnly(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t)})
	check(t, err)
	return s
}

func edit(version int64, text string) store.PolicyUpdate {
	return store.PolicyUpdate{
		Expected: version - 1, Version: version, Text: []byte(text), Window: time.Minute, LongestFill: time.Second,
		Edit: fmt.Sprint(version, text), Author: "ada", Reason: "launch",
	}
}

// wholeAudit reads the audit page by page.
func wholeAudit(ctx context.Context, t *testing.T, s store.Policies, limit int) []store.AuditEntry {
	t.Helper()
	var all []store.AuditEntry
	for cursor := ""; ; {
		page, err := s.Audit(ctx, store.AuditQuery{Limit: limit, Cursor: cursor})
		check(t, err)
		if len(page.Entries) > limit {
			t.Fatalf("a page of %d entries, limit %d", len(page.Entries), limit)
		}
		all = append(all, page.Entries...)
		if cursor = page.Cursor; cursor == "" {
			return all
		}
	}
}

// TestAuditIsCompleteUnderConcurrentEditors: each version that is kept has exactly one entry, by the editor who was told
// that it is stored, and who lost has none. All send the same text, so that only the edit's name tells them apart.
func TestAuditIsCompleteUnderConcurrentEditors(t *testing.T) {
	t.Parallel()
	s := openAudit(t)
	const editors, rounds = 16, 6
	winners := make([][]string, rounds+1) // by version
	var mu sync.Mutex
	var lost int
	var all sync.WaitGroup
	for e := range editors {
		all.Go(func() {
			for v := int64(1); v <= rounds; v++ {
				u := edit(v, fmt.Sprintf(`{"v":%d}`, v))
				u.Author = fmt.Sprintf("editor %d", e)
				u.Edit = u.Author
				err := s.PutPolicy(t.Context(), u)
				mu.Lock()
				switch {
				case err == nil:
					winners[v] = append(winners[v], u.Author)
				case errors.Is(err, store.ErrConflict):
					lost++
				default:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if lost != (editors-1)*rounds {
		t.Errorf("%d lost, want %d", lost, (editors-1)*rounds)
	}
	entries := wholeAudit(t.Context(), t, s, 4)
	if len(entries) != rounds {
		t.Fatalf("%d entries of %d versions: %+v", len(entries), rounds, entries)
	}
	for i, entry := range entries {
		version := int64(rounds - i)
		if entry.To != version || entry.From != version-1 || len(winners[version]) != 1 || entry.Author != winners[version][0] || entry.Reason != "launch" {
			t.Errorf("entry %+v of version %d, which %v stored", entry, version, winners[version])
		}
		if off := time.Since(entry.At); off < -time.Minute || off > time.Minute {
			t.Errorf("the entry says %s", entry.At)
		}
	}
}

// TestAResentEditHasOneEntry: the same call again, after a lost reply, is the same edit.
func TestAResentEditHasOneEntry(t *testing.T) {
	t.Parallel()
	s := openAudit(t)
	u := edit(1, "{}")
	check(t, s.PutPolicy(t.Context(), u))
	check(t, s.PutPolicy(t.Context(), u))
	if entries := wholeAudit(t.Context(), t, s, 10); len(entries) != 1 {
		t.Errorf("%+v", entries)
	}
	u.Edit = "another"
	if err := s.PutPolicy(t.Context(), u); !errors.Is(err, store.ErrConflict) {
		t.Errorf("another edit with the same text: %v", err)
	}
}

// TestVersionsAndAuditAreBounded: the last hundred versions are kept, 64 MiB of them at most beside the newest, and what
// leaves the audit is counted.
func TestVersionsAndAuditAreBounded(t *testing.T) {
	t.Parallel()
	s := openAudit(t)
	ctx := t.Context()
	for v := int64(1); v <= 105; v++ {
		check(t, s.PutPolicy(ctx, edit(v, fmt.Sprintf(`{"v":%d}`, v))))
	}
	versions, err := s.PolicyVersions(ctx)
	check(t, err)
	if len(versions) != 100 || versions[0].To != 105 || versions[99].To != 6 || versions[99].Author != "ada" {
		t.Errorf("%d versions, %+v to %+v", len(versions), versions[0], versions[len(versions)-1])
	}
	if text, err := s.PolicyVersion(ctx, 6); err != nil || string(text) != `{"v":6}` {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := s.PolicyVersion(ctx, 5); !errors.Is(err, store.ErrUnknownVersion) {
		t.Errorf("a version that left: %v", err)
	}
	large := strings.Repeat("x", 20<<20)
	for v := int64(106); v <= 110; v++ {
		check(t, s.PutPolicy(ctx, edit(v, large)))
	}
	if versions, err = s.PolicyVersions(ctx); err != nil || len(versions) != 4 || versions[0].To != 110 {
		t.Errorf("%d large versions are kept, %v", len(versions), err)
	}
	pipe := redisconn.Client(s.conn).Pipeline()
	for range 10_000 {
		pipe.Do(ctx, "xadd", s.conn.Partition.Audit(), "*", "to", "1")
	}
	_, err = pipe.Exec(ctx)
	check(t, err)
	check(t, s.PutPolicy(ctx, edit(111, "{}")))
	page, err := s.Audit(ctx, store.AuditQuery{Limit: 1})
	check(t, err)
	if page.Gone != 111 || page.Entries[0].To != 111 {
		t.Errorf("%+v", page)
	}
}

// TestAVersionOfAnOlderProgramIsKept: what was in force before versions were kept can be gone back to.
func TestAVersionOfAnOlderProgramIsKept(t *testing.T) {
	t.Parallel()
	s := openAudit(t)
	ctx := t.Context()
	check(t, redisconn.Client(s.conn).Set(ctx, s.conn.Partition.Policy(), "{}", 0).Err())
	check(t, redisconn.Client(s.conn).HSet(ctx, s.conn.Partition.State(), "pv", 7).Err())
	check(t, s.PutPolicy(ctx, edit(8, `{"v":8}`)))
	versions, err := s.PolicyVersions(ctx)
	check(t, err)
	if len(versions) != 2 || versions[1].To != 7 || versions[1].Author != "" || versions[0].From != 7 {
		t.Errorf("%+v", versions)
	}
}

func TestBadEditsAreRefused(t *testing.T) {
	t.Parallel()
	s := openAudit(t)
	u := edit(1, "{}")
	u.Author, u.Reason, u.Edit = strings.Repeat("a", 257), "two\nlines", "-"
	err := s.PutPolicy(t.Context(), u)
	for _, want := range []string{"edit", "author of 257 bytes", "reason of 9 bytes"} {
		if !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	for _, cursor := range []string{"x", "1", "1-x", "(1-1"} {
		if _, err := s.Audit(t.Context(), store.AuditQuery{Cursor: cursor}); !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	if _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1001}); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("1001 entries: %v", err)
	}
}

func TestACursorOfTheAuditThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	s := openAudit(t)
	for _, cursor := range []string{"0-0", "00-0", "1", "-", "1-", "+1-1", "1-x", "18446744073709551616-0"} {
		if _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1, Cursor: cursor}); !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s: %v", cursor, err)
		}
	}
}
