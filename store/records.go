package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
)

// TenantRecord is what a tenant has of its own beside the policy (policy.OwnLimits).
type TenantRecord struct {
	Tenant string
	// Version is a later one with each change; NoRecord where the tenant has none, and then Text is empty.
	Version int64
	// Text is the record's JSON.
	Text []byte
}

// NoRecord is the version of a record that there is not: policy.NoRecord.
const NoRecord int64 = 1

// StaleRecordsError means that limits come from other records of tenants than those that the store has, which it brings. Nothing was done. It
// matches ErrStale.
type StaleRecordsError struct{ Records []TenantRecord }

func (e *StaleRecordsError) Error() string {
	return fmt.Sprintf("records of %d tenants are stale, the first is that of %s", len(e.Records), e.Records[0].Tenant)
}

// Is has it match ErrStale.
func (e *StaleRecordsError) Is(target error) bool { return target == ErrStale }

// RecordLearner is a policy that knows records of tenants (policy.Compiled).
type RecordLearner interface {
	HasRecords() bool
	Learn(tenant string, version int64, text []byte) error
}

// LearnRecord has a policy know the record of a tenant, where it has records and there is a tenant.
func LearnRecord(ctx context.Context, s Buckets, known RecordLearner, tenant string) error {
	if !known.HasRecords() || tenant == "" {
		return nil
	}
	all, err := s.Records(ctx, tenant)
	if err != nil {
		return err
	}
	return known.Learn(tenant, all[0].Version, all[0].Text)
}

// Learn teaches a policy the records that an error brings, and reports whether it brings any: then the same call may be made again with the
// policy. The error is that of a record that is of no use.
func Learn(err error, known RecordLearner) (bool, error) {
	stale, ok := errors.AsType[*StaleRecordsError](err)
	if !ok {
		return false, nil
	}
	for _, r := range stale.Records {
		if err := known.Learn(r.Tenant, r.Version, r.Text); err != nil {
			return false, err
		}
	}
	return true, nil
}

// RecordEdit changes the record of a tenant.
type RecordEdit struct {
	Tenant string
	// Policy is the version of the policy beside which the record was checked. Where another is in force nothing is done (ErrStale).
	Policy int64
	// Expected is the version of the record that it replaces, NoRecord for none; zero replaces any. Another one is a *RecordConflictError.
	Expected int64
	// Text is its JSON, up to policy.MaxRecordBytes; empty takes the record away.
	Text []byte
	// Bounded says that the policy bounds depth by tier: jobs that entered before the tenant had another tier are counted into its new bound, soon after (SpreadPolicy). Those of one whose
	// record bounds its depth from now on are in any case.
	Bounded bool
	// LongestFill is how long the slowest bucket takes to fill by what will be in force.
	LongestFill time.Duration
	// Changes is the JSON of what differs, for the audit. Where there is none the edit is one of many, of one By.Act, that are one entry.
	Changes []byte
	By      Intervention
}

// RecordShares is what a record says of its tenant's tier, weights and cap; the zero value is nothing.
type RecordShares struct {
	Tier       string                                  `json:"tier"`
	Weights    map[admission.Priority]admission.Weight `json:"priority_weights"`
	MaxRunning int                                     `json:"max_running"`
}

// RecordSharesOf returns what the JSON of a record says.
func RecordSharesOf(text []byte) (said RecordShares) {
	if json.Unmarshal(text, &said) != nil {
		return RecordShares{} // It is what a release to come has written.
	}
	return said
}

// Cap returns how many jobs of a tenant workers may hold at a time by its record: its own, or that of its tier, by the caps of tiers where these differ, where the policy has none
// for the tenant alone (alone is false). Without said the policy alone decides, and with zero each tenant's cap is in force.
func (r RecordShares) Cap(tiers map[string]int, alone bool) (limit int, said bool) {
	if r.MaxRunning > 0 || r.Tier == "" || alone || len(tiers) == 0 {
		return r.MaxRunning, r.MaxRunning > 0
	}
	return tiers[r.Tier], true
}

// RecordDispatchOf returns how many jobs of its tenant are dispatched a time by the JSON of a record: nil where it says nothing, a Disabled one for no such bound.
func RecordDispatchOf(text []byte) *admission.Limit {
	if !bytes.Contains(text, []byte(`"dispatch"`)) { // Nearly all, for which an edit has nothing to read.
		return nil
	}
	var written struct {
		Dispatch *struct {
			Tokens  admission.Tokens `json:"tokens"`
			Per     string           `json:"per"`
			Burst   admission.Tokens `json:"burst"`
			Enabled *bool            `json:"enabled"`
		} `json:"dispatch"`
	}
	if json.Unmarshal(text, &written) != nil || written.Dispatch == nil {
		return nil // It may be what a release to come has written.
	}
	of := written.Dispatch
	if of.Enabled != nil && !*of.Enabled {
		return &admission.Limit{Disabled: true}
	}
	limit := admission.Limit{Tokens: of.Tokens}
	limit.Per, _ = time.ParseDuration(of.Per)
	limit.Burst = cmp.Or(of.Burst, limit.DefaultBurst())
	if limit.Validate("dispatch") != nil {
		return nil
	}
	return &limit
}

