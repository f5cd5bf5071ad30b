package codec

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Path is the way of a job, as the fragment path reads it.
type Path struct {
	Tenant, Queue string
	Class         int
	Name          admission.Priority
	Limits        *[admission.Levels]admission.Limit
	// TypeLimit is that of jobs of a Type; nil for none.
	TypeLimit *admission.Limit
	Type      string
	// From is the level from which on a job is refused for it, zero where its queue is not measured.
	// Over is that of a tenant over its share, if lower; zero for none.
	From, Over byte
	// Usage is of how many tenants a day usage is kept, zero for none. It is the same in all paths of a call.
	Usage int
	// Doomed is store.Candidate.Doomed.
	Doomed int
	// Record is store.Question.Record: in all paths of a call, or in none.
	Record int64
}

// OfType has the path be that of jobs of a type; nil leaves it as it is.
func (p Path) OfType(of *store.TypeLimit) Path {
	if of != nil {
		p.TypeLimit = of.Limit
		p.Type = of.Type
	}
	return p
}

// ofDimension is the class of the path of a dimension's key.
const ofDimension = 255

// PathOf returns the path of a question in one of so many partitions.
func PathOf(q *store.Question, partitions int) Path {
	if q.OfDimension() {
		p := Path{Tenant: q.Tenant, Queue: q.Queue, Class: ofDimension, Limits: &q.Limits, Record: q.Record}
		if shard, room := q.Shard(partitions); room > 0 {
			p.Name = admission.Priority(strconv.AppendInt([]byte{byte(room), '+'}, int64(shard), 10)) //nolint:gosec // up to ShardKeys
		}
		return p
	}
	p := Path{Tenant: q.Tenant, Queue: q.Queue, Name: q.Class, Limits: &q.Limits, Usage: q.Usage, Record: q.Record}.OfType(q.TypeLimit)
	if q.Measured {
		p.From = neverRefused
	}
	return p
}

// neverRefused is above all levels.
const neverRefused = byte(admission.PressureCritical + 1)

// PathSize is about how many arguments a path has: its tenant, and its part of the limits and names that it has in common with others.
const PathSize = 2

// limitsBytes are those of distinct limits: of three levels, rate and burst.
const limitsBytes = 3 * 2 * 8

// packLimits writes the limits of a path below the global one as fragments/path.lua reads them.
func packLimits(conn *redisconn.Conn, p *Path) string {
	packed := make([]byte, 0, limitsBytes)
	windows := p.TypeLimit != nil
	for level := admission.LevelTenant; level <= admission.LevelPriority; level++ {
		l := &p.Limits[level]
		packed = appendDoubles(packed, rateOf(l), burstOf(l))
		windows = windows || rateOf(l) < 0
	}
	if p.TypeLimit != nil {
		packed = appendDoubles(packed, rateOf(p.TypeLimit), burstOf(p.TypeLimit))
	}
	for level := admission.LevelTenant; windows && level <= admission.LevelPriority; level++ {
		packed = appendWindow(packed, conn, &p.Limits[level])
	}
	if p.TypeLimit != nil {
		packed = appendWindow(packed, conn, p.TypeLimit)
	}
	for _, l := range [...]*admission.Limit{&p.Limits[admission.LevelQueue], &p.Limits[admission.LevelPriority], p.TypeLimit} {
		if l == nil {
			continue
		}
		if from, least := l.Floor(); from > 0 { // That of all is the same.
			packed = append(packed, byte(from), byte(least))
			break
		}
	}
	if p.TypeLimit != nil {
		packed = append(packed, 0)
	}
	return string(packed)
}

// keptFrom is added to the number of a path's limits where a part of the global limit is kept from it.
const keptFrom = 128

// packOthers writes what those may take together from whom a part of the global limit is kept, as packLimits would in the place of a tenant, and whether
// that is lent in the place of a queue.
func packOthers(conn *redisconn.Conn, limit *admission.Limit, lent bool) string {
	rate, burst := globalPart(limit, conn.Parts)
	lends := 0.0
	if lent {
		lends = 1
	}
	packed := appendDoubles(make([]byte, 0, limitsBytes), rate, burst, lends, 0, 0, 0)
	return string(appendWindow(packed, conn, limit))
}

// bypasses is added to the level of a path's refusals where it has a way beside the limits of its queue and class.
const bypasses = 8

// bypassOf returns the limits on the way of a job beside those of its queue and class, with its tenant's share in the place of a queue's; nil for none.
func bypassOf(limits *[admission.Levels]admission.Limit) *[admission.Levels]admission.Limit {
	global, tenant := &limits[admission.LevelGlobal], &limits[admission.LevelTenant]
	share, may := global.Share(tenant)
	if !may {
		return nil
	}
	return &[admission.Levels]admission.Limit{*global, *tenant, share, {Disabled: true}}
}

