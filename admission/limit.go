package admission

import (
	"cmp"
	"math"
	"strings"
	"time"
)

// Tokens is an amount of work in whole tokens: the unit of limits and of a job's cost.
type Tokens int64

// TokensPerSecond is a refill rate. One token a second is also one micro-token a microsecond, the unit in
// which buckets count.
type TokensPerSecond float64

// Weight is a tenant's share in a class, 1-1000. It is not a priority: twice the weight is twice the service
// while both tenants have work.
type Weight int64

// MaxWeight is the largest Weight.
const MaxWeight Weight = 1000

// Limit is one token bucket's configuration: Tokens refill evenly over Per, up to Burst. With a Window they come back all at once, as the next
// window begins (FixedWindow), or each as it is as old as the window is long (SlidingWindow, SlidingLog).
//
//nolint:recvcheck // It is a plain value; what is asked often spares the copy.
type Limit struct {
	// Tokens refill over Per: 1 to 1e9.
	Tokens Tokens
	// Per is 1 ms to 31 days.
	Per time.Duration
	// Burst is the bucket's capacity, 1 to 1e9; in a policy zero means DefaultBurst. A job that costs more is refused for good.
	Burst Tokens
	// Disabled says that the scope has no bucket: nothing is checked or charged there.
	Disabled bool
	// Window is when a limit of fixed windows begins anew, or how far one of sliding windows looks back; zero for a token bucket. With one Burst is
	// Tokens, and Per its length, of a month 31 days.
	Window Window
	// kept is how many percent of it whoever goes by it may not take: see Keeping. lent says that these are lent: see Lending.
	kept uint8
	lent bool
	// reserve and share are what Bypassing was given, in percent.
	reserve, share uint8
	// from and least are percentages of what moves the limit: see WithFloor.
	from, least uint8
}

// Bounds of a Limit.
const (
	MaxLimitTokens Tokens = 1_000_000_000
	MinLimitPer           = time.Millisecond
	MaxLimitPer           = 31 * 24 * time.Hour
	// MaxRefill is the longest time in which an empty bucket may fill.
	MaxRefill = 366 * 24 * time.Hour
)

// PerSecond returns a limit of so many tokens a second, with the DefaultBurst: PerSecond(200) lets 200 through at once. WithBurst says another.
// A second argument is the burst, as PerSecond of 0.1 took it; it will go, and WithBurst takes its place.
func PerSecond(tokens Tokens, burst ...Tokens) Limit {
	limit := per(tokens, time.Second)
	if len(burst) > 0 {
		limit.Burst = burst[0]
	}
	return limit
}

// PerMinute returns a limit of so many tokens a minute, with the DefaultBurst: PerMinute(500) lets 9 through at once. WithBurst says another.
func PerMinute(tokens Tokens) Limit { return per(tokens, time.Minute) }

// PerHour returns a limit of so many tokens an hour, with the DefaultBurst: PerHour(1000) lets 1 through at once. WithBurst says another.
func PerHour(tokens Tokens) Limit { return per(tokens, time.Hour) }

func per(tokens Tokens, span time.Duration) Limit {
	limit := Limit{Tokens: tokens, Per: span}
	return limit.WithBurst(limit.DefaultBurst())
}

// WithBurst returns the limit with another burst.
func (l Limit) WithBurst(burst Tokens) Limit {
	l.Burst = burst
	return l
}

// Keeping returns the limit as it is for those who may not take so many percent of it, 0 to 99: they are asked for tokens of it, and of Others.
func (l Limit) Keeping(percent int) Limit {
	l.kept = uint8(percent) //nolint:gosec // a percentage
	return l
}

// Lending returns a limit of which something is kept as one of which that is lent: who may not take it leaves that part of the burst in the bucket, and may
// have all that comes in beyond it. It is of token buckets alone.
func (l Limit) Lending() Limit {
	l.lent = true
	return l
}

// Lent reports whether what is kept is lent.
func (l *Limit) Lent() bool { return l.lent }

// WithFloor returns the limit with how far it is cut by a loop that moves all limits of its queue (policy.Adaptive): where the loop leaves a part of
// them, that part divided by from stays in force of this one, all of it at most and never less than least. Both are percent, 1 to 100.
func (l Limit) WithFloor(from, least int) Limit {
	l.from, l.least = uint8(from), uint8(least) //nolint:gosec // percentages
	return l
}

