package redisstore

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// cursor is where a listing goes on: which one it is of, and one position for each structure that it walks. Callers see
// it as text that they hand back.
type cursor struct {
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
	Tenants hashMark `json:"t,omitzero"`
	// Tenant is the one that is being listed, empty between two; Lane the lane of it.
	Tenant string `json:"n,omitempty"`
	Lane   string `json:"l,omitempty"`
	// Lanes is a position among the lanes of the tenant.
	Lanes hashMark `json:"m,omitzero"`
	// Set is a position in a sorted set, Jobs one in the jobs hash.
	Set  setMark  `json:"z,omitzero"`
	Jobs hashMark `json:"j,omitzero"`
}

// encode returns the cursor as text of letters, digits, '-' and '_'.
func (c cursor) encode() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // Numbers, strings and bytes always encode.
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodeCursor reads a cursor; "" is the begin of the listing.
func decodeCursor(text string, of uint32) (cursor, error) {
	c := cursor{Of: of}
	if text == "" {
		return c, nil
	}
	shown := text[:min(len(text), admission.MaxNameLength)]
	bad := &admission.FieldError{Field: "cursor", Value: strconv.Quote(shown), Allowed: "what the page before ended with, or nothing to begin"}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return cursor{}, bad
	}
	if c.Of != of {
		bad.Allowed = "one of a listing with the same place, queue, tenant, type and reason"
		return cursor{}, bad
	}
	return c, nil
}

// fingerprint names a query in its cursors.
func fingerprint(q store.ListQuery) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join([]string{string(q.Place), q.Queue, q.Tenant, q.Type, q.Reason}, "|")))
	return h.Sum32()
}
