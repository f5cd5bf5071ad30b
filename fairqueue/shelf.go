package fairqueue

import (
	"maps"
	"slices"
	"strings"
)

// A downstream that hangs must not take every slot. While a pool holds shareDivisor-th of its slots for one downstream and
// has other tenants that are runnable, lanes of that downstream that come to the head go on the shelf: they wait at
// h:DOWNSTREAM, as behind a gate. One comes back for each entry that leaves, as far as the share goes, and for each dispatch
// beyond it; and as many as there is room for when the pool has no other work.
const shareDivisor = 2

func shelfOf(downstream string) string { return "h:" + downstream }

// shareLeft is how many more entries of a downstream a pool may hold while it has other work.
func (p *Pool) shareLeft(downstream string) int {
	return max(1, p.Slots/shareDivisor) - p.held[downstream]
}

func (c *Pass) mustShelve(p *Pool, downstream string) bool {
	return downstream != "" && !c.idle[p.ID] && p.shareLeft(downstream) <= 0 && c.othersRun(p, downstream)
}

// othersRun reports whether a pool has a runnable tenant that does not call the downstream alone.
func (c *Pass) othersRun(p *Pool, downstream string) bool {
	for _, name := range p.Queues {
		if c.room.closed("q:" + name) {
			continue
		}
		for _, cl := range c.room.queue(name).classes {
			if cl.runnable.Len() > cl.alone[downstream] {
				return true
			}
		}
	}
	return false
}

// passed lets a lane come back for a dispatch beyond the share.
func (c *Pass) passed(p *Pool, downstream string) {
	if downstream != "" && c.room.shelved() && p.shareLeft(downstream) < 0 {
		c.shelfMore[downstream]++
	}
}

func (r *Room) shelved() bool { return len(r.shelves) > 0 }

// wakeShelves wakes what dispatches beyond the share let come back.
func (c *Pass) wakeShelves() {
	for _, downstream := range slices.Sorted(maps.Keys(c.shelfMore)) {
		c.wakeSome(shelfOf(downstream), c.shelfMore[downstream], nil, "")
	}
	clear(c.shelfMore)
}

// passOnShelves lets a lane come back for each entry that left, as far as the share goes.
func (c *Pass) passOnShelves() {
	for _, name := range slices.Sorted(maps.Keys(c.unheld)) {
		id, downstream, _ := strings.Cut(name, ":")
		p := c.room.Pools[id]
		if p == nil {
			continue
		}
		if units := min(c.unheld[name], p.shareLeft(downstream)); units > 0 {
			c.wakeSome(shelfOf(downstream), units, nil, "")
		}
	}
	clear(c.unheld)
}

// wakeIdle lets lanes come back in pools that have room and no other work, and reports whether there were any.
func (c *Pass) wakeIdle() bool {
	woken := 0
	if !c.room.shelved() {
		return false
	}
	for _, id := range slices.Sorted(maps.Keys(c.spare)) {
		for _, gate := range c.room.Shelves() {
			woken += c.wakeSome(gate, c.spare[id], c.room.Pools[id].Queues, "")
		}
		c.idle[id], c.refillPools[id] = true, true
	}
	return woken > 0
}
