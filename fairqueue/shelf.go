package fairqueue

import (
	"maps"
	"slices"
	"strings"
)

// A downstream that hangs must not take every slot. While a pool holds shareDivisor-th of its slots for one downstream and
// may have other work, lanes of that downstream that come to the head go on the shelf: they wait at h:DOWNSTREAM, as
// behind a gate. One comes back for each entry that leaves, and as many as there is room for when the pool has no other
// work. A queue whose jobs have all called one downstream for soleAfter, in a pool that had no other work, is its alone
// until another job comes: then nothing is shelved.
const (
	shareDivisor = 2
	soleAfter    = 1_000_000
)

func shelfOf(downstream string) string { return "h:" + downstream }

// holds counts the pool's entries by downstream.
func (p *Pool) holds() map[string]int {
	held := map[string]int{}
	for _, e := range p.Ready {
		if e.Job.Downstream != "" {
			held[e.Job.Downstream]++
		}
	}
	return held
}

// shareLeft is how many more entries of a downstream a pool may hold while it has other work.
func (p *Pool) shareLeft(downstream string) int {
	return max(1, p.Slots/shareDivisor) - p.holds()[downstream]
}

func (c *Call) mustShelve(p *Pool, downstream string) bool {
	if downstream == "" || c.idle[p.ID] || p.shareLeft(downstream) > 0 {
		return false
	}
	return slices.ContainsFunc(p.Queues, func(name string) bool {
		q := c.room.queue(name)
		return !q.sole || q.last != downstream
	})
}

// sees notes the downstream, * for any, of a job that may run.
func (c *Call) sees(q *queue, downstream string) {
	if downstream != q.last {
		q.last, q.since, q.sole = downstream, c.now, false
	}
}

// passOnShelves lets a lane come back for each entry that left, as far as the share goes.
func (c *Call) passOnShelves() {
	for _, name := range slices.Sorted(maps.Keys(c.unheld)) {
		id, downstream, _ := strings.Cut(name, ":")
		p := c.room.Pools[id]
		if p == nil {
			continue
		}
		if units := min(c.unheld[name], p.shareLeft(downstream)); units > 0 {
			c.wakeSome(shelfOf(downstream), units, nil)
		}
	}
	clear(c.unheld)
}

// wakeIdle lets lanes come back in pools that have room and no other work, and reports whether there were any.
func (c *Call) wakeIdle() bool {
	woken := 0
	for _, id := range slices.Sorted(maps.Keys(c.spare)) {
		var shelved []string
		for _, gate := range slices.Sorted(maps.Keys(c.room.parked)) {
			if downstream, ok := strings.CutPrefix(gate, "h:"); ok {
				shelved = append(shelved, downstream)
			}
		}
		if len(shelved) == 0 {
			break
		}
		p := c.room.Pools[id]
		alone := c.alone(p, shelved)
		for _, name := range p.Queues {
			if alone {
				c.room.queue(name).sole = true
			}
		}
		most := c.spare[id]
		if alone {
			most = everyone
		}
		for _, downstream := range shelved {
			woken += c.wakeSome(shelfOf(downstream), most, p.Queues)
		}
		c.idle[id], c.refillPools[id] = true, true
	}
	return woken > 0
}

// alone reports whether a pool has worked for one downstream alone, the only one with lanes on the shelf.
func (c *Call) alone(p *Pool, shelved []string) bool {
	return len(shelved) == 1 && !slices.ContainsFunc(p.Queues, func(name string) bool {
		q := c.room.queue(name)
		return q.last != shelved[0] || c.now-q.since < soleAfter
	})
}