// packBypass writes these as packLimits would, and how far below zero they may take the global bucket in the place of a class' burst.
func packBypass(conn *redisconn.Conn, beside *[admission.Levels]admission.Limit) string {
	global, packed := &beside[admission.LevelGlobal], []byte(packLimits(conn, &Path{Limits: beside}))
	_, burst := globalPart(global, conn.Parts)
	binary.LittleEndian.PutUint64(packed[limitsBytes-8:], math.Float64bits(float64(global.Reserve(admission.Micro(burst)))))
	return string(packed)
}

// rateOf is the rate of a limit as scripts take it: 0 for none, and of windows their length in microseconds, below zero.
func rateOf(l *admission.Limit) float64 {
	switch {
	case l.Disabled || l.Tokens == 0:
		return 0
	case !l.Window.IsZero():
		return -float64(l.Per.Microseconds())
	}
	return float64(l.Rate())
}

func burstOf(l *admission.Limit) float64 {
	if rateOf(l) == 0 {
		return 0
	}
	return float64(Burst(*l))
}

// besideWindows is how many windows before and after the one of now a script is told of those whose lengths differ.
const besideWindows = 2

// What a script is told of sliding windows in the place of how many beginnings follow.
const slidingCount, slidingLog = 65535, 65534

// appendWindow writes when the windows of a limit begin, or that they slide, as fragments/bucket.lua reads it; nothing for a token bucket.
func appendWindow(to []byte, conn *redisconn.Conn, l *admission.Limit) []byte {
	if rateOf(l) >= 0 {
		return to
	}
	switch {
	case l.Window.Logged():
		return binary.LittleEndian.AppendUint16(to, slidingLog)
	case l.Window.Grain() > 0:
		return binary.LittleEndian.AppendUint16(to, slidingCount)
	}
	if _, phase, even := l.Window.Even(); even {
		to = binary.LittleEndian.AppendUint16(to, 0)
		return appendDoubles(to, float64(phase))
	}
	at := time.Now()
	if us, err := strconv.ParseInt(conn.Now, 10, 64); err == nil {
		at = time.UnixMicro(us)
	}
	begins := l.Window.Around(at, besideWindows)
	to = binary.LittleEndian.AppendUint16(to, uint16(len(begins)))
	for _, begin := range begins {
		to = appendDoubles(to, float64(begin))
	}
	return to
}

// AppendPaths appends a head, distinct limits and names, and the tenants of the paths, as fragments/path.lua reads them. Of the global limit one of several
// partitions has the even part: scripts multiply its rate by what the partition has of it (Balancer); bursts and windows stay
// even. Those of jobs have a way beside the limits of their queue and class, where the global limit says so. Texts go as pointers, since an interface made of a string is an allocation.
func AppendPaths(args []any, conn *redisconn.Conn, global *admission.Limit, paths []Path, jobs bool) []any {
	const headBytes, pathBytes = 3*8 + 3*2, 4
	head := make([]byte, 0, headBytes+pathBytes*len(paths))
	rate, burst := globalPart(global, conn.Parts)
	head = appendDoubles(head, rate, burst, float64(conn.BucketCap))
	countsAt := len(head)
	head = append(head, 0, 0, 0, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(paths)))
	headAt := len(args)
	args = append(args, nil)
	distinct, named := make([]*Path, 0, 4), make([]*Path, 0, 4)
	var others admission.Limit
	lent := false
	for i := range paths {
		p := &paths[i]
		var beside *[admission.Levels]admission.Limit
		from := p.From | p.Over<<4
		if jobs {
			beside = bypassOf(p.Limits)
		}
		at := limitsAt(distinct, p, beside)
		if at == len(distinct) {
			distinct = append(distinct, p)
			args = append(args, packLimits(conn, p))
			if beside != nil {
				distinct = append(distinct, &Path{Limits: beside})
				args = append(args, packBypass(conn, beside))
			}
		}
		if beside != nil {
			from |= bypasses
		}
		number := byte(at + 1)
		if of, kept := p.Limits[admission.LevelGlobal].Others(); kept && p.Class != ofDimension {
			others, lent, number = of, p.Limits[admission.LevelGlobal].Lent(), number|keptFrom
		}
		names := 0
		if p.Class != ofDimension {
			if names = namesAt(named, p); names == len(named) {
				named = append(named, p)
			}
			names++
		}
		head = append(head, byte(p.Class), from, number, byte(names))
	}
	texts := len(distinct)
	if others.Tokens > 0 {
		args = append(args, packOthers(conn, &others, lent))
		texts++
	}
	binary.LittleEndian.PutUint16(head[countsAt:], uint16(texts))
	binary.LittleEndian.PutUint16(head[countsAt+2:], uint16(len(named)))
	args[headAt] = appendRest(appendWindow(head, conn, global), paths)
	for _, p := range named {
		args = append(args, packNames(p))
	}
	for i := range paths {
		p := &paths[i]
		args = append(args, &p.Tenant)
		if p.Class == ofDimension {
			args = append(args, &p.Queue, (*string)(&p.Name))
		}
	}
	return args
}

