package limiter

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// ways is what is known of routes and scopes. What nobody has asked Redis about for idleAfter is forgotten, unless it lives on its stock: else what
// is in use asks at least every leaseLife, since leases and denials end.
type ways struct {
	config *Config
	// parts is how many partitions divide the global limit among them.
	parts admission.Tokens
	front *front
	// named are the ways of dimensions' values by the values themselves, nil as long as nobody has asked for one.
	named  atomic.Pointer[named]
	known  *xsync.Map[route, *way]
	scopes *xsync.Map[admission.Scope, *scope]
	// sweepAt is when to look for idle ones next, a breaker.Instant.
	sweepAt atomic.Int64
	lent    [admission.Levels]lent

	mu struct {
		sync.Mutex
		policy *policy.Compiled
		bounds [admission.Levels]Guarantee
		// listed are the scopes that have had a stock or a denial since those last ended, but for those forgotten: to end them is not to look at
		// all scopes.
		listed []*scope
	}
}

const idleAfter = time.Minute

func newWays(config *Config, parts int) ways {
	return ways{config: config, parts: admission.Tokens(parts), front: &front{}, known: xsync.NewMap[route, *way](), scopes: xsync.NewMap[admission.Scope, *scope]()}
}

// find returns the way of a request, or nil.
func (m *ways) find(r *Request) *way { return m.at(r.Tenant, r.Queue, r.Class) }

// findAll is find of several.
func (m *ways) findAll(requests []Request) []*way {
	all := make([]*way, len(requests))
	for i := range requests {
		all[i] = m.find(&requests[i])
	}
	return all
}

// at returns the way of a route, or nil.
func (m *ways) at(tenant, queue string, class admission.Priority) *way {
	place := m.front.place(tenant, queue, class)
	if w := place.Load(); w != nil && w.asked.tenant == tenant && w.asked.queue == queue && w.asked.class == class {
		return w
	}
	return m.move(place, route{tenant, queue, class})
}

// move returns the way of a route, or nil, and has it stand in a place of the front.
func (m *ways) move(place *atomic.Pointer[way], at route) *way {
	w, _ := m.known.Load(at)
	if w != nil {
		place.Store(w)
	}
	return w
}

// beside returns the way of a dimension's value for requests of a tenant, nil where there is none under the policy.
func (m *ways) beside(inForce *policy.Compiled, d *Dimension, tenant string) *way {
	table := m.named.Load()
	if table == nil {
		return nil
	}
	place := table.place(d)
	if a := place.Load(); a != nil && a.way.policy == inForce && a.of == *d {
		return a.way
	}
	return m.name(place, inForce, d, tenant)
}

// name is beside of what does not stand in its place of the table.
func (m *ways) name(place *atomic.Pointer[namedWay], inForce *policy.Compiled, d *Dimension, tenant string) *way {
	owner, key, err := inForce.Dimension(d.Name, d.Value, tenant)
	if err != nil {
		return nil
	}
	w := m.at(owner, key, "")
	if w == nil || w.policy != inForce {
		return nil
	}
	if len(d.Value) <= longestNamed && !inForce.DimensionTiered(d.Name) {
		place.Store(&namedWay{Dimension{strings.Clone(d.Name), strings.Clone(d.Value)}, w})
	}
	return w
}

