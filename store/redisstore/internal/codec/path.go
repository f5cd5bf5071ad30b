package codec

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Path is the way of a job, as the fragment path reads it.
type Path struct {
	Tenant, Queue string
	Class         int
	Name          admission.Priority
	Limits        *[admission.Levels]admission.Limit
	// From is the level from which on a job is refused for it, zero where its queue is not measured.
	From admission.PressureLevel
}

// PathOf returns the path of a question.
func PathOf(q *store.Question) Path {
	p := Path{Tenant: q.Tenant, Queue: q.Queue, Name: q.Class, Limits: &q.Limits}
	if q.Measured {
		p.From = neverRefused
	}
	return p
}

// neverRefused is above all levels.
const neverRefused = admission.PressureCritical + 1

// PathSize is the arguments of a path.
const PathSize = 5

// limitsBytes are those of distinct limits: of three levels, rate and burst.
const limitsBytes = 3 * 2 * 8

// packLimits writes the limits below the global one as fragments/path.lua reads them.
func packLimits(limits *[admission.Levels]admission.Limit) string {
	packed := make([]byte, 0, limitsBytes)
	for level := admission.LevelTenant; level <= admission.LevelPriority; level++ {
		rate, burst := 0.0, 0.0
		if l := &limits[level]; !l.Disabled && l.Tokens > 0 {
			rate, burst = float64(l.Rate()), float64(Burst(*l))
		}
		packed = binary.LittleEndian.AppendUint64(packed, math.Float64bits(rate))
		packed = binary.LittleEndian.AppendUint64(packed, math.Float64bits(burst))
	}
	return string(packed)
}

// AppendPaths appends distinct limits, then the paths, which name theirs. Texts go as pointers, since an interface made of a
// string is an allocation, three of them a path.
func AppendPaths(args []any, paths []Path) []any {
	countAt := len(args)
	args = append(args, 0)
	distinct := make([]*[admission.Levels]admission.Limit, 0, 4)
	numbers := make([]int, len(paths))
	for i := range paths {
		at := limitsAt(distinct, paths[i].Limits)
		if at == len(distinct) {
			distinct = append(distinct, paths[i].Limits)
			args = append(args, packLimits(paths[i].Limits))
		}
		numbers[i] = at + 1
	}
	args[countAt] = len(distinct)
	for i := range paths {
		p := &paths[i]
		var class any = p.Class
		if p.From > 0 {
			class = strconv.Itoa(p.Class) + ":" + strconv.Itoa(int(p.From))
		}
		args = append(args, &p.Tenant, &p.Queue, class, (*string)(&p.Name), numbers[i])
	}
	return args
}

// limitsAt returns where the limits below the global one stand, or how many there are.
func limitsAt(distinct []*[admission.Levels]admission.Limit, limits *[admission.Levels]admission.Limit) int {
	for i, known := range distinct {
		if known == limits || [admission.Levels - 1]admission.Limit(known[1:]) == [admission.Levels - 1]admission.Limit(limits[1:]) {
			return i
		}
	}
	return len(distinct)
}

// AppendQuestions appends the paths of questions.
func AppendQuestions(args []any, questions []store.Question) []any {
	paths := make([]Path, len(questions))
	for i := range questions {
		paths[i] = PathOf(&questions[i])
	}
	return AppendPaths(args, paths)
}

// AppendGlobal appends the even part of the global limit that one of so many partitions has, 0 for one. Scripts multiply the rate by
// what the partition has of it (Balancer); bursts stay even.
func AppendGlobal(args []any, limit *admission.Limit, parts int) []any {
	if parts == 0 || limit.Disabled || limit.Tokens == 0 {
		return appendLimit(args, limit)
	}
	part := float64(limit.Rate()) / float64(parts)
	return append(args, strconv.FormatFloat(part, 'g', 17, 64), Burst(*limit)/int64(parts))
}