// Floor returns what WithFloor has set; zeros are none: then the loop's part is in force.
func (l *Limit) Floor() (from, least int) { return int(l.from), int(l.least) }

// PartAt returns what is in force of a limit with a Floor while its loop leaves a part of all limits of the queue, above 0 to 1: in whole thousandths.
func (l *Limit) PartAt(part float64) float64 {
	const whole, percent = 1000, 10
	left := int(part*whole+0.5) * 100 / max(int(l.from), 1)
	return float64(min(max(left, int(l.least)*percent), whole)) / whole
}

// Others returns what those may take of a limit, all together, who may not take what is kept of it: of a token bucket that part of its rate, all of it
// where what is kept is lent, and of its burst, of windows that part of their tokens, rounded down to whole ones; false where nothing is kept from them.
func (l *Limit) Others() (others Limit, kept bool) {
	if l.kept == 0 || l.Disabled || l.Tokens == 0 {
		return Limit{Disabled: true}, false
	}
	others = l.part(percentOfAll - Tokens(l.kept))
	if l.Window.IsZero() && l.lent {
		others.Per = l.Per
	}
	return others, true
}

// percentOfAll is all of a limit.
const percentOfAll = 100

// part returns so many percent of a limit: of a token bucket of its rate and burst, of windows of their tokens, rounded down.
func (l *Limit) part(percent Tokens) Limit {
	part := *l
	part.kept, part.lent, part.reserve, part.share, part.from, part.least = 0, false, 0, 0, 0, 0
	part.Burst = cmp.Or(l.Burst, l.DefaultBurst()) * percent / percentOfAll
	if l.Window.IsZero() {
		part.Per = (l.Per*percentOfAll + time.Duration(percent) - 1) / time.Duration(percent)
	} else {
		part.Tokens = l.Tokens * percent / percentOfAll
	}
	return part
}

// Bypassing returns the global limit as it is for jobs that may go beside the limits of their queue and class: they may take its bucket to so many percent
// of its burst below zero, reserve, 0 to 100, and so many percent of what their tenant may have go that way, share, 1 to 100. Checks go the way of all.
func (l Limit) Bypassing(reserve, share int) Limit {
	l.reserve, l.share = uint8(reserve), uint8(share) //nolint:gosec // percentages
	return l
}

// Share returns how much of a tenant's limit may go beside the limits of queue and class where this is the global one: that part of it; false where nothing
// may, for Bypassing does not say so, or the tenant has no limit to have a part of, or that part of its burst is less than a token.
func (l *Limit) Share(tenant *Limit) (share Limit, bypasses bool) {
	if l.share == 0 || tenant.Disabled || tenant.Tokens == 0 {
		return Limit{Disabled: true}, false
	}
	share = tenant.part(Tokens(l.share))
	return share, share.Burst > 0 && share.Tokens > 0
}

// Reserve returns how far below zero those may take the bucket of a limit who Bypassing says, where it has such a burst.
func (l *Limit) Reserve(burst Micro) Micro { return burst * Micro(l.reserve) / percentOfAll }

// DefaultBurst returns the burst of a limit that says none: what comes in a second, rounded up, so 1 at least.
func (l Limit) DefaultBurst() Tokens {
	if l.Tokens < 1 || l.Per <= 0 {
		return 1
	}
	if !l.Window.IsZero() {
		return l.Tokens
	}
	return Tokens(min(math.Ceil(float64(l.Rate())), float64(MaxLimitTokens)))
}

// Rate returns the refill rate, of windows the average.
func (l Limit) Rate() TokensPerSecond {
	return TokensPerSecond(float64(l.Tokens) * float64(time.Second) / float64(l.Per))
}

// UntilFull returns how long from a time on it takes until all tokens are there again where so many are left: until the bucket is full, or
// the next window begins, of sliding ones at the latest; none where nothing is missing.
func (l Limit) UntilFull(left float64, at time.Time) time.Duration {
	missing := float64(l.Burst) - left
	switch {
	case missing <= 0:
		return 0
	case !l.Window.IsZero():
		return l.Window.UntilNext(at)
	}
	return time.Duration(missing/float64(l.Rate())*1e6) * time.Microsecond
}

// Level is the depth of a scope in the hierarchy of buckets.
type Level int

// The levels, outermost first: the order in which a job passes them.
const (
	LevelGlobal Level = iota
	LevelTenant
	LevelQueue
	LevelPriority
	// Levels is their number.
	Levels = 4
)

