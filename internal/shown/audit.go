package shown

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Change is one value that differs between two policies.
type Change struct {
	// Path is a JSON pointer into the policy, Kind added, removed or changed.
	Path   string          `json:"path"`
	Kind   string          `json:"kind"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// ChangesOf shows changes; none are an empty list.
func ChangesOf(changes []policy.Change) []Change {
	views := []Change{}
	for _, c := range changes {
		views = append(views, Change{c.Path, c.Kind(), c.Before, c.After})
	}
	return views
}

// AuditEntry is an entry of the audit. Of a version that an older program stored only its number is known.
type AuditEntry struct {
	At     *time.Time `json:"at,omitempty"`
	Action string     `json:"action,omitempty"`
	// Name is what it was done to, Jobs to how many jobs.
	Name string `json:"name,omitempty"`
	Jobs int64  `json:"jobs,omitempty"`
	// Downstream is that of the breaker which was forced or reset, ForMs for how long; absent until a reset.
	Downstream string  `json:"downstream,omitempty"`
	ForMs      float64 `json:"for_ms,omitempty"`
	// From and To are versions of the policy, or of a tenant's record.
	From     *int64 `json:"from,omitempty"`
	To       int64  `json:"to,omitempty"`
	Author   string `json:"author,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Restored int64  `json:"restored,omitempty"`
	// Total is how many changes there were; Changes are the first of them.
	Total   *int     `json:"total,omitempty"`
	Changes []Change `json:"changes,omitempty"`
}

// AuditEntryOf shows an entry.
func AuditEntryOf(entry store.AuditEntry) AuditEntry {
	v := AuditEntry{
		Action: entry.Action, Name: entry.Name, Jobs: entry.Jobs, Downstream: entry.Downstream, ForMs: Millis(entry.For), To: entry.To, Author: entry.Author,
		Reason: entry.Reason, Restored: entry.Restored,
	}
	if entry.At.IsZero() {
		return v
	}
	v.At = Stamp(entry.At)
	if entry.Action != store.AuditPolicy && (len(entry.Changes) == 0 || entry.Action != store.AuditTenantRecord && entry.Action != store.AuditTenantRecordGone) {
		return v
	}
	v.From = &entry.From
	var kept policy.Summary
	if err := json.Unmarshal(entry.Changes, &kept); err == nil { // Others than rollout may store none.
		v.Total, v.Changes = &kept.Total, ChangesOf(kept.Changes)
	}
	return v
}

// AuditPage is a page of the audit, the newest entry first.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	// Cursor goes on with the entries before these; absent at the end.
	Cursor string `json:"cursor,omitempty"`
	// Gone is how many entries have left.
	Gone int64 `json:"gone"`
}

// AuditPageOf shows a page.
func AuditPageOf(page store.AuditPage) AuditPage {
	v := AuditPage{Entries: []AuditEntry{}, Cursor: page.Cursor, Gone: page.Gone}
	for _, entry := range page.Entries {
		v.Entries = append(v.Entries, AuditEntryOf(entry))
	}
	return v
}
