package memory_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestNothingIsKeptOfWhatIsGiven: callers use candidates, questions and ends again, for other jobs and other requests.
func TestNothingIsKeptOfWhatIsGiven(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.register("w", mailPool, 4)
	p.same("admit", func(s store.Partition) any {
		j, limits := mail("acme", "a"), *free
		j.Payload, j.Headers = []byte("hello"), map[string]string{"k": "v"}
		given := candidates(&limits, j)
		verdicts, err := s.Admit(p.ctx, 0, given)
		copy(j.Payload, "other")
		clear(j.Headers)
		*given[0].Job, limits = admission.Job{}, [admission.Levels]admission.Limit{}
		clear(given)
		return replied(verdicts, err)
	})
	read := p.take("w", mailPool, 4)
	for i, s := range []store.Partition{p.redis, p.memory} {
		if len(read[i]) != 1 {
			t.Fatalf("%d jobs", len(read[i]))
		}
		l := &read[i][0]
		if l.Job.Tenant != "acme" || l.Job.ID != "a" || l.Job.Queue != "mail" || string(l.Job.Payload) != "hello" || l.Job.Headers["k"] != "v" {
			t.Errorf("%+v", l.Job)
		}
		end := l.Finish(store.Complete)
		end.Result, end.KeepResult = []byte("done"), time.Hour
		ends := []store.Finish{end}
		_, _, err := s.Finish(p.ctx, mailPool.ID(), "w", ends)
		check(t, err)
		copy(end.Result, "nope")
		clear(ends)
	}
	p.same("result", func(s store.Partition) any {
		result, err := s.Result(p.ctx, admission.Key{Tenant: "acme", ID: "a"})
		if string(result) != "done" {
			t.Errorf("%q, %v", result, err)
		}
		return replied(result, err)
	})
	var reasons []admission.Reason
	for range 2 {
		v := p.same("grant", func(s store.Partition) any {
			q := store.Question{Tenant: "acme", Cost: 3, Limits: *free}
			q.Limits[admission.LevelTenant] = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 5}
			g := store.Grant{Member: "l1", Lease: time.Second, Questions: []store.Question{q}}
			granted, err := s.Grant(p.ctx, &g)
			clear(g.Questions)
			g = store.Grant{}
			return replied(granted, err)
		}).(reply).Values[0].(store.Granted).Verdicts[0]
		reasons = append(reasons, v.Reason)
	}
	if !slices.Equal(reasons, []admission.Reason{"", admission.ReasonLimited}) {
		t.Errorf("%q", reasons)
	}
}

// TestNothingIsChangedByWhatIsTold: a handler, and a hook of dead letters, may write to the headers and the payload that they get. They are theirs.
func TestNothingIsChangedByWhatIsTold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.register("w", mailPool, 4)
	p.same("admit", func(s store.Partition) any {
		j := mail("acme", "a")
		j.Headers = map[string]string{"k": "v"}
		return replied(s.Admit(p.ctx, 0, candidates(nil, j)))
	})
	write := func(j *admission.Job) string {
		told := j.Headers["k"] + " " + string(j.Payload)
		j.Headers["k"] = "other"
		copy(j.Payload, "other")
		return told
	}
	for _, outcome := range []store.Outcome{store.Release, store.Kill} {
		read := p.take("w", mailPool, 4)
		for i, s := range []store.Partition{p.redis, p.memory} {
			if len(read[i]) != 1 {
				t.Fatalf("%d jobs", len(read[i]))
			}
			l := &read[i][0]
			if told := write(&l.Job); told != "v hello" {
				t.Errorf("%T: read %q", s, told)
			}
			held, err := s.Held(p.ctx, mailPool.ID(), "w", l.Token, key("a"))
			check(t, err)
			if told := write(&held.Job); told != "v hello" {
				t.Errorf("%T: held %q", s, told)
			}
			end := l.Finish(outcome)
			end.Reason = "discarded"
			_, _, err = s.Finish(p.ctx, mailPool.ID(), "w", []store.Finish{end})
			check(t, err)
		}
	}
	for range 2 {
		for _, s := range []store.Partition{p.redis, p.memory} {
			deaths, err := s.Deaths(p.ctx, time.Time{}, 0)
			check(t, err)
			letters, err := s.DeadLetters(p.ctx, deaths)
			check(t, err)
			if told := write(&letters[0].Job); told != "v hello" {
				t.Errorf("%T: dead %q", s, told)
			}
		}
	}
}
