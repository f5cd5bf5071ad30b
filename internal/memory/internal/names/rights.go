package names

import (
	"maps"
	"time"
)

// Rights says who has a right, until when, by right and token.
type Rights map[string]map[string]int64

// Lease leases a right that so many may have at a time, in place of what the token had of it. It reports whether it did.
func (r Rights) Lease(right, token string, limit int, now int64, lease time.Duration) bool {
	r.Return(right, token)
	if limit == 0 {
		return false
	}
	maps.DeleteFunc(r[right], func(_ string, until int64) bool { return until <= now })
	if len(r[right]) >= limit {
		return false
	}
	if r[right] == nil {
		r[right] = map[string]int64{}
	}
	r[right][token] = now + lease.Microseconds()
	return true
}

// Return ends a lease.
func (r Rights) Return(right, token string) {
	delete(r[right], token)
	if len(r[right]) == 0 {
		delete(r, right)
	}
}
