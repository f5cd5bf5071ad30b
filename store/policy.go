package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// QueueSettings are what dispatch must know of a queue.
type QueueSettings struct {
	Queue   string
	Classes []admission.Class
	// Horizon is the deadline, counted from arrival, by which jobs without one are ordered.
	Horizon time.Duration
	// MaxWait expires a job that has not started this long after it could first; zero means never.
	MaxWait time.Duration
	// PoisonLimit is the number of deliveries lost that make a job a dead letter; zero means DefaultPoisonLimit.
	PoisonLimit int
	// KeepDead is how long dead letters are kept, zero for no bound; MaxDead how many, zero for DefaultMaxDead.
	KeepDead time.Duration
	MaxDead  int
	// Overflow bounds the live jobs of each tenant in the queue.
	Overflow Overflow
	// DropExpired drops and counts jobs past their deadline; otherwise they become dead letters.
	DropExpired bool
}

// Defaults of a queue that nobody configured.
const (
	DefaultPoisonLimit = 3
	DefaultMaxDead     = 100_000
)

// OverflowPolicy is what becomes of a job for which its tenant's depth in the queue leaves no room.
type OverflowPolicy string

// The overflow policies.
const (
	// NoBound lets it in; of a queue, also where each tenant has a bound in each queue that has none.
	NoBound OverflowPolicy = "none"
	// Reject refuses it.
	Reject OverflowPolicy = "reject"
	// DropOldest makes dead letters of the tenant's oldest waiting jobs in the queue, those of the lowest class first,
	// none of a class above the newcomer's.
	DropOldest OverflowPolicy = "drop_oldest"
	// Spillover keeps it aside until there is room, in order of arrival.
	Spillover OverflowPolicy = "spillover"
)

// Overflow bounds the depth of a tenant in a queue: its live jobs, dead letters and spilled ones apart. The zero
// Overflow is no bound.
type Overflow struct {
	Policy OverflowPolicy
	// MaxJobs and MaxBytes are the bounds; zero is none. Bytes are those of a job as it is stored.
	MaxJobs  int
	MaxBytes int64
	// MaxSpilled is how many jobs Spillover keeps aside.
	MaxSpilled int
	// LowWater is the per cent of the bounds at which spilled jobs begin to come back.
	LowWater int
}

func (o Overflow) text() string {
	switch o.Policy {
	case "":
		return "-"
	case NoBound:
		return string(NoBound)
	}
	return fmt.Sprintf("%c,%d,%d,%d,%d", o.Policy[0], o.MaxJobs, o.MaxBytes, o.MaxSpilled, o.LowWater)
}

// TenantOverflow is a tenant's own bound in a queue. One without a policy lifts that of the queue. With the tenant and the queue Every
// it is that of each tenant in each queue that has none. Without a queue it bounds the tenant, or with Every each that has none of
// its own, over all its queues: by Reject.
type TenantOverflow struct {
	Tenant, Queue string
	Overflow      Overflow
}

func (o TenantOverflow) name() string {
	if o.Queue == "" {
		return o.Tenant
	}
	return o.Tenant + ":" + o.Queue
}

// Cap is a gate's limit of jobs in workers' hands, or of dispatches a time.
type Cap struct {
	// Gate is QueueGate, TenantGate, TenantQueueGate or DownstreamGate with a Limit; with the tenant or downstream
	// Every, it is the cap of each that has none of its own. Or it is TenantRateGate or DownstreamRateGate with a Rate.
	Gate GateName
	// Limit is how many at a time, 1 or more.
	Limit int
	// Rate is how many jobs may be dispatched a time, each a token.
	Rate admission.Limit

	// parts is how many partitions divide Limit, or Rate but for its Burst, among them; 0 where it is one's alone.
	parts int
}

func (c Cap) text() string {
	text := strconv.Itoa(c.Limit)
	if kind, _ := c.Gate.split(); kind == gateTenantRate || kind == gateDownstreamRate {
		text = rate(c.Rate) + "|" + strconv.FormatInt(burst(c.Rate), 10)
	}
	if c.parts > 0 {
		text += "/" + strconv.Itoa(c.parts)
	}
	return text
}

// TenantWeight is a tenant's weight in a class of every queue; an empty tenant is everybody else.
type TenantWeight struct {
	Class  admission.Priority
	Tenant string
	Weight admission.Weight
}

