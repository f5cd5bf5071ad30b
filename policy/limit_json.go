package policy

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // Every process that reads a policy knows its zones, also where the machine has no database of them.

	"github.com/headgate/headgate/admission"
)

// The algorithms of a limit, the first where none is said.
const (
	TokenBucket   = "token_bucket"
	FixedWindow   = "fixed_window"
	SlidingWindow = "sliding_window"
	SlidingLog    = "sliding_log"
	// LeakyBucket is read as a token bucket of burst 1 and never written: what does not pass is refused or waits as it is asked (limiter.Wait,
	// a dispatch).
	LeakyBucket = "leaky_bucket"
)

// Algorithms are all of them.
var Algorithms = []string{TokenBucket, FixedWindow, SlidingWindow, SlidingLog, LeakyBucket}

// windowed are those of them that have a window.
var windowed = Algorithms[1:4]

// AlgorithmOf returns that of a limit.
func AlgorithmOf(limit admission.Limit) string {
	switch w := limit.Window; {
	case w.IsZero():
		return TokenBucket
	case w.Logged():
		return SlidingLog
	case w.Grain() > 0:
		return SlidingWindow
	}
	return FixedWindow
}

// WindowLimit returns a limit of windows by an algorithm that has them. Anchor and zone are those of fixed ones, "" of others. Errors are
// *headgate.FieldError, of the fields window, anchor and zone.
func WindowLimit(algorithm string, tokens admission.Tokens, window, anchor, zone string) (admission.Limit, error) {
	if algorithm == FixedWindow {
		return admission.FixedWindow(tokens, window, anchor, zone)
	}
	for _, only := range []struct{ field, value string }{{"anchor", anchor}, {"zone", zone}} {
		if only.value != "" {
			return admission.Limit{}, &admission.FieldError{
				Field: only.field, Value: strconv.Quote(only.value), Allowed: `none with "algorithm": "` + algorithm + `", whose windows begin at no time`,
			}
		}
	}
	if algorithm == SlidingLog {
		return admission.SlidingLog(tokens, window)
	}
	return admission.SlidingWindow(tokens, window)
}

// limitJSON is a limit as it is written: tokens, per and burst, or the paper's rate_per_second and
// burst_capacity, which are read and never written; of windows tokens and window, and of fixed ones anchor and zone. A nil field was not there.
type limitJSON struct {
	Algorithm     *string           `json:"algorithm,omitempty"`
	Tokens        *admission.Tokens `json:"tokens,omitempty"`
	Window        *string           `json:"window,omitempty"`
	Anchor        *string           `json:"anchor,omitempty"`
	Zone          *string           `json:"zone,omitempty"`
	Per           *string           `json:"per,omitempty"`
	Burst         *admission.Tokens `json:"burst,omitempty"`
	RatePerSecond *float64          `json:"rate_per_second,omitempty"`
	BurstCapacity *admission.Tokens `json:"burst_capacity,omitempty"`
	Enabled       *bool             `json:"enabled,omitempty"`
}

// withBurst returns the limit with the burst that one has which says none.
func withBurst(l admission.Limit) admission.Limit {
	if l.Burst == 0 && l.Tokens > 0 && l.Per > 0 && !l.Disabled {
		l.Burst = l.DefaultBurst()
	}
	return l
}

// ownBurst is withBurst of what may be absent; it changes nothing in place.
func ownBurst(l *admission.Limit) *admission.Limit {
	if l == nil {
		return nil
	}
	return new(withBurst(*l))
}

// withBursts returns a copy of limits, each withBurst.
func withBursts[K ~string](limits map[K]admission.Limit) map[K]admission.Limit {
	limits = maps.Clone(limits)
	for name, l := range limits {
		limits[name] = withBurst(l)
	}
	return limits
}

// newLimitJSON returns what is written for a limit. A disabled one keeps the figures it has, so that enabling it
// again is one change.
func newLimitJSON(limit admission.Limit) *limitJSON {
	var written limitJSON
	if limit.Tokens != 0 {
		written.Tokens = &limit.Tokens
	}
	switch w := limit.Window; {
	case !w.IsZero():
		written.Algorithm, written.Window = new(AlgorithmOf(limit)), new(w.Length())
		if w.Grain() == 0 {
			written.Anchor, written.Zone = new(w.Anchor()), new(w.Zone())
		}
	default:
		if limit.Per != 0 {
			written.Per = new(admission.DurationText(limit.Per))
		}
		if limit.Burst != 0 {
			written.Burst = &limit.Burst
		}
	}
	if limit.Disabled {
		written.Enabled = new(false)
	}
	return &written
}

