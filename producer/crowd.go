package producer

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
)

// crowd is who was turned away of late. A job of the same tenant that is as large and has as little time is turned away too,
// without the lock of the line: under overload that is most calls, and the pilots, which make room, would wait for the lock behind
// all of them. It ends when a sixteenth of those that waited at its beginning have gone, so that no tenant is kept out for longer.
type crowd struct {
	of   [crowdPlaces]atomic.Pointer[turnedAway]
	room int // how many more have to go; guarded by the line's lock
}

// crowdShare is the part of the jobs in line that goes before a crowd ends.
const crowdShare = 16

// crowdPlaces is how many tenants a crowd knows at the most. Of two that have one place it knows the last, and the other asks the line. Twice as
// many were more than 32 KiB, which Go takes from the heap's lock, while the line's is held.
const crowdPlaces = 2048

var crowdSeed = maphash.MakeSeed()

// place is that of a tenant.
func (c *crowd) place(tenant string) *atomic.Pointer[turnedAway] {
	return &c.of[maphash.String(crowdSeed, tenant)%crowdPlaces]
}

// turnedAway is the answer to jobs of a tenant of at least so many bytes, with at most so much time left.
type turnedAway struct {
	tenant string
	bytes  int
	left   time.Duration
	answer *admission.OverloadedError
}

// note keeps an answer that was just given.
func (c *crowd) note(away *turnedAway) { c.place(away.tenant).Store(away) }

// answer returns what a job is told, nil when the line has to be asked. The nil crowd knows of nobody.
func (c *crowd) answer(job *admission.Job, left time.Duration) error {
	if c == nil {
		return nil
	}
	away := c.place(job.Tenant).Load()
	if away == nil || away.tenant != job.Tenant || len(job.Payload) < away.bytes || left > away.left {
		return nil
	}
	return away.answer
}
