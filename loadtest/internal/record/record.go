package record

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
)

// Outcome is the answer to an enqueue.
type Outcome uint8

// The outcomes.
const (
	// Unsent jobs were not enqueued: the run was interrupted.
	Unsent Outcome = iota
	// Admitted jobs are in.
	Admitted
	// Refused jobs were turned away, for a Reason.
	Refused
	// Unavailable means that nothing was sent, for want of a Redis.
	Unavailable
	// Unknown means that the job may be in all the same.
	Unknown
)

// Answer is what an enqueue came to.
type Answer struct {
	Outcome Outcome
	// Reason is that of a refusal.
	Reason admission.Reason
}

// Entry is one job. Sent, Again (when its caller asked last, if more than once), Answered and Answer are written by its caller alone, before Book.Answered; the rest by
// handlers.
type Entry struct {
	Sent, Again, Answered time.Duration
	Answer                Answer

	started, done, dead atomic.Int64
	admitted            atomic.Int64 // µs since 1970 by the clock of Redis
	runs                atomic.Int32
}

// Started is when a handler began the job first, Done when one completed it first, Dead when it ran out of attempts.
func (e *Entry) Started() time.Duration { return time.Duration(e.started.Load()) }

// Done is when a handler completed the job first.
func (e *Entry) Done() time.Duration { return time.Duration(e.done.Load()) }

// Dead is when the job ran out of attempts.
func (e *Entry) Dead() time.Duration { return time.Duration(e.dead.Load()) }

// AdmittedMicros is when Redis admitted the job, by its own clock in µs since 1970; zero where nobody said.
func (e *Entry) AdmittedMicros() int64 { return e.admitted.Load() }

// Runs is how often a handler began the job.
func (e *Entry) Runs() int { return int(e.runs.Load()) }

// Ended reports whether the job completed or is dead.
func (e *Entry) Ended() bool { return e.Done() > 0 || e.Dead() > 0 }

// Progress counts jobs.
type Progress struct{ Sent, Answered, Admitted, Started, Ended int64 }

// Waiting is how many jobs are in and have not started.
func (p Progress) Waiting() int64 { return p.Admitted - p.Started }

// Book is the entries of a run. Its methods may be called from several goroutines.
type Book struct {
	start   time.Time
	entries []Entry

	sent, answered, admitted, started, ended atomic.Int64
}

// NewBook returns an empty book for n jobs whose run starts at a time.
func NewBook(n int, start time.Time) *Book { return &Book{start: start, entries: make([]Entry, n)} }

// Start is when the run started.
func (b *Book) Start() time.Time { return b.start }

// Entries are read once the run is over.
func (b *Book) Entries() []Entry { return b.entries }

// Now is the time since the start, never zero.
func (b *Book) Now() time.Duration { return max(1, time.Since(b.start)) }

// Send notes that a job is about to be enqueued.
func (b *Book) Send(number int) {
	b.entries[number].Sent = b.Now()
	b.sent.Add(1)
}

// SendAgain notes that a job that was refused is about to be enqueued once more.
func (b *Book) SendAgain(number int) { b.entries[number].Again = b.Now() }

// Answer notes what the enqueue came to, the last one where it was sent again.
func (b *Book) Answer(number int, answer Answer) {
	e := &b.entries[number]
	e.Answered, e.Answer = b.Now(), answer
	b.answered.Add(1)
	if answer.Outcome == Admitted {
		b.admitted.Add(1)
	}
}

// Begin notes that a handler begins a job, which Redis admitted at a time; zero where nobody knows.
func (b *Book) Begin(number int, admitted time.Time) {
	e := &b.entries[number]
	e.runs.Add(1)
	if !admitted.IsZero() {
		e.admitted.Store(admitted.UnixMicro())
	}
	b.BeginAt(number, b.Now())
}

// BeginAt notes when, after the start of the run, a handler began a job first.
func (b *Book) BeginAt(number int, at time.Duration) {
	if b.entries[number].started.CompareAndSwap(0, int64(at)) {
		b.started.Add(1)
	}
}

// Complete notes that a handler completed a job.
func (b *Book) Complete(number int) { b.end(&b.entries[number].done) }

// Bury notes that a job ran out of attempts.
func (b *Book) Bury(number int) { b.end(&b.entries[number].dead) }

func (b *Book) end(at *atomic.Int64) {
	if at.CompareAndSwap(0, int64(b.Now())) {
		b.ended.Add(1)
	}
}

// Progress returns the counts so far.
func (b *Book) Progress() Progress {
	return Progress{
		Sent: b.sent.Load(), Answered: b.answered.Load(), Admitted: b.admitted.Load(), Started: b.started.Load(), Ended: b.ended.Load(),
	}
}
