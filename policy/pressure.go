package policy

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/pressure"
)

// Bounds of what says how much a queue is pressed.
const (
	MaxTargetWait           = 24 * time.Hour
	DefaultPressureInterval = time.Second
	// MaxPressured is how many queues a policy may let measure.
	MaxPressured = 256
	// MaxTiersOrdered is how many entries Shedding.Tiers, and a level of Shedding.At, may have.
	MaxTiersOrdered = 1000
)

// PressureRules say how it is measured how much a queue is pressed. One of TargetWait and MaxDepth has to be there.
type PressureRules struct {
	// TargetWait is the wait of a job that comes now which is as long as wanted at the most, 1 ms to MaxTargetWait; zero means that the
	// wait does not count.
	TargetWait time.Duration
	// MaxDepth is how many waiting jobs are as many, 1 to MaxOverflowJobs; zero means that they do not count.
	MaxDepth int
	// TargetRun is how long all but one in twenty runs may take, 1 ms to MaxTargetWait, and MaxFailed which part of them may fail, above 0
	// and up to 1; zero means that it does not count.
	TargetRun time.Duration
	MaxFailed float64
	// Weights say how much each signal counts: wait, depth, slots (the part of the workers' slots that has a job), redis_memory (which part of
	// its maxmemory Redis uses), and, where the policy has a Load, run_p95, failed, cpu and memory (of the worker that uses most). They add up
	// to 1. Nil means wait 0.7 and depth 0.3, or the one that is bounded alone.
	Weights map[string]float64
	// Interval is how often it is measured, MinAdaptiveInterval to MaxAdaptiveInterval; zero means DefaultPressureInterval.
	Interval time.Duration
}

type pressureJSON struct {
	TargetWait string             `json:"target_wait,omitempty"`
	MaxDepth   int                `json:"max_depth,omitempty"`
	TargetRun  string             `json:"target_run,omitempty"`
	MaxFailed  float64            `json:"max_failed,omitempty"`
	Weights    map[string]float64 `json:"weights,omitempty"`
	Interval   string             `json:"interval,omitempty"`
}

func (p *PressureRules) wire() *pressureJSON {
	if p == nil {
		return nil
	}
	return &pressureJSON{TargetWait: formatBound(p.TargetWait), MaxDepth: p.MaxDepth, TargetRun: formatBound(p.TargetRun), MaxFailed: p.MaxFailed, Weights: p.Weights, Interval: formatBound(p.Interval)}
}

func (w *pressureJSON) pressure(at string, bad *problems) *PressureRules {
	if w == nil {
		return nil
	}
	return &PressureRules{
		TargetWait: bad.parseDuration(at+".target_wait", w.TargetWait), MaxDepth: w.MaxDepth, MaxFailed: w.MaxFailed, Weights: w.Weights,
		TargetRun: bad.parseDuration(at+".target_run", w.TargetRun),
		Interval:  bad.parseDuration(at+".interval", w.Interval),
	}
}

func (p *PressureRules) withDefaults() *PressureRules {
	if p == nil {
		return nil
	}
	full := *p
	full.Interval = cmp.Or(p.Interval, DefaultPressureInterval)
	full.Weights = maps.Clone(p.Weights)
	return &full
}

// weights are what Weights says, or stands for.
func (p *PressureRules) weights() pressure.Weights {
	switch {
	case len(p.Weights) > 0:
		all := make(pressure.Weights, len(p.Weights))
		for name, weight := range p.Weights {
			all[pressure.Signal(name)] = weight
		}
		return all
	case p.MaxDepth == 0:
		return pressure.Weights{pressure.Wait: 1}
	case p.TargetWait == 0:
		return pressure.Weights{pressure.Depth: 1}
	}
	return pressure.Weights{pressure.Wait: 0.7, pressure.Depth: 0.3}
}

