package lua

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
)

// model is what the scripts must equal: the pure packages, and around them the life of jobs and workers.
type model struct {
	room     *fairqueue.Room
	buckets  buckets.Set
	changed  buckets.Instant
	accepted int64
	left     map[string]int64
	died     map[string]int64
	live     map[string]*modelJob // by key
	ended    [2]map[string]bool   // young, old
	later    map[string]int64
	dead     map[string]int64
	workers  map[string]modelWorker
	timers   map[string]int64 // w and c timers
	gateEnds map[string]gateEnd
	// The clock: last time seen, the buckets' own, the dedup window's own clock, when it last rotated, whether it has stepped.
	last, filled, window, rotated int64
	stepped               bool
	promoter              string
	promoterUntil         int64
	dropExpired           map[string]bool
}

type modelJob struct {
	fairqueue.Job
	attempts, max, lost int
}

type modelWorker struct {
	pool  string
	slots int
	lease int64
}

const (
	modelHorizon  = 3_600_000_000
	modelWindow   = 30_000_000
	modelAudit    = 15_000_000
	modelMaxStep  = 5_000_000
	modelMaxDue   = 64
	modelNoTimers = int64(9e15)
)

func newModel() *model {
	return &model{
		room: fairqueue.NewRoom(), left: map[string]int64{}, died: map[string]int64{}, live: map[string]*modelJob{},
		ended: [2]map[string]bool{{}, {}}, later: map[string]int64{}, dead: map[string]int64{},
		workers: map[string]modelWorker{}, timers: map[string]int64{}, gateEnds: map[string]gateEnd{}, dropExpired: map[string]bool{},
	}
}

// bucketTime never goes back.
func (m *model) bucketTime(now int64) int64 {
	if m.last == 0 {
		return now
	}
	return m.filled + max(0, now-m.last)
}

func (m *model) begin(now int64) *fairqueue.Call {
	m.filled = m.bucketTime(now)
	passed := now - m.last
	if m.last > 0 && (passed > modelMaxStep || passed < -modelMaxStep) {
		m.stepped = true
	}
	m.window += max(0, min(passed, modelMaxStep))
	m.last = now
	return m.room.Begin(now)
}

func (m *model) rotate() {
	if m.window-m.rotated >= modelWindow {
		m.ended[1], m.ended[0], m.rotated = m.ended[0], map[string]bool{}, m.window
	}
}

func (m *model) leave(key, counter string) {
	m.left[counter]++
	m.ended[0][key] = true
	delete(m.live, key)
}

func (m *model) bury(key, reason string, now int64) {
	m.dead[key] = now
	m.died[reason]++
}

func (m *model) expire(j *fairqueue.Job, now int64) {
	if m.dropExpired[j.Queue] {
		m.leave(j.Key(), "expired")
	} else {
		m.bury(j.Key(), "expired", now)
	}
}

func (m *model) fill(c *fairqueue.Call, now int64) []fairqueue.Dispatch {
	out := c.Fill()
	for _, j := range c.Expired {
		m.expire(j, now)
	}
	return out
}

func (m *model) putBack(c *fairqueue.Call, j *modelJob, now int64) {
	if !c.Return(&j.Job) {
		m.expire(&j.Job, now)
	}
}