// limit returns what was written, if anything was, and adds what cannot be read to bad. name is the path to it.
func (p *problems) limit(name string, w *limitJSON) *admission.Limit {
	if w == nil {
		return nil
	}
	return new(w.limit(name, p))
}

// limit returns what was written, and adds what cannot be read to bad. name is the path to it in the policy.
func (w limitJSON) limit(name string, bad *problems) admission.Limit {
	algorithm := TokenBucket
	if w.Algorithm != nil {
		algorithm = *w.Algorithm
	}
	switch {
	case algorithm == TokenBucket || algorithm == LeakyBucket:
	case slices.Contains(windowed, algorithm):
		return w.windows(algorithm, name, bad)
	default:
		bad.field(name+".algorithm", strconv.Quote(algorithm), quoteNames(Algorithms))
		return admission.Limit{Tokens: 1, Per: time.Second, Burst: 1} // One error is enough.
	}
	for _, only := range []struct {
		field string
		value *string
		of    []string
	}{{"window", w.Window, windowed}, {"anchor", w.Anchor, windowed[:1]}, {"zone", w.Zone, windowed[:1]}} {
		if only.value != nil {
			bad.field(name+"."+only.field, strconv.Quote(*only.value), `none, unless "algorithm" is `+strings.ReplaceAll(quoteNames(only.of), `, `, ` or `))
		}
	}
	var limit admission.Limit
	if algorithm == LeakyBucket {
		limit.Burst = 1
	}
	if w.Tokens != nil {
		limit.Tokens = *w.Tokens
	}
	if w.Per != nil {
		limit.Per = bad.parseDuration(name+".per", *w.Per)
	}
	if w.Burst != nil {
		limit.Burst = *w.Burst
	}
	if w.RatePerSecond != nil {
		limit.Tokens, limit.Per = admission.Tokens(*w.RatePerSecond), time.Second
		rate := strconv.FormatFloat(*w.RatePerSecond, 'g', -1, 64)
		if w.Tokens != nil || w.Per != nil {
			bad.field(name+".rate_per_second", rate, `only without "tokens" and "per"`)
		}
		if *w.RatePerSecond != math.Trunc(*w.RatePerSecond) || math.Abs(*w.RatePerSecond) > float64(admission.MaxLimitTokens) {
			bad.field(name+".rate_per_second", rate, `1 to 1000000000 whole tokens; for others use "tokens" and "per"`)
		}
	}
	if w.BurstCapacity != nil {
		limit.Burst = *w.BurstCapacity
		if w.Burst != nil {
			bad.field(name+".burst_capacity", strconv.FormatInt(int64(*w.BurstCapacity), 10), `only without "burst"`)
		}
	}
	limit.Disabled = w.Enabled != nil && !*w.Enabled
	if said := cmp.Or(w.BurstCapacity, w.Burst); said != nil && *said == 0 && !limit.Disabled {
		bad.field(name+".burst", "0", "1 to 1000000000 tokens; left out it is what comes in a second")
	}
	return limit
}

// windows returns what was written of a limit of windows.
func (w limitJSON) windows(algorithm, name string, bad *problems) admission.Limit {
	none := func(field, value string) {
		bad.field(name+"."+field, value, `none with "algorithm": "`+algorithm+`", which has "tokens" in each "window"`)
	}
	if w.Per != nil {
		none("per", strconv.Quote(*w.Per))
	}
	for _, only := range []struct {
		field string
		value *admission.Tokens
	}{{"burst", w.Burst}, {"burst_capacity", w.BurstCapacity}} {
		if only.value != nil {
			none(only.field, strconv.FormatInt(int64(*only.value), 10))
		}
	}
	if w.RatePerSecond != nil {
		none("rate_per_second", strconv.FormatFloat(*w.RatePerSecond, 'g', -1, 64))
	}
	of := func(field string, value *string) string {
		switch {
		case value == nil:
			return ""
		case *value == "" && field != "window":
			bad.field(name+"."+field, `""`, "some text; left out, a fixed window begins at midnight in UTC")
		}
		return *value
	}
	var tokens admission.Tokens
	if w.Tokens != nil {
		tokens = *w.Tokens
	}
	limit, err := WindowLimit(algorithm, tokens, of("window", w.Window), of("anchor", w.Anchor), of("zone", w.Zone))
	if one, wrong := errors.AsType[*admission.FieldError](err); wrong {
		bad.field(name+"."+one.Field, one.Value, one.Allowed)
		limit = admission.Limit{Tokens: tokens, Per: time.Second, Burst: tokens}
	}
	limit.Disabled = w.Enabled != nil && !*w.Enabled
	return limit
}

