package store

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
)

// GateName names what a gate guards.
type GateName string

// QueueGate names the gate of a queue.
func QueueGate(queue string) GateName { return GateName("q:" + queue) }

// TenantGate names the gate of a tenant.
func TenantGate(tenant string) GateName { return GateName("t:" + tenant) }

// TenantQueueGate names the gate of a tenant in a queue.
func TenantQueueGate(tenant, queue string) GateName { return GateName("u:" + tenant + ":" + queue) }

// DownstreamGate names the gate of a downstream.
func DownstreamGate(downstream string) GateName { return GateName("d:" + downstream) }

// TenantRateGate names the rate of dispatches of a tenant.
func TenantRateGate(tenant string) GateName { return GateName("r:" + tenant) }

// DownstreamRateGate names the rate of dispatches to a downstream.
func DownstreamRateGate(downstream string) GateName { return GateName("s:" + downstream) }

// ReserveGate names the gate of slots of a queue that only some of its classes may take (Reserve). It is no cap: who lists gates leaves it out.
func ReserveGate(queue string) GateName { return GateName("o:" + queue) }

// GlobalLimitGate and QueueLimitsGate name limits of admission that move by themselves: the global one, and those of all tenants in a queue and its
// classes. They are no gates: nobody waits there.
const GlobalLimitGate GateName = "l:global"

// QueueLimitsGate is told of with GlobalLimitGate.
func QueueLimitsGate(queue string) GateName { return GateName("l:q:" + queue) }

// Every is the tenant or downstream of a cap that is each one's own.
const Every = "*"

// Unlimited is the limit of no gate.
const Unlimited = -1

// PauseSlack is how much sooner a pause may end than PauseAtLeast asks for: so those who ask one after the other are one pause.
const PauseSlack = time.Second

// MinRetryAfter is the least for which a downstream is held back that says after how long to come again.
const MinRetryAfter = time.Second

// RetryAfterBy is who holds a downstream back that refused a call and said after how long to come again.
func RetryAfterBy(said time.Duration) Intervention {
	return Intervention{Author: "headgate", Reason: "it answered 429, Retry-After " + admission.DurationText(said)}
}

// Gate is a limit of jobs in workers' hands.
type Gate struct {
	Name GateName
	// Limit is the number of jobs at a time: 0 is shut, Unlimited removes the gate.
	Limit int
	// For is how long the limit holds; zero means until it is changed. Then applies after that.
	For  time.Duration
	Then int
	// By says who sets it and why. The reason is kept beside the gate.
	By Intervention
}

// GateState is a gate as it stands.
type GateState struct {
	Name GateName
	// Limit is the number of jobs at a time, 0 for shut; Held how many entries of ready streams passed under it, of a
	// breaker's gate those that were dispatched in its period.
	Limit, Held int
	// NoShare says of a Limit of 0 that it is no pause: the partition has no whole unit of a cap until shares are balanced.
	NoShare bool
	// Until is when the limit ends, zero for never by itself; Then is the limit after that, Unlimited for no gate. Of a
	// rate that lets nothing pass, Until is when it lets the next job.
	Until time.Time
	Then  int
	// Reason is what was said when it was set. Of a pause, Author is who set it and Since when; empty where an older release did.
	Reason, Author string
	Since          time.Time
	// Rate is dispatches a second and Burst how many at once, where the gate is a rate; Limit and Held are then 0.
	Rate  float64
	Burst int
	// Shares is what each partition has of Limit, or of Rate, where several divide it among them; nil elsewhere.
	Shares []float64
}

// NoCap is the limit of a cap of one who has none where others have one: policy.MaxMaxRunning.
const NoCap = 1_000_000

// Shut reports whether nothing passes now.
func (g GateState) Shut() bool {
	if g.Burst > 0 {
		return !g.Until.IsZero()
	}
	return g.Held >= g.Limit
}

