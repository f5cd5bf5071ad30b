package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/limits"
)

// What is taken in several partitions is taken in one after the other, that of the tenant last, and where one refuses what others gave goes back by its receipts.
// So it is missing for as long as a call takes, and for good, the cost at each way, where a process dies between. No bucket ever admits more.

// undoFor is how long it may take to give back what one of several partitions has taken.
const undoFor = 5 * time.Second

// beside are the questions of dimensions beside one, by partition.
type beside struct {
	home *Partition
	own  []store.Question
	// others are by partition, that of home excepted.
	others [][]store.Question
}

// besideOf divides questions of dimensions among partitions.
func (d *many) besideOf(home *Partition, questions []store.Question) beside {
	b := beside{home: home, others: make([][]store.Question, len(d.parts))}
	for _, q := range questions {
		if at := d.PartitionOf(q.Home()); d.parts[at] == home {
			b.own = append(b.own, q)
		} else {
			b.others[at] = append(b.others[at], q)
		}
	}
	return b
}

// take takes what partitions other than home are asked. Where one refuses, nothing stays taken, and its verdict is returned.
func (b *beside) take(ctx context.Context, d *many, version int64) (verdict admission.Verdict, taken []store.Taken, err error) {
	verdict.Decision = admission.Admitted
	for at, questions := range b.others {
		if len(questions) == 0 {
			continue
		}
		v, receipt, err := d.parts[at].Take(ctx, version, questions[0], questions[1:]...)
		if err != nil || v.Decision != admission.Admitted {
			d.undo(ctx, "a-"+rand.Text(), taken)
			return v, nil, err
		}
		taken = append(taken, flat(receipt)...)
	}
	return verdict, taken, nil
}

// flat returns a receipt and those beside it, one behind the other.
func flat(receipt store.Taken) []store.Taken {
	ways := append([]store.Taken{receipt}, receipt.Beside...)
	ways[0].Beside = nil
	return ways
}

// undo gives back what partitions have taken, as far as they answer: what does not go back is missing.
func (d *many) undo(ctx context.Context, id string, taken []store.Taken) {
	if len(taken) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	for _, receipt := range d.shares(taken) {
		_, _ = d.parts[receipt.At.Part].Refund(ctx, id, receipt)
	}
}

// shares puts what was taken together by partition, in the order in which they come.
func (d *many) shares(taken []store.Taken) (shares []store.Taken) {
	at := make([]int, len(d.parts)) // from 1
	for _, t := range taken {
		if i := at[t.At.Part]; i > 0 {
			shares[i-1].Beside = append(shares[i-1].Beside, t)
			continue
		}
		shares = append(shares, t)
		at[t.At.Part] = len(shares)
	}
	return shares
}

// Take implements Deployment.
func (d *many) Take(ctx context.Context, version int64, question store.Question, dimensions ...store.Question) (admission.Verdict, store.Taken, error) {
	if len(dimensions) == 0 {
		questions := []store.Question{question}
		got, err := d.ask(ctx, version, false, questions)
		if err != nil {
			return admission.Verdict{}, store.Taken{}, err
		}
		verdict, receipt := got.Receipt(version, questions)
		return verdict, receipt, nil
	}
	home := question.Home()
	if home == "" {
		home = dimensions[0].Home()
	}
	b := d.besideOf(d.of(home), dimensions)
	verdict, elsewhere, err := b.take(ctx, d, version)
	if err != nil || verdict.Decision != admission.Admitted {
		return verdict, store.Taken{}, err
	}
	verdict, receipt, err := b.home.Take(ctx, version, question, b.own...)
	if err != nil || verdict.Decision != admission.Admitted {
		d.undo(ctx, "a-"+rand.Text(), elsewhere)
		return verdict, receipt, err
	}
	receipt.Beside = append(receipt.Beside, elsewhere...)
	return verdict, receipt, nil
}

// Refund implements Deployment.
func (d *many) Refund(ctx context.Context, id string, receipt store.Taken) (store.Refund, error) {
	return d.settle(receipt, func(part *Partition, share store.Taken) (store.Refund, error) { return part.Refund(ctx, id, share) })
}

// Commit implements Deployment.
func (d *many) Commit(ctx context.Context, id string, receipt store.Taken, actual admission.Tokens) (store.Refund, error) {
	return d.settle(receipt, func(part *Partition, share store.Taken) (store.Refund, error) {
		return part.Commit(ctx, id, share, actual)
	})
}

// CommitPart implements Deployment.
func (d *many) CommitPart(ctx context.Context, id string, receipt store.Taken, used admission.Tokens) (store.Refund, error) {
	return d.settle(receipt, func(part *Partition, share store.Taken) (store.Refund, error) {
		return part.CommitPart(ctx, id, share, used)
	})
}

