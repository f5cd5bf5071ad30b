package laws_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestEndedIDsAreNeverForgottenEarly asserts L3 where the ended ids are as many as may be kept: a new job is refused,
// also when they have become the older generation, and an ended one is a duplicate until its window is over.
func TestEndedIDsAreNeverForgottenEarly(t *testing.T) {
	t.Parallel()
	const most = 5
	s := newSite(t, redistest.Shared(t))
	st, err := redisstore.Open(t.Context(), s.client, redisstore.Config{Prefix: s.prefix, EndedCap: most})
	s.check(err)
	s.store = st
	s.putPolicy(store.PolicyUpdate{Window: time.Second})
	s.register("w", mailPool, most, longLease)
	classes := admission.DefaultClasses()
	var ended []store.Candidate
	for range most {
		ended = append(ended, s.job("ann", "mail", 0, classes))
	}
	s.admit(ended...)
	s.finish(mailPool, s.read("w", mailPool, most), complete)

	ask := func(j store.Candidate) admission.Verdict {
		t.Helper()
		verdicts, err := s.store.Partitions()[0].Admit(t.Context(), s.version, []store.Candidate{j})
		s.check(err)
		return verdicts[0]
	}
	for _, generation := range []string{"young", "old"} {
		if v := ask(s.job("ann", "mail", 0, classes)); v.Reason != admission.ReasonDedup {
			t.Errorf("%d ended ids are %s, and a new job is %+v", most, generation, v)
		}
		if v := ask(ended[0]); v.Decision != admission.Duplicate {
			t.Errorf("an ended id that is %s: %+v", generation, v)
		}
		s.pause(1100 * time.Millisecond)
		s.promote() // The only call that rotates.
	}
	if v := ask(s.job("ann", "mail", 0, classes)); v.Decision != admission.Admitted {
		t.Errorf("when the ended ids are forgotten: %+v", v)
	}
}

// TestBucketsOfATenantAreBounded asserts L12 and L1: a tenant has no more buckets than may be, new ones are refused with
// the reason, full ones make room, and their hash stays until the last of them is full.
func TestBucketsOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	const most = 128 // 2 * most queues are as many as a tenant may make
	l := &lowered{newSite(t, redistest.Shared(t))}
	s, err := redisstore.Open(t.Context(), l.client, redisstore.Config{Prefix: l.prefix, BucketCap: most})
	l.check(err)
	l.store = s
	for i := range 2 * most {
		if v := l.take("fast", fmt.Sprintf("mail-%d", i), admission.PerSecond(1_000_000).WithBurst(100), 1); v.Decision != admission.Admitted {
			t.Fatalf("bucket %d, when all others are full: %+v", i, v)
		}
	}

	l.take("slow", "mail-0", admission.PerSecond(1), 1)
	refused := 0
	for first := 0; first < 2*most; first += store.MaxBatchJobs {
		jobs := make([]store.Candidate, store.MaxBatchJobs)
		for i := range jobs {
			jobs[i] = l.job("slow", fmt.Sprintf("mail-%d", first+i), 0, admission.DefaultClasses())
			jobs[i].Limits = &[admission.Levels]admission.Limit{admission.LevelQueue: {Tokens: 1, Per: time.Hour, Burst: 100}}
		}
		verdicts, err := l.store.Partitions()[0].Admit(t.Context(), l.version, jobs)
		l.check(err)
		for _, v := range verdicts {
			if v.Reason == admission.ReasonBuckets {
				refused++
			}
		}
	}
	key := redisstore.Keys(l.store).Buckets("slow")
	if n := l.size("b:slow"); n > most || refused == 0 {
		t.Errorf("law L12: %d buckets, %d may be, and %d jobs were refused for it", n, most, refused)
	}
	left, err := l.client.PTTL(t.Context(), key).Result()
	l.check(err)
	if left < 50*time.Minute {
		t.Errorf("law L1: the buckets are forgotten in %s, and full in an hour", left)
	}
}

// TestLargePayloadsLeaveWithTheirJobs asserts L12 for payloads that have a key of their own.
func TestLargePayloadsLeaveWithTheirJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	s.register("w", mailPool, 1, longLease)
	j := s.job("ann", "mail", 0, admission.DefaultClasses())
	j.Job.Payload = make([]byte, 1<<16)
	s.admit(j)
	if n := s.size("large:ann:" + j.Job.ID); n != 1<<16 {
		t.Fatalf("the payload's key has %d bytes", n)
	}
	s.finish(mailPool, s.read("w", mailPool, 1), complete)
	if n := s.size("large:ann:" + j.Job.ID); n != 0 {
		t.Errorf("law L12: the job has left, and %d bytes of it stay", n)
	}
}
