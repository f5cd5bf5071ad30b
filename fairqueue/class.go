package fairqueue

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
)

// VirtualTime is the clock of one class: cost dispatched over weight.
type VirtualTime float64

// Job is what the order depends on.
type Job struct {
	Tenant, ID, Queue string
	// Class is the index of the job's class in its queue.
	Class int
	// Downstream may be empty.
	Downstream string
	// Dated means that Score is the job's deadline; otherwise it is its arrival + horizon. Both are microseconds.
	Dated bool
	Score int64
	Cost  admission.Tokens
	// Seq orders by arrival.
	Seq uint64
}

// Key is tenant:id.
func (j *Job) Key() string { return j.Tenant + ":" + j.ID }

// LaneName is d or n, for jobs with and without a deadline, and the downstream.
func (j *Job) LaneName() string {
	if j.Dated {
		return "d" + j.Downstream
	}
	return "n" + j.Downstream
}

func (j *Job) before(other *Job) bool {
	return j.Score < other.Score || j.Score == other.Score && j.Seq < other.Seq
}

// lane is one tenant's line for one downstream in one class, by score, then arrival.
type lane struct {
	name    string
	blocked bool
	jobs    []*Job
}

func (l *lane) gates() []string { return laneGates(l.name[1:]) }

func (l *lane) dated() bool { return l.name[0] == 'd' }

func (l *lane) add(j *Job) (first bool) {
	at := len(l.jobs)
	for at > 0 && j.before(l.jobs[at-1]) {
		at--
	}
	l.jobs = slices.Insert(l.jobs, at, j)
	return at == 0
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
}

// alone returns the downstream that a tenant of one open lane calls, empty for none and for any other tenant.
func (t *tenant) alone() (downstream string) {
	open := 0
	for _, l := range t.lanes {
		if !l.blocked {
			open, downstream = open+1, l.name[1:]
		}
	}
	if open != 1 {
		return ""
	}
	return downstream
}

// head returns the open lane with the earliest job, nil when all are blocked.
func (t *tenant) head() *lane {
	var best *lane
	for _, l := range t.lanes {
		if l.blocked {
			continue
		}
		if best == nil || l.jobs[0].Score < best.jobs[0].Score || l.jobs[0].Score == best.jobs[0].Score && l.name < best.name {
			best = l
		}
	}
	return best
}

// class is one class of one queue.
type class struct {
	queue   *queue
	index   int
	v       VirtualTime
	tenants map[string]*tenant
	idle    map[string]VirtualTime
}

// line names the class as CLASS:QUEUE.
func (c *class) line() string { return lineName(c.index, c.queue.name) }

// least returns the runnable tenant with the lowest tag, ties by the order of entering.
func (c *class) least() *tenant {
	var best *tenant
	for _, t := range c.tenants {
		if t.mode != runnable {
			continue
		}
		if best == nil || t.tag < best.tag || t.tag == best.tag && t.entry < best.entry {
			best = t
		}
	}
	return best
}

// exit ends a tenant's time in the runnable set. When the set is empty all kept tags go.
func (c *class) exit(t *tenant, to mode) {
	t.mode = to
	if c.least() == nil {
		clear(c.idle)
	} else if t.tag > c.v {
		c.idle[t.name] = t.tag
	}
}

// queue is a list of classes and the phase of their pattern.
type queue struct {
	name    string
	classes []*class
	names   []admission.Priority
	pattern *Pattern
	// used is set by the first job.
	used bool
}

// splitLine takes CLASS:QUEUE apart.
func splitLine(line string) (class int, queue string) {
	number, queue, _ := strings.Cut(line, ":")
	for _, digit := range number {
		class = class*10 + int(digit-'0')
	}
	return class, queue
}
