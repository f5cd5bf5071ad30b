package laws_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
)

// buckets reads the stored buckets of some tenants and the global one.
func (s *site) buckets(tenants ...string) map[headgate.Scope]buckets.Bucket {
	s.Helper()
	all := map[headgate.Scope]buckets.Bucket{}
	for scope, text := range s.bucketTexts(tenants...) {
		b, err := buckets.Parse(text)
		s.check(err)
		all[scope] = b
	}
	return all
}

func (s *site) bucketTexts(tenants ...string) map[headgate.Scope]string {
	s.Helper()
	texts := map[headgate.Scope]string{}
	state, err := s.client.HGetAll(s.Context(), s.store.Keys().State()).Result()
	s.check(err)
	if text, ok := state["gb"]; ok {
		texts[headgate.Global] = text
	}
	for _, tenant := range tenants {
		fields, err := s.client.HGetAll(s.Context(), s.store.Keys().Buckets(tenant)).Result()
		s.check(err)
		for field, text := range fields {
			if field != "!" { // when the hash ends
				texts[headgate.Scope(strings.TrimSuffix(tenant+":"+field, ":"))] = text
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
	refused := map[headgate.Level]map[headgate.Reason]int{}
	for round := range 160 {
		target := headgate.Level(round % headgate.Levels)
		reason := choose(s, headgate.ReasonLimited, headgate.ReasonTooCostly)
		j := s.exhaust(target, reason, round)
		v := s.refuse(j)
		if v.Scope != headgate.ScopeAt(target, j.Job.Tenant, j.Job.Queue, j.Job.Priority) || v.Reason != reason {
			t.Fatalf("refused by %s for %q, want %s for %q", v.Scope, v.Reason, target, reason)
		}
		if refused[target] == nil {
			refused[target] = map[headgate.Reason]int{}
		}
		refused[target][reason]++
	}
	for level := range headgate.Level(headgate.Levels) {
		for _, reason := range []headgate.Reason{headgate.ReasonLimited, headgate.ReasonTooCostly} {
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
	classes := headgate.DefaultClasses()
	refusals := 0
	for round := 0; refusals < 300; round++ {
		limits := &[headgate.Levels]headgate.Limit{}
		for level := range limits {
			limits[level] = headgate.Limit{
				Tokens: headgate.Tokens(s.between(1, 300)), Burst: headgate.Tokens(s.between(1, 60)),
				Per: choose(s, 100*time.Millisecond, time.Second, time.Minute), Disabled: s.chance(4),
			}
		}
		for range 8 {
			j := s.job(choose(s, "ann", "bob"), choose(s, "mail", "hook"), s.between(0, 2), classes)
			j.Limits, j.Job.Cost = limits, headgate.Tokens(s.between(1, 40))
			if v := s.refuse(j); v.Decision == headgate.Refused {
				refusals++
			}
		}
	}
}

// exhaust prepares limits of which only the target's will refuse the job that is returned, for the given reason.
func (s *site) exhaust(target headgate.Level, reason headgate.Reason, round int) lua.Candidate {
	s.Helper()
	s.check(s.client.HDel(s.Context(), s.store.Keys().State(), "gb").Err()) // The global bucket is full, as are a new tenant's.
	limits := &[headgate.Levels]headgate.Limit{}
	burst := s.between(1, 50)
	for level := range limits {
		limits[level] = headgate.Limit{Tokens: 1, Per: choose(s, time.Minute, time.Hour), Burst: headgate.Tokens(s.between(4*burst, 400))}
	}
	limits[target].Burst = headgate.Tokens(burst)
	j := s.job(tenantName(round), "mail", s.between(0, 2), headgate.DefaultClasses())
	j.Limits = limits
	if reason == headgate.ReasonTooCostly {
		j.Job.Cost = headgate.Tokens(burst + s.between(1, burst))
		return j
	}
	filler := j
	filler.Job = new(*j.Job)
	filler.Job.ID += "-filler"
	filler.Job.Cost = headgate.Tokens(s.between(1, burst))
	s.refuse(filler) // It passes, and is compared as well.
	j.Job.Cost = headgate.Tokens(burst)
	return j
}

// refuse asks for one job and compares the answer with package buckets. If it is refused, no bucket has changed.
func (s *site) refuse(j lua.Candidate) headgate.Verdict {
	s.Helper()
	tenant := j.Job.Tenant
	before := s.bucketTexts(tenant)
	var set buckets.Set
	for scope, b := range s.buckets(tenant) {
		set.Put(scope, b)
	}
	path := buckets.AppendPath(nil, *j.Limits, tenant, j.Job.Queue, j.Job.Priority)
	from := s.redisTime()
	verdicts, err := s.store.Admit(s.Context(), s.version, []lua.Candidate{j})
	s.check(err)
	to := s.redisTime()
	v := verdicts[0]
	early, late := set.Peek(from, 0, path, j.Job.Cost), set.Peek(to, 0, path, j.Job.Cost)
	if err := between(early, v, late); err != "" {
		s.Fatalf("job %+v, limits %+v, buckets %v: %s\ngot   %+v\nat %d %+v\nat %d %+v", *j.Job, *j.Limits, before, err, v, from, early, to, late)
	}
	if v.Decision == headgate.Refused {
		if after := s.bucketTexts(tenant); !maps.Equal(before, after) {
			s.Fatalf("law L2: a refused job changed buckets\nfrom %v\nto   %v", before, after)
		}
	}
	return v
}

// between says what is wrong with a verdict that was given between two known ones: waits only get shorter and buckets
// only fuller.
func between(early, v, late headgate.Verdict) string {
	if v.Decision != early.Decision && v.Decision != late.Decision {
		return "another decision"
	}
	if v.Decision == headgate.Admitted {
		return ""
	}
	switch {
	case v.Reason != early.Reason:
		return "another reason"
	case v.Scope != early.Scope && v.Scope != late.Scope:
		return "another scope"
	case v.Scope == early.Scope && v.Burst != early.Burst:
		return "another burst"
	case v.RetryAfter > early.RetryAfter || late.Decision == headgate.Refused && v.RetryAfter < late.RetryAfter:
		return "another wait"
	case v.Scope == early.Scope && v.TokensLeft < early.TokensLeft || v.Scope == late.Scope && late.Decision == headgate.Refused && v.TokensLeft > late.TokensLeft:
		return "another number of tokens left"
	}
	return ""
}