func (p *PressureRules) validate(bad *problems, at string) {
	if p == nil {
		return
	}
	if p.TargetWait == 0 && p.MaxDepth == 0 {
		bad.field(at+".target_wait", `""`, "1ms to "+admission.DurationText(MaxTargetWait)+", or a max_depth")
		return
	}
	if p.TargetWait != 0 {
		bad.duration(at+".target_wait", p.TargetWait, time.Millisecond, MaxTargetWait)
	}
	bad.integer(at+".max_depth", int64(p.MaxDepth), 0, MaxOverflowJobs)
	if p.TargetRun != 0 {
		bad.duration(at+".target_run", p.TargetRun, time.Millisecond, MaxTargetWait)
	}
	if !(p.MaxFailed >= 0 && p.MaxFailed <= 1) {
		bad.field(at+".max_failed", strconv.FormatFloat(p.MaxFailed, 'g', -1, 64), "above 0, at most 1")
	}
	bad.duration(at+".interval", p.Interval, MinAdaptiveInterval, MaxAdaptiveInterval)
	bounds := map[pressure.Signal]struct {
		field string // "" for what is a part of something by itself
		there bool
	}{
		pressure.Wait: {"target_wait", p.TargetWait != 0}, pressure.Depth: {"max_depth", p.MaxDepth != 0},
		pressure.RunTime: {"target_run", p.TargetRun != 0}, pressure.Failed: {"max_failed", p.MaxFailed != 0},
		pressure.Slots: {}, pressure.CPU: {}, pressure.Memory: {}, pressure.RedisMemory: {},
	}
	weights := p.weights()
	for _, signal := range slices.Sorted(maps.Keys(weights)) {
		switch bound, known := bounds[signal]; {
		case !known:
			bad.field(at+".weights."+shownName(string(signal)), "(unknown)", "wait, depth, slots, run_p95, failed, cpu, memory and redis_memory")
			return
		case bound.field != "" && !bound.there:
			bad.field(at+".weights."+string(signal), strconv.FormatFloat(weights[signal], 'g', -1, 64), "no weight without a "+bound.field)
			return
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(bounds)) {
		if _, weighs := weights[signal]; bounds[signal].there && !weighs {
			bad.field(at+".weights."+string(signal), "(none)", "a weight, since its bound is there")
			return
		}
	}
	if field := (interface {
		Invalid() (field, value, allowed string)
	})(nil); errors.As(weights.Validate(), &field) {
		name, value, allowed := field.Invalid()
		bad.field(at+"."+name, value, allowed)
	}
}

// Pressured is a queue that is measured.
type Pressured struct {
	Queue      string
	TargetWait time.Duration
	MaxDepth   int
	TargetRun  time.Duration
	MaxFailed  float64
	Weights    pressure.Weights
	Interval   time.Duration
}

// Told reports whether a signal that workers tell counts for it.
func (p *Pressured) Told() bool {
	for signal := range p.Weights {
		if signal.Told() {
			return true
		}
	}
	return false
}

// WeighsRedis reports whether the memory of Redis counts for it.
func (p *Pressured) WeighsRedis() bool { return p.Weights[pressure.RedisMemory] > 0 }

// Pressured returns every queue that is measured, by name.
func (c *Compiled) Pressured() []Pressured {
	var all []Pressured
	for _, name := range sortedKeys(c.queues) {
		if p := c.queues[name].Pressure; p != nil {
			all = append(all, Pressured{Queue: name, TargetWait: p.TargetWait, MaxDepth: p.MaxDepth, TargetRun: p.TargetRun, MaxFailed: p.MaxFailed, Weights: p.weights(), Interval: p.Interval})
		}
	}
	return all
}

// Shedding says which jobs are refused while a queue is pressed: those of the least class first, in it those of the least tier. It holds for
// the queues that are measured.
type Shedding struct {
	// Order are classes, the one that is refused first first. Each class of a queue that is measured is either here or in Reserve.
	Order []admission.Priority `json:"order"`
	// Tiers are all tiers of the policy, the one that is refused first first, and those that only a candidate has; nil means that tiers do
	// not count.
	Tiers []string `json:"tiers,omitempty"`
	// Reserve are classes that are never refused for it.
	Reserve []admission.Priority `json:"reserve,omitempty"`
	// At is what is refused from a level on, by its name, LOW to CRITICAL: classes, or "class:tier" for one tier of a class; with ":over"
	// behind it, the jobs there of tenants that are over their share alone, who come before the others of their tier: a job of theirs
	// waits in its queue and class already, or they have had more service there than the others that wait, by their weights. All that comes
	// before in the order is there, too. A level that is not there refuses what the one before does.
	At map[string][]string `json:"at"`
}

func (s *Shedding) clone() *Shedding {
	if s == nil {
		return nil
	}
	full := Shedding{Order: slices.Clone(s.Order), Tiers: slices.Clone(s.Tiers), Reserve: slices.Clone(s.Reserve), At: maps.Clone(s.At)}
	return &full
}

// place returns where a class and a tier stand in the order, 0 for who is refused first, and whether they do at all.
func (s *Shedding) place(class admission.Priority, tier string) (int, bool) {
	at := slices.Index(s.Order, class)
	if at < 0 {
		return 0, false
	}
	if len(s.Tiers) == 0 {
		return at, true
	}
	return at*len(s.Tiers) + slices.Index(s.Tiers, tier), true
}

// overShare is the end of an entry of At that is of tenants over their share alone.
const overShare = "over"

// upTo returns how many places of the order a level refuses, two for each class and tier: tenants over their share, then the others.
// What is listed is all places before some place, or it is no such number.
func (s *Shedding) upTo(listed []string) (n int, ok bool) {
	tiers := max(1, len(s.Tiers))
	refused := make([]bool, 2*len(s.Order)*tiers)
	for _, one := range listed {
		from, to, known := s.places(one)
		if !known {
			return 0, false
		}
		for i := from; i < to; i++ {
			refused[i] = true
		}
	}
	n = slices.Index(refused, false)
	if n < 0 {
		n = len(refused)
	}
	return n, !slices.Contains(refused[n:], true)
}

// places returns the places that an entry of At names.
func (s *Shedding) places(entry string) (from, to int, known bool) {
	tiers := max(1, len(s.Tiers))
	parts := strings.Split(entry, ":")
	at := slices.Index(s.Order, admission.Priority(parts[0]))
	if at < 0 {
		return 0, 0, false
	}
	from, to, parts = 2*at*tiers, 2*(at+1)*tiers, parts[1:]
	if len(s.Tiers) > 0 && len(parts) > 0 {
		in := slices.Index(s.Tiers, parts[0])
		if in < 0 {
			return 0, 0, false
		}
		from, to, parts = from+2*in, from+2*in+2, parts[1:]
	}
	switch {
	case len(parts) == 0:
		return from, to, true
	case len(parts) == 1 && parts[0] == overShare && from+2 == to:
		return from, from + 1, true
	}
	return 0, 0, false
}

// levels returns how many places of the order are refused at each level.
func (s *Shedding) levels() (upTo [admission.PressureCritical + 1]int) {
	for level := admission.PressureLow; level <= admission.PressureCritical; level++ {
		upTo[level] = upTo[level-1]
		if listed, there := s.At[level.String()]; there {
			upTo[level], _ = s.upTo(listed)
		}
	}
	return upTo
}

// NeverShed is the level from which on a job is refused that never is.
const NeverShed = admission.PressureCritical + 1

// PressureFor returns from which level on a job is refused while its queue is pressed, and from which on, at most as high, that of a tenant
// over its share, NeverShed for none, and the tier of its tenant; 0 where the queue is not measured. It does not allocate.
func (c *Compiled) PressureFor(tenant, queue string, class admission.Priority) (from, over admission.PressureLevel, tier string) {
	q, ok := c.queues[queue]
	if !ok || q.Pressure == nil {
		return 0, 0, ""
	}
	if c.shedding == nil {
		return NeverShed, NeverShed, ""
	}
	tier = c.viewOf(tenant).tier
	place, ordered := c.shedding.place(class, tier)
	if !ordered {
		return NeverShed, NeverShed, tier
	}
	return c.shedFrom(2*place + 1), c.shedFrom(2 * place), tier
}

// shedFrom returns the level from which on a place of the order is refused.
func (c *Compiled) shedFrom(place int) admission.PressureLevel {
	for level := admission.PressureLow; level <= admission.PressureCritical; level++ {
		if place < c.sheds[level] {
			return level
		}
	}
	return NeverShed
}

// ShedAt returns the tiers of which jobs of a class are refused at a level of their queue, and whether all are; the last is of tenants over
// their share alone where over says so. Where tiers do not count and only those tenants' are refused, there is one without a name.
func (c *Compiled) ShedAt(queue string, class admission.Priority, level admission.PressureLevel) (tiers []string, over, all bool) {
	s := c.shedding
	if s == nil || c.queueOf(queue).Pressure == nil || level < admission.PressureNone || level > admission.PressureCritical {
		return nil, false, false
	}
	at := slices.Index(s.Order, class)
	if at < 0 {
		return nil, false, false
	}
	names := s.Tiers
	if len(names) == 0 {
		names = []string{""}
	}
	refused := min(max(0, c.sheds[level]-2*at*len(names)), 2*len(names))
	return names[:(refused+1)/2], refused%2 == 1, refused == 2*len(names)
}

// validateShedding checks what is refused while queues are pressed, and that each class of those that are measured has its place.
func (p Policy) validateShedding(bad *problems) {
	measured := 0
	for _, name := range sortedKeys(p.Queues) {
		rules := p.Queues[name].Pressure
		if rules == nil {
			continue
		}
		measured++
		for _, signal := range sortedKeys(rules.Weights) {
			if pressure.Signal(signal).Told() && p.Load == nil {
				bad.field("load", "(none)", `"load": {}, by which workers tell it, since queues.`+name+".pressure.weights."+signal+" is there")
				break
			}
		}
	}
	if measured > MaxPressured {
		bad.field("queues", strconv.Itoa(measured)+" with a pressure", "up to "+strconv.Itoa(MaxPressured))
	}
	s := p.Shedding
	if s == nil {
		return
	}
	if !s.validateOrder(bad, p.Tiers) || !s.validateAt(bad) {
		return
	}
	p.validateClasses(bad, "shedding.order", s.Order)
	if len(s.Reserve) > 0 {
		p.validateClasses(bad, "shedding.reserve", s.Reserve)
	}
	for _, name := range sortedKeys(p.Queues) {
		if p.Queues[name].Pressure == nil {
			continue
		}
		for _, class := range p.Queues[name].Classes {
			if !slices.Contains(s.Order, class.Name) && !slices.Contains(s.Reserve, class.Name) {
				bad.field("shedding.order", quoteNames(texts(s.Order)), "each class of queue "+name+" that is not in reserve: "+strconv.Quote(string(class.Name))+" is missing")
			}
		}
	}
}

func texts(classes []admission.Priority) []string {
	all := make([]string, len(classes))
	for i, class := range classes {
		all[i] = string(class)
	}
	return all
}

// validateOrder checks who stands in the order, and reports whether it can be used.
func (s *Shedding) validateOrder(bad *problems, tiers map[string]Tier) bool {
	before := len(*bad)
	if n := len(s.Order); n < 1 || n > admission.MaxClasses {
		bad.field("shedding.order", strconv.Itoa(n)+" classes", "1 to "+strconv.Itoa(admission.MaxClasses)+" classes, the one that is refused first first")
	}
	seen := map[admission.Priority]bool{}
	for _, class := range slices.Concat(s.Order, s.Reserve) {
		bad.add(admission.ValidateName("class of shedding", string(class), true))
		if seen[class] {
			bad.field("shedding.order", strconv.Quote(string(class)), "each class once, in order or in reserve")
		}
		seen[class] = true
	}
	for _, tier := range sortedKeys(tiers) {
		if len(s.Tiers) > 0 && !slices.Contains(s.Tiers, tier) {
			bad.field("shedding.tiers", quoteNames(s.Tiers), "each tier of the policy: "+strconv.Quote(tier)+" is missing")
		}
	}
	if n := len(s.Tiers); n > MaxTiersOrdered {
		bad.field("shedding.tiers", strconv.Itoa(n)+" tiers", "up to "+strconv.Itoa(MaxTiersOrdered))
		return false
	}
	for i, tier := range s.Tiers {
		bad.add(admission.ValidateName("tier of shedding", tier, true))
		if slices.Contains(s.Tiers[:i], tier) {
			bad.field("shedding.tiers", strconv.Quote(tier), "each tier once")
		}
	}
	return len(*bad) == before
}

// validateAt checks what each level refuses.
func (s *Shedding) validateAt(bad *problems) bool {
	before := len(*bad)
	if len(s.At) == 0 {
		bad.field("shedding.at", "{}", "a level, LOW to CRITICAL, with what it refuses")
	}
	for _, name := range sortedKeys(s.At) {
		if level, known := admission.ParsePressureLevel(name); !known || level == admission.PressureNone {
			bad.field("shedding.at", strconv.Quote(name), "LOW, MEDIUM, HIGH and CRITICAL")
		}
	}
	most := 0
	for level := admission.PressureLow; level <= admission.PressureCritical; level++ {
		listed, there := s.At[level.String()]
		n, ok := s.upTo(listed)
		switch {
		case !there:
		case len(listed) > MaxTiersOrdered:
			bad.field("shedding.at."+level.String(), strconv.Itoa(len(listed))+" entries", "up to "+strconv.Itoa(MaxTiersOrdered))
		case !ok:
			bad.field("shedding.at."+level.String(), quoteNames(listed), `classes of order, "class:tier", or either with ":over" for tenants over their share, with all that comes before them in the order`)
		case n < most:
			bad.field("shedding.at."+level.String(), quoteNames(listed), "at least what the level before refuses")
		default:
			most = n
		}
	}
	return len(*bad) == before
}
