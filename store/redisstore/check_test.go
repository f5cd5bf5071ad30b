package redisstore

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// ofTenant asks for tokens of a tenant's bucket alone, which fills in a day.
func ofTenant(tenant string, cost admission.Tokens) store.Question {
	q := store.Question{Tenant: tenant, Cost: cost}
	for level := range q.Limits {
		q.Limits[level].Disabled = true
	}
	q.Limits[admission.LevelTenant] = admission.Limit{Tokens: 10, Per: 24 * time.Hour, Burst: 10}
	return q
}

func TestQuestionsOfACallAreGrantedTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	granted, answers, err := s.Check(t.Context(), 0, false, []store.Question{ofTenant("a", 4), ofTenant("b", 11)})
	check(t, err)
	if granted || answers[0].Verdict.Decision != admission.Admitted || answers[1].Verdict.Reason != admission.ReasonTooCostly || answers[0].Left[admission.LevelTenant] != 10*buckets.MicroPerToken {
		t.Errorf("granted %t: %+v", granted, answers)
	}
	granted, answers, err = s.Check(t.Context(), 0, false, []store.Question{ofTenant("a", 4), ofTenant("a", 6)})
	check(t, err)
	if !granted || answers[1].Left[admission.LevelTenant].Tokens() != 0 {
		t.Errorf("granted %t: %+v", granted, answers)
	}
	if _, _, err := s.Check(t.Context(), 1, true, []store.Question{ofTenant("a", 1)}); !errors.Is(err, store.ErrStale) {
		t.Errorf("of another version: %v", err)
	}
}

func TestResetFillsOneBucket(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	q := ofTenant("a", 10)
	q.Limits[admission.LevelGlobal] = admission.Limit{Tokens: 20, Per: 24 * time.Hour, Burst: 20}
	take := func() bool {
		granted, _, err := s.Check(t.Context(), 0, false, []store.Question{q})
		check(t, err)
		return granted
	}
	if !take() || take() {
		t.Fatal("10 of 10 tokens, and then none")
	}
	was, err := s.ResetBucket(t.Context(), "a", "", "", store.Intervention{})
	check(t, err)
	if !was || !take() {
		t.Error("the tenant's bucket was not filled")
	}
	check(t, err)
	if _, err := s.ResetBucket(t.Context(), "a", "", "", store.Intervention{}); err != nil || take() {
		t.Errorf("the global bucket was filled too: %v", err)
	}
	if was, err := s.ResetBucket(t.Context(), "", "", "", store.Intervention{}); !was || err != nil || !take() {
		t.Errorf("the global bucket was not filled: %v", err)
	}
	if was, err := s.ResetBucket(t.Context(), "a", "mail", admission.High, store.Intervention{}); was || err != nil {
		t.Errorf("a bucket that is full was filled: %v", err)
	}
}

func TestAFullRedisChargesNothing(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	s, err := openOnly(t.Context(), client, Config{})
	check(t, err)
	check(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if _, _, err := s.Check(t.Context(), 0, false, []store.Question{ofTenant("a", 4)}); !errors.Is(err, admission.ErrOutOfMemory) {
		t.Errorf("%v", err)
	}
	granted, answers, err := s.Check(t.Context(), 0, true, []store.Question{ofTenant("a", 10)})
	check(t, err)
	if !granted {
		t.Errorf("%+v", answers)
	}
}

// TestSchedulersAreListedWhileTheyLive: one whose life is over, or that has gone, is not there, and the key does not outlive them
// for long.
func TestSchedulersAreListedWhileTheyLive(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	now, err := s.Time(t.Context())
	check(t, err)
	s.conn.Now = strconv.FormatInt(now.Add(-time.Minute).UnixMicro(), 10)
	check(t, s.Alive(t.Context(), "killed", 30*time.Second))
	s.conn.Now = ""
	for _, name := range []string{"s2", "s1", "gone"} {
		check(t, s.Alive(t.Context(), name, time.Hour))
	}
	check(t, s.Alive(t.Context(), "gone", 0))
	_, err = s.Promote(t.Context(), "s2", time.Hour)
	check(t, err)
	all, err := s.Schedulers(t.Context())
	check(t, err)
	if len(all) != 2 || all[0].Name != "s1" || !all[0].LeaseEnd.IsZero() || all[1].Name != "s2" || all[1].LeaseEnd.IsZero() || all[0].AliveUntil.Before(now) {
		t.Errorf("%+v", all)
	}
	if n := redisconn.Client(s.conn).ZCard(t.Context(), s.conn.Partition.Schedulers()).Val(); n != 2 {
		t.Errorf("%d are kept", n)
	}
	if ttl := redisconn.Client(s.conn).PTTL(t.Context(), s.conn.Partition.Schedulers()).Val(); ttl <= 0 {
		t.Errorf("the key has no end: %s", ttl)
	}
}

func TestTimerLeaseNamesItsHolder(t *testing.T) {
	t.Parallel()
	s := newYard(t).store
	owner, _, err := s.TimerLease(t.Context())
	check(t, err)
	if owner != "" {
		t.Errorf("%q holds it before anybody promoted", owner)
	}
	_, err = s.Promote(t.Context(), "s1", time.Hour)
	check(t, err)
	owner, end, err := s.TimerLease(t.Context())
	check(t, err)
	now, err := s.Time(t.Context())
	check(t, err)
	if left := end.Sub(now); owner != "s1" || left <= 59*time.Minute || left > time.Hour {
		t.Errorf("%q for %s", owner, left)
	}
}

// TestABucketOfAFasterClockFillsFromNow: a clock that steps back takes no tokens and keeps none back.
func TestABucketOfAFasterClockFillsFromNow(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	q := ofTenant("a", 5)
	q.Limits[admission.LevelTenant] = admission.Limit{Tokens: 1, Per: time.Second, Burst: 10}
	began := time.Now()
	left := func(after time.Duration, peek bool) admission.Tokens {
		y.store.conn.Now = strconv.FormatInt(began.Add(after).UnixMicro(), 10)
		_, answers, err := y.store.Check(t.Context(), 0, peek, []store.Question{q})
		check(t, err)
		return answers[0].Left[admission.LevelTenant].Tokens()
	}
	if got := left(time.Hour, false); got != 5 {
		t.Errorf("%d of 10 are left of which 5 were taken", got)
	}
	q.Cost = 1
	if got := left(0, false); got != 4 {
		t.Errorf("%d are left after a step back, and one more", got)
	}
	if got := left(3*time.Second, true); got < 6 {
		t.Errorf("%d are there 3 s after a step back", got)
	}
}
