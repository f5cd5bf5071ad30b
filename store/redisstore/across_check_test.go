package redisstore

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
)

// anybody asks for tokens of the global limit alone, 30 a day.
func anybody(cost admission.Tokens) store.Question {
	q := store.Question{Cost: cost, Limits: [admission.Levels]admission.Limit{{Tokens: 1, Per: 24 * time.Hour, Burst: 30}}}
	for level := range q.Limits[1:] {
		q.Limits[level+1].Disabled = true
	}
	return q
}

// TestAQuestionOfNoTenantHasTheGlobalLimitOfAllPartitions: it is answered where the most is left, told what is left in all, and
// given back where it was taken.
func TestAQuestionOfNoTenantHasTheGlobalLimitOfAllPartitions(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 0)
	left := func() admission.Tokens {
		t.Helper()
		_, answers, err := s.Check(t.Context(), 0, true, []store.Question{anybody(1)})
		check(t, err)
		return (answers[0].Left[admission.LevelGlobal] + buckets.MicroPerToken/2).Tokens() // What has come in meanwhile is less.
	}
	for taken := admission.Tokens(0); taken < 30; taken += 5 {
		if now := left(); now != 30-taken {
			t.Fatalf("%d left after %d were taken of 30", now, taken)
		}
		granted, answers, err := s.Check(t.Context(), 0, false, []store.Question{anybody(5)})
		check(t, err)
		if !granted {
			t.Fatalf("5 more after %d: %+v", taken, answers[0].Verdict)
		}
	}
	if granted, _, err := s.Check(t.Context(), 0, false, []store.Question{anybody(1)}); granted || err != nil {
		t.Errorf("1 of 0: %t, %v", granted, err)
	}
}

func TestAReceiptOfNoTenantIsRefundedWhereItWasTaken(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 0)
	ctx := t.Context()
	var receipts []store.Taken
	for range 3 { // Each takes all of another partition.
		verdict, receipt, err := s.Take(ctx, 0, anybody(10))
		check(t, err)
		if verdict.Decision != admission.Admitted {
			t.Fatalf("10 of a partition's 10: %+v", verdict)
		}
		receipts = append(receipts, receipt)
	}
	for i, part := range s.parts {
		word, err := s.Refund(ctx, "refund", receipts[slices.IndexFunc(receipts, func(r store.Taken) bool { return r.At.Part == i })])
		check(t, err)
		granted, answers, err := part.Check(ctx, 0, true, []store.Question{anybody(9)}) // What is lost is less than a token.
		check(t, err)
		if word != store.Refunded || !granted {
			t.Errorf("partition %d: %s, and it has %+v", i, word, answers)
		}
	}
}

func TestSchedulersOfAllPartitionsAreListed(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 0)
	for i, part := range s.parts {
		check(t, part.Alive(t.Context(), []string{"c", "a", "b"}[i], time.Minute))
	}
	all, err := s.Schedulers(t.Context())
	check(t, err)
	if len(all) != 3 || all[0].Name != "a" || all[1].Name != "b" || all[2].Name != "c" {
		t.Errorf("%+v", all)
	}
}