// PolicyUpdate is a new version of the policy.
type PolicyUpdate struct {
	Expected, Version int64
	Text              []byte
	Window            time.Duration
	// LongestFill is how long the slowest bucket of this version takes to fill; zero means headgate.MaxRefill. For as
	// long, buckets that an earlier version left behind are kept: their full time was counted at a rate that may
	// have been faster.
	LongestFill time.Duration
	Queues      []QueueSettings
	Overflows   []TenantOverflow
	Weights     []TenantWeight
	// Caps replaces every cap and rate that is in force. A pause goes on, and leaves the new cap behind.
	Caps []Cap
	// MaxParked is how many jobs may wait for a downstream whose breaker is not closed before others are refused; an empty
	// name is every downstream that is not named.
	MaxParked map[string]int

	// Before is the update that stored the version in force, as far as dispatch and admission know it, so that only what differs is
	// written. Where it is nil, or Redis has something else, what Redis has is read.
	Before *PolicyUpdate `json:"-"`
	// SameBuckets says that no bucket's rate or burst differs from the version before, so that none has to be kept for longer.
	SameBuckets bool

	// Edit names this edit among all others, so that one that is sent again is known as such, and another's with the same
	// text is not.
	Edit string
	// Author is who stores it and Reason why, up to MaxAuthor and MaxReason bytes, for the audit.
	Author, Reason string
	// Restored is the version whose document this is; zero for a new one.
	Restored int64
	// Changes is JSON that says what differs from the version before; empty is none.
	Changes []byte
}

// MaxAuthor is the largest size of an Author, in bytes.
const MaxAuthor = 256

// onlyAsk is the Edit of an update that is not to be stored.
const onlyAsk = "-"

func (u *PolicyUpdate) validate() error {
	var bad []error
	if u.Edit == onlyAsk {
		bad = append(bad, &admission.FieldError{Field: "edit", Value: strconv.Quote(onlyAsk), Allowed: "any other text"})
	}
	for _, text := range []struct {
		field, value string
		most         int
	}{{"author", u.Author, MaxAuthor}, {"reason", u.Reason, MaxReason}} {
		control := strings.ContainsFunc(text.value, unicode.IsControl)
		if len(text.value) > text.most || control || !utf8.ValidString(text.value) {
			bad = append(bad, &admission.FieldError{
				Field: text.field, Value: fmt.Sprintf("of %d bytes", len(text.value)),
				Allowed: fmt.Sprintf("up to %d bytes of UTF-8 without control characters", text.most),
			})
		}
	}
	return errors.Join(bad...)
}

// The ways in which a new policy is refused.
var (
	// ErrConflict means that another version than the expected one is in force.
	ErrConflict = errors.New("policy conflict")
	// ErrClassInUse means that jobs wait in a class that the new policy does not have in that place.
	ErrClassInUse = errors.New("class in use")
)

// PutPolicy stores a new version of the policy, if the expected one is in force. After an error InDoubt, the same call
// again is safe, and finishes what the first one began.
func (s *Store) PutPolicy(ctx context.Context, u PolicyUpdate) error {
	if err := u.validate(); err != nil {
		return err
	}
	if s.all != nil {
		return s.putPolicies(ctx, u)
	}
	return s.putPolicy(ctx, u, nil)
}

// putPolicy stores the policy of one partition, and with the first one's what the others are to store.
func (s *Store) putPolicy(ctx context.Context, u PolicyUpdate, copied []byte) error {
	if err := s.runPolicy(ctx, u, copied); err != nil {
		return err
	}
	if err := s.countBounds(ctx); err != nil {
		return err
	}
	if u.SameBuckets {
		return nil
	}
	return s.keepBuckets(ctx, cmp.Or(u.LongestFill, admission.MaxRefill))
}

// CheckPolicy reports whether PutPolicy would store the same now, and changes nothing.
func (s *Store) CheckPolicy(ctx context.Context, u PolicyUpdate) error {
	if err := u.validate(); err != nil {
		return err
	}
	u.Edit = onlyAsk
	if s.all != nil {
		return s.checkPolicies(ctx, u)
	}
	return s.runPolicy(ctx, u, nil)
}

// runPolicy stores an update in one script where little differs, else in steps.
func (s *Store) runPolicy(ctx context.Context, u PolicyUpdate, copied []byte) error {
	if err := s.finishEdit(ctx); err != nil {
		return err
	}
	wanted := u.settings()
	from, err := s.settingsBefore(ctx, &u)
	if err != nil {
		return err
	}
	e := changes(from, wanted)
	if u.Edit == onlyAsk {
		e = difference{with: slices.DeleteFunc(e.with, func(m settingMove) bool { return m.kind != settingQueue })}
	} else if e.work() > portionWork {
		return s.runSteps(ctx, &u, copied, &e, wanted.digest())
	}
	args := []any{s.now, u.Expected}
	for _, f := range u.fields(copied, wanted.digest()) {
		args = append(args, f.value)
	}
	reply, err := s.run(ctx, "policy", moveArgs(args, e.all())...)
	if err != nil {
		return err
	}
	return u.readReply(reply)
}

