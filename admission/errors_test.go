package admission

import (
	"errors"
	"testing"
	"time"
)

func TestEachRefusalSaysWhatItIsAndMatchesItsError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verdict   Verdict
		kind      error
		permanent bool
		text      string
	}{
		{Verdict{Reason: ReasonLimited, Scope: "acme:mail", TokensLeft: 3, RetryAfter: 1500 * time.Millisecond}, ErrLimited, false, "job refused: scope acme:mail holds 3 tokens, retry after 1.5s"},
		{Verdict{Reason: ReasonLimited, Scope: "acme", TokensLeft: 2, RetryAfter: time.Minute, Detail: "scaled to 0.5 until 2027-01-01T12:10:00Z"}, ErrLimited, false, "job refused: scope acme (scaled to 0.5 until 2027-01-01T12:10:00Z) holds 2 tokens, retry after 1m0s"},
		{Verdict{Reason: ReasonTooCostly, Scope: "acme", Burst: 50}, ErrTooCostly, true, "job refused for good: cost is above the burst of 50 tokens of scope acme"},
		{Verdict{Reason: ReasonDedup, RetryAfter: time.Second}, ErrDedupFull, false, "job refused: the window of ended job ids is full, retry after 1s"},
		{Verdict{Reason: ReasonBuckets, Scope: "acme:sms"}, ErrBucketsFull, false, "job refused: tenant has its largest number of buckets, scope acme:sms would be one more"},
		{Verdict{Reason: ReasonLanes, Detail: "4096 lanes"}, ErrLanesFull, false, "job refused: its tenant has 4096 lanes, one for each downstream that its jobs wait for in a class of a queue, which is the bound"},
		{Verdict{Reason: ReasonQueues}, ErrQueuesFull, false, "job refused: there are as many queues as the store keeps, and this one would be new"},
		{Verdict{Reason: ReasonDeadline}, ErrDeadlinePassed, true, "job refused for good: its deadline has passed"},
		{Verdict{Reason: ReasonMemory}, ErrOutOfMemory, false, "job refused: redis is out of memory"},
		{Verdict{Reason: ReasonPaused, Detail: "moving house", RetryAfter: time.Minute}, ErrPaused, false, "job refused: enqueueing is suspended (moving house), retry after 1m0s"},
		{Verdict{Reason: ReasonPaused, RetryAfter: time.Second}, ErrPaused, false, "job refused: enqueueing is suspended (no reason given), retry after 1s"},
		{Verdict{Reason: ReasonUnique, Detail: "order-1", RetryAfter: time.Hour}, ErrNotUnique, false, "job refused: job order-1 holds its unique key, for up to 1h0m0s"},
		{Verdict{Reason: ReasonDoomed, EstimatedWait: 90 * time.Second, RetryAfter: time.Minute}, ErrDoomed, false, "job refused: it would wait about 1m30s, past its deadline, retry after 1m0s"},
		{Verdict{Reason: ReasonGone}, ErrNotDead, true, "job refused: it is no dead letter any more"},
	} {
		err := c.verdict.Err()
		if err == nil || err.Error() != c.text || !errors.Is(err, c.kind) || !errors.Is(err, ErrRefused) || c.verdict.Permanent() != c.permanent {
			t.Errorf("%s: %v, permanent %t", c.verdict.Reason, err, c.verdict.Permanent())
		}
		for _, other := range []error{ErrLimited, ErrTooCostly, ErrDedupFull, ErrBucketsFull, ErrQueuesFull, ErrDeadlinePassed, ErrOutOfMemory, ErrPaused, ErrNotUnique, ErrDoomed, ErrNotDead} {
			if other != c.kind && errors.Is(err, other) { //nolint:errorlint // The sentinels themselves are compared.
				t.Errorf("%s matches %v too", c.verdict.Reason, other)
			}
		}
	}
}