// String returns the level's name.
func (l Level) String() string {
	switch l {
	case LevelGlobal:
		return "global"
	case LevelTenant:
		return "tenant"
	case LevelQueue:
		return "queue"
	case LevelPriority:
		return "priority"
	}
	return "unknown"
}

// Scope is where a limit applies: "global", "tenant", "tenant:queue", "tenant:queue:priority" or, of jobs of one type, "tenant:queue:type=TYPE".
type Scope string

// Global is the outermost scope.
const Global Scope = "global"

// DimensionMark begins the scopes of dimensions, and no name: "+user:123" is that of user 123, and "+user" that of users whose keys are too many for
// buckets of their own. In Parts there are none of these.
const DimensionMark = "+"

// OfDimension reports whether the scope is one of a dimension, beside the hierarchy.
func (s Scope) OfDimension() bool { return len(s) > 0 && s[0] == DimensionMark[0] }

// TypeMark begins what stands for a type of jobs in the place of a class, and the name of no class: in "acme:mail:type=report" for type report. Its
// bucket is beside that of the job's class, one level below that of the queue.
const TypeMark = "type="

// OfType is what stands for jobs of a type in the place of a class.
func OfType(jobType string) Priority { return TypeMark + Priority(jobType) }

// JobType returns the type that stands in the place of a class, false for a class.
func (p Priority) JobType() (jobType string, ok bool) { return strings.CutPrefix(string(p), TypeMark) }

// Kind is what clients are told of whose limit it is, without a name of anybody: the level's name, "type" of that of a type of jobs, or the dimension's.
// It does not allocate.
func (s Scope) Kind() string {
	if !s.OfDimension() && strings.Contains(string(s), ":"+TypeMark) {
		return TypeMark[:len(TypeMark)-1]
	}
	if !s.OfDimension() {
		return s.Level().String()
	}
	name := string(s[len(DimensionMark):])
	if at := strings.IndexAny(name, "@:"); at >= 0 {
		name = name[:at]
	}
	return name
}

// ScopeAt returns the scope at a level of the given tenant, queue and class.
func ScopeAt(level Level, tenant, queue string, class Priority) Scope {
	switch level {
	case LevelGlobal:
		return Global
	case LevelTenant:
		return Scope(tenant)
	case LevelQueue:
		return Scope(tenant + ":" + queue)
	case LevelPriority:
		return Scope(tenant + ":" + queue + ":" + string(class))
	}
	return Global
}

// Level returns how deep the scope is, that of a type as deep as that of a class. It looks at the separators alone: Parts checks the names.
func (s Scope) Level() Level {
	if s == Global {
		return LevelGlobal
	}
	return min(LevelTenant+Level(strings.Count(string(s), ":")), LevelPriority)
}

// Parts returns the names that the scope is made of: all empty for Global, and those below the scope for others; of a type class is OfType. The
// error is a *FieldError unless it is one of the five forms, each part a valid name. No two scopes have the same parts.
func (s Scope) Parts() (tenant, queue string, class Priority, err error) {
	if s == Global {
		return "", "", "", nil
	}
	parts := strings.SplitN(string(s), ":", Levels-1)
	good := ValidateTenant(parts[0]) == nil
	for i, part := range parts {
		jobType, ofType := Priority(part).JobType()
		if ofType = ofType && i == Levels-2; ofType {
			part = jobType
		}
		good = good && ValidateName("scope", part, !ofType) == nil
	}
	if !good {
		return "", "", "", &FieldError{"scope", quote(string(s)), "global, tenant, tenant:queue, tenant:queue:priority or tenant:queue:type=TYPE, each part 1-128 bytes of [A-Za-z0-9._@/-], no tenant named global"}
	}
	parts = append(parts, "", "")
	return parts[0], parts[1], Priority(parts[2]), nil
}

// Micro is an amount of millionths of a token. Amounts are -1e15 to 1e15, so that a double holds them exactly.
type Micro int64

// MicroPerToken is one token.
const MicroPerToken Micro = 1_000_000

// Tokens returns the amount in whole tokens, rounded down, a debt to the larger one.
func (m Micro) Tokens() Tokens {
	whole := m / MicroPerToken
	if m%MicroPerToken < 0 {
		whole--
	}
	return Tokens(whole)
}

// DurationText returns what time.ParseDuration reads, as policies and the configuration write it: without the zeros that Duration.String ends with.
func DurationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