// LimitPath returns where the JSON of a policy has the limit of a scope, for At and With. A bad scope is a
// *headgate.FieldError.
func LimitPath(scope admission.Scope) ([]string, error) {
	if scope.OfDimension() {
		return dimensionPath(scope)
	}
	tenant, queue, class, err := LimitParts(scope)
	if err != nil {
		return nil, err
	}
	if jobType, ofType := class.JobType(); ofType {
		return []string{"tenants", tenant, "queues", queue, "type_limits", jobType}, nil
	}
	switch scope.Level() {
	case admission.LevelGlobal:
		return []string{"global"}, nil
	case admission.LevelTenant:
		return []string{"tenants", tenant, "limit"}, nil
	case admission.LevelQueue:
		return []string{"queue_limits", string(scope)}, nil
	default:
		return []string{"priority_limits", string(scope)}, nil
	}
}

// LimitParts is Parts of the scope of a limit, which may also be "tenant:queue:type=*": that of each type that is not named.
func LimitParts(scope admission.Scope) (tenant, queue string, class admission.Priority, err error) {
	if in, every := strings.CutSuffix(string(scope), ":"+admission.TypeMark+Every); every {
		if tenant, queue, class, err = admission.Scope(in).Parts(); err == nil && queue != "" && class == "" {
			return tenant, queue, admission.OfType(Every), nil
		}
	}
	return scope.Parts()
}

// LongestFill returns how long the slowest of the policy's buckets takes from empty to full, and twice as long as the longest window of
// its limits of fixed windows if that is more; 0 if nothing is limited.
func (p Policy) LongestFill() time.Duration {
	longest := time.Duration(0)
	if p.Rollout != nil {
		longest = p.Promoted().LongestFill()
	}
	see := func(l admission.Limit) { longest = max(longest, fillOf(l)) }
	see(p.Global)
	tiers := p.Tiers
	if tiers == nil {
		tiers = Default().Tiers
	}
	in := func(e EachTenant) {
		see(e.Limit)
		for _, l := range e.PriorityLimits {
			see(l)
		}
		for _, l := range e.TypeLimits {
			see(l)
		}
	}
	for _, tier := range tiers {
		see(tier.Limit)
		for _, queue := range tier.Queues {
			in(queue.limits())
		}
	}
	for _, queue := range p.Queues {
		in(queue.EachTenant)
	}
	for _, tenant := range p.Tenants {
		if tenant.Limit != nil {
			see(*tenant.Limit)
		}
		for _, queue := range tenant.Queues {
			in(EachTenant{TypeLimits: queue.TypeLimits})
		}
	}
	for _, d := range p.Dimensions {
		see(d.Limit)
		for _, limits := range []map[string]admission.Limit{d.Tiers, d.Keys} {
			for _, l := range limits {
				see(l)
			}
		}
	}
	for _, limits := range []map[admission.Scope]admission.Limit{p.QueueLimits, p.PriorityLimits} {
		for _, l := range limits {
			see(l)
		}
	}
	return longest
}

// fillOf is how long the bucket of a limit takes to fill.
func fillOf(l admission.Limit) time.Duration {
	l = withBurst(l)
	if l.Disabled || l.Tokens <= 0 {
		return 0
	}
	if !l.Window.IsZero() { // What was taken of a window before may count until the first one that begins after it.
		return 2 * l.Per
	}
	return time.Duration(float64(l.Burst)/float64(l.Rate())*float64(time.Second)) + 1
}

// LongestFill is how long the slowest of the record's buckets takes to fill, as that of a policy.
func (r OwnLimits) LongestFill() time.Duration {
	longest := time.Duration(0)
	if r.Limit != nil {
		longest = fillOf(*r.Limit)
	}
	for _, in := range r.Queues {
		longest = max(longest, fillOf(in.Limit))
		for _, l := range in.PriorityLimits {
			longest = max(longest, fillOf(l))
		}
		for _, l := range in.TypeLimits {
			longest = max(longest, fillOf(l))
		}
	}
	return longest
}

// LeastBurst returns the least burst on the way, above which a cost is refused for good; 0 where nothing is limited. Of the global limit one of several
// partitions has an even part.
func (l *Limits) LeastBurst(partitions int) (least admission.Tokens) {
	for level, limit := range l {
		if limit.Disabled || limit.Tokens == 0 {
			continue
		}
		burst := cmp.Or(limit.Burst, limit.DefaultBurst())
		if others, kept := limit.Others(); kept {
			burst = others.Burst
		}
		if admission.Level(level) == admission.LevelGlobal {
			burst = max(1, burst/admission.Tokens(max(partitions, 1)))
		}
		if least == 0 || burst < least {
			least = burst
		}
	}
	return least
}
