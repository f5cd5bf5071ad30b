package producer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
)

// crowd is who was turned away of late. A job of the same tenant that is as large and has as little time is turned away too,
// without the lock of the line: under overload that is most calls, and the pilots, which make room, would wait for the lock behind
// all of them. It ends when a sixteenth of those that waited at its beginning have gone, so that no tenant is kept out for longer.
type crowd struct {
	tenants atomic.Int64
	of      sync.Map // by tenant, the *turnedAway
	room    int      // how many more have to go; guarded by the line's lock
}

// crowdShare is the part of the jobs in line that goes before a crowd ends.
const crowdShare = 16

// crowdTenants bounds the tenants of a crowd: with Redis away a line has no room to give for as long as a caller waits.
const crowdTenants = 4096

// turnedAway is the answer to jobs of at least so many bytes, with at most so much time left.
type turnedAway struct {
	bytes  int
	left   time.Duration
	answer *admission.OverloadedError
}

// note keeps an answer that was just given.
func (c *crowd) note(tenant string, away *turnedAway) {
	if c.tenants.Load() >= crowdTenants {
		return
	}
	if _, had := c.of.Swap(tenant, away); !had {
		c.tenants.Add(1)
	}
}

// answer returns what a job is told, nil when the line has to be asked. The nil crowd knows of nobody.
func (c *crowd) answer(job *admission.Job, left time.Duration) error {
	if c == nil {
		return nil
	}
	v, _ := c.of.Load(job.Tenant)
	away, ok := v.(*turnedAway)
	if !ok || len(job.Payload) < away.bytes || left > away.left {
		return nil
	}
	return away.answer
}
