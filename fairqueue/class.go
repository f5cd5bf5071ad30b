package fairqueue

import (
	"cmp"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/sorted"
)

// VirtualTime is the clock of one class: cost dispatched over weight.
type VirtualTime float64

// Job is what the order depends on.
type Job struct {
	Tenant, ID, Queue string
	// Class is the index of the job's class in its queue.
	Class int
	// Downstream may be empty. It is a service, or one of its accounts as SERVICE+ACCOUNT.
	Downstream string
	// Dated means that Score is the job's deadline; otherwise it is its arrival + horizon. Both are microseconds.
	Dated bool
	Score int64
	Cost  admission.Tokens
	// Seq orders by arrival.
	Seq uint64
	// Of is whatever the caller keeps of the job.
	Of any
}

// Key is tenant:id.
func (j *Job) Key() string { return j.Tenant + ":" + j.ID }

// Service is that of the downstream; empty where there is none.
func (j *Job) Service() string { return ServiceOf(j.Downstream) }

// LaneName is d or n, for jobs with and without a deadline, and the downstream.
func (j *Job) LaneName() string {
	if j.Dated {
		return "d" + j.Downstream
	}
	return "n" + j.Downstream
}

// compareJobs orders jobs by score, then arrival.
func compareJobs(a, b *Job) int {
	return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Seq, b.Seq))
}

// lane is one tenant's line for one downstream in one class, by score, then arrival.
type lane struct {
	name    string
	blocked bool
	jobs    *sorted.List[*Job]
	// at is the score of the head as it was when the tenant's open lanes were put in order.
	at int64
}

func newLane(name string) *lane { return &lane{name: name, jobs: sorted.New(compareJobs)} }

// head returns the job that is next; nil in an empty lane.
func (l *lane) head() *Job {
	j, _ := l.jobs.First()
	return j
}

func (l *lane) gates() []string { return laneGates(l.name[1:]) }

func (l *lane) dated() bool { return l.name[0] == 'd' }

func (l *lane) add(j *Job) (first bool) {
	l.jobs.Add(j)
	return l.head() == j
}

// compareLanes orders lanes by their heads, then names.
func compareLanes(a, b *lane) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name))
}

// mode is where a tenant of a class stands.
type mode byte

const (
	runnable mode = 'a'
	// laneParked: every lane stands behind a gate of its downstream.
	laneParked mode = 'b'
	// tenantParked: the tenant stands behind a gate of its own.
	tenantParked mode = 't'
)

// tenant is one tenant's part of a class. It exists while it has jobs there.
type tenant struct {
	name  string
	mode  mode
	tag   VirtualTime // S, while runnable
	entry uint64      // order of entering, while runnable
	lanes map[string]*lane
	// open are the lanes that are not blocked, by their heads.
	open *sorted.List[*lane]
	// counted is the service under which the class counts the tenant as alone; empty for none.
	counted string
}

func newTenant(name string) *tenant {
	return &tenant{name: name, lanes: map[string]*lane{}, open: sorted.New(compareLanes)}
}

// compareTenants orders tenants by their tags, then by their entering.
func compareTenants(a, b *tenant) int {
	return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.entry, b.entry))
}

// alone returns the service that a tenant of one open lane calls, empty for none and for any other tenant.
func (t *tenant) alone() (downstream string) {
	if t.open.Len() != 1 {
		return ""
	}
	return ServiceOf(t.head().name[1:])
}

// head returns the open lane with the earliest job, nil when all are blocked.
func (t *tenant) head() *lane {
	l, _ := t.open.First()
	return l
}

// reorder follows a lane whose head, or whose being blocked, has changed.
func (t *tenant) reorder(l *lane) {
	j := l.head()
	if j != nil && !l.blocked && j.Score == l.at && t.open.Has(l) {
		return
	}
	t.open.Remove(l)
	if j != nil && !l.blocked {
		l.at = j.Score
		t.open.Add(l)
	}
}

// class is one class of one queue.
type class struct {
	queue   *queue
	index   int
	v       VirtualTime
	tenants map[string]*tenant
	// runnable are those of them that are, by tag.
	runnable *sorted.List[*tenant]
	// alone counts, by service, the runnable tenants that call nothing else; waiting the jobs in lanes.
	alone   map[string]int
	waiting int
	idle    map[string]VirtualTime
	// idleKept is how many tags were kept when those that V has passed went last.
	idleKept int
}

func newClass(q *queue, index int) *class {
	return &class{
		queue: q, index: index, tenants: map[string]*tenant{}, runnable: sorted.New(compareTenants), alone: map[string]int{},
		idle: map[string]VirtualTime{},
	}
}

// line names the class as CLASS:QUEUE.
func (c *class) line() string { return lineName(c.index, c.queue.name) }

// least returns the runnable tenant with the lowest tag, ties by the order of entering.
func (c *class) least() *tenant {
	t, _ := c.runnable.First()
	return t
}

// exit ends a tenant's time in the runnable set. When the set is empty all kept tags go.
func (c *class) exit(t *tenant, to mode) {
	c.runnable.Remove(t)
	t.mode = to
	c.recount(t)
	if c.runnable.Len() == 0 {
		clear(c.idle)
		c.idleKept = 0
	} else if t.tag > c.v {
		c.idle[t.name] = t.tag
		c.sweepIdle()
	}
}

// idleSlack is how many tags more may be kept before those that V has passed go: they say nothing any more.
const idleSlack = 64

func (c *class) sweepIdle() {
	if len(c.idle) < 2*c.idleKept+idleSlack {
		return
	}
	for name, tag := range c.idle {
		if tag <= c.v {
			delete(c.idle, name)
		}
	}
	c.idleKept = len(c.idle)
}

// recount counts a tenant as alone, or no longer, after its lanes or its mode have changed.
func (c *class) recount(t *tenant) {
	now := ""
	if t.mode == runnable {
		now = t.alone()
	}
	if now == t.counted {
		return
	}
	if t.counted != "" {
		if c.alone[t.counted]--; c.alone[t.counted] == 0 {
			delete(c.alone, t.counted)
		}
	}
	if now != "" {
		c.alone[now]++
	}
	t.counted = now
}

// queue is a list of classes and the phase of their pattern.
type queue struct {
	name    string
	classes []*class
	names   []admission.Priority
	pattern *Pattern
	// used is set by the first job.
	used bool
	pace pace
}

// splitLine takes CLASS:QUEUE apart.
func splitLine(line string) (class int, queue string) {
	number, queue, _ := strings.Cut(line, ":")
	for _, digit := range number {
		class = class*10 + int(digit-'0')
	}
	return class, queue
}
