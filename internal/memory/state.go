package memory

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/audit"
	"github.com/headgate/headgate/internal/memory/internal/bank"
	"github.com/headgate/headgate/internal/memory/internal/counts"
	"github.com/headgate/headgate/internal/memory/internal/graves"
	"github.com/headgate/headgate/internal/memory/internal/names"
	"github.com/headgate/headgate/internal/memory/internal/times"
	"github.com/headgate/headgate/internal/sorted"
	"github.com/headgate/headgate/store"
)

// model is all that a partition holds: the pure packages, and around them the life of jobs and workers. Times are microseconds since
// 1970, by the clock of the partition.
type model struct {
	room *fairqueue.Room
	// Buckets. changed is when the policy was, or what scales limits, by their time, scales what does, by what; and refunds the tokens that were given back, refunded for which work.
	bank      bank.Bank
	charge    bank.Charge // the one under way
	shadow    shadow
	changed   buckets.Instant
	scales    map[store.GateName]scale
	records   map[string]store.TenantRecord // what tenants have beside the policy, and recorded the latest version of any
	recorded  int64
	edits     []edit                        // the last of them, oldest first
	shares    map[string]store.RecordShares // what those of them say of tier, weights and cap that say something, of which
	tiered    int                           // so many name a tier, and
	capped    int                           // so many have a cap of their own
	bounds    map[string]store.RecordBounds // what those of them say of depth that say something
	rated     map[string]buckets.Limit      // what those of them say of dispatches that say something, the zero Limit for no such bound
	capsIn    map[string]queueCap           // what those of them say of caps in single queues that say something, by gate
	refunds   int64
	refunded  *times.Times
	parts     map[string]admission.Tokens  // what work that goes on has told so far, by the same names as refunded
	reserved  map[string]store.Reservation // what ids have taken, by TENANT:ID, and until when that is remembered
	reserving *times.Times
	leases    bank.Leases // tokens that limiters spend by themselves
	keepEnded bool
	counts    counts.Counts
	// usage is what was used by day, and usedFrom since when it is kept, below zero where it is not.
	usage    counts.Usage
	usedFrom int64

	// Jobs. live are all, dead letters included, by key; ended the keys of those that left, young ones and old ones.
	live      map[string]*modelJob
	ended     [2]map[string]bool
	later     *sorted.List[*modelJob] // by when they are due
	letters   graves.Index[*modelJob]
	backlogs  map[tenantQueue]*backlog // what each tenant has in a queue
	totals    map[string]*depth        // what each tenant has over all queues
	tokens    map[string]*modelJob     // jobs in ready streams, by the token of their entry
	holding   map[holder][]*modelJob   // jobs in workers' hands, the oldest entry first
	begun     map[string]*begun        // suspects that handlers have begun, by worker
	probes    map[string][]*modelJob   // jobs in ready streams that were dispatched in a breaker's period, by service
	unique    names.Keys
	staying   map[string]*times.Times // unique keys that stay after their jobs, by tenant
	ahead     map[string]*times.Times // downstreams of jobs that are put off, by tenant
	made      names.Queues
	results   names.Results
	wake      string // the latest call to the schedulers, an id of a stream
	lastToken [2]uint64

	// What was counted.
	accepted, retried, steps int64
	cancelling               int // running jobs that were cancelled
	left, died               map[string]int64
	unknownTypes             map[string]store.Unknown // by queue

	workers map[string]modelWorker
	timers  *times.Times
	// The clock: last time seen, the buckets' own, the dedup window's own clock, when it last rotated, and how it leapt since promote last looked: -1 back, 1 ahead.
	last, filled, window, rotated int64
	leapt                         int
	promoter                      string
	promoterUntil                 int64
	schedulers                    map[string]int64 // until, by name
	semaphores                    *names.Semaphores
	rights                        names.Rights // of those that only so many may do at once
	followed                      map[string]store.Death
	told                          map[string]string // up to which transition of breakers, by follower
	ticks                         map[string]int64  // by periodic job

	// The policy, and dedup, the window of its for which ended ids are remembered.
	policy
	settings

	dedup int64

	log audit.Log // what operators did

	gateNotes map[string]gateNote
	byTier    map[string]bool             // gates whose limit, or the one that a pause leaves behind, is that of their tenant's tier
	adaptive  map[string]*adaptive        // limits that move by themselves, by their gates
	accounts  map[string]*modelRate       // what is left of the rates of accounts that have none of their own, by their gates
	suspended map[string]suspension       // by name
	pressures map[string]*pressure        // queues that are measured
	loads     map[string]store.WorkerLoad // of workers
	triggers  map[string]store.TriggerState
	points    []loadPoint // of services, by time

	alarms counts.Alarms // rates that were not usual
	rates  counts.Rates  // what was decided of queues

	// accountsKept is how many accounts were left when those with full buckets went last.
	accountsKept int

	breakers map[string]*modelBreaker // by service
	quiet    time.Duration
	events   []store.BreakerEvent
	// eventsGone is how many have left them.
	eventsGone int64

	// The call under way: backlogs that have room again, to those that moves ran out for; what others wait for and has happened;
	// moves is what a call may move; more is whether the last one left work to the timers.
	depthFreed map[tenantQueue]bool
	happened   map[string]bool
	moves      int
	more       bool
	deadCap    int
	onDispatch func(fairqueue.Dispatch)
	onRendered func(j *fairqueue.Job, actual admission.Tokens)
}