// updateField is an argument of policy, and a field of an edit that is stored in steps.
type updateField struct {
	name  string
	value any
}

func (u *PolicyUpdate) fields(copied []byte, digest string) []updateField {
	restored := ""
	if u.Restored != 0 {
		restored = strconv.FormatInt(u.Restored, 10)
	}
	return []updateField{
		{"version", u.Version}, {"text", u.Text}, {"window", micros(u.Window)}, {"edit", u.Edit}, {"author", u.Author}, {"reason", u.Reason},
		{"restored", restored}, {"changes", u.Changes}, {"copy", copied}, {"digest", digest},
	}
}

// readReply reads what policy and stage answer.
func (u *PolicyUpdate) readReply(reply []string) error {
	switch word := reply[0]; {
	case word == "stored" || word == "more" || word == "fine" || word == "begun": // What is left of a fill is the timers'.
		return nil
	case len(reply) != 2:
		return fmt.Errorf("store policy: %w", redisconn.ErrUnknownReply)
	case word == "conflict":
		return fmt.Errorf("%w: version %s is in force, %d was expected", ErrConflict, reply[1], u.Expected)
	case word == "editing":
		return fmt.Errorf("%w: somebody else's edit of version %d is being stored", ErrConflict, u.Expected)
	default:
		return fmt.Errorf("%w: queue %s", ErrClassInUse, reply[1])
	}
}

// settingsBefore returns the settings in force: those of Before, where Redis says that they are the same, else what it has.
func (s *Store) settingsBefore(ctx context.Context, u *PolicyUpdate) (settings, error) {
	if u.Before != nil {
		known := u.Before.settings()
		told, err := connection(s).HGet(ctx, s.partition.State(), "ps").Result()
		if err != nil && !redisconn.IsNil(err) {
			return nil, fmt.Errorf("read settings: %w", redisconn.Unread(err))
		}
		if told == strconv.FormatInt(u.Expected, 10)+" "+known.digest() {
			return known, nil
		}
	}
	return s.stored(ctx)
}

// countBounds brings jobs that entered before they were bounded into the depth of their tenant and queue, where an edit has left that
// to be done.
func (s *Store) countBounds(ctx context.Context) error {
	const page = 100
	of, err := connection(s).HGet(ctx, s.partition.State(), "pr").Result()
	if redisconn.IsNil(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read policy: %w", redisconn.Unread(err))
	}
	for cursor := "0"; ; {
		reply, err := s.run(ctx, "recount", s.now, cursor, page, of)
		if err != nil {
			return fmt.Errorf("count jobs into their depth: %w", err)
		}
		if cursor = reply[0]; cursor == "0" {
			return nil
		}
	}
}

// keepBuckets puts the end of every bucket that is stored off until it is full by the policy now in force. From the
// store of a version on none is written under an older one; each outlasts its full time by a slack (admit's
// TTL_SLACK), so one that ends before this comes to it was full when the policy changed.
func (s *Store) keepBuckets(ctx context.Context, fill time.Duration) error {
	node := connection(s)
	const page = 1000
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, s.partition.Buckets("*"), page).Result()
		if err != nil {
			return fmt.Errorf("keep buckets: %w", redisconn.Unread(err))
		}
		if len(keys) > 0 {
			pipe := node.Pipeline()
			for _, key := range keys {
				pipe.Do(ctx, "pexpire", key, fill.Milliseconds(), "gt")
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return fmt.Errorf("keep buckets: %w", redisconn.Unread(err))
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func settingsText(q QueueSettings) string {
	parts := make([]string, len(q.Classes))
	for i, c := range q.Classes {
		parts[i] = string(c.Name) + "=" + strconv.Itoa(c.Weight)
	}
	expired := "dead"
	if q.DropExpired {
		expired = "drop"
	}
	return strings.Join(parts, ",") + "|" + strings.Join([]string{
		micros(q.Horizon), expired, micros(q.MaxWait), q.Overflow.text(), strconv.Itoa(cmp.Or(q.PoisonLimit, DefaultPoisonLimit)),
		micros(q.KeepDead), strconv.Itoa(cmp.Or(q.MaxDead, DefaultMaxDead)),
	}, "|")
}

// Policy returns the text of the policy in force; nil when none was stored.
func (s *Store) Policy(ctx context.Context) ([]byte, error) {
	text, err := connection(s).Get(ctx, s.partition.Policy()).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", redisconn.Unread(err))
	}
	return text, nil
}