// settle settles each partition's share under the same id: a call that is made again after an error settles those that are left. Where one has something else to say
// than that it is done, that is the answer.
func (d *many) settle(receipt store.Taken, do func(part *Partition, share store.Taken) (store.Refund, error)) (done store.Refund, err error) {
	if len(receipt.Beside) == 0 {
		return do(d.parts[receipt.At.Part], receipt)
	}
	ways := flat(receipt)
	for _, share := range d.shares(ways) {
		share.Version, share.ExpireAfter = receipt.Version, receipt.ExpireAfter
		word, err := do(d.parts[share.At.Part], share)
		if err != nil {
			return word, err
		}
		if done == "" || worth(word) > worth(done) {
			done = word
		}
	}
	return done, nil
}

// worth ranks what partitions say of one reservation.
func worth(word store.Refund) int {
	return slices.Index([]store.Refund{store.RefundedBefore, store.Refunded, store.RefundLate, store.RefundStale}, word)
}

// Reserve implements Deployment. What is of no tenant goes by its id, so that the id finds it again.
func (d *many) Reserve(ctx context.Context, version int64, id string, expireAfter time.Duration, question store.Question, dimensions ...store.Question) (answer store.Answer, taken store.Reservation, err error) {
	home := d.of(cmp.Or(question.Tenant, id))
	b := d.besideOf(home, dimensions)
	if len(b.own) == len(dimensions) {
		return home.Reserve(ctx, version, id, expireAfter, question, dimensions...)
	}
	return b.reserve(ctx, d, limits.Reserving{Version: version, ID: id, ExpireAfter: expireAfter, Question: question, Beside: b.own}, dimensions)
}

// reserve is Reserve where some of the dimensions are of other partitions.
func (b *beside) reserve(ctx context.Context, d *many, r limits.Reserving, dimensions []store.Question) (answer store.Answer, taken store.Reservation, err error) {
	if err := store.ValidateReservation(r.ID); err != nil {
		return answer, taken, err
	}
	verdict, elsewhere, err := b.take(ctx, d, r.Version)
	if err != nil {
		return answer, taken, err
	}
	if verdict.Decision != admission.Admitted {
		return b.refused(ctx, d, &r, dimensions, verdict)
	}
	r.Elsewhere = elsewhere
	answer, taken, err = limits.ReserveWith(ctx, b.home.Limits, r)
	if err != nil && store.InDoubt(err) {
		return answer, taken, err // It may have been reserved: what others gave stays with it, so that too few are admitted, never too many.
	}
	if taken.Ref == "" || taken.Again { // What the id had taken before stands.
		d.undo(ctx, "a-"+rand.Text(), elsewhere)
	}
	told, asked := map[admission.Scope]store.Answer{}, slices.Clone(b.own)
	for i := range elsewhere {
		asked = append(asked, elsewhere[i].Question)
		told[elsewhere[i].Question.Scope()] = store.Answer{Verdict: admission.Verdict{Decision: admission.Admitted}} // Unless it is told below.
	}
	for i := range taken.Beside {
		told[asked[i].Scope()] = taken.Beside[i]
	}
	taken.Beside = answersOf(dimensions, told)
	return answer, taken, err
}

// refused is the answer where another partition than home has refused, with what all buckets hold now.
func (b *beside) refused(ctx context.Context, d *many, r *limits.Reserving, dimensions []store.Question, verdict admission.Verdict) (answer store.Answer, taken store.Reservation, err error) {
	told := map[admission.Scope]store.Answer{}
	look := func(part *Partition, questions []store.Question) {
		if len(questions) == 0 || err != nil {
			return
		}
		var answers []store.Answer
		_, answers, err = part.Check(ctx, r.Version, true, questions)
		for i := range answers {
			told[questions[i].Scope()] = answers[i]
		}
	}
	own := r.Question
	own.Measured = false
	look(b.home, append([]store.Question{own}, b.own...))
	for at, questions := range b.others {
		look(d.parts[at], questions)
	}
	if err != nil {
		return answer, taken, err
	}
	for i := range dimensions { // What has refused may hold enough by now.
		if q := &dimensions[i]; verdict.Scope == q.Scope() || verdict.Scope == admission.Scope(q.Tenant) {
			one := told[q.Scope()]
			one.Verdict = verdict
			told[q.Scope()] = one
		}
	}
	taken.Beside = answersOf(dimensions, told)
	return told[own.Scope()], taken, nil
}

// answersOf returns what was told of questions in their order.
func answersOf(questions []store.Question, told map[admission.Scope]store.Answer) []store.Answer {
	answers := make([]store.Answer, len(questions))
	for i := range questions {
		answers[i] = told[questions[i].Scope()]
	}
	return answers
}

// Reserved implements Deployment.
func (d *many) Reserved(ctx context.Context, tenant, id string) (store.Reservation, error) {
	return d.of(cmp.Or(tenant, id)).Reserved(ctx, tenant, id)
}
