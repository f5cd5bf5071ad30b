package names

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
)

// Semaphores are permits on lease, by semaphore. Times are microseconds of a clock that never goes back.
type Semaphores struct {
	all map[string]*semaphore
	of  map[string]int // how many are a tenant's
}

// semaphore is one that somebody uses.
type semaphore struct {
	kept    int64 // until when
	version int64
	record  int64 // of its tenant, from which max comes too; 0 for none
	max     int
	held    int
	holders map[string]holding
	line    []place          // in order
	ended   map[string]int64 // tokens whose lease ended, until when that is known
}

type holding struct {
	permits int
	end     int64
}

// place is one in line, which it keeps until patience.
type place struct {
	token           string
	permits         int
	since, patience int64
}

const (
	patience   = int64(store.SemaphorePatience / time.Microsecond)
	remembered = int64(time.Minute / time.Microsecond)
	sweptMost  = 64
)

// NewSemaphores returns none.
func NewSemaphores() *Semaphores {
	return &Semaphores{all: map[string]*semaphore{}, of: map[string]int{}}
}

// Call is one question about a semaphore, now, while a version of the policy is in force.
type Call struct {
	*Semaphores

	name, token string
	now         int64
	version     int64
	record      int64 // that of who asks: who gives back knows none
	s           *semaphore
}

// Call begins one: leases that are over have ended.
func (a *Semaphores) Call(name, token string, now, version int64) *Call {
	c := &Call{Semaphores: a, name: name, token: token, now: now, version: version, s: a.all[name]}
	if c.s == nil {
		c.s = &semaphore{holders: map[string]holding{}, ended: map[string]int64{}}
		return c
	}
	c.sweep()
	return c
}

func tenantOf(name string) string {
	tenant, _, bound := strings.Cut(name, ":")
	if !bound {
		return ""
	}
	return tenant
}

func (a *Semaphores) forget(name string) {
	if delete(a.all, name); a.of[tenantOf(name)] > 1 {
		a.of[tenantOf(name)]--
	} else {
		delete(a.of, tenantOf(name))
	}
}

// fits makes sure that there may be another one, and forgets two that nobody came back to.
func (a *Semaphores) fits(name string, now int64) bool {
	var over []string
	for other, s := range a.all {
		if s.kept <= now {
			over = append(over, other)
		}
	}
	slices.SortFunc(over, func(x, y string) int { return cmp.Or(cmp.Compare(a.all[x].kept, a.all[y].kept), strings.Compare(x, y)) })
	for _, other := range over[:min(2, len(over))] {
		a.forget(other)
	}
	return len(a.all) < store.MaxSemaphores && a.of[tenantOf(name)] < store.MaxSemaphoresOfTenant
}

func (c *Call) keep(till int64) {
	if till+remembered > c.s.kept {
		c.s.kept = till + 2*remembered
	}
}

func (c *Call) sweep() {
	s := c.s
	var over []string
	for token, h := range s.holders {
		if h.end <= c.now {
			over = append(over, token)
		}
	}
	slices.SortFunc(over, func(x, y string) int {
		return cmp.Or(cmp.Compare(s.holders[x].end, s.holders[y].end), strings.Compare(x, y))
	})
	for _, token := range over[:min(sweptMost, len(over))] {
		s.ended[token] = s.holders[token].end + remembered
		s.held -= s.holders[token].permits
		delete(s.holders, token)
	}
	maps.DeleteFunc(s.ended, func(_ string, until int64) bool { return until <= c.now })
	swept := 0
	s.line = slices.DeleteFunc(s.line, func(p place) bool {
		if p.patience > c.now || swept == sweptMost {
			return false
		}
		swept++
		return true
	})
}

func (c *Call) has(permits int) bool {
	return c.s.held+permits <= c.s.max && len(c.s.holders) < store.MaxSemaphoreHolders
}

func (c *Call) grant(token string, permits int, end int64) {
	c.s.holders[token] = holding{permits, end}
	c.s.held += permits
	delete(c.s.ended, token)
}

// serve leases what is free to those in line, in order.
func (c *Call) serve() {
	if c.s.version != c.version || c.s.record != c.record {
		return
	}
	for range sweptMost {
		if len(c.s.line) == 0 || !c.has(c.s.line[0].permits) {
			return
		}
		first := c.s.line[0]
		c.s.line = c.s.line[1:]
		c.grant(first.token, first.permits, first.patience)
	}
}

// place is where the token stands in line, -1 for nowhere.
func (c *Call) place() int {
	return slices.IndexFunc(c.s.line, func(p place) bool { return p.token == c.token })
}

