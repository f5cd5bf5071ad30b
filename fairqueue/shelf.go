package fairqueue

import (
	"maps"
	"slices"
	"strings"
)

// A downstream that hangs must not take every slot. While a pool holds shareDivisor-th of its slots for one downstream and
// has other tenants that are runnable, lanes of that downstream that come to the head go on the shelf: they wait at
// h:SERVICE, as behind a gate. One comes back for each entry that leaves, as far as the share goes, and for each dispatch
// beyond it; and as many as there is room for when the pool has no other work.
const shareDivisor = 2

func shelfOf(service string) string { return "h:" + service }

// shareLeft is how many more entries of a downstream a pool may hold while it has other work.
func (p *Pool) shareLeft(service string) int {
	return max(1, p.Slots/shareDivisor) - p.held[service]
}

func (c *Pass) mustShelve(p *Pool, service string) bool {
	return service != "" && !c.idle[p.ID] && p.shareLeft(service) <= 0 && c.othersRun(p, service)
}

// othersRun reports whether a pool has a runnable tenant that does not call the downstream alone, and that may take a slot.
func (c *Pass) othersRun(p *Pool, service string) bool {
	for _, name := range p.Queues {
		if c.room.closed("q:" + name) {
			continue
		}
		q := c.room.queue(name)
		for _, cl := range q.classes {
			if cl.runnable.Len() > cl.alone[service] && !c.room.reserveShut(q, cl.index) {
				return true
			}
		}
	}
	return false
}

// passed lets a lane come back for a dispatch beyond the share.
func (c *Pass) passed(p *Pool, service string) {
	if service != "" && c.room.shelved() && p.shareLeft(service) < 0 {
		c.shelfMore[service]++
	}
}

func (r *Room) shelved() bool { return len(r.shelves) > 0 }

// wakeShelves wakes what dispatches beyond the share let come back.
func (c *Pass) wakeShelves() {
	for _, service := range slices.Sorted(maps.Keys(c.shelfMore)) {
		c.wakeSome(shelfOf(service), c.shelfMore[service], nil, "")
	}
	clear(c.shelfMore)
}

// passOnShelves lets a lane come back for each entry that left, as far as the share goes.
func (c *Pass) passOnShelves() {
	for _, name := range slices.Sorted(maps.Keys(c.unheld)) {
		id, service, _ := strings.Cut(name, ":")
		p := c.room.Pools[id]
		if p == nil {
			continue
		}
		if units := min(c.unheld[name], p.shareLeft(service)); units > 0 {
			c.wakeSome(shelfOf(service), units, nil, "")
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