// open returns the way of a valid route under a policy. The error is a *headgate.FieldError for a class that its queue has not.
func (m *ways) open(now breaker.Instant, at route, inForce *policy.Compiled) (*way, error) {
	if strings.HasPrefix(at.tenant, admission.DimensionMark) {
		return m.openBeside(now, at, inForce)
	}
	class := at.class
	if class != "" {
		var ok bool
		if class, ok = inForce.ClassNamed(at.queue, class); !ok {
			return nil, &admission.FieldError{Field: "class", Value: strconv.Quote(string(at.class)), Allowed: "a class of queue " + at.queue}
		}
	}
	w := &way{policy: inForce, asked: at, route: route{at.tenant, at.queue, class}}
	w.limits, w.record = inForce.WayFor(at.tenant, at.queue, class)
	w.scopes = w.four[:0]
	w.seen.Store(int64(now))
	if from, _, _ := inForce.PressureFor(at.tenant, at.queue, class); from > 0 {
		w.pressed = &pressed{}
	}
	full := m.full()
	for level := range admission.Levels {
		limit := &w.limits[level]
		if level > at.depth() {
			limit.Disabled = true
		}
		if limit.Disabled || limit.Tokens == 0 {
			continue
		}
		whole := *limit
		parts := m.partsAt(admission.Level(level))
		most := leasable(limit, m.config, parts)
		m.bound(inForce, admission.Level(level), &whole, m.config.beyond(most*parts))
		s, kept := m.scope(now, admission.ScopeAt(admission.Level(level), at.tenant, at.queue, class), admission.Level(level), full)
		if kept {
			w.most[len(w.scopes)], w.stock[len(w.scopes)] = onLease(most), inStock(most, limit, parts)
		}
		w.scopes = append(w.scopes, s)
	}
	if others, kept := w.limits[admission.LevelGlobal].Others(); kept {
		s, _ := m.scope(now, buckets.Others, store.LevelOthers, full)
		w.scopes, w.others = append(w.scopes, s), partOf(others, m.parts)
	}
	if old, ok := m.known.Load(at); ok && old.record != w.record { // What is left of leases is of limits that somebody has just changed.
		for _, s := range w.scopes {
			s.renewed(now)
		}
	}
	if w.record != 0 && at.tenant != "" && !slices.ContainsFunc(w.scopes, func(s *scope) bool { return s.tenant() != "" }) {
		s := &scope{name: admission.Scope(at.tenant), level: admission.LevelTenant, lent: &m.lent[admission.LevelTenant]}
		s.gone.Store(full) // Nobody finds the way again.
		w.four[len(w.four)-1] = s
	}
	w.global = partOf(w.limits[admission.LevelGlobal], m.parts)
	if !full {
		m.remember(at, w)
	}
	return w, nil
}

// openBeside is open for the scope of a dimension.
func (m *ways) openBeside(now breaker.Instant, at route, inForce *policy.Compiled) (*way, error) {
	w := &way{policy: inForce, asked: at, route: at, record: inForce.RecordVersion(at.tenant)}
	if m.named.Load() == nil {
		m.named.CompareAndSwap(nil, &named{})
	}
	limits, maxKeys, ok := inForce.DimensionLimits(at.tenant, at.queue)
	if !ok {
		return nil, errUndeclared(at.tenant)
	}
	w.limits, w.maxKeys = limits, int32(maxKeys) //nolint:gosec // up to policy.MaxDimensionMaxKeys
	w.scopes = w.four[:0]
	w.seen.Store(int64(now))
	full := m.full()
	if limit := &w.limits[admission.LevelQueue]; !limit.Disabled && limit.Tokens > 0 {
		if inForce.WarnAt() > 0 {
			w.counting.Store(countedAlone)
		}
		whole := *limit
		most := leasable(limit, m.config, 1)
		m.bound(inForce, admission.LevelQueue, &whole, m.config.beyond(most))
		s, kept := m.scope(now, admission.ScopeAt(admission.LevelQueue, at.tenant, at.queue, ""), admission.LevelQueue, full)
		if kept {
			w.most[0], w.stock[0] = onLease(most), inStock(most, limit, 1)
		}
		w.scopes = append(w.scopes, s)
	}
	w.global = partOf(w.limits[admission.LevelGlobal], m.parts)
	if !full {
		m.remember(at, w)
	}
	return w, nil
}

// full reports whether there is no room to keep another way.
func (m *ways) full() bool {
	return m.known.Size() >= m.config.MaxScopes || m.scopes.Size() >= m.config.MaxScopes
}

