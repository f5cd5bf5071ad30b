package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Sizes of a page of a listing.
const (
	DefaultPage = 50
	MaxPage     = 1000
)

// ListQuery says which jobs to list. The zero ListQuery lists all that live.
//
//nolint:recvcheck // It is a plain value; what is asked often spares the copy.
type ListQuery struct {
	// Place is waiting, later, spilled, ready, running or dead; empty means all. Spilled ones are looked for among all.
	Place admission.Place
	// Queue, Tenant, Type and, of dead letters, Reason leave out all others when not empty. A reason is one of which jobs die:
	// bad_payload, discarded, dropped, expired, max_attempts, poison, queue_timeout, record_gone or unreadable.
	Queue, Tenant, Type, Reason string
	// Before, of dead letters, leaves out those that died at that time or later, unless zero.
	Before time.Time
	// Limit is the largest number of jobs of a page, 1 to MaxPage; zero means DefaultPage.
	Limit int
	// Cursor is the Cursor of the page before, of the same query; empty begins.
	Cursor string
}

// Listed is one job of a listing.
type Listed struct {
	Key   admission.Key
	Place admission.Place
	// Record is the job as stored, a Large payload left out. Err is set where it cannot be read.
	Record Record
	Err    error
	// At is when it is due (later), died (dead), or by when its lane orders it (waiting).
	At time.Time
	// Worker and Token tell who holds a running job.
	Worker, Token string
	// Reason and Text say why it is dead.
	Reason, Text string
}

// ListPage is a page of a listing. It may hold fewer jobs than the limit, even none, while Cursor says that there is
// more: a call looks at so many jobs only. Cursor is empty at the end.
type ListPage struct {
	Jobs   []Listed
	Cursor string
}

// deadReasons are those of which jobs die: in workers' hands, and in the scripts.
var deadReasons = []string{"bad_payload", "discarded", "dropped", "expired", "max_attempts", "poison", "queue_timeout", "record_gone", "unreadable"}

// Validate names the first field that cannot be.
func (q ListQuery) Validate() error {
	switch q.Place {
	case "", admission.PlaceWaiting, admission.PlaceLater, admission.PlaceSpilled, admission.PlaceReady, PlaceRunning, PlaceDead:
	default:
		return &admission.FieldError{Field: "place", Value: strconv.Quote(string(q.Place)), Allowed: "waiting, later, spilled, ready, running or dead, or nothing for all"}
	}
	for _, name := range []struct {
		field, value string
		separates    bool
	}{{"queue", q.Queue, true}, {"tenant", q.Tenant, true}, {"type", q.Type, false}} {
		if name.value == "" {
			continue
		}
		if err := admission.ValidateName(name.field, name.value, name.separates); err != nil {
			return err
		}
	}
	if q.Place != PlaceDead && (q.Reason != "" || !q.Before.IsZero()) {
		return &admission.FieldError{Field: "reason", Value: strconv.Quote(q.Reason), Allowed: "a reason or a time for dead letters only"}
	}
	if q.Reason != "" && !slices.Contains(deadReasons, q.Reason) {
		return &admission.FieldError{Field: "reason", Value: strconv.Quote(q.Reason), Allowed: strings.Join(deadReasons, ", ")}
	}
	if q.Limit < 0 || q.Limit > MaxPage {
		return &admission.FieldError{Field: "limit", Value: strconv.Itoa(q.Limit), Allowed: fmt.Sprintf("1 to %d jobs", MaxPage)}
	}
	return nil
}

// Letter is a dead letter, or says that there is none.
type Letter struct {
	Listed

	// Dead says that the job is a dead letter; otherwise the rest is empty but for the Key.
	Dead bool
	// PayloadBytes is the length of its payload. A Large one that is gone has 0.
	PayloadBytes int64
}

// Redrive returns the candidate that brings a dead letter back, and the error of one that cannot run again. A unique
// key that it once held is not asked for again: the letter has given it back, and its name is not kept.
func (l *Letter) Redrive(class int, limits *[admission.Levels]admission.Limit) (Candidate, error) {
	switch {
	case !l.Dead:
		return Candidate{}, admission.ErrNotDead
	case l.Err != nil:
		return Candidate{}, l.Err
	case l.Record.Large && l.PayloadBytes == 0:
		return Candidate{}, ErrPayloadGone
	}
	job := l.Record.Job
	if l.Record.Timed {
		job.Deadline = time.Time{} // It was the longest wait of the queue, which begins anew.
	}
	if l.Record.Large {
		// The payload stays where it is: its length alone tells the record so, and nothing of this is sent.
		job.Payload = make([]byte, LargePayload+1)
	}
	return Candidate{Job: &job, Class: class, Limits: limits, Redrive: l.Record.Seq}, nil
}

// Death is the place of a dead letter in the order of deaths: by time, then by key.
type Death struct {
	At time.Time
	// member is the job's field in the jobs hash.
	Member string
}

// Key names the job.
func (d Death) Key() (admission.Key, error) { return DecodeKey(d.Member) }

// After reports whether d follows o.
func (d Death) After(o Death) bool {
	return d.At.After(o.At) || d.At.Equal(o.At) && d.Member > o.Member
}

// DeadLetter is a job among the dead.
type DeadLetter struct {
	Death
	// Record is the job's; a payload that stands under its own key is not in it.
	Record
	// Reason and Text say why the job died.
	Reason, Text string
}

// DeathFollower is the name under which schedulers note up to which dead letter OnDead was told.
const DeathFollower = "on_dead"

// ListWork is how many jobs a call of List looks at, in portions of ListPortion.
const (
	ListWork    = 2000
	ListPortion = 200
)

// PurgePage is how many jobs a call of PurgeQueue cancels.
const PurgePage = 500