// whereabouts is where a live job is.
type whereabouts byte

const (
	inLane whereabouts = iota
	inLater
	inSpill
	inReady
	amongDead
)

// modelJob is all that is kept of a job that lives.
type modelJob struct {
	fairqueue.Job
	key, raw string // its key, and as stores order jobs of one time by
	// stored is the job as its record tells of it, but with all of its payload, and size its bytes there.
	stored  admission.Job
	size    int
	arrival int64

	where whereabouts
	// at is when it is due, or died; of a spilled one its own time, 0 for none. reason and text say why it died.
	at           int64
	reason, text string

	attempts, max, lost     int
	suspect, timed, counted bool
	uncharged               bool // runs again without limits
	// release says when its unique key goes, "" where it has none; releases names the key that it is to release.
	release  admission.Release
	releases string
	history  []store.Delivery

	// group is that of suspects, empty for one that is alone; startedBy the worker whose handler has begun it; begun is that it had been
	// when its worker was lost.
	group, startedBy string
	begun            bool

	// Of its entry in a ready stream: its pool, its token, since when a worker has it, and when it was dispatched, by the breakers' clock.
	pool         *fairqueue.Pool
	entry        *fairqueue.Entry
	token        string
	since, began int64
	// cancelled is set while it runs and was cancelled, for whatever reason.
	cancelled bool
	because   string
}

// jobOf returns what is kept of a job that the room names.
func jobOf(j *fairqueue.Job) *modelJob {
	of, _ := j.Of.(*modelJob)
	return of
}

type tenantQueue struct{ tenant, queue string }

// holder is a worker with a pool that it has read from.
type holder struct{ pool, worker string }

type modelWorker struct {
	pool  string
	slots int
	lease int64 // 0 while it is taken back, once it has ended
}

const (
	defaultHorizon = 3_600_000_000
	defaultDedup   = 30_000_000
	auditEvery     = 15_000_000
	maxStep        = 5_000_000
	mostLetters    = 100_000
	never          = int64(9e15)
	mostEnded      = 4_000_000
)

func byTime(a, b *modelJob) int {
	return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.raw, b.raw))
}