// remember has a route found again, in the place of its way under an older policy.
func (m *ways) remember(at route, w *way) {
	m.known.Store(at, w)
	m.front.place(at.tenant, at.queue, at.class).Store(w)
}

// depth is the innermost level that a route names.
func (r *route) depth() int {
	switch {
	case r.class != "":
		return int(admission.LevelPriority)
	case r.queue != "":
		return int(admission.LevelQueue)
	case r.tenant != "":
		return int(admission.LevelTenant)
	}
	return int(admission.LevelGlobal)
}

// partsAt is how many partitions a limit of a level is divided among.
func (m *ways) partsAt(level admission.Level) admission.Tokens {
	if level == admission.LevelGlobal {
		return m.parts
	}
	return 1
}

// partOf is what one of so many partitions has of a limit, its burst rounded down.
func partOf(limit admission.Limit, parts admission.Tokens) admission.Limit {
	limit.Burst /= parts
	limit.Per *= time.Duration(parts)
	return limit
}

// leasable is what all holders of a scope may hold together in one of the partitions that divide its limit. Where leases are
// strict it is taken off the burst, for each of them. Windows are counted in Redis alone: what is on lease as a fixed one ends would be spent in the
// next, and of sliding ones nobody would know when.
func leasable(limit *admission.Limit, config *Config, parts admission.Tokens) admission.Tokens {
	part := limit.Burst / parts
	switch {
	case config.Exact || !limit.Window.IsZero():
		return 0
	case config.Strict:
		most := part / 8
		limit.Burst -= most * parts
		return most
	}
	return part / 2
}

// onLease is what of leasable may be on lease. Stocks have the rest, which is enough: a limiter is counted among those that live before it takes its
// stock, so all stocks together are no more than a stockPart times 1 + 1/2 + … + 1/mostStocks, which is 5.43.
func onLease(leasable admission.Tokens) admission.Tokens { return leasable - leasable*3/8 }

// inStock is what a limiter that lives alone may have as stock.
func inStock(leasable admission.Tokens, limit *admission.Limit, parts admission.Tokens) admission.Tokens {
	gained := float64(limit.Rate()) / float64(parts) * stockGain.Seconds()
	return min(leasable/stockPart, admission.Tokens(min(gained, float64(limit.Burst))))
}

// beyond is how much of what may be on lease a window may admit beside the burst.
func (c Config) beyond(leasable admission.Tokens) admission.Tokens {
	if c.Strict {
		return 0
	}
	return leasable
}

// scope returns the one of a name. Where there is no room to keep it, it must not be leased: another of its name may be made.
func (m *ways) scope(now breaker.Instant, name admission.Scope, level admission.Level, full bool) (s *scope, kept bool) {
	if s, ok := m.scopes.Load(name); ok {
		return s, true
	}
	s = &scope{name: name, level: level}
	s.mode, s.lent = m.config.outageOf(s.told()), &m.lent[s.told().Level()]
	s.mu.seen, s.mu.use.since = now, now
	if !full {
		s, _ = m.scopes.LoadOrStore(name, s)
	}
	return s, !full
}

// list notes that a scope has a stock or a denial.
func (m *ways) list(s *scope) {
	if !s.list() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.listed = append(m.mu.listed, s)
}

// cut ends all stocks and denials.
func (m *ways) cut(now breaker.Instant) {
	m.mu.Lock()
	listed := m.mu.listed
	m.mu.listed = nil
	m.mu.Unlock()
	for _, s := range listed {
		s.cut(now, false)
	}
}

// renewed ends the stocks and denials of some tenants.
func (m *ways) renewed(now breaker.Instant, tenants []string) {
	named := make(map[string]bool, len(tenants))
	for _, tenant := range tenants {
		named[tenant] = true
	}
	var ended []*scope
	m.mu.Lock()
	m.mu.listed = slices.DeleteFunc(m.mu.listed, func(s *scope) bool {
		if !named[s.tenant()] {
			return false
		}
		ended = append(ended, s)
		return true
	})
	m.mu.Unlock()
	for _, s := range ended {
		s.cut(now, false)
	}
}

