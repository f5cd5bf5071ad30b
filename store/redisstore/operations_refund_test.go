package redisstore

import (
	"fmt"
	"math"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
)

// taking is one that a walk may refund.
type taking struct {
	id      string
	receipt store.Taken
}

// take asks a question whose tokens a later step may refund.
func (w *walk) take() {
	q := w.question()
	if granted := w.model.check(w.now, false, []store.Question{q})[0]; granted != "granted true" {
		verdict, _, err := w.store.Take(w.ctx, w.version, q)
		check(w.tb, err)
		if verdict.Decision == admission.Admitted {
			w.rt.Fatalf("take %+v: granted", q)
		}
		return
	}
	_, receipt, err := w.store.Take(w.ctx, w.version, q)
	check(w.tb, err)
	if want := (store.Moment{Time: w.model.filled, Refunds: w.model.refunds}); receipt.At != want {
		w.rt.Fatalf("take %+v: at %+v, want %+v", q, receipt.At, want)
	}
	w.takings = append(w.takings, taking{fmt.Sprintf("t%d", len(w.takings)), receipt})
}

func (w *walk) refund() {
	if len(w.takings) == 0 {
		return
	}
	t := pick(w, "taking", w.takings)
	send := func() {
		want := w.model.refund(w.now, w.version, t)
		got, err := w.store.Refund(w.ctx, t.id, t.receipt)
		check(w.tb, err)
		if got != want {
			w.rt.Fatalf("refund %+v at %d: %s, want %s", t, w.now, got, want)
		}
	}
	send()
	w.resend = send
}

func (m *model) refund(now, version int64, t taking) store.Refund {
	q, at := t.receipt.Question, m.bucketTime(now)
	elapsed := at - t.receipt.At.Time
	switch {
	case t.receipt.Version != version:
		return store.RefundStale
	case elapsed > store.RefundWindow.Microseconds():
		return store.RefundLate
	case m.refunded[t.id]:
		return store.RefundedBefore
	}
	m.refunded[t.id] = true
	for level, limit := range q.Limits {
		if limit.Disabled {
			continue
		}
		own := buckets.LimitOf(limit)
		scope := admission.ScopeAt(admission.Level(level), q.Tenant, q.Queue, q.Class)
		came := buckets.Micro(math.Ceil(float64(elapsed)*float64(own.Rate))) + 1 + buckets.MicroOf(admission.Tokens(m.refunds-t.receipt.At.Refunds))
		owed := min(buckets.MicroOf(q.Cost), own.Burst-buckets.Micro(t.receipt.Left[level])-came)
		before, stamp := buckets.Settle(buckets.Instant(at), m.changed, m.buckets.Bucket(scope), own)
		if after := min(own.Burst, before+owed); after > before {
			m.buckets.Put(scope, bucketAt(after, stamp, own))
		}
	}
	m.refunds += int64(q.Cost)
	m.begin(now)
	return store.Refunded
}

// bucketAt is one as it is stored.
func bucketAt(level buckets.Micro, stamp buckets.Instant, limit buckets.Limit) buckets.Bucket {
	fill := buckets.Span(math.Ceil(float64(limit.Burst-level) / float64(limit.Rate)))
	return buckets.Bucket{Level: level, Stamp: stamp, Fill: fill, Rate: limit.Rate}
}