func newModel() *model {
	m := &model{
		room: fairqueue.NewRoom(), timers: times.New(),
		bank: bank.New(), shadow: shadow{bank: bank.New()}, refunded: times.New(), parts: map[string]admission.Tokens{}, reserved: map[string]store.Reservation{}, reserving: times.New(), leases: bank.NewLeases(0),
		counts: counts.New(), alarms: counts.NewAlarms(), usage: counts.Usage{}, usedFrom: -1,
		live: map[string]*modelJob{}, ended: [2]map[string]bool{{}, {}}, later: sorted.New(byTime), letters: graves.New(byTime, func(j *modelJob) (tenant, queue string) { return j.Tenant, j.Queue }),
		backlogs: map[tenantQueue]*backlog{}, totals: map[string]*depth{}, tokens: map[string]*modelJob{}, holding: map[holder][]*modelJob{},
		begun: map[string]*begun{}, probes: map[string][]*modelJob{}, unique: names.NewKeys(), staying: map[string]*times.Times{},
		ahead: map[string]*times.Times{}, made: names.NewQueues(), results: names.NewResults(), left: map[string]int64{}, died: map[string]int64{},
		unknownTypes: map[string]store.Unknown{}, workers: map[string]modelWorker{}, schedulers: map[string]int64{},
		rights: names.Rights{}, semaphores: names.NewSemaphores(), told: map[string]string{}, followed: map[string]store.Death{}, ticks: map[string]int64{},
		policy: policy{versions: map[int64][]byte{}}, settings: settingsIn(&store.PolicyUpdate{}), gateNotes: map[string]gateNote{}, byTier: map[string]bool{}, adaptive: map[string]*adaptive{}, accounts: map[string]*modelRate{}, suspended: map[string]suspension{}, pressures: map[string]*pressure{}, loads: map[string]store.WorkerLoad{}, triggers: map[string]store.TriggerState{},
		breakers: map[string]*modelBreaker{}, quiet: breaker.Quiet, dedup: defaultDedup,
		depthFreed: map[tenantQueue]bool{}, happened: map[string]bool{}, moves: fairqueue.Moves, deadCap: mostLetters,
	}
	m.room.Alarms = alarms{m}
	m.room.Weight = func(class admission.Priority, tenant string) admission.Weight { return m.weight(class, tenant) }
	return m
}

// alarms are the room's timers among those of the partition.
type alarms struct{ *model }

func (a alarms) Set(timer string, at int64) { a.arm(timer, at) }
func (a alarms) Stop(timer string)          { a.timers.Remove(timer) }

func (a alarms) Armed(timer string) bool {
	_, armed := a.timers.Find(timer)
	return armed
}

// bucketTime never goes back.
func (m *model) bucketTime(now int64) int64 {
	if m.last == 0 {
		return now
	}
	return m.filled + max(0, now-m.last)
}

// advance has the clocks follow the time.
func (m *model) advance(now int64) {
	m.filled = m.bucketTime(now)
	passed := now - m.last
	switch {
	case m.last > 0 && passed < -maxStep:
		m.leapt = -1
	case m.last > 0 && passed > maxStep && m.leapt == 0:
		m.leapt = 1
	}
	m.window += max(0, min(passed, maxStep))
	m.last = now
}

// keepTime has the clocks go on where the time was set back, for a call that changes nothing else: until one does the buckets' time stands still.
func (m *model) keepTime(now int64) {
	if now < m.last {
		m.advance(now)
	}
}

// over is the time by which what has ended is forgotten.
func (m *model) over(now int64) int64 {
	if m.keepEnded {
		return math.MinInt64
	}
	return now
}

// charging begins a charge of a bank. It ends the one before.
func (m *model) charging(b *bank.Bank, now int64) *bank.Charge {
	scales, changed := m.scaled(now)
	m.charge.Begin(b, now, m.over(now), buckets.Instant(m.bucketTime(now)), changed, scales)
	return &m.charge
}

// begin starts a call that moves jobs; fill ends it.
func (m *model) begin(now int64) *fairqueue.Pass {
	m.advance(now)
	clear(m.depthFreed)
	c := m.room.Begin(now)
	c.MovesLeft = m.moves
	return c
}