// Paused reports whether an operator has shut it.
func (g GateState) Paused() bool {
	kind, _ := g.Name.Split()
	return g.Limit == 0 && g.Burst == 0 && !g.NoShare && kind != KindBreaker
}

// The kinds of gates, by the first byte of their names.
const (
	KindQueue          = 'q'
	KindTenant         = 't'
	KindTenantQueue    = 'u'
	KindDownstream     = 'd'
	KindBreaker        = 'b'
	KindTenantRate     = 'r'
	KindDownstreamRate = 's'
	KindReserve        = 'o'
	KindLimits         = 'l'
)

// Split returns the kind of a gate and what it guards.
func (n GateName) Split() (kind byte, guarded string) {
	before, after, _ := strings.Cut(string(n), ":")
	if len(before) != 1 {
		return 0, string(n)
	}
	return before[0], after
}

// Tenant returns the tenant that a gate is about.
func (n GateName) Tenant() (tenant string, ofTenant bool) {
	switch kind, guarded := n.Split(); kind {
	case KindTenant, KindTenantQueue, KindTenantRate:
		tenant, _, _ = strings.Cut(guarded, ":")
		return tenant, true
	}
	return "", false
}

// Words names what a gate guards for people, such as "tenant acme in queue mail".
func (n GateName) Words() string {
	kind, guarded := n.Split()
	switch kind {
	case KindQueue:
		return "queue " + guarded
	case KindTenant, KindTenantRate:
		return "tenant " + guarded
	case KindTenantQueue:
		tenant, queue, _ := strings.Cut(guarded, ":")
		return "tenant " + tenant + " in queue " + queue
	case KindDownstream, KindBreaker, KindDownstreamRate:
		if service, account, two := strings.Cut(guarded, admission.AccountSign); two && account == Every {
			return "each account of downstream " + service
		} else if two {
			return "account " + account + " of downstream " + service
		}
		return "downstream " + guarded
	case KindLimits:
		if queue, ok := strings.CutPrefix(guarded, "q:"); ok {
			return "limits of queue " + queue
		}
		return "the global limit"
	}
	return string(n)
}

// Suspension is a queue, a tenant or a tenant in a queue for which enqueueing is suspended.
type Suspension struct {
	Name GateName
	// Until is when it ends, zero for never by itself.
	Until time.Time
	// Reason is what producers are told.
	Reason string
	// Author is who set it and Since when; empty where an older release did.
	Author string
	Since  time.Time
}

// WorkerState is a registered worker.
type WorkerState struct {
	Name string
	// Pool is the id of its pool, Queues what the pool serves.
	Pool   string
	Queues []QueueWeight
	// Slots is how many jobs it holds at most, Held how many it does.
	Slots, Held int
	// LeaseEnd is when it counts as lost unless it is heard of before.
	LeaseEnd time.Time
}

// Remaining counts the jobs of a queue that may still run.
type Remaining struct {
	Waiting, Ready, Running, Later, Spilled int64
}

// Total is their sum.
func (r Remaining) Total() int64 { return r.Waiting + r.Ready + r.Running + r.Later + r.Spilled }

// Held is what a Hold keeps back.
type Held string

// What a Hold keeps back: a pause the jobs that have entered, a suspension those that would enter.
const (
	HeldDispatch Held = "dispatch"
	HeldEnqueue  Held = "enqueue"
)

// Hold is a pause or a suspension that is in force.
type Hold struct {
	Name GateName
	What Held
	// Author is who set it and Reason why. Since is when it began, zero where an older release set it; Until when it ends, zero for
	// never by itself.
	Author, Reason string
	Since, Until   time.Time
}

// Kind says what a hold is about: queue, tenant, tenant_queue or downstream.
func (h Hold) Kind() string {
	switch kind, _ := h.Name.Split(); kind {
	case KindQueue:
		return "queue"
	case KindTenant:
		return "tenant"
	case KindTenantQueue:
		return "tenant_queue"
	}
	return "downstream"
}

