package redisstore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// model is what the scripts must equal: the pure packages, and around them the life of jobs and workers.
type model struct {
	room     *fairqueue.Room
	buckets  buckets.Set
	changed  buckets.Instant
	refunds  int64           // tokens
	refunded map[string]bool // by id
	leases   map[admission.Scope]map[string]modelLease
	limiters map[string]int64 // until, by name
	holders  int
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
	// The clock: last time seen, the buckets' own, the dedup window's own clock, when it last rotated, and how it leapt since promote last looked: -1 back, 1 ahead.
	last, filled, window, rotated int64
	leapt                         int
	promoter                      string
	promoterUntil                 int64
	queues                        map[string]store.QueueSettings
	letters                       map[string]string // dead letters' queues, by key
	cancelled                     map[string]bool
	started                       map[string]string          // worker, by key
	suspended                     map[string]int64           // until, 0 for ever, by name
	overflows                     map[string]store.Overflow  // by tenant:queue
	spilled                       map[string][]string        // keys by tenant:queue, the oldest first
	depthFreed, spillOn           map[string]bool            // spillOn: moves ran out before all that had room was back
	unique, ukeys                 map[string]string          // holder by name, and name by holder that is to release it
	stay                          map[string]bool            // names of unique keys that stay after their jobs
	maxParked                     map[string]int             // by downstream, "" for every other
	breakers                      map[string]*modelBreaker   // by downstream
	began                         map[*fairqueue.Entry]int64 // when entries under a breaker's gate were dispatched
	quiet                         time.Duration
	events                        []store.BreakerEvent
	// moves is what a call may move; more is whether the last one left work to the timers.
	moves   int
	more    bool
	deadCap int
}

type modelJob struct {
	fairqueue.Job
	attempts, max, lost     int
	suspect, timed, counted bool
	group                   string // of suspects, empty for one that is alone
	begun                   bool   // while its worker's end is looked at: its handler had begun
	size                    int
	start                   int64 // of a job that was spilled before it
	release                 admission.Release
	payload                 []byte
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
	modelDeadCap  = store.MaxLetters
	modelNoTimers = int64(9e15)
)

func newModel() *model {
	return &model{
		refunded: map[string]bool{}, leases: map[admission.Scope]map[string]modelLease{}, limiters: map[string]int64{}, holders: modelHolders,
		room: fairqueue.NewRoom(), left: map[string]int64{}, died: map[string]int64{}, live: map[string]*modelJob{},
		ended: [2]map[string]bool{{}, {}}, later: map[string]int64{}, dead: map[string]int64{},
		workers: map[string]modelWorker{}, timers: map[string]int64{}, gateEnds: map[string]gateEnd{}, queues: map[string]store.QueueSettings{},
		letters: map[string]string{}, cancelled: map[string]bool{}, started: map[string]string{}, suspended: map[string]int64{},
		unique: map[string]string{}, ukeys: map[string]string{}, stay: map[string]bool{},
		overflows: map[string]store.Overflow{}, spilled: map[string][]string{}, depthFreed: map[string]bool{}, spillOn: map[string]bool{},
		breakers: map[string]*modelBreaker{}, began: map[*fairqueue.Entry]int64{}, quiet: breaker.Quiet,
		moves: fairqueue.Moves, deadCap: modelDeadCap,
	}
}

// bucketTime never goes back.
func (m *model) bucketTime(now int64) int64 {
	if m.last == 0 {
		return now
	}
	return m.filled + max(0, now-m.last)
}

func (m *model) begin(now int64) *fairqueue.Pass {
	m.filled = m.bucketTime(now)
	passed := now - m.last
	switch {
	case m.last > 0 && passed < -modelMaxStep:
		m.leapt = -1
	case m.last > 0 && passed > modelMaxStep && m.leapt == 0:
		m.leapt = 1
	}
	m.window += max(0, min(passed, modelMaxStep))
	m.last = now
	clear(m.depthFreed)
	clear(m.spillOn)
	c := m.room.Begin(now)
	c.MovesLeft = m.moves
	return c
}

func (m *model) rotate() {
	if m.window-m.rotated >= modelWindow {
		m.ended[1], m.ended[0], m.rotated = m.ended[0], map[string]bool{}, m.window
	}
}

func (m *model) leave(key, counter string) {
	m.left[counter]++
	m.ended[0][key] = true
	m.uncount(m.live[key])
	m.releaseUnique(key)
	delete(m.live, key)
}

func (m *model) releaseUnique(key string) {
	if name, ok := m.ukeys[key]; ok {
		delete(m.ukeys, key)
		if m.unique[name] == key {
			delete(m.unique, name)
		}
	}
}