// bound notes a limit of a policy under which somebody asked, for the gauges.
func (m *ways) bound(inForce *policy.Compiled, level admission.Level, limit *admission.Limit, leased admission.Tokens) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.policy != inForce {
		m.mu.policy, m.mu.bounds = inForce, [admission.Levels]Guarantee{}
	}
	b := &m.mu.bounds[level]
	b.Burst, b.Rate, b.Leased = max(b.Burst, limit.Burst), max(b.Rate, limit.Rate()), max(b.Leased, leased)
}

// bounds returns the largest bound of each level, of the scopes that somebody asked for since the policy is in force; zero
// where there was none.
func (m *ways) bounds() [admission.Levels]Guarantee {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.bounds
}

// sweep forgets what is idle, if it is time to.
func (m *ways) sweep(now breaker.Instant) {
	due := m.sweepAt.Load()
	if now < breaker.Instant(due) || !m.sweepAt.CompareAndSwap(due, int64(now.Add(idleAfter))) {
		return
	}
	defer m.front.clear()
	if m.named.Load() != nil {
		defer m.named.Store(&named{})
	}
	for name, s := range m.scopes.All() {
		if s.forget(now, idleAfter) {
			m.scopes.Delete(name)
		}
	}
	for at, w := range m.known.All() {
		if !w.idle(now, idleAfter) {
			continue
		}
		if m.known.Delete(at); w.free() != nil {
			w.free().gone.Store(true)
		}
	}
	m.mu.Lock()
	m.mu.listed = slices.DeleteFunc(m.mu.listed, func(s *scope) bool { return s.gone.Load() })
	m.mu.Unlock()
}

// front is a cache before the map of ways, which costs a hash of three strings: a way stands in the one place that the ends of
// its names give, and whoever comes later takes the place over. A check on a busy way finds it in a few nanoseconds.
type front [1 << 16]atomic.Pointer[way]

func (f *front) place(tenant, queue string, class admission.Priority) *atomic.Pointer[way] {
	const odd = 0x9e3779b1 // 2³² divided by the golden ratio: multiplied, near numbers part.
	h := tail(tenant) * odd
	h = (h ^ h>>15 ^ tail(queue)) * odd
	h = (h ^ h>>15 ^ tail(class)) * odd
	return &f[h>>16]
}

// tail is the last four bytes of a name and its length.
func tail[S ~string](s S) uint32 {
	n := len(s)
	if n >= 4 {
		return (uint32(s[n-4]) | uint32(s[n-3])<<8 | uint32(s[n-2])<<16 | uint32(s[n-1])<<24) ^ uint32(n)<<3
	}
	h := uint32(n)
	for i := range n {
		h = h<<8 | uint32(s[i])
	}
	return h
}

// named is a cache before policy.Compiled.Dimension, which reads an address and writes its prefix: of dimensions of which no tier has a limit of its
// own, for there the way depends on the tenant.
type named [1 << 13]atomic.Pointer[namedWay]

// namedWay is the way of a value.
type namedWay struct {
	of  Dimension
	way *way
}

// longestNamed is the longest value that is kept, in bytes.
const longestNamed = 64

func (n *named) place(d *Dimension) *atomic.Pointer[namedWay] {
	const odd = 0x9e3779b1
	h := tail(d.Name) * odd
	h = (h ^ h>>15 ^ tail(d.Value)) * odd
	return &n[h>>19]
}

// clear forgets all.
func (f *front) clear() {
	for i := range f {
		if f[i].Load() != nil { // Pages that nobody has written to take no memory.
			f[i].Store(nil)
		}
	}
}