// packNames writes the names of a path's queue and class, and of its type where that has a limit, as fragments/path.lua reads them.
func packNames(p *Path) []byte {
	field := len(p.Queue) + 1 + len(p.Name)
	packed := binary.LittleEndian.AppendUint16(make([]byte, 0, 2+field+1+len(p.Type)), uint16(field))
	packed = append(append(append(packed, p.Queue...), ':'), p.Name...)
	if p.TypeLimit != nil {
		packed = append(append(packed, ':'), p.Type...)
	}
	return packed
}

// namesAt returns where the names of a path stand, or how many there are.
func namesAt(named []*Path, p *Path) int {
	for i, known := range named {
		if known.Queue == p.Queue && known.Name == p.Name && known.Type == p.Type {
			return i
		}
	}
	return len(named)
}

// appendRest appends what is asked beside the limits, nothing where nothing is.
func appendRest(head []byte, paths []Path) []byte {
	recorded := paths[0].Record > 0
	doomed := recorded || slices.ContainsFunc(paths, func(p Path) bool { return p.Doomed > 0 })
	if usage := paths[0].Usage; usage > 0 || doomed {
		head = binary.LittleEndian.AppendUint32(head, uint32(usage))
	}
	for i := range paths {
		if doomed {
			head = binary.LittleEndian.AppendUint16(head, uint16(paths[i].Doomed))
		}
	}
	const versionBytes = 7
	for i := 0; recorded && i < len(paths); i++ {
		head = binary.LittleEndian.AppendUint64(head, uint64(paths[i].Record))
		head = head[:len(head)-8+versionBytes]
	}
	return head
}

func appendDoubles(to []byte, values ...float64) []byte {
	for _, v := range values {
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(v))
	}
	return to
}

// limitsAt returns where the limits of a path below the global one stand, with those of the way beside them, if there is one, or how many there are.
func limitsAt(distinct []*Path, p *Path, beside *[admission.Levels]admission.Limit) int {
	for i, known := range distinct {
		ofType := known.TypeLimit == p.TypeLimit || known.TypeLimit != nil && p.TypeLimit != nil && *known.TypeLimit == *p.TypeLimit
		if ofType && sameBelow(known.Limits, p.Limits) && (beside == nil || i+1 < len(distinct) && sameBelow(distinct[i+1].Limits, beside)) {
			return i
		}
	}
	return len(distinct)
}

func sameBelow(a, b *[admission.Levels]admission.Limit) bool {
	return a == b || [admission.Levels - 1]admission.Limit(a[1:]) == [admission.Levels - 1]admission.Limit(b[1:])
}

// AppendQuestions appends the paths of questions, all of one global limit.
func AppendQuestions(args []any, conn *redisconn.Conn, questions []store.Question) []any {
	paths := make([]Path, len(questions))
	for i := range questions {
		paths[i] = PathOf(&questions[i], conn.Parts)
	}
	return AppendPaths(args, conn, &questions[0].Limits[admission.LevelGlobal], paths, false)
}

// PackQuestions writes the costs of questions, of those from a cost on, as fragments/path.lua reads them; the paths are those of
// AppendQuestions.
func PackQuestions(questions []store.Question, least admission.Tokens) []byte {
	const questionBytes = 2 + 4
	packed := make([]byte, 0, questionBytes*len(questions))
	for i := range questions {
		if cost := questions[i].Cost; cost >= least {
			packed = binary.LittleEndian.AppendUint16(packed, uint16(i+1))
			packed = binary.LittleEndian.AppendUint32(packed, uint32(cost))
		}
	}
	return packed
}

// globalPart returns rate and burst of one of so many partitions, 0 for no limit.
func globalPart(limit *admission.Limit, parts int) (rate, burst float64) {
	if limit.Disabled || limit.Tokens == 0 {
		return 0, 0
	}
	parts = max(parts, 1)
	if rate = rateOf(limit); rate > 0 {
		rate /= float64(parts)
	}
	return rate, float64(Burst(*limit) / int64(parts))
}