func (m *model) expire(j *fairqueue.Job, now int64) {
	reason := "expired"
	if m.live[j.Key()].timed {
		reason = "queue_timeout"
	}
	if m.queues[j.Queue].DropExpired {
		m.leave(j.Key(), reason)
	} else {
		m.bury(j.Key(), reason, now)
	}
}

func (m *model) fill(c *fairqueue.Pass, now int64) []fairqueue.Dispatch {
	var out []fairqueue.Dispatch
	for again := true; again; again = m.spillReturn(c, now) {
		out = append(out, c.Fill()...)
		for _, j := range c.Expired {
			m.expire(j, now)
		}
		c.Expired = nil
	}
	for _, d := range out {
		if m.live[d.Job.Key()].release == admission.ReleaseAtStart {
			m.releaseUnique(d.Job.Key())
		}
	}
	m.more = c.More
	m.noteBegun()
	return out
}

// suspendedBy reports whether admission is suspended for a job.
func (m *model) suspendedBy(j *admission.Job, now int64) bool {
	for _, name := range []store.GateName{store.QueueGate(j.Queue), store.TenantGate(j.Tenant), store.TenantQueueGate(j.Tenant, j.Queue)} {
		if until, ok := m.suspended[string(name)]; ok && (until == 0 || until > now) {
			return true
		}
	}
	return false
}

func (m *model) putBack(c *fairqueue.Pass, j *modelJob, now int64) {
	if !c.Return(&j.Job) {
		m.expire(&j.Job, now)
	}
}

// admit decides on candidates and returns the decision words that the script gives, and what was dispatched.
func (m *model) admit(now int64, jobs []store.Candidate) (words []string, dispatched []fairqueue.Dispatch) {
	words = make([]string, len(jobs))
	var placed []*modelJob
	var stay []string
	plan := &overflowPlan{m: m, depths: map[string]*modelDepth{}, spared: map[string]bool{}}
	var at []int
	var lefts []string
	var entrants []entrant
	waiting := m.room.WaitingFor()
	for i, candidate := range jobs {
		j := candidate.Job
		key := j.Tenant + ":" + j.ID
		start := now + j.Delay.Microseconds()
		if !j.RunAt.IsZero() {
			start = max(now, j.RunAt.UnixMicro())
		}
		name := j.Tenant + ":" + j.Unique.Key
		_, dead := m.dead[key]
		switch {
		case candidate.Redrive > 0 && m.live[key] != nil && m.live[key].Seq != candidate.Redrive:
			words[i] = "duplicate"
			continue
		case candidate.Redrive > 0 && !dead:
			words[i] = "gone"
			continue
		case candidate.Redrive == 0 && (m.live[key] != nil || m.ended[0][key] || m.ended[1][key]):
			words[i] = "duplicate"
			continue
		case !j.Deadline.IsZero() && j.Deadline.UnixMicro() < start:
			words[i] = "deadline"
			continue
		case m.suspendedBy(j, now):
			words[i] = "paused test"
			continue
		case j.Unique.Key != "" && m.unique[name] != "":
			words[i] = "unique " + strings.TrimPrefix(m.unique[name], j.Tenant+":")
			continue
		}
		if start <= now && m.parkedOut(j.Downstream, waiting) {
			words[i] = "parked downstream " + j.Downstream
			continue
		}
		path := buckets.AppendPath(nil, *candidate.Limits, j.Tenant, j.Queue, j.Priority)
		v := m.buckets.Peek(buckets.Instant(m.bucketTime(now)), m.changed, path, j.Cost)
		if v.Decision != admission.Admitted {
			words[i] = verdictText(v)
			continue
		}
		entering, refusal := plan.decide(candidate)
		if words[i] = refusal; refusal != "" {
			continue
		}
		m.buckets.Take(buckets.Instant(m.bucketTime(now)), m.changed, path, j.Cost)
		left, burst := m.buckets.Least(buckets.Instant(m.bucketTime(now)), m.changed, path)
		lefts = append(lefts, fmt.Sprintf(" left %d/%d", left, burst))
		mj := &modelJob{max: admission.DefaultMaxAttempts, counted: entering.counted, size: entering.size, payload: j.Payload}
		if j.MaxAttempts > 0 {
			mj.max = j.MaxAttempts
		}
		mj.Job = fairqueue.Job{
			Tenant: j.Tenant, ID: j.ID, Queue: j.Queue, Class: candidate.Class, Downstream: j.Downstream,
			Dated: !j.Deadline.IsZero(), Score: start + modelHorizon, Cost: j.Cost, Seq: m.room.NextSeq(),
		}
		if mj.Dated {
			mj.Score = j.Deadline.UnixMicro()
		}
		if wait := m.queues[j.Queue].MaxWait.Microseconds(); wait > 0 && (!mj.Dated || mj.Score > start+wait) {
			mj.timed, mj.Dated, mj.Score = true, true, start+wait
		}
		if j.Unique.Key != "" {
			mj.release = cmp.Or(j.Unique.Release, admission.ReleaseAtEnd)
			m.unique[name] = key
			if mj.release != admission.ReleaseAtExpiry {
				m.ukeys[key] = name
			} else {
				stay = append(stay, name)
			}
		}
		if candidate.Redrive > 0 {
			delete(m.dead, key)
			delete(m.letters, key)
			m.accepted--
		}
		m.live[key] = mj
		if start <= now {
			waiting[j.Downstream]++
		}
		plan.spared[key] = true
		if start > now && !m.knows(j.Queue) {
			m.room.Know(j.Queue)
		}
		placed, at, entrants = append(placed, mj), append(at, i), append(entrants, entering)
		switch {
		case entering.spilled:
			if start > now {
				mj.start = start
			}
			m.spill(mj)
			words[i] = fmt.Sprintf("spilled %d", len(m.spilled[mj.depthName()]))
		case start > now:
			m.later[key] = start
			words[i] = fmt.Sprintf("later %d", start-now)
		}
	}
	if len(placed) == 0 {
		return words, nil // a call that admits nothing writes nothing
	}
	for _, name := range stay {
		m.stay[name] = true
	}
	c := m.begin(now)
	m.accepted += int64(len(placed))
	for _, e := range entrants {
		for _, victim := range e.victims {
			c.Remove(&victim.Job)
			m.bury(victim.Key(), "dropped", now)
		}
	}
	for k, mj := range placed {
		if words[at[k]] == "" {
			words[at[k]] = fmt.Sprintf("admitted %d", c.Place(&mj.Job))
			c.RefillQueue(mj.Queue)
		}
	}
	dispatched = m.fill(c, now)
	for k, mj := range placed {
		if slices.ContainsFunc(dispatched, func(d fairqueue.Dispatch) bool { return d.Job == &mj.Job }) {
			words[at[k]] = "straight"
		}
		words[at[k]] += lefts[k]
		if n := len(entrants[k].victims); n > 0 {
			words[at[k]] = fmt.Sprintf("dropped %d %s", n, words[at[k]])
		}
	}
	return words, dispatched
}

