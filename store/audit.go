package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/admission"
)

// ErrUnknownVersion means that a version of the policy is not kept, or never was.
var ErrUnknownVersion = errors.New("unknown version of the policy")

// The actions of an AuditEntry that are about the policy and breakers; actions.go has the others.
const (
	// AuditPolicy is a version of the policy that was put in force.
	AuditPolicy = "policy"
	// AuditOpen and AuditClosed are breakers that were forced, AuditReset is one that was reset.
	AuditOpen   = "open"
	AuditClosed = "closed"
	AuditReset  = "reset"
)

// AuditActions are all of them.
var AuditActions = []string{
	AuditPolicy, AuditOpen, AuditClosed, AuditReset, AuditPause, AuditUnpause, AuditGate, AuditSuspend, AuditResume, AuditDrain,
	AuditCancel, AuditClear, AuditPurgeQueue, AuditPurge, AuditRedrive, AuditRedriveFree, AuditResetBucket,
	AuditAdapt, AuditFreeze, AuditThaw, AuditOverride, AuditOverrideEnd, AuditScale, AuditScaleEnd, AuditTrigger, AuditTriggerEnd, AuditTenantRecord, AuditTenantRecordGone,
}

// AuditEntry says who did what, when and why: put a version of the policy in force, changed a breaker, a gate, a suspension or a
// bucket, or ended or brought back jobs. The script that does so writes it; nothing changes it afterwards but more of the same act.
type AuditEntry struct {
	// At is Redis's time of it, of several calls that of the last.
	At     time.Time
	Action string
	// Name is what was acted on: the gate of a hold or of a queue whose jobs it was, a job, or the scope of a bucket. Jobs is to how
	// many jobs, of a pause how many had passed before.
	Name string
	Jobs int64
	// Downstream is that of the breaker. For is how long it was forced, or a hold lasts; zero until it is ended.
	Downstream string
	For        time.Duration
	// From is the version that was in force before, To the one since; 0 is the built-in policy.
	From, To int64
	// Author is who, Reason why.
	Author, Reason string
	// Restored is the version whose document To has; zero if it was a new one.
	Restored int64
	// Changes is the JSON of PolicyUpdate.Changes.
	Changes []byte
}

// AuditQuery says which entries to return. The zero AuditQuery returns the newest.
type AuditQuery struct {
	// Limit is the largest number of entries, 1 to MaxPage, zero for DefaultPage.
	Limit int
	// Cursor is that of the page before, of the same query; empty begins with the newest.
	Cursor string
	// Action, Author and Name leave out all others when not empty. An Action is one of AuditActions.
	Action, Author, Name string
}

// AuditRecord is an entry as its partition keeps it.
type AuditRecord struct {
	// ID grows within the partition.
	ID string
	// Act names what several calls did: their entry takes the place of that of the calls before, under another ID. Empty where each call is one.
	Act string
	AuditEntry
}

// Stretch is what a partition keeps of a stream after a position, the earliest first, with what tells whether some has left it unseen.
type Stretch[T any] struct {
	Entries []T
	// Position is after the last of them.
	Position string
	// Gone is how many had left the stream at its begin, Kept how many it had then, at the moment of the look.
	Gone, Kept int64
}

// AuditPage are entries of the audit, the newest first. Those of a query that leaves some out may be fewer than its limit, even none,
// while Cursor says that there is more: a call looks at so many only.
type AuditPage struct {
	Entries []AuditEntry
	// Cursor goes on with the entries before these; empty at the end.
	Cursor string
	// Gone is how many entries have left: the last 10,000 of each partition are kept.
	Gone int64
}

// Validate names every field that cannot be.
func (q AuditQuery) Validate() error {
	var bad []error
	if q.Limit < 0 || q.Limit > MaxPage {
		bad = append(bad, &admission.FieldError{Field: "limit", Value: strconv.Itoa(q.Limit), Allowed: fmt.Sprintf("1 to %d entries", MaxPage)})
	}
	if q.Action != "" && !slices.Contains(AuditActions, q.Action) {
		bad = append(bad, &admission.FieldError{Field: "action", Value: strconv.Quote(q.Action), Allowed: strings.Join(AuditActions, ", ")})
	}
	return errors.Join(bad...)
}

// Wants reports whether an entry is one of those that are asked for.
func (q AuditQuery) Wants(e *AuditEntry) bool {
	return (q.Action == "" || q.Action == e.Action) && (q.Author == "" || q.Author == e.Author) &&
		(q.Name == "" || q.Name == e.Name || q.Name == e.Downstream)
}

// Intervention says who changes what works by itself, and why. The script that makes the change tells both to the audit, in the
// same moment.
type Intervention struct {
	// Author and Reason have up to MaxAuthor and MaxReason bytes of UTF-8 without control characters. A program that names nobody is
	// told of without a name.
	Author, Reason string
	// Act names what several calls do, such as a purge of many pages: what they did is one entry of the audit, with the number of all.
	// Empty means that each call is one.
	Act string
	// Own says that a tenant does this to its own jobs. That is counted among what left them and stands in no audit, or any tenant
	// could push the operators' entries out of it.
	Own bool

	// since is when it was done, of a hold that a migration carries to another partition; zero is now.
	Since time.Time
}

// Validate checks what is told. A reason may hold anything: whoever shows it sees to that.
func (i Intervention) Validate() error {
	var bad []error
	for _, text := range []struct {
		field, value string
		most         int
	}{{"author", i.Author, MaxAuthor}, {"reason", i.Reason, MaxReason}, {"act", i.Act, maxAct}} {
		if n := len(text.value); n > text.most {
			bad = append(bad, &admission.FieldError{Field: text.field, Value: strconv.Itoa(n) + " bytes", Allowed: "up to " + strconv.Itoa(text.most) + " bytes"})
		}
	}
	if strings.ContainsFunc(i.Author+i.Act, unicode.IsControl) {
		bad = append(bad, &admission.FieldError{Field: "author", Value: strconv.Quote(i.Author), Allowed: "no control characters, nor in act"})
	}
	return errors.Join(bad...)
}

// maxAct is the largest size of an Act.
const maxAct = 64

// ActLasts is how old the entry of an act's call may be for the next one to take its place.
const ActLasts = 10 * time.Minute

// Named returns it with an act, so that what several partitions do is one.
func (i Intervention) Named() Intervention {
	if i.Act == "" {
		i.Act = rand.Text()
	}
	return i
}

// Quiet returns it as another partition is told of it than the one whose audit has the entry.
func (i Intervention) Quiet() Intervention {
	i.Own = true
	return i
}
