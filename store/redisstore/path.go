package redisstore

import (
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// path is the way of a job, as the fragment path reads it.
type path struct {
	tenant, queue string
	class         int
	name          admission.Priority
	limits        *[admission.Levels]admission.Limit
}

func pathOf(q *store.Question) path {
	return path{tenant: q.Tenant, queue: q.Queue, name: q.Class, limits: &q.Limits}
}

// pathSize and limitsSize are the arguments of a path and of its limits.
const (
	pathSize   = 5
	limitsSize = 6
)

// appendPaths appends distinct limits, then the paths, which name theirs. Texts go as pointers, since an interface made of a
// string is an allocation, three of them a path.
func appendPaths(args []any, paths []path) []any {
	countAt := len(args)
	args = append(args, 0)
	distinct := make([]*[admission.Levels]admission.Limit, 0, 4)
	numbers := make([]int, len(paths))
	for i := range paths {
		at := limitsAt(distinct, paths[i].limits)
		if at == len(distinct) {
			distinct = append(distinct, paths[i].limits)
			for level := admission.LevelTenant; level <= admission.LevelPriority; level++ {
				args = appendLimit(args, &paths[i].limits[level])
			}
		}
		numbers[i] = at + 1
	}
	args[countAt] = len(distinct)
	for i := range paths {
		p := &paths[i]
		args = append(args, &p.tenant, &p.queue, p.class, (*string)(&p.name), numbers[i])
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

// appendQuestions appends the paths of questions.
func appendQuestions(args []any, questions []store.Question) []any {
	paths := make([]path, len(questions))
	for i := range questions {
		paths[i] = pathOf(&questions[i])
	}
	return appendPaths(args, paths)
}