// rotate forgets the older half of the ended ids when it is a window old.
func (m *model) rotate() {
	if m.window-m.rotated >= m.dedup {
		m.ended[1], m.ended[0], m.rotated = m.ended[0], map[string]bool{}, m.window
	}
}

// leave ends a job that is in no place any more.
func (m *model) leave(j *modelJob, counter string) {
	m.left[counter]++
	m.ended[0][j.key] = true
	m.uncount(j)
	m.releaseUnique(j)
	delete(m.live, j.key)
}

// expire ends a job whose deadline has passed, by its queue's settings.
func (m *model) expire(j *modelJob, now int64) {
	reason := "expired"
	if j.timed {
		reason = "queue_timeout"
	}
	if m.settingsOf(j.Queue).DropExpired {
		m.leave(j, reason)
	} else {
		m.bury(j, reason, "", now)
	}
}

// fill ends a call: it dispatches what there is room for.
func (m *model) fill(c *fairqueue.Pass, now int64) {
	for again := true; again; again = len(m.depthFreed) > 0 && m.spillReturn(c, now) {
		for _, d := range c.Fill() {
			m.dispatched(d, now)
		}
		if len(c.Expired) == 0 {
			continue
		}
		expired := c.Expired
		c.Expired = nil
		for _, j := range expired {
			m.outOfLane(jobOf(j))
			m.expire(jobOf(j), now)
		}
	}
	c.Tally()
	m.more = c.More
}

// enlane puts a job into its lane and returns its position there.
func (m *model) enlane(c *fairqueue.Pass, j *modelJob) int {
	j.where = inLane
	j.Class = min(j.Class, len(m.classesOf(j.Queue))-1) // An edit may have taken its class away while it was in no lane.
	if j.counted {
		m.backlogOf(j.Tenant, j.Queue).old.Add(j)
	}
	return c.Place(&j.Job)
}

// outOfLane follows a counted job out of its lane.
func (m *model) outOfLane(j *modelJob) {
	if j.counted {
		m.backlogOf(j.Tenant, j.Queue).old.Remove(j)
	}
}

// putBack puts a job back where it stood, or ends it when its deadline has passed.
func (m *model) putBack(c *fairqueue.Pass, j *modelJob, now int64) {
	if j.Dated && j.Score < now {
		m.expire(j, now)
		return
	}
	m.enlane(c, j)
}

// putOff has a job wait for a time.
func (m *model) putOff(j *modelJob, at int64) {
	j.where, j.at = inLater, at
	before := m.earliest()
	m.later.Add(j)
	m.wakeIf(at, before)
}

// noted adds a line to a job's history.
func (j *modelJob) noted(outcome string, ran time.Duration, worker, text string, now int64) {
	if len(j.history) >= store.HistoryCap {
		j.history = append([]store.Delivery(nil), j.history[1:]...)
	}
	j.history = append(j.history, store.Delivery{
		Outcome: outcome, At: microTime(now), Ran: ran.Truncate(time.Microsecond), Worker: worker, Text: text,
	})
}

// settingsOf returns what dispatch must know of a queue, the defaults filled in.
func (m *model) settingsOf(queue string) store.QueueSettings {
	for _, name := range []string{queue, store.Every} {
		if s, named := m.queues[name]; named {
			return s
		}
	}
	return store.QueueSettings{Horizon: defaultHorizon * time.Microsecond, PoisonLimit: store.DefaultPoisonLimit, MaxDead: store.DefaultMaxDead}
}

// newToken names an entry as an id of a stream: a time in milliseconds and a number, each above the one before.
func (m *model) newToken(now int64) string {
	if ms := uint64(max(0, now/1000)); ms > m.lastToken[0] {
		m.lastToken = [2]uint64{ms, 0}
	} else {
		m.lastToken[1]++
	}
	text := strconv.AppendUint(make([]byte, 0, 24), m.lastToken[0], 10)
	return string(strconv.AppendUint(append(text, '-'), m.lastToken[1], 10))
}
