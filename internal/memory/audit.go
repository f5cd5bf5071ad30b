package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

const (
	keptAudit = 10_000
	// auditLook is how many entries a call looks at.
	auditLook = 2000
	// What one act does in several calls is one entry, if it is among the last lookBack and no older than actLasts.
	lookBack = 8
	actLasts = 600_000_000
)

// auditTopic is waited for by those who follow the policy.
const auditTopic = "audit"

// audited is an entry of the audit: id orders them, and act names what several calls do.
type audited struct {
	store.AuditEntry

	id, act string
}

// auditAdd adds an entry to the audit. act names what several calls do, empty for nothing.
func (m *model) auditAdd(now int64, act string, e store.AuditEntry) {
	e.At = time.UnixMicro(now)
	e.Changes = append([]byte{}, e.Changes...)
	m.entries = append(m.entries, audited{e, m.newToken(now), act})
	if gone := len(m.entries) - keptAudit; gone > 0 {
		m.entries, m.entriesGone = slices.Delete(m.entries, 0, gone), m.entriesGone+int64(gone)
	}
	m.happened[auditTopic] = true
}

// record tells the audit what was done to what a name says (that of a gate, of a job or of a scope), to how many jobs, and for how long.
func (m *model) record(now int64, by store.Intervention, action, name string, n int, length time.Duration) {
	if by.Own {
		return
	}
	jobs := int64(n)
	if by.Act != "" {
		for i := len(m.entries) - 1; i >= max(0, len(m.entries)-lookBack); i-- {
			e := &m.entries[i]
			if e.act == by.Act && e.Action == action && e.Name == name && e.Author == by.Author && now-e.At.UnixMicro() < actLasts {
				jobs += e.Jobs
				m.entries = slices.Delete(m.entries, i, i+1)
				break
			}
		}
	}
	m.auditAdd(now, by.Act, store.AuditEntry{
		Action: action, Name: name, Jobs: jobs, For: length.Truncate(time.Microsecond), Author: by.Author, Reason: by.Reason,
	})
}

// Audit returns the entries that a query asks for, as store.Partition.Audit.
func (p *Partition) Audit(_ context.Context, q store.AuditQuery) (page store.AuditPage, err error) {
	if err := q.Validate(); err != nil {
		return page, err
	}
	if q.Cursor != "" && !isAuditCursor(q.Cursor) {
		return page, &admission.FieldError{Field: "cursor", Value: strconv.Quote(q.Cursor), Allowed: "that of a page, as it is"}
	}
	p.read(func(m *model, _ int64) { page = m.auditPage(q) })
	return page, nil
}

func (m *model) auditPage(q store.AuditQuery) store.AuditPage {
	page := store.AuditPage{Entries: []store.AuditEntry{}, Gone: m.entriesGone}
	limit, end := cmp.Or(q.Limit, store.DefaultPage), len(m.entries)
	if q.Cursor != "" {
		end, _ = slices.BinarySearchFunc(m.entries, q.Cursor, func(e audited, id string) int {
			if tokenBefore(e.id, id) {
				return -1
			}
			return 1
		})
	}
	looked := 0
	for ; looked < min(end, auditLook) && len(page.Entries) < limit; looked++ {
		e := m.entries[end-1-looked]
		page.Cursor = e.id
		if q.Wants(&e.AuditEntry) {
			e.Changes = bytes.Clone(e.Changes)
			page.Entries = append(page.Entries, e.AuditEntry)
		}
	}
	if looked == end && looked < auditLook {
		page.Cursor = ""
	}
	return page
}

// isAuditCursor reports whether a text is "MILLISECONDS-N", but 0-0.
func isAuditCursor(text string) bool {
	ms, n, ok := strings.Cut(text, "-")
	high, first := strconv.ParseUint(ms, 10, 64)
	low, second := strconv.ParseUint(n, 10, 64)
	return ok && first == nil && second == nil && (high > 0 || low > 0)
}
