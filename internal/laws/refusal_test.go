package laws_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// buckets reads the stored buckets of some tenants and the global one.
func (s *site) buckets(tenants ...string) map[admission.Scope]buckets.Bucket {
	s.Helper()
	all := map[admission.Scope]buckets.Bucket{}
	for scope, text := range s.bucketTexts(tenants...) {
		b, err := buckets.Parse(text)
		s.check(err)
		all[scope] = b
	}
	return all
}

func (s *site) bucketTexts(tenants ...string) map[admission.Scope]string {
	s.Helper()
	texts := map[admission.Scope]string{}
	state, err := s.client.HGetAll(s.Context(), redisstore.Keys(s.store).State()).Result()
	s.check(err)
	if text, ok := state["gb"]; ok {
		texts[admission.Global] = text
	}
	for _, tenant := range tenants {
		fields, err := s.client.HGetAll(s.Context(), redisstore.Keys(s.store).Buckets(tenant)).Result()
		s.check(err)
		for field, text := range fields {
			if field != "!" { // when the hash ends
				texts[admission.Scope(strings.TrimSuffix(tenant+":"+field, ":"))] = text
			}
		}
	}
	return texts
}

// redisTime is the clock of Redis in µs.
func (s *site) redisTime() buckets.Instant {
	s.Helper()
	t, err := s.store.Time(s.Context())
	s.check(err)
	return buckets.InstantOf(t)
}

// TestRefusalsChangeNothingAndTellTheTruth asserts L2 for each level that refuses, for a cost above what is left and
// for one above the burst: not a byte of any bucket on the way changes, and the answer names the scope, its tokens
// left, its burst and the wait as package buckets computes them from what is stored.
func TestRefusalsChangeNothingAndTellTheTruth(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	refused := map[admission.Level]map[admission.Reason]int{}
	for round := range 160 {
		target := admission.Level(round % admission.Levels)
		reason := choose(s, admission.ReasonLimited, admission.ReasonTooCostly)
		j := s.exhaust(target, reason, round)
		v := s.refuse(j)
		if v.Scope != admission.ScopeAt(target, j.Job.Tenant, j.Job.Queue, j.Job.Priority) || v.Reason != reason {
			t.Fatalf("refused by %s for %q, want %s for %q", v.Scope, v.Reason, target, reason)
		}
		if refused[target] == nil {
			refused[target] = map[admission.Reason]int{}
		}
		refused[target][reason]++
	}
	for level := range admission.Level(admission.Levels) {
		for _, reason := range []admission.Reason{admission.ReasonLimited, admission.ReasonTooCostly} {
			if refused[level][reason] < 3 {
				t.Errorf("level %s refused as %s only %d times: %v", level, reason, refused[level][reason], refused)
			}
		}
	}
}

// TestRefusalsTellTheTruthUnderAnyLimits asserts the same where several levels may refuse at once.
func TestRefusalsTellTheTruthUnderAnyLimits(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	classes := admission.DefaultClasses()
	refusals := 0
	for round := 0; refusals < 300; round++ {
		limits := &[admission.Levels]admission.Limit{}
		for level := range limits {
			limits[level] = admission.Limit{
				Tokens: admission.Tokens(s.between(1, 300)), Burst: admission.Tokens(s.between(1, 60)),
				Per: choose(s, 100*time.Millisecond, time.Second, time.Minute), Disabled: s.chance(4),
			}
		}
		for range 8 {
			j := s.job(choose(s, "ann", "bob"), choose(s, "mail", "hook"), s.between(0, 2), classes)
			j.Limits, j.Job.Cost = limits, admission.Tokens(s.between(1, 40))
			if v := s.refuse(j); v.Decision == admission.Refused {
				refusals++
			}
		}
	}
}

// exhaust prepares limits of which only the target's will refuse the job that is returned, for the given reason.
func (s *site) exhaust(target admission.Level, reason admission.Reason, round int) store.Candidate {
	s.Helper()
	s.check(s.client.HDel(s.Context(), redisstore.Keys(s.store).State(), "gb").Err()) // The global bucket is full, as are a new tenant's.
	limits := &[admission.Levels]admission.Limit{}
	burst := s.between(1, 50)
	for level := range limits {
		limits[level] = admission.Limit{Tokens: 1, Per: choose(s, time.Minute, time.Hour), Burst: admission.Tokens(s.between(4*burst, 400))}
	}
	limits[target].Burst = admission.Tokens(burst)
	j := s.job(tenantName(round), "mail", s.between(0, 2), admission.DefaultClasses())
	j.Limits = limits
	if reason == admission.ReasonTooCostly {
		j.Job.Cost = admission.Tokens(burst + s.between(1, burst))
		return j
	}
	filler := j
	filler.Job = new(*j.Job)
	filler.Job.ID += "-filler"
	filler.Job.Cost = admission.Tokens(s.between(1, burst))
	s.refuse(filler) // It passes, and is compared as well.
	j.Job.Cost = admission.Tokens(burst)
	return j
}

// refuse asks for one job and compares the answer with package buckets. If it is refused, no bucket has changed.
func (s *site) refuse(j store.Candidate) admission.Verdict {
	s.Helper()
	tenant := j.Job.Tenant
	before := s.bucketTexts(tenant)
	var set buckets.Set
	for scope, b := range s.buckets(tenant) {
		set.Put(scope, b)
	}
	path := buckets.AppendPath(nil, *j.Limits, tenant, j.Job.Queue, j.Job.Priority)
	from := s.redisTime()
	verdicts, err := s.store.Partitions()[0].Admit(s.Context(), s.version, []store.Candidate{j})
	s.check(err)
	to := s.redisTime()
	v := verdicts[0]
	early, late := set.Peek(from, 0, path, j.Job.Cost), set.Peek(to, 0, path, j.Job.Cost)
	if err := between(early, v, late); err != "" {
		s.Fatalf("job %+v, limits %+v, buckets %v: %s\ngot   %+v\nat %d %+v\nat %d %+v", *j.Job, *j.Limits, before, err, v, from, early, to, late)
	}
	if v.Decision == admission.Refused {
		if after := s.bucketTexts(tenant); !maps.Equal(before, after) {
			s.Fatalf("law L2: a refused job changed buckets\nfrom %v\nto   %v", before, after)
		}
	}
	return v
}

// between says what is wrong with a verdict that was given between two known ones: waits only get shorter and buckets
// only fuller.
func between(early, v, late admission.Verdict) string {
	if v.Decision != early.Decision && v.Decision != late.Decision {
		return "another decision"
	}
	if v.Decision == admission.Admitted {
		return ""
	}
	switch {
	case v.Reason != early.Reason:
		return "another reason"
	case v.Scope != early.Scope && v.Scope != late.Scope:
		return "another scope"
	case v.Scope == early.Scope && v.Burst != early.Burst:
		return "another burst"
	case v.RetryAfter > early.RetryAfter || late.Decision == admission.Refused && v.RetryAfter < late.RetryAfter:
		return "another wait"
	case v.Scope == early.Scope && v.TokensLeft < early.TokensLeft || v.Scope == late.Scope && late.Decision == admission.Refused && v.TokensLeft > late.TokensLeft:
		return "another number of tokens left"
	}
	return ""
}
