package store

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// ListCursor is where a listing goes on: which one it is of, and one position for each structure that it walks. Callers of List see
// it as text that they hand back.
type ListCursor struct {
	// Of is the hash of the query: a cursor of another listing is refused.
	Of uint32 `json:"q"`
	// Part is the partition that is being walked.
	Part int `json:"p,omitempty"`
	// Span is the structure that is being walked, where a listing walks several by name: pools, or queues.
	Span string `json:"s,omitempty"`
	// Entry is the last entry of a stream that was listed.
	Entry string `json:"e,omitempty"`
	// Class, Tenants and Lane are a position among the lanes of the queue Span.
	Class   int      `json:"c,omitempty"`
	Tenants HashMark `json:"t,omitzero"`
	// Tenant is the one that is being listed, empty between two; Lane the lane of it.
	Tenant string `json:"n,omitempty"`
	Lane   string `json:"l,omitempty"`
	// Lanes is a position among the lanes of the tenant.
	Lanes HashMark `json:"m,omitzero"`
	// Set is a position in a sorted set, Jobs one in the jobs hash.
	Set  SetMark  `json:"z,omitzero"`
	Jobs HashMark `json:"j,omitzero"`
}

// EncodeFor is Encode for a listing of one tenant's jobs, of all for "": the text has no names of others' jobs, since anybody can read it who has it.
// The tenant's own jobs that follow are the same.
func (c ListCursor) EncodeFor(tenant string) string {
	if tenant == "" {
		return c.Encode()
	}
	own := EncodeKey(admission.Key{Tenant: tenant})
	c.Jobs.Rest = slices.DeleteFunc(c.Jobs.Rest, func(key []byte) bool { return !strings.HasPrefix(string(key), own) })
	marks := []*[]byte{&c.Jobs.After}
	if c.Lane == "" { // In a lane, which is the tenant's, members are no keys.
		marks = append(marks, &c.Set.Key)
	}
	for _, key := range marks {
		switch text := string(*key); {
		case *key == nil || strings.HasPrefix(text, own):
		case text < own:
			*key = []byte(own)
		default:
			*key = []byte{behindAll}
		}
	}
	return c.Encode()
}

// behindAll is behind each key, which begins with the name of a tenant.
const behindAll = '~'

// Encode returns the cursor as text of letters, digits, '-' and '_'.
func (c ListCursor) Encode() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // Numbers, strings and bytes always encode.
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// DecodeListCursor reads a cursor; "" is the begin of the listing.
func DecodeListCursor(text string, of uint32) (ListCursor, error) {
	var c ListCursor
	if text == "" {
		return ListCursor{Of: of}, nil
	}
	shown := text[:min(len(text), admission.MaxNameLength)]
	bad := &admission.FieldError{Field: "cursor", Value: strconv.Quote(shown), Allowed: "what the page before ended with, or nothing to begin"}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return ListCursor{}, bad
	}
	if c.Of != of {
		bad.Allowed = "one of a listing with the same place, queue, tenant, type and reason"
		return ListCursor{}, bad
	}
	return c, nil
}

// fingerprint names a query in its cursors.
func (q *ListQuery) fingerprint() uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join([]string{string(q.Place), q.Queue, q.Tenant, q.Type, q.Reason}, "|")))
	return h.Sum32()
}

// SetMark is a position in a sorted set: after the member Key with the score At. What is removed before it moves
// nothing, so that a listing skips nobody.
type SetMark struct {
	At  int64  `json:"a,omitempty"`
	Key []byte `json:"k,omitempty"`
}

// HashMark is a position in a hash. A small hash is walked by the names of its fields; a large one by HSCAN, whose
// batches are of no exact size: Rest holds the fields of a batch that are still to be listed.
type HashMark struct {
	// After is the last field that was listed of a small hash.
	After []byte `json:"a,omitempty"`
	// Scan is the cursor of HSCAN, Begun whether there is one.
	Scan  uint64   `json:"s,omitempty"`
	Begun bool     `json:"b,omitempty"`
	Rest  [][]byte `json:"r,omitempty"`
}

// Begin checks a query, fills in what it leaves out, and returns where it goes on.
func (q *ListQuery) Begin() (ListCursor, error) {
	if err := q.Validate(); err != nil {
		return ListCursor{}, err
	}
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	return DecodeListCursor(q.Cursor, q.fingerprint())
}

// Keeps reports whether a listing of the query has a row.
func (q *ListQuery) Keeps(row *Listed) bool {
	job := &row.Record.Job
	return (q.Queue == "" || job.Queue == q.Queue) && (q.Tenant == "" || row.Key.Tenant == q.Tenant) && (q.Type == "" || job.Type == q.Type) &&
		(q.Reason == "" || row.Reason == q.Reason)
}