// RecordQueueCapsOf returns how many of its tenant's jobs of single queues workers hold at a time by the JSON of a record, by queue; nil where it says nothing.
func RecordQueueCapsOf(text []byte) (said map[string]int) {
	at := bytes.Index(text, []byte(`"queues"`))
	if at < 0 || !bytes.Contains(text[at:], []byte(`"max_running"`)) { // Nearly all, as RecordDispatchOf has it.
		return nil
	}
	var written struct {
		Queues map[string]struct {
			MaxRunning int `json:"max_running"`
		} `json:"queues"`
	}
	if json.Unmarshal(text, &written) != nil {
		return nil // It may be what a release to come has written.
	}
	for queue, in := range written.Queues {
		if in.MaxRunning <= 0 {
			continue
		}
		if said == nil {
			said = map[string]int{}
		}
		said[queue] = in.MaxRunning
	}
	return said
}

// RecordBounds is what a record says of its tenant's depth, over all its queues and in single ones, by name. An Overflow without a policy says nothing.
type RecordBounds struct {
	All    Overflow
	Queues map[string]Overflow
}

// RecordBoundsOf returns what the JSON of a record says.
func RecordBoundsOf(text []byte) (said RecordBounds) {
	type bound struct {
		Policy     OverflowPolicy `json:"policy"`
		MaxJobs    int            `json:"max_jobs"`
		MaxBytes   int64          `json:"max_bytes"`
		MaxSpilled int            `json:"max_spilled"`
		MaxMoved   int            `json:"max_moved"`
		LowWater   int            `json:"low_water_percent"`
	}
	var written struct {
		Overflow bound `json:"overflow"`
		Queues   map[string]struct {
			Overflow bound `json:"overflow"`
		} `json:"queues"`
	}
	if json.Unmarshal(text, &written) != nil {
		return RecordBounds{} // It is what a release to come has written.
	}
	said.All = Overflow(written.Overflow)
	for queue, in := range written.Queues {
		if in.Overflow.Policy == "" {
			continue
		}
		if said.Queues == nil {
			said.Queues = map[string]Overflow{}
		}
		said.Queues[queue] = Overflow(in.Overflow)
	}
	return said
}

// Empty reports whether nothing is said.
func (b *RecordBounds) Empty() bool { return b.All.Policy == "" && len(b.Queues) == 0 }

// Of returns what is said of the depth in a queue, and over all where it is empty.
func (b *RecordBounds) Of(queue string) (o Overflow, said bool) {
	if o = b.All; queue != "" {
		o = b.Queues[queue]
	}
	return o, o.Policy != ""
}

// SamePlaces reports whether both bound depth, and lift bounds, at the same places: then no jobs are to be counted that were not before.
func (b *RecordBounds) SamePlaces(other *RecordBounds) bool {
	same := func(a, b Overflow) bool {
		return (a.Policy == "") == (b.Policy == "") && (a.Policy == NoBound) == (b.Policy == NoBound)
	}
	return same(b.All, other.All) && maps.EqualFunc(b.Queues, other.Queues, same)
}

// Validate checks an edit. The error is one or several *headgate.FieldError.
func (e *RecordEdit) Validate() error {
	bad := e.By.Validate()
	if len(e.Text) > maxRecordBytes {
		bad = errors.Join(bad, &admission.FieldError{Field: "record", Value: strconv.Itoa(len(e.Text)) + " bytes", Allowed: "JSON of up to " + strconv.Itoa(maxRecordBytes) + " bytes"})
	}
	return errors.Join(admission.ValidateTenant(e.Tenant), bad)
}

// maxRecordBytes is policy.MaxRecordBytes.
const maxRecordBytes = 8 << 10

// RecordConflictError means that a tenant has another record than the one expected. It matches ErrConflict.
type RecordConflictError struct {
	Tenant            string
	Expected, InForce int64
}

func (e *RecordConflictError) Error() string {
	return fmt.Sprintf("tenant %s has version %d of its record, not %d: read it again", e.Tenant, e.InForce, e.Expected)
}

// Is has it match ErrConflict.
func (e *RecordConflictError) Is(target error) bool { return target == ErrConflict }

// RecordsQuery asks for a page of records.
type RecordsQuery struct {
	// Prefix is what the names of tenants begin with.
	Prefix string
	// Cursor is where the page before ended, empty for the first.
	Cursor string
	// Limit is how many at least make a page, if there are so many: 1 to MaxRecordsPage, zero means that; up to twice as many may come.
	Limit int
}

// Least is how many make a page.
func (q *RecordsQuery) Least() (int, error) {
	if q.Limit < 0 || q.Limit > MaxRecordsPage {
		return 0, &admission.FieldError{Field: "limit", Value: strconv.Itoa(q.Limit), Allowed: fmt.Sprintf("1 to %d records", MaxRecordsPage)}
	}
	return cmp.Or(q.Limit, MaxRecordsPage), nil
}

// MaxRecordsPage is the longest page.
const MaxRecordsPage = 1000

// RecordsPage is some records, in no order. One that is there all the while comes on one page at least, and may come on two.
type RecordsPage struct {
	Records []TenantRecord
	// Next is where the next page begins, empty after the last.
	Next string
}

// ErrRecordsCursor is of a cursor that no page has told.
var ErrRecordsCursor = &admission.FieldError{Field: "cursor", Value: "another text", Allowed: "what the page before has told as next"}

// AuditTenantRecord is an operator who changes the record of a tenant, AuditTenantRecordGone one who takes it away.
const (
	AuditTenantRecord     = "tenant_record"
	AuditTenantRecordGone = "tenant_record_gone"
)
