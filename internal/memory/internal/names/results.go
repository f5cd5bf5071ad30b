package names

import (
	"slices"
	"time"

	"github.com/headgate/headgate/internal/memory/internal/times"
)

// Results are what completed jobs left, by key, for a time.
type Results struct {
	by    map[string][]byte
	until *times.Times
}

// NewResults returns none.
func NewResults() Results { return Results{map[string][]byte{}, times.New()} }

// Keep keeps a result, to the millisecond, and forgets some whose time is over.
func (r *Results) Keep(key string, result []byte, length time.Duration, now int64) {
	for _, over := range r.until.Passed(now) {
		delete(r.by, over)
	}
	if us := length.Microseconds(); us > 0 {
		r.by[key] = append(make([]byte, 0, len(result)), result...)
		r.until.Put(key, now+(us+999)/1000*1000)
	}
}

// Forget forgets the result of a key.
func (r *Results) Forget(key string) {
	delete(r.by, key)
	r.until.Remove(key)
}

// Find returns a copy of a result whose time is not over.
func (r *Results) Find(key string, now int64) (result []byte, ok bool) {
	if r.until.At(key) <= now {
		return nil, false
	}
	return slices.Clone(r.by[key]), true
}
