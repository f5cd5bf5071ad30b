package headgate

import (
	"encoding/json"
	"io"
	"time"

	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/store"
)

// Explanation says where something stands and what holds it back: for each cause the rule, the version and author of the policy that
// made it, and when it ends. As JSON it is what the admin API answers; String and Write tell it as "headgate explain" does.
type Explanation struct {
	// Kind is what is explained, "job", "tenant", "queue", "scope" or "downstream", and Name which: of a job "tenant:id".
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Summary says in a sentence how it stands.
	Summary string `json:"summary"`
	// PolicyVersion is that of the policy in force, 0 for the built-in one.
	PolicyVersion int64 `json:"policy_version"`
	// Reasons are what holds it back, the most certain first, and what bounds it though it does not bind now.
	Reasons []Finding `json:"reasons"`

	inner explain.Explanation
}

// Finding is one thing that holds something back, or may.
type Finding struct {
	Kind FindingKind `json:"kind"`
	// Binds says that it holds back now.
	Binds bool `json:"binds"`
	// Text says so in a sentence, without a final stop. It may quote what operators and handlers said: it is not made fit for a terminal.
	Text string `json:"text"`
	// Until is when it ends by itself, by the clock of Redis; zero when it does not, or nobody knows.
	Until time.Time `json:"until,omitzero"`
	// Rule decided it; nil where no rule of the policy did.
	Rule *Rule `json:"rule,omitempty"`
	// Change says what would change it, often by a command.
	Change string `json:"change,omitempty"`
}

// Rule is a part of the policy in force.
type Rule struct {
	// Path is a JSON pointer into the policy, as in "/tenants/acme/limit"; empty for what is built in.
	Path string `json:"path,omitempty"`
	// Of says whose rule it is, such as "override of tenant acme" or "default of tier standard".
	Of string `json:"of"`
	// Value is what the policy has there.
	Value json.RawMessage `json:"value,omitempty"`
	// Changed says who changed it last; nil if the audit does not tell.
	Changed *Changed `json:"changed,omitempty"`
}

// Changed is the edit that made a rule what it is: the version that it put in force, when, by whom and why.
type Changed struct {
	Version int64     `json:"version"`
	At      time.Time `json:"at"`
	Author  string    `json:"author"`
	Reason  string    `json:"reason,omitempty"`
}

// FindingKind is a kind of Finding.
type FindingKind string

// The kinds. Of jobs: all up to FindingDead; of tenants and scopes: FindingLimit, FindingSuspension, FindingDepth, FindingTier, FindingBacklog, FindingPause,
// FindingCap and FindingRate; of queues and downstreams: FindingDepth, those of gates, such as FindingPause and FindingCap, and all from FindingParked on.
const (
	// FindingPause is something that an operator paused, FindingBreaker a breaker that is not closed.
	FindingPause   FindingKind = FindingKind(store.WaitPause)
	FindingBreaker FindingKind = FindingKind(store.WaitBreaker)
	// FindingCap is as many running jobs as may be, FindingRate as many starts.
	FindingCap  FindingKind = FindingKind(store.WaitCap)
	FindingRate FindingKind = FindingKind(store.WaitRate)
	// FindingTime is the job's own time or its backoff, FindingType a type that no worker knew to which it came.
	FindingTime FindingKind = FindingKind(store.WaitTime)
	FindingType FindingKind = FindingKind(store.WaitType)
	// FindingDepth is how many jobs a tenant may have in the queue, or over all, which binds where it has as many.
	FindingDepth FindingKind = FindingKind(store.WaitDepth)
	// FindingWorkers is a queue that no worker serves.
	FindingWorkers FindingKind = FindingKind(store.WaitWorkers)
	// FindingWaking is a gate that has opened, whose waiters come back one after the other.
	FindingWaking FindingKind = FindingKind(store.WaitWaking)
	// FindingTurn is the order: other jobs and other tenants come first.
	FindingTurn FindingKind = FindingKind(store.WaitTurn)
	// FindingDeadline is until when the job has to start, FindingDead what it died of.
	FindingDeadline FindingKind = explain.KindDeadline
	FindingDead     FindingKind = explain.KindDead
	// FindingLimit is a bucket on the way in, FindingSuspension an enqueueing that an operator suspended.
	FindingLimit      FindingKind = explain.KindLimit
	FindingSuspension FindingKind = explain.KindSuspension
	// FindingTier is the tenant's tier, FindingBacklog how many of its jobs wait.
	FindingTier    FindingKind = explain.KindTier
	FindingBacklog FindingKind = explain.KindBacklog
	// FindingParked is how many jobs wait for a downstream, FindingErrors what its calls failed by, FindingAdaptive a limit of it that moves by itself.
	FindingParked   FindingKind = explain.KindParked
	FindingErrors   FindingKind = explain.KindErrors
	FindingAdaptive FindingKind = explain.KindAdaptive
	// FindingPressure is how much a queue is pressed, FindingShed that jobs are refused for it, FindingDoomed that those are which would start too
	// late, FindingReserved slots that are kept for some of its classes.
	FindingPressure FindingKind = explain.KindPressure
	FindingShed     FindingKind = explain.KindShed
	FindingDoomed   FindingKind = explain.KindDoomed
	FindingReserved FindingKind = explain.KindReserved
	// FindingBypass is that jobs of a class go beside the limits of their queue and class.
	FindingBypass FindingKind = explain.KindBypass
	// FindingReservation is when reservations expire.
	FindingReservation FindingKind = explain.KindReservation
)

// explanationOf returns an explanation as the door has it.
func explanationOf(e explain.Explanation, err error) (Explanation, error) {
	out := Explanation{Kind: e.Kind, Name: e.Name, Summary: e.Summary, PolicyVersion: e.PolicyVersion, Reasons: []Finding{}, inner: e}
	for _, r := range e.Reasons {
		finding := Finding{Kind: FindingKind(r.Kind), Binds: r.Binds, Text: r.Text, Until: r.Until, Change: r.Change}
		if rule := r.Rule; rule != nil {
			finding.Rule = &Rule{Path: rule.Path, Of: rule.Of, Value: rule.Value, Changed: (*Changed)(rule.Changed)}
		}
		out.Reasons = append(out.Reasons, finding)
	}
	return out, err
}

// String is what Write writes, without its last line break.
func (e Explanation) String() string { return e.inner.String() }

// Write writes for people, as "headgate explain" does, what Explain found. What anybody may have written, such as reasons, is made fit
// for a terminal.
func (e Explanation) Write(to io.Writer) { e.inner.Write(to) }