// Acquire is store.Semaphores.Acquire.
func (c *Call) Acquire(ask *store.Acquire) store.Permit {
	answer := c.acquire(ask)
	p := c.permit(answer)
	if p.Granted() {
		p.Left = ask.Lease
	}
	return p
}

func (c *Call) acquire(ask *store.Acquire) store.SemaphoreAnswer {
	at := c.place()
	if at >= 0 && c.s.line[at].permits != ask.Permits {
		return store.SemaphoreOther
	}
	c.s.version, c.s.record, c.record, c.s.max = ask.Version, ask.Record, ask.Record, ask.Max
	if _, held := c.s.holders[c.token]; ask.Permits > ask.Max && !held {
		if at >= 0 {
			c.s.line = slices.Delete(c.s.line, at, at+1)
		}
		c.serve()
		return store.SemaphoreLarge
	}
	c.serve()
	return c.ask(ask)
}

func (c *Call) ask(ask *store.Acquire) store.SemaphoreAnswer {
	s, end := c.s, c.now+ask.Lease.Microseconds()
	if h, held := s.holders[c.token]; held {
		if h.permits != ask.Permits {
			return store.SemaphoreOther
		}
		s.holders[c.token] = holding{h.permits, end}
		c.keep(end)
		return store.SemaphoreGranted
	}
	if at := c.place(); at >= 0 {
		s.line[at].patience = c.now + patience
		c.keep(c.now + patience)
		return store.SemaphoreWaiting
	}
	if s.kept == 0 {
		if !c.fits(c.name, c.now) {
			return store.SemaphoreNamed
		}
		c.all[c.name] = s
		c.of[tenantOf(c.name)]++
	}
	switch {
	case len(s.line) == 0 && c.has(ask.Permits):
		c.grant(c.token, ask.Permits, end)
		c.keep(end)
		return store.SemaphoreGranted
	case !ask.Queue:
		return store.SemaphoreRefused
	case len(s.line) >= store.MaxSemaphoreLine:
		return store.SemaphoreCrowded
	}
	s.line = append(s.line, place{c.token, ask.Permits, c.now, c.now + patience})
	c.keep(c.now + patience)
	return store.SemaphoreWaiting
}

// permit tells what came of it.
func (c *Call) permit(answer store.SemaphoreAnswer) store.Permit {
	p := store.Permit{Answer: answer, Max: c.s.max, Held: c.s.held, Waiting: len(c.s.line), Ahead: len(c.s.line)}
	if answer == store.SemaphoreWaiting {
		p.Ahead = c.place()
	}
	var first int64
	for _, h := range c.s.holders {
		if first == 0 || h.end < first {
			first = h.end
		}
	}
	p.Left = time.Duration(max(0, first-c.now)) * time.Microsecond
	return p
}

// Extend is store.Semaphores.Extend.
func (c *Call) Extend(lease time.Duration) (store.Permit, error) {
	h, held := c.s.holders[c.token]
	if !held {
		return store.Permit{}, store.ErrLeaseEnded
	}
	h.end = c.now + lease.Microseconds()
	c.s.holders[c.token] = h
	c.keep(h.end)
	p := c.permit(store.SemaphoreGranted)
	p.Left = lease
	return p, nil
}

// Release is store.Semaphores.Release.
func (c *Call) Release() error {
	if h, held := c.s.holders[c.token]; held {
		c.s.held -= h.permits
		delete(c.s.holders, c.token)
	} else if at := c.place(); at >= 0 {
		c.s.line = slices.Delete(c.s.line, at, at+1)
	} else if c.s.ended[c.token] > 0 {
		return store.ErrLeaseEnded
	}
	c.serve()
	return nil
}

// State is what there is to see.
func (c *Call) State() store.SemaphoreState {
	state := store.SemaphoreState{Name: c.name, Max: c.s.max, Held: c.s.held, Waiting: len(c.s.line)}
	if len(c.s.line) > 0 {
		state.Oldest = time.Duration(c.now-c.s.line[0].since) * time.Microsecond
	}
	return state
}

// Close ends a call: what nobody uses is forgotten.
func (c *Call) Close() {
	if c.s.kept > 0 && c.s.held == 0 && len(c.s.line) == 0 && len(c.s.ended) == 0 {
		c.forget(c.name)
	}
}

// Names returns those in use, in order.
func (a *Semaphores) Names() []string {
	all := slices.AppendSeq([]string{}, maps.Keys(a.all))
	slices.Sort(all)
	return all
}