// Words tells of it in a sentence, without its end.
func (h Hold) Words() string {
	text := h.Name.Words() + " is paused"
	if h.What == HeldEnqueue {
		text = "enqueueing is suspended for " + h.Name.Words()
	}
	if h.Author != "" {
		text += " by " + h.Author
	}
	if h.Reason != "" {
		text += ", " + h.Reason
	}
	return text
}

// ForgottenAfter is how old a hold without an end is that somebody may have forgotten.
const ForgottenAfter = time.Hour

// HoldsOf picks the pauses out of gates and returns them with the suspensions, by name.
func HoldsOf(gates []GateState, suspensions []Suspension) []Hold {
	var all []Hold
	for _, g := range gates {
		if g.Paused() {
			all = append(all, Hold{Name: g.Name, What: HeldDispatch, Author: g.Author, Reason: g.Reason, Since: g.Since, Until: g.Until})
		}
	}
	for _, p := range suspensions {
		all = append(all, Hold{Name: p.Name, What: HeldEnqueue, Author: p.Author, Reason: p.Reason, Since: p.Since, Until: p.Until})
	}
	slices.SortStableFunc(all, func(a, b Hold) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// CheckCap returns a *headgate.FieldError unless a name is that of a gate whose units are jobs that run: of a queue, a tenant, a tenant
// in a queue, or a downstream, each by a name that a job may have.
func (n GateName) CheckCap() error {
	switch kind, guarded := n.Split(); kind {
	case KindQueue:
		return admission.ValidateName("queue", guarded, true)
	case KindTenant:
		return admission.ValidateTenant(guarded)
	case KindTenantQueue:
		tenant, queue, _ := strings.Cut(guarded, ":")
		return errors.Join(admission.ValidateTenant(tenant), admission.ValidateName("queue", queue, true))
	case KindDownstream:
		return admission.ValidateDownstream("downstream", guarded, false)
	}
	return &admission.FieldError{Field: "gate", Value: strconv.Quote(string(n)), Allowed: "q:QUEUE, t:TENANT, u:TENANT:QUEUE or d:DOWNSTREAM"}
}

// Adaptation is a limit that moves by itself, as the policy says (Cap.Least and Cap.Most), and what there is to see of its downstream.
type Adaptation struct {
	// Name is that of the loop in the policy, Gate whose limit it is.
	Name string
	Gate GateName
	// Own is the policy's limit, which is never exceeded, and Least and Most are the bounds between which Limit, what is in force, moves. Those
	// of a DownstreamRateGate are rates in RateUnits, those of limits of admission parts of what the policy says, in PartUnits.
	Own, Least, Most, Limit int
	// Cause is why the limit was left or changed when the loop last looked, At when that was; zero where it never did.
	Cause string
	At    time.Time
	// Before and Why are of the last change, Changed when that was; zero where there was none.
	Before  int
	Why     string
	Changed time.Time
	// Raised and Lowered count the changes, DeadBand the looks that left the limit alone for what would have changed was too little to make.
	Raised, Lowered, DeadBand int64
	// Frozen is who keeps the loop from moving the limit; nil for nobody.
	Frozen *Intervention
	// Override is what an operator, Frozen, has put in force for a time; nil for nothing.
	Override *Override
	// Held is how many of the downstream's jobs workers hold, Paused whether an operator has paused the downstream.
	Held   int
	Paused bool
	// Calls, Failures and Ran are those of the downstream's BreakerLife, and Heard is when workers last reported some, by a clock that never
	// goes back. A zero Heard is none.
	Calls, Failures int64
	Ran             time.Duration
	Heard           time.Time
	// Refused is how many calls beside those the downstream refused as too many, where its rate moves.
	Refused int64
	// Push is how much the receiver pushes back, where a rate moves: what is in force is less than Limit then, InForce. It eases by a level with
	// each look from Eased on, by a clock that never goes back. Zero is not at all.
	Push  admission.PressureLevel
	Eased time.Time
	// Back is what is in force when no trigger of the policy reduces the limit any more, zero where none does.
	Back int
	// Uneven says that a partition has another limit than the first, as when the process died that wrote it.
	Uneven bool
}

// Override says of a limit that an operator has put in force until when, and what comes back then.
type Override struct {
	Until time.Time
	Back  int
}

// OutOfRange is the error of a limit that is asked for beyond Least and Most.
func (a *Adaptation) OutOfRange(limit int) error {
	text := func(n int) string { return strconv.FormatFloat(float64(n)/a.Gate.Unit(), 'f', -1, 64) }
	return &admission.FieldError{Field: "limit", Value: text(limit), Allowed: text(a.Least) + " to " + text(a.Most) + ", between which the policy lets it move"}
}

// The causes of an Adaptation that are an operator's.
const (
	CauseOverride     = "override"
	CauseOverrideOver = "override_over"
)

// Bounds of how long an override lasts.
const (
	MinOverride = time.Second
	MaxOverride = 7 * 24 * time.Hour
)

// AuditAdapt is a limit that moved by itself, AuditFreeze and AuditThaw an operator who stops that, and lets it go on.
const (
	AuditAdapt  = "adapt"
	AuditFreeze = "freeze"
	AuditThaw   = "thaw"
	// AuditOverride is an operator who puts a limit in force for a time, AuditOverrideEnd one who ends that.
	AuditOverride    = "override"
	AuditOverrideEnd = "override_end"
)

// AdaptAuthor is the author of an AuditAdapt.
const AdaptAuthor = "headgate"

// AdaptAuditEvery is how often at most the audit tells of a limit that it moves.
const AdaptAuditEvery = time.Minute

var (
	// ErrNotHolder means that another scheduler holds the timer lease.
	ErrNotHolder = errors.New("another scheduler holds the timer lease")
	// ErrNotAdaptive means that no limit of that name moves by itself, by the policy in force.
	ErrNotAdaptive = errors.New("no adaptive limit")
)

// InForce is what is in force of Limit: where the receiver pushes back four fifths of it, a half, a fifth, or of CRITICAL a twentieth and no more
// than one job a second.
func (a *Adaptation) InForce() int {
	if a.Push < admission.PressureLow || a.Push > admission.PressureCritical {
		return a.Limit
	}
	left := int(math.Floor(float64(a.Limit) * [...]float64{0.8, 0.5, 0.2, 0.05}[a.Push-admission.PressureLow]))
	if a.Push == admission.PressureCritical {
		left = min(left, RateUnit)
	}
	return max(1, left)
}

// PushLeast is for how long a receiver that pushes back is heeded, at least; PushStep is how long each level lasts on the way back, at least.
const (
	PushLeast = 2 * time.Second
	PushStep  = time.Second
)

// RateUnit is how many of the units of an Adaptation that is a rate are one job a second.
const RateUnit = control.RateUnit

// PartWhole is what an Adaptation of limits of admission has for all of what the policy says, and PartUnit how many of its units are a percent.
const (
	PartWhole = 1000
	PartUnit  = PartWhole / 100
)

// PartLasts is for how long a part of limits that moves by itself is taken to last by who has to say until when to wait.
const PartLasts = time.Minute

// Unit is how many units of an Adaptation of a gate are one of what people say: a job a second, a percent, or a job at a time.
func (n GateName) Unit() float64 {
	switch kind, _ := n.Split(); kind {
	case KindDownstreamRate:
		return RateUnit
	case KindLimits:
		return PartUnit
	}
	return 1
}

// IsLimits reports whether it is how much of limits of admission is in force.
func (a *Adaptation) IsLimits() bool {
	kind, _ := a.Gate.Split()
	return kind == KindLimits
}

// IsRate reports whether it is a rate of dispatches that moves.
func (a *Adaptation) IsRate() bool {
	kind, _ := a.Gate.Split()
	return kind == KindDownstreamRate
}

// Clamp brings a limit between the bounds.
func (a *Adaptation) Clamp(limit int) int { return max(a.Least, min(limit, a.Most)) }
