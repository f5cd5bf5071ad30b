package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/bank"
	"github.com/headgate/headgate/store"
)

// Admit decides on jobs, as store.Partition.Admit.
func (p *Partition) Admit(_ context.Context, version int64, jobs []store.Candidate) (verdicts []admission.Verdict, err error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	p.write(func(m *model, now int64) {
		if err = m.stale(version, candidatesRecords(jobs)); err != nil {
			return
		}
		a := &admitting{m: m, now: now, jobs: jobs, verdicts: make([]admission.Verdict, len(jobs)), charge: m.charging(&m.bank, now)}
		a.run()
		verdicts = a.verdicts
	})
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

// admitting is one call of Admit.
type admitting struct {
	m        *model
	now      int64
	jobs     []store.Candidate
	verdicts []admission.Verdict
	entering []entering
	charge   *bank.Charge
	// plan has the depths as the call leaves them; parking, staying, ahead and making what it adds to others' counts; crowded says that
	// room for queues is to be made.
	plan            *overflowPlan
	parking         map[string]int
	staying, making map[string]int
	ahead           map[string]map[string]bool
	// letIn are those of whom the call has let in a job that is refused earlier to a tenant over its share.
	letIn map[tenantClass]bool
	// into counts the jobs that the call lets into lanes of a queue whose jobs may be doomed.
	into    map[string]int
	crowded bool
}

// entering is a job that is let in.
type entering struct {
	at      int // in the call
	job     *modelJob
	start   int64 // when it starts, 0 for at once
	redrive *modelJob
	entrant
	makes    bool // its queue
	position int
	// left and burst are of the bucket on its way that holds least after it.
	left, burst admission.Tokens
	bypassed    bool
}

func (a *admitting) run() {
	for i := range a.jobs {
		if v := a.decide(i); v != nil {
			v.ID = a.jobs[i].Job.ID
			a.verdicts[i] = *v
			a.tell(i)
		}
	}
	if len(a.entering) == 0 {
		a.forgetQueues()
		a.m.keepTime(a.now)
		return
	}
	a.enter()
}

// refuse is the refusal of a job for a reason, which its ID is added to.
func refuse(reason admission.Reason, wait time.Duration, detail string, args ...any) *admission.Verdict {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &admission.Verdict{Reason: reason, RetryAfter: wait, Detail: detail}
}

// refuseTenant is one of a bound of the job's tenant.
func refuseTenant(tenant string, wait time.Duration, detail string, args ...any) *admission.Verdict {
	v := refuse(admission.ReasonOverflow, wait, detail, args...)
	v.Scope = admission.ScopeAt(admission.LevelTenant, tenant, "", "")
	return v
}

// startOf is when a job starts that is put off, else 0.
func startOf(j *admission.Job, now int64) int64 {
	start := int64(0)
	switch {
	case j.Delay > 0:
		start = now + j.Delay.Microseconds()
	case !j.RunAt.IsZero():
		start = j.RunAt.UnixMicro()
	}
	if start <= now {
		return 0
	}
	return start
}

// decide lets a job in, or returns what is to be answered.
func (a *admitting) decide(i int) *admission.Verdict {
	m, c, j := a.m, &a.jobs[i], a.jobs[i].Job
	key, start := j.Tenant+":"+j.ID, startOf(j, a.now)
	live := m.live[key]
	if v := a.known(c, key, live); v != nil {
		return v
	}
	if len(m.ended[0])+len(m.ended[1]) >= mostEnded {
		return refuse(admission.ReasonDedup, store.RefusedRetry, "")
	}
	if !j.Deadline.IsZero() && j.Deadline.UnixMicro() < cmp.Or(start, a.now) {
		return refuse(admission.ReasonDeadline, 0, "")
	}
	makes := !m.room.Has(j.Queue) && !m.knows(j.Queue)
	if makes {
		if v := a.queuesFull(j); v != nil {
			return v
		}
	}
	for _, check := range [...]func(c *store.Candidate, start int64) *admission.Verdict{a.suspended, a.shed, a.uniqueHeld, a.parkedOut, a.lanesFull, a.doomed} {
		if v := check(c, start); v != nil {
			return v
		}
	}
	path := a.charge.PathOfType(c.Limits, store.TypeLimitOf(j.Type, c.TypeLimit), j.Tenant, j.Queue, j.Priority)
	way, v := a.charge.Way(a.charge.BypassOf(c.Limits, j.Tenant), path, j.Cost)
	if v.Decision != admission.Admitted {
		return &v
	}
	job := newJob(c, key, live)
	var e entrant
	if a.bounded(j) {
		var v *admission.Verdict
		if e, v = a.planOf().decide(tenantQueue{j.Tenant, j.Queue}, c.Class, job.size, a.now); v != nil {
			return v
		}
	}
	a.charge.Take(way, j.Cost)
	_, left, burst := a.charge.Least(way)
	a.let(entering{at: i, job: job, start: start, redrive: redriven(c, live), entrant: e, makes: makes, left: left, burst: burst, bypassed: v.Bypassed})
	return nil
}

// known refuses what is here already, and letters that are not.
func (a *admitting) known(c *store.Candidate, key string, live *modelJob) *admission.Verdict {
	m := a.m
	again := c.Redrive > 0 && live != nil && live.Seq != c.Redrive
	switch {
	case c.Redrive > 0 && !again && (live == nil || live.where != amongDead):
		return refuse(admission.ReasonGone, 0, "")
	case again, c.Redrive == 0 && (live != nil || m.remembers(key)):
		return &admission.Verdict{Decision: admission.Duplicate}
	}
	for i := range a.entering {
		if a.entering[i].job.key == key {
			return &admission.Verdict{Decision: admission.Duplicate}
		}
	}
	return nil
}

func redriven(c *store.Candidate, live *modelJob) *modelJob {
	if c.Redrive > 0 {
		return live
	}
	return nil
}

// newJob is a candidate as it is stored. A redriven one keeps a large payload and its history.
func newJob(c *store.Candidate, key string, live *modelJob) *modelJob {
	j := c.Job
	stored := admission.Job{
		Tenant: j.Tenant, ID: j.ID, Queue: j.Queue, Type: j.Type, Downstream: j.Downstream, Cost: j.Cost, Timeout: j.Timeout.Truncate(time.Microsecond),
		MaxAttempts: cmp.Or(j.MaxAttempts, admission.DefaultMaxAttempts), Payload: append(make([]byte, 0, len(j.Payload)), j.Payload...),
	}
	if len(j.Headers) > 0 {
		stored.Headers = maps.Clone(j.Headers)
	}
	job := &modelJob{key: key, raw: store.EncodeKey(admission.Key{Tenant: j.Tenant, ID: j.ID}), max: stored.MaxAttempts}
	if c.Redrive > 0 {
		job.history = live.history
		if len(stored.Payload) > store.LargePayload {
			stored.Payload = live.stored.Payload
		}
	}
	job.stored, job.uncharged = stored, c.Free
	job.size = recordSize((&store.Candidate{Job: &job.stored, Free: c.Free}).Stored())
	job.Job = fairqueue.Job{
		Tenant: j.Tenant, ID: j.ID, Queue: j.Queue, Class: c.Class, Downstream: j.Downstream, Dated: !j.Deadline.IsZero(), Cost: j.Cost, Of: job,
	}
	if j.Unique.Key != "" {
		job.release = cmp.Or(j.Unique.Release, admission.ReleaseAtEnd)
	}
	return job
}

// let notes that a job enters, and gives it its place in the order.
func (a *admitting) let(e entering) {
	m, j, as := a.m, e.job, a.jobs[e.at].Job
	settings, base := m.settingsOf(j.Queue), cmp.Or(e.start, a.now)
	j.Score = base + settings.Horizon.Microseconds()
	if j.Dated {
		j.Score = as.Deadline.UnixMicro()
	}
	if wait := settings.MaxWait.Microseconds(); wait > 0 && (!j.Dated || j.Score > base+wait) {
		j.timed, j.Dated, j.Score = true, true, base+wait
	}
	if j.Dated {
		j.stored.Deadline = time.UnixMicro(j.Score)
	}
	j.Seq, j.arrival = m.room.NextSeq(), a.now
	m.live[j.key] = j
	m.results.Forget(j.key)
	if e.makes {
		if a.making == nil {
			a.making = map[string]int{}
		}
		if a.making[j.Queue]++; a.making[j.Queue] == 1 {
			a.making[j.Tenant+":"]++
			a.making[":"]++
		}
	}
	if as.Unique.Key != "" {
		m.holdUnique(j, as, a.now)
	}
	if e.start == 0 && a.parking != nil {
		if _, counted := a.parking[j.Service()]; counted {
			a.parking[j.Service()]++
		}
	}
	if c := &a.jobs[e.at]; c.ShedOverFrom > 0 && c.ShedOverFrom < c.ShedFrom {
		if a.letIn == nil {
			a.letIn = map[tenantClass]bool{}
		}
		a.letIn[tenantClass{j.Tenant, j.Queue, c.Class}] = true
	}
	if e.start == 0 && !e.spilled && a.jobs[e.at].Doomed > 0 {
		if a.into == nil {
			a.into = map[string]int{}
		}
		a.into[j.Queue]++
	}
	a.entering = append(a.entering, e)
}

// holdUnique has a job hold its unique key, for the time that it asks for.
func (m *model) holdUnique(j *modelJob, as *admission.Job, now int64) {
	name, length := as.Tenant+":"+as.Unique.Key, cmp.Or(as.Unique.For, admission.DefaultUniqueFor)
	m.unique.Hold(name, j.key, now+(length.Microseconds()+999)/1000*1000, now)
	if j.release != admission.ReleaseAtExpiry {
		j.releases = name
	}
}

// enter writes what decide has let in.
func (a *admitting) enter() {
	m := a.m
	a.charge.Commit()
	c := m.begin(a.now)
	for i := range a.entering {
		e := &a.entering[i]
		m.accepted++
		as := &a.jobs[e.at]
		m.usage.Add(a.now, m.over(a.now), a.now, as.Usage, as.Job.Tenant, as.Job.Queue, store.Used{Jobs: 1, Reserved: as.Job.Cost})
		if e.redrive != nil {
			m.letters.Remove(e.redrive)
			m.accepted--
		}
	}
	for i := range a.entering {
		for _, victim := range a.entering[i].victims {
			c.Remove(&victim.Job)
			m.outOfLane(victim)
			m.bury(victim, "dropped", "", a.now)
		}
	}
	for i := range a.entering {
		a.place(c, &a.entering[i])
	}
	a.forgetQueues()
	a.tellRedrives()
	m.fill(c, a.now)
	for i := range a.entering {
		a.answer(c, &a.entering[i])
	}
}

// place brings a job to where it waits.
func (a *admitting) place(c *fairqueue.Pass, e *entering) {
	m, j := a.m, e.job
	if (e.makes || e.start > 0) && !m.knows(j.Queue) {
		m.made.Note(j.Queue, j.Tenant, e.start)
		if e.start > 0 {
			m.room.Know(j.Queue)
		}
	}
	if j.release == admission.ReleaseAtExpiry {
		unique := a.jobs[e.at].Job.Unique
		extendIn(m.staying, j.Tenant, unique.Key, a.now+cmp.Or(unique.For, admission.DefaultUniqueFor).Microseconds(), a.now)
	}
	if e.counted {
		m.count(j)
	}
	switch {
	case e.spilled:
		m.spill(j, e.start)
		e.position = m.spilledIn(j.Tenant, j.Queue).Len()
	case e.start > 0:
		m.putOff(j, e.start)
		if j.Downstream != "" {
			extendIn(m.ahead, j.Tenant, j.Downstream, e.start, a.now)
		}
	default:
		e.position = m.enlane(c, j)
		c.RefillQueue(j.Queue)
	}
}

// answer says where a job went.
func (a *admitting) answer(c *fairqueue.Pass, e *entering) {
	j, v := e.job, &a.verdicts[e.at]
	defer a.tell(e.at)
	*v = admission.Verdict{ID: j.ID, Decision: admission.Admitted, Bypassed: e.bypassed, Dropped: len(e.victims), TokensLeft: e.left, Burst: e.burst}
	switch {
	case e.spilled:
		v.Place, v.Position, v.EstimatedWait = admission.PlaceSpilled, e.position, -1
	case e.start > 0:
		v.Place, v.EstimatedWait = admission.PlaceLater, time.Duration(e.start-a.now)*time.Microsecond
	case j.where == inReady:
		v.Place = admission.PlaceReady
	default:
		v.Place, v.Position = admission.PlaceWaiting, e.position
		v.EstimatedWait = time.Duration(c.Guess(&j.Job, e.position)) * time.Microsecond
	}
}

// tellRedrives tells the audit of the dead letters that are on their way again, queue by queue.
func (a *admitting) tellRedrives() {
	var queues map[string]int
	var last *store.Candidate
	for i := range a.entering {
		if e := &a.entering[i]; e.redrive != nil {
			if queues == nil {
				queues = map[string]int{}
			}
			queues[e.job.Queue]++
			last = &a.jobs[e.at]
		}
	}
	for queue, n := range queues {
		action := store.AuditRedrive
		if last.Free {
			action = store.AuditRedriveFree
		}
		a.m.record(a.now, last.By, action, string(store.QueueGate(queue)), n, 0)
	}
}

func (a *admitting) planOf() *overflowPlan {
	if a.plan == nil {
		a.plan = newOverflowPlan(a.m)
	}
	return a.plan
}

// bounded reports whether anything may bound the depth of a job's tenant.
func (a *admitting) bounded(j *admission.Job) bool {
	q := a.m.queues[j.Queue]
	return len(a.m.overflows)+len(a.m.tiers)+len(a.m.bounds) > 0 || q.Overflow.Policy != "" || len(q.Tiers) > 0
}

// forgetQueues makes room for queues, where there is little.
func (a *admitting) forgetQueues() {
	if !a.crowded {
		return
	}
	about := map[string]bool{}
	for i := range a.jobs {
		about[a.jobs[i].Job.Queue] = true
	}
	a.m.forgetQueues(func(queue string) bool { return about[queue] }, a.now)
}

// recordSize is how many bytes a store keeps of a job, which bounds in bytes count: its record in Redis, as package redisstore encodes it, and
// its payload where that stands beside it.
func recordSize(j *admission.Job) int {
	size := recordHeader + len(j.Queue) + len(j.Downstream) + stringSize(j.Type) + varintSize(uint64(j.Timeout.Microseconds())) +
		varintSize(uint64(len(j.Headers))) + len(j.Payload)
	for name, value := range j.Headers {
		size += stringSize(name) + stringSize(value)
	}
	return size
}

// recordHeader is lua.HeaderSize: the conformance of the bounds holds them equal.
const recordHeader = 36

func stringSize(s string) int { return varintSize(uint64(len(s))) + len(s) }

func varintSize(n uint64) (size int) {
	for size = 1; n >= 0x80; size++ {
		n >>= 7
	}
	return size
}
