package ledger

import (
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
)

// Ledger is the record of one run. It may be used by several goroutines.
type Ledger struct {
	mu struct {
		sync.Mutex

		records  []record
		log      []delivery
		seen     map[Token]bool
		progress Progress
		tenants  map[string]*Progress
		periods  map[string][]Period
	}
}

// Progress counts jobs. Asked = Admitted + Duplicates + Σ Refused + those not decided on yet.
type Progress struct {
	Asked, Admitted, Duplicates, Refused int
	// Started counts jobs whose handler began, Running those whose handler runs now, Runs all runs.
	Started, Running, Runs int
	// Done counts jobs whose handler succeeded, Failures runs that failed.
	Done, Failures int
}

// Period is a time in which a downstream's breaker was not closed.
type Period struct {
	Opened time.Time
	// Closed is zero while it is not.
	Closed time.Time
	// HalfOpened is when it first let a probe through; zero before.
	HalfOpened time.Time
	// Times is how often the breaker opened within the period: once, and once more for each failed probe.
	Times int
}

// New returns a ledger with room for n jobs.
func New(n int) *Ledger {
	l := &Ledger{}
	l.mu.records = make([]record, 0, n)
	l.mu.log = make([]delivery, 0, n)
	l.mu.seen = make(map[Token]bool, n)
	l.mu.tenants = map[string]*Progress{}
	l.mu.periods = map[string][]Period{}
	return l
}

// Add opens a job's page as it is about to be enqueued, and returns its number, from 0.
func (l *Ledger) Add(j Job, at time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.records = append(l.mu.records, record{Job: j, asked: at})
	l.countLocked(j.Tenant, func(p *Progress) { p.Asked++ })
	return len(l.mu.records) - 1
}

// Decide notes the verdict on a job.
func (l *Ledger) Decide(job int, v admission.Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.recordLocked(job)
	if r == nil || r.decided {
		return
	}
	r.verdict, r.decided = v, true
	l.countLocked(r.Tenant, func(p *Progress) {
		switch v.Decision {
		case admission.Admitted:
			p.Admitted++
		case admission.Duplicate:
			p.Duplicates++
		case admission.Refused:
			p.Refused++
		}
	})
}

// Deliver notes that a job came to a worker in an entry. An entry that is told again counts once.
func (l *Ledger) Deliver(job int, token Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deliverLocked(job, token)
}

func (l *Ledger) deliverLocked(job int, token Token) {
	if l.recordLocked(job) == nil || l.mu.seen[token] {
		return
	}
	l.mu.seen[token] = true
	l.mu.records[job].spared = false
	l.mu.log = append(l.mu.log, delivery{token, job})
}

// Arrive notes when Redis admitted a job that has just started, and how long ago that was. The first start counts.
func (l *Ledger) Arrive(job int, at time.Time, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.recordLocked(job); r != nil && r.arrival == 0 {
		r.arrival, r.wait = at.UnixMilli(), max(0, wait)
	}
}

// Start notes that a job's handler begins, in the delivery of token.
func (l *Ledger) Start(job int, token Token, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deliverLocked(job, token)
	r := l.recordLocked(job)
	if r == nil {
		return
	}
	first := !r.hasStarted()
	if first {
		r.started, r.ran = at, token
	}
	l.countLocked(r.Tenant, func(p *Progress) {
		p.Runs++
		p.Running++
		if first {
			p.Started++
		}
	})
}

// Ending is how a run ended.
type Ending int

// The endings.
const (
	// Succeeded runs end their job.
	Succeeded Ending = iota
	// Failed runs burn an attempt.
	Failed
	// Spared runs failed and burnt none: they were a breaker's probes.
	Spared
	// BrokenOff runs were ended by something else than their outcome: a shutdown, a lost lease.
	BrokenOff
)

// End notes that a run of a job's handler has ended.
func (l *Ledger) End(job int, how Ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.recordLocked(job)
	if r == nil {
		return
	}
	if how == Failed {
		r.burnt++
	}
	if how == Failed || how == Spared {
		r.failures++
	}
	r.spared = how == Spared
	l.countLocked(r.Tenant, func(p *Progress) {
		p.Running--
		switch how {
		case Succeeded:
			p.Done++
		case Failed, Spared:
			p.Failures++
		case BrokenOff:
		}
	})
}

// Opened notes that a downstream's breaker opened.
func (l *Ledger) Opened(downstream string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	periods := l.mu.periods[downstream]
	if n := len(periods); n > 0 && periods[n-1].Closed.IsZero() {
		periods[n-1].Times++
		return
	}
	l.mu.periods[downstream] = append(periods, Period{Opened: at, Times: 1})
}

// HalfOpened notes that a downstream's breaker lets probes through.
func (l *Ledger) HalfOpened(downstream string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.lastLocked(downstream); p != nil && p.HalfOpened.IsZero() {
		p.HalfOpened = at
	}
}

// Closed notes that a downstream's breaker closed.
func (l *Ledger) Closed(downstream string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.lastLocked(downstream); p != nil {
		p.Closed = at
	}
}

func (l *Ledger) lastLocked(downstream string) *Period {
	periods := l.mu.periods[downstream]
	if n := len(periods); n > 0 && periods[n-1].Closed.IsZero() {
		return &periods[n-1]
	}
	return nil
}

// NotClosed returns the downstreams whose breaker is not closed now, by name.
func (l *Ledger) NotClosed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for downstream, periods := range l.mu.periods {
		if n := len(periods); n > 0 && periods[n-1].Closed.IsZero() {
			names = append(names, downstream)
		}
	}
	slices.Sort(names)
	return names
}

// Periods returns the times in which a downstream's breaker was not closed.
func (l *Ledger) Periods(downstream string) []Period {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.periods[downstream])
}

// Spared counts the jobs that were failed probes, have not come back since, and whose breaker is not closed: they are
// due later, and then behind it.
func (l *Ledger) Spared() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for downstream := range l.mu.periods {
		if l.lastLocked(downstream) == nil {
			continue
		}
		for i := range l.mu.records {
			if r := &l.mu.records[i]; r.spared && r.Downstream == downstream {
				n++
			}
		}
	}
	return n
}

// Progress returns the counts so far.
func (l *Ledger) Progress() Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.progress
}

// TenantProgress returns the counts of one tenant so far.
func (l *Ledger) TenantProgress(tenant string) Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.mu.tenants[tenant]; p != nil {
		return *p
	}
	return Progress{}
}

// recordLocked returns a job's page, nil for a number that was never given out.
func (l *Ledger) recordLocked(job int) *record {
	if job < 0 || job >= len(l.mu.records) {
		return nil
	}
	return &l.mu.records[job]
}

func (l *Ledger) countLocked(tenant string, count func(*Progress)) {
	count(&l.mu.progress)
	p := l.mu.tenants[tenant]
	if p == nil {
		p = &Progress{}
		l.mu.tenants[tenant] = p
	}
	count(p)
}
