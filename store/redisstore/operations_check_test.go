package redisstore

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
)

// check asks for tokens without a job: the model takes from a copy of its buckets, which replaces them if all is granted.
func (w *walk) check() {
	questions := make([]store.Question, w.number("questions", 1, 4))
	for i := range questions {
		questions[i] = w.question()
	}
	peek := w.number("peek", 0, 2) == 0
	want := w.model.check(w.now, peek, questions)
	granted, answers, err := w.store.Check(w.ctx, w.version, peek, questions)
	check(w.tb, err)
	got := []string{fmt.Sprintf("granted %t", granted)}
	for _, a := range answers {
		got = append(got, fmt.Sprintf("%s %v", askedWord(a.Verdict), a.Left))
	}
	if !slices.Equal(got, want) {
		w.rt.Fatalf("check %+v, peek %t: script says\n%q, model\n%q", questions, peek, got, want)
	}
}

// question draws one of any level.
func (w *walk) question() store.Question {
	tenant := w.number("tenant", 0, len(walkTenants)-1)
	level := admission.Level(w.number("level", 0, int(admission.LevelPriority)))
	q := store.Question{Cost: admission.Tokens(w.number("cost", 1, 5)), Limits: w.limits[tenant%len(w.limits)]}
	if level >= admission.LevelTenant {
		q.Tenant = walkTenants[tenant]
	}
	if level >= admission.LevelQueue {
		q.Queue = pick(w, "queue", walkQueues)
	}
	if level >= admission.LevelPriority {
		q.Class = pick(w, "class", admission.DefaultClasses()).Name
	}
	for below := level + 1; below < admission.Levels; below++ {
		q.Limits[below] = admission.Limit{Disabled: true}
	}
	return q
}

func (m *model) check(now int64, peek bool, questions []store.Question) []string {
	at := buckets.Instant(m.bucketTime(now))
	copied := m.buckets.Clone()
	granted := true
	words := make([]string, len(questions))
	for i, q := range questions {
		verdict := copied.Take(at, m.changed, buckets.AppendPath(nil, q.Limits, q.Tenant, q.Queue, q.Class), q.Cost)
		words[i] = askedWord(verdict)
		granted = granted && verdict.Decision == admission.Admitted
	}
	if granted && !peek {
		m.buckets = *copied
		m.begin(now)
	}
	for i, q := range questions {
		var left [admission.Levels]buckets.Micro
		for level, limit := range q.Limits {
			if !limit.Disabled {
				scope := admission.ScopeAt(admission.Level(level), q.Tenant, q.Queue, q.Class)
				left[level] = m.buckets.LevelAt(at, m.changed, buckets.LevelLimit{Scope: scope, Limit: buckets.LimitOf(limit)})
			}
		}
		words[i] = fmt.Sprintf("%s %v", words[i], left)
	}
	return append([]string{fmt.Sprintf("granted %t", granted)}, words...)
}