// admit decides on candidates and returns the decision words that the script gives, and what was dispatched.
func (m *model) admit(now int64, jobs []Candidate) (words []string, dispatched []fairqueue.Dispatch) {
	words = make([]string, len(jobs))
	var placed []*modelJob
	var at []int
	for i, candidate := range jobs {
		j := candidate.Job
		key := j.Tenant + ":" + j.ID
		switch {
		case m.live[key] != nil || m.ended[0][key] || m.ended[1][key]:
			words[i] = "duplicate"
			continue
		case !j.Deadline.IsZero() && j.Deadline.UnixMicro() < now:
			words[i] = "deadline"
			continue
		}
		path := buckets.AppendPath(nil, *candidate.Limits, j.Tenant, j.Queue, j.Priority)
		v := m.buckets.Take(buckets.Instant(m.bucketTime(now)), m.changed, path, j.Cost)
		if v.Decision != headgate.Admitted {
			words[i] = verdictText(v)
			continue
		}
		mj := &modelJob{max: headgate.DefaultMaxAttempts}
		if j.MaxAttempts > 0 {
			mj.max = j.MaxAttempts
		}
		mj.Job = fairqueue.Job{
			Tenant: j.Tenant, ID: j.ID, Queue: j.Queue, Class: candidate.Class, Downstream: j.Downstream,
			Dated: !j.Deadline.IsZero(), Score: now + modelHorizon, Cost: j.Cost, Seq: m.room.NextSeq(),
		}
		if mj.Dated {
			mj.Score = j.Deadline.UnixMicro()
		}
		m.live[key] = mj
		placed, at = append(placed, mj), append(at, i)
	}
	if len(placed) == 0 {
		return words, nil // a call that admits nothing writes nothing
	}
	c := m.begin(now)
	m.accepted += int64(len(placed))
	for k, mj := range placed {
		words[at[k]] = fmt.Sprintf("admitted %d", c.Place(&mj.Job))
		c.RefillQueue(mj.Queue)
	}
	dispatched = m.fill(c, now)
	for k, mj := range placed {
		if slices.ContainsFunc(dispatched, func(d fairqueue.Dispatch) bool { return d.Job == &mj.Job }) {
			words[at[k]] = "straight"
		}
	}
	return words, dispatched
}

func verdictText(v headgate.Verdict) string {
	return fmt.Sprintf("%s %s left %d after %dus burst %d", v.Reason, v.Scope, v.TokensLeft, v.RetryAfter.Microseconds(), v.Burst)
}

func (m *model) finish(now int64, pool string, jobs []Finish) (words []string, dispatched []fairqueue.Dispatch) {
	p := m.room.Pools[pool]
	if p == nil {
		return slices.Repeat([]string{"lost"}, len(jobs)), nil
	}
	c := m.begin(now)
	m.rotate()
	words = make([]string, len(jobs))
	var mine []*modelJob
	for _, f := range jobs {
		mine = append(mine, m.takeEntry(c, p, f.Key.String()))
	}
	for i, f := range jobs {
		words[i] = m.outcome(c, mine[i], f, now)
	}
	c.WakeFreed()
	c.Refill(pool)
	return words, m.fill(c, now)
}

// takeEntry removes a held job from a ready stream; nil when it is not there.
func (m *model) takeEntry(c *fairqueue.Call, p *fairqueue.Pool, key string) *modelJob {
	for i, e := range p.Ready {
		if e.Job.Key() == key && e.Worker != "" {
			p.Ready = slices.Delete(p.Ready, i, i+1)
			c.Release(e.Job)
			return m.live[key]
		}
	}
	return nil
}

func (m *model) outcome(c *fairqueue.Call, j *modelJob, f Finish, now int64) string {
	if j == nil {
		return "lost"
	}
	key, delay := j.Key(), f.Delay.Microseconds()
	switch f.Outcome {
	case Complete:
		m.leave(key, "completed")
		return "done"
	case Kill:
		m.bury(key, f.Reason, now)
		return "dead"
	case Expire:
		m.expire(&j.Job, now)
		return "expired"
	case Retry:
		j.attempts++
		switch {
		case j.attempts >= j.max:
			m.bury(key, "max_attempts", now)
			return "dead"
		case j.Dated && now+delay > j.Score:
			m.expire(&j.Job, now)
			return "expired"
		}
		m.later[key] = now + delay
		return "retried"
	}
	if delay > 0 {
		m.later[key] = now + delay
	} else {
		m.putBack(c, j, now)
	}
	return "released"
}

func (m *model) register(now int64, worker string, pool Pool, slots int, lease int64) []fairqueue.Dispatch {
	c := m.begin(now)
	id := pool.ID()
	p := m.room.Pools[id]
	if p == nil {
		var queues []string
		var weights []int
		for _, q := range pool.Queues {
			queues, weights = append(queues, q.Queue), append(weights, q.Weight)
		}
		p = m.room.AddPool(id, pool.Strict, queues, weights)
		m.timers["c"+id] = now + lease
	}
	p.Slots += slots - m.workers[worker].slots
	m.workers[worker] = modelWorker{id, slots, lease}
	m.timers["w"+worker] = now + lease
	c.Refill(id)
	return m.fill(c, now)
}