// knows reports whether the policy names a queue or a worker serves it.
func (m *model) knows(queue string) bool {
	if _, named := m.queues[queue]; named {
		return true
	}
	for _, p := range m.room.Pools {
		if slices.Contains(p.Queues, queue) {
			return true
		}
	}
	return false
}

// parkedOut reports whether as many jobs wait for a downstream whose breaker is not closed as may.
func (m *model) parkedOut(downstream string, waiting map[string]int) bool {
	most, ok := m.maxParked[downstream]
	if !ok {
		most, ok = m.maxParked[""]
	}
	return ok && downstream != "" && m.room.Gates["b:"+downstream] != nil && waiting[downstream] >= most
}

func verdictText(v admission.Verdict) string {
	return fmt.Sprintf("%s %s left %d after %dus burst %d", v.Reason, v.Scope, v.TokensLeft, v.RetryAfter.Microseconds(), v.Burst)
}

func (m *model) finish(now int64, pool string, jobs []store.Finish) (words []string, dispatched []fairqueue.Dispatch) {
	p := m.room.Pools[pool]
	if p == nil {
		m.more = false
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
func (m *model) takeEntry(c *fairqueue.Pass, p *fairqueue.Pool, key string) *modelJob {
	for i, e := range p.Ready {
		if e.Job.Key() == key && e.Worker != "" {
			p.Ready = slices.Delete(p.Ready, i, i+1)
			c.Release(p, e)
			delete(m.started, key)
			return m.live[key]
		}
	}
	return nil
}

func (m *model) outcome(c *fairqueue.Pass, j *modelJob, f store.Finish, now int64) string {
	if j == nil {
		return "lost"
	}
	key, delay := j.Key(), f.Delay.Microseconds()
	cancelled := m.cancelled[key]
	delete(m.cancelled, key)
	if f.Outcome == store.Complete {
		m.leave(key, "completed")
		return "done"
	}
	if cancelled {
		m.leave(key, "cancelled")
		return "cancelled"
	}
	switch f.Outcome {
	case store.Kill:
		m.bury(key, f.Reason, now)
		return "dead"
	case store.Expire:
		m.expire(&j.Job, now)
		return "expired"
	case store.Retry:
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
	case store.Release, store.Complete:
	}
	if delay > 0 {
		m.later[key] = now + delay
	} else {
		m.putBack(c, j, now)
	}
	return "released"
}
