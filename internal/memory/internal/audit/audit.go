package audit

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/memory/internal/names"
	"github.com/headgate/headgate/store"
)

const (
	kept = 10_000
	// looked is how many entries a call looks at.
	looked = 2000
	// What one act does in several calls is one entry, if it is among the last lookBack and no older than actLasts.
	lookBack = 8
	actLasts = 600_000_000
)

// entry is one of the audit: id orders them, and act names what several calls do.
type entry struct {
	store.AuditEntry

	id, act string
}

// Log is the audit, the oldest entry first.
type Log struct {
	entries []entry
	gone    int64 // how many entries have left it
}

// Add adds an entry under an id that is above all others. act names what several calls do, empty for nothing.
func (l *Log) Add(now int64, id, act string, e store.AuditEntry) {
	e.At = time.UnixMicro(now)
	e.Changes = append([]byte{}, e.Changes...)
	l.entries = append(l.entries, entry{e, id, act})
	if gone := len(l.entries) - kept; gone > 0 {
		l.entries, l.gone = slices.Delete(l.entries, 0, gone), l.gone+int64(gone)
	}
}

// Record adds what was done to what a name says (that of a gate, of a job or of a scope), to how many jobs, and for how long.
func (l *Log) Record(now int64, id string, by store.Intervention, action, name string, n int, length time.Duration) {
	jobs := int64(n)
	if by.Act != "" {
		for i := len(l.entries) - 1; i >= max(0, len(l.entries)-lookBack); i-- {
			e := &l.entries[i]
			if e.act == by.Act && e.Action == action && e.Name == name && e.Author == by.Author && now-e.At.UnixMicro() < actLasts {
				jobs += e.Jobs
				l.entries = slices.Delete(l.entries, i, i+1)
				break
			}
		}
	}
	l.Add(now, id, by.Act, store.AuditEntry{
		Action: action, Name: name, Jobs: jobs, For: length.Truncate(time.Microsecond), Author: by.Author, Reason: by.Reason,
	})
}

// Edits returns the entries of the policy's versions, the oldest of each.
func (l *Log) Edits() map[int64]store.AuditEntry {
	told := map[int64]store.AuditEntry{}
	for _, e := range l.entries {
		if _, seen := told[e.To]; !seen && e.Action == store.AuditPolicy {
			told[e.To] = e.AuditEntry
		}
	}
	return told
}

// Page returns the entries that a query asks for, the newest first.
func (l *Log) Page(q store.AuditQuery) store.AuditPage {
	page := store.AuditPage{Entries: []store.AuditEntry{}, Gone: l.gone}
	limit, end := cmp.Or(q.Limit, store.DefaultPage), len(l.entries)
	if q.Cursor != "" {
		end, _ = slices.BinarySearchFunc(l.entries, q.Cursor, func(e entry, id string) int {
			if names.Before(e.id, id) {
				return -1
			}
			return 1
		})
	}
	n := 0
	for ; n < min(end, looked) && len(page.Entries) < limit; n++ {
		e := l.entries[end-1-n]
		page.Cursor = e.id
		if q.Wants(&e.AuditEntry) {
			e.Changes = bytes.Clone(e.Changes)
			page.Entries = append(page.Entries, e.AuditEntry)
		}
	}
	if n == end && n < looked {
		page.Cursor = ""
	}
	return page
}

// IsCursor reports whether a text is "MILLISECONDS-N", but 0-0.
func IsCursor(text string) bool {
	ms, n, ok := strings.Cut(text, "-")
	high, first := strconv.ParseUint(ms, 10, 64)
	low, second := strconv.ParseUint(n, 10, 64)
	return ok && first == nil && second == nil && (high > 0 || low > 0)
}

// After returns entries after a position, as store.Following says.
func (l *Log) After(position string, count int) store.Stretch[store.AuditRecord] {
	of := store.Stretch[store.AuditRecord]{Position: position, Gone: l.gone, Kept: int64(len(l.entries))}
	for _, e := range l.entries {
		if len(of.Entries) < count && (position == "" || names.After(e.id, position)) {
			e.Changes = bytes.Clone(e.Changes)
			of.Entries, of.Position = append(of.Entries, store.AuditRecord{ID: e.id, Act: e.act, AuditEntry: e.AuditEntry}), e.id
		}
	}
	return of
}