func (m *model) heartbeat(now int64, worker string, lease int64) string {
	if _, ok := m.workers[worker]; !ok {
		return "lost"
	}
	m.begin(now)
	m.timers["w"+worker] = now + lease
	if m.promoterUntil < now {
		return "promote"
	}
	return "extended"
}

func (m *model) reclaim(now int64, worker string) (string, []fairqueue.Dispatch) {
	c := m.begin(now)
	done := m.workerReclaim(c, worker, now)
	c.WakeFreed()
	out := m.fill(c, now)
	if done && !c.More {
		return "reclaimed", out
	}
	return "more", out
}

func (m *model) workerReclaim(c *fairqueue.Call, worker string, now int64) bool {
	w, ok := m.workers[worker]
	if !ok {
		return true
	}
	p := m.room.Pools[w.pool]
	if !m.consumerReturn(c, p, worker, now) {
		return false
	}
	delete(m.workers, worker)
	delete(m.timers, "w"+worker)
	p.Slots -= w.slots
	m.surplusReturn(c, p, now)
	m.poolClose(p)
	return true
}

func (m *model) consumerReturn(c *fairqueue.Call, p *fairqueue.Pool, worker string, now int64) bool {
	if c.MovesLeft == 0 {
		return false
	}
	var back []*fairqueue.Entry
	for _, e := range p.Ready {
		if e.Worker == worker && len(back) < c.MovesLeft {
			back = append(back, e)
		}
	}
	done := len(back) < c.MovesLeft
	c.MovesLeft -= len(back)
	m.entriesReturn(c, p, back, true, now)
	return done
}

func (m *model) entriesReturn(c *fairqueue.Call, p *fairqueue.Pool, back []*fairqueue.Entry, lost bool, now int64) {
	if len(back) == 0 {
		return
	}
	p.Ready = slices.DeleteFunc(p.Ready, func(e *fairqueue.Entry) bool { return slices.Contains(back, e) })
	for _, e := range back {
		c.Release(e.Job)
		j := m.live[e.Job.Key()]
		if lost {
			j.lost++
		}
		m.putBack(c, j, now)
	}
	c.Refill(p.ID)
}

func (m *model) surplusReturn(c *fairqueue.Call, p *fairqueue.Pool, now int64) {
	surplus := len(p.Ready) - p.Slots
	if surplus <= 0 || c.MovesLeft == 0 {
		return
	}
	var back []*fairqueue.Entry
	for _, e := range slices.Backward(p.Ready) {
		if e.Worker == "" && len(back) < min(surplus, c.MovesLeft) {
			back = append(back, e)
		}
	}
	c.MovesLeft -= len(back)
	m.entriesReturn(c, p, back, false, now)
	if len(back) > 0 && surplus > len(back) && c.MovesLeft == 0 {
		m.room.Timers["f"+p.ID] = now + fairqueue.ContinueAfter
		c.More = true
	}
}

func (m *model) poolClose(p *fairqueue.Pool) {
	if p.Slots > 0 || len(p.Ready) > 0 {
		return
	}
	delete(m.room.Pools, p.ID)
	delete(m.timers, "c"+p.ID)
}

func (m *model) setGate(now int64, g Gate) []fairqueue.Dispatch {
	c := m.begin(now)
	name := string(g.Name)
	delete(m.room.Timers, "g"+name)
	if g.Limit < 0 {
		delete(m.room.Gates, name)
	} else {
		gate := m.room.Gates[name]
		if gate == nil {
			gate = &fairqueue.Gate{Held: m.heldUnder(name)}
			m.room.Gates[name] = gate
		}
		gate.Limit = g.Limit
	}
	m.gateTimes(name, g, now)
	c.Freed(name)
	c.WakeFreed()
	return m.fill(c, now)
}

// heldUnder counts the entries that passed under a gate. Surplus entries of pools that lost all workers count too.
func (m *model) heldUnder(name string) int {
	held := 0
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			if slices.Contains([]string{"q:" + e.Job.Queue, "t:" + e.Job.Tenant, "u:" + e.Job.Tenant + ":" + e.Job.Queue}, name) ||
				e.Job.Downstream != "" && name == "d:"+e.Job.Downstream {
				held++
			}
		}
	}
	return held
}

type gateEnd struct {
	at   int64
	then int
}

func (m *model) gateTimes(name string, g Gate, now int64) {
	delete(m.gateEnds, name)
	if g.For > 0 && g.Limit >= 0 {
		at := now + g.For.Microseconds()
		m.gateEnds[name] = gateEnd{at, g.Then}
		m.room.Timers["g"+name] = at
	}
}

func (m *model) gateDue(c *fairqueue.Call, name string, now int64) {
	end, ok := m.gateEnds[name]
	switch {
	case ok && end.at > now:
		m.room.Timers["g"+name] = end.at
	case ok && end.then < 0:
		delete(m.room.Gates, name)
	case ok:
		m.room.Gates[name].Limit = end.then
	}
	if ok && end.at <= now {
		delete(m.gateEnds, name)
	}
	c.Freed(name)
}

// due lists every timer as the script keeps it.
func (m *model) due() map[string]int64 {
	all := maps.Clone(m.room.Timers)
	maps.Copy(all, m.timers)
	return all
}

func sortedByTime(timers map[string]int64, now int64, limit int) []string {
	var names []string
	for name, at := range timers {
		if at <= now {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if timers[a] != timers[b] {
			return int(timers[a] - timers[b])
		}
		return strings.Compare(a, b)
	})
	return names[:min(limit, len(names))]
}

func (m *model) promote(now int64, owner string, lease int64) (word string, next int64, dispatched []fairqueue.Dispatch) {
	if owner != m.promoter && m.promoterUntil >= now && m.promoterUntil <= now+lease {
		return "held", m.promoterUntil - now + 1, nil
	}
	c := m.begin(now)
	m.promoter, m.promoterUntil = owner, now+lease
	m.rotate()
	if m.stepped {
		m.stepped = false
		for name, w := range m.workers {
			m.timers["w"+name] = now + w.lease
		}
	}
	for _, key := range sortedByTime(m.later, now, c.MovesLeft) {
		c.MovesLeft--
		delete(m.later, key)
		m.putBack(c, m.live[key], now)
	}
	for _, timer := range sortedByTime(m.due(), now, modelMaxDue) {
		if c.MovesLeft == 0 {
			break
		}
		delete(m.room.Timers, timer)
		delete(m.timers, timer)
		m.runTimer(c, timer, now)
	}
	c.WakeFreed()
	dispatched = m.fill(c, now)
	next = modelNoTimers
	for _, at := range m.due() {
		next = min(next, at)
	}
	for _, at := range m.later {
		next = min(next, at)
	}
	word = "promoted"
	if c.More || next <= now {
		word = "more"
	}
	if next == modelNoTimers {
		return word, -1, dispatched
	}
	return word, max(0, next-now), dispatched
}

func (m *model) runTimer(c *fairqueue.Call, timer string, now int64) {
	name := timer[1:]
	switch timer[0] {
	case 'd':
		for _, j := range c.ExpireLane(timer) {
			m.expire(j, now)
		}
	case 'g':
		m.gateDue(c, name, now)
	case 'f':
		c.Refill(name)
	case 'c':
		m.audit(c, name, now)
	case 'w':
		if !m.workerReclaim(c, name, now) {
			m.timers[timer] = now
		}
	}
}

// audit takes back what consumers hold that are not registered.
func (m *model) audit(c *fairqueue.Call, id string, now int64) {
	p := m.room.Pools[id]
	if p == nil {
		return
	}
	orphans := map[string]bool{}
	for _, e := range p.Ready {
		if _, ok := m.workers[e.Worker]; e.Worker != "" && !ok {
			orphans[e.Worker] = true
		}
	}
	for _, worker := range slices.Sorted(maps.Keys(orphans)) {
		if !m.consumerReturn(c, p, worker, now) {
			m.timers["c"+id] = now
			return
		}
	}
	m.poolClose(p)
	if m.room.Pools[id] != nil {
		m.timers["c"+id] = now + modelAudit
	}
}
