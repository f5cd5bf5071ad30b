package limits

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Take asks one question as Check does, and those of dimensions that are beside it, all or none. Where the tokens are granted, the receipt is for Refund.
func (s *Limits) Take(ctx context.Context, version int64, question store.Question, beside ...store.Question) (admission.Verdict, store.Taken, error) {
	questions := append([]store.Question{question}, beside...)
	got, err := s.Ask(ctx, version, false, questions)
	if err != nil {
		return admission.Verdict{}, store.Taken{}, err
	}
	verdict, receipt := got.Receipt(version, questions)
	return verdict, receipt, nil
}

// Receipt returns the verdict on the first of questions and those beside it, and what Refund needs where their tokens were granted.
func (a *Asked) Receipt(version int64, questions []store.Question) (admission.Verdict, store.Taken) {
	if !a.Granted {
		return store.Worst(a.Answers), store.Taken{}
	}
	return a.Answers[0].Verdict, store.NewTaken(version, a.at, questions, a.Answers)
}

// Refund gives back what Take took for work that did not begin, once for each id, which is the caller's name of the
// taking, at most headgate.MaxNameLength bytes. A bucket is never left above what it would hold had the tokens not been
// taken: what came in meanwhile, other refunds of the partition among it, is counted as if it had found them there. After
// any error the same call may be made again within the receipt's Expiry.
func (s *Limits) Refund(ctx context.Context, id string, receipt store.Taken) (store.Refund, error) {
	return s.Commit(ctx, id, receipt, 0)
}

// Commit tells what work has cost in truth, 0 to admission.MaxActualCost tokens, for which Take took an estimate. What it did not need
// is given back as by Refund, and what it lacks is taken, up to one burst below zero. It counts once for each id, as Refund, which is a
// Commit of nothing.
func (s *Limits) Commit(ctx context.Context, id string, receipt store.Taken, actual admission.Tokens) (store.Refund, error) {
	return s.settle(ctx, id, &receipt, actual)
}

// CommitPart tells what work that goes on has used so far, as store.Buckets.CommitPart.
func (s *Limits) CommitPart(ctx context.Context, id string, receipt store.Taken, used admission.Tokens) (store.Refund, error) {
	return s.settle(ctx, id, &receipt, used, receipt.Under)
}

// settle runs refund; part is what it has behind the path of a part.
func (s *Limits) settle(ctx context.Context, id string, receipt *store.Taken, told admission.Tokens, part ...any) (store.Refund, error) {
	if err := admission.ValidateName("id of a refund", id, false); err != nil {
		return "", err
	}
	q := &receipt.Question
	args := append(make([]any, 0, 20), s.conn.Now, receipt.Version, id, codec.Micros(receipt.Expiry()), receipt.At.Time, receipt.At.Refunds, int64(q.Cost), int64(told))
	for _, left := range receipt.Left {
		args = append(args, left)
	}
	args = codec.AppendQuestions(args, s.conn, receipt.Questions())
	if beside := packBeside(receipt); beside != "" {
		args = append(args, beside)
	}
	reply, err := s.conn.Run(ctx, "refund", append(args, part...)...)
	if err != nil {
		return "", err
	}
	if stale := codec.Stale(reply); errors.Is(stale, store.ErrStale) {
		if stale == store.ErrStale { //nolint:errorlint // A StaleRecordsError goes on, for the caller to learn.
			stale = nil
		}
		return store.RefundStale, stale
	}
	if len(reply) != 1 {
		return "", fmt.Errorf("refund: reply has %d words", len(reply))
	}
	switch word := store.Refund(reply[0]); word {
	case store.Refunded, store.RefundedBefore, store.RefundLate, store.RefundStale:
		return word, nil
	}
	return "", fmt.Errorf("refund: reply %q: %w", reply[0], redisconn.ErrUnknownReply)
}

// packBeside writes what refund is told of the ways of a receipt that has any of a dimension; "" for another.
func packBeside(receipt *store.Taken) string {
	if len(receipt.Beside) == 0 && !receipt.Question.OfDimension() {
		return ""
	}
	const wayBytes = 1 + 8
	packed := appendWay(make([]byte, 0, wayBytes*(1+len(receipt.Beside))), receipt)
	for i := range receipt.Beside {
		packed = appendWay(packed, &receipt.Beside[i])
	}
	return string(packed)
}

func appendWay(to []byte, way *store.Taken) []byte {
	shared, level := byte(0), admission.LevelQueue
	if way.Shared {
		shared, level = 1, admission.LevelTenant
	}
	return binary.LittleEndian.AppendUint64(append(to, shared), math.Float64bits(float64(way.Left[level])))
}

func parseMoment(line string) (at store.Moment, err error) {
	before, after, _ := strings.Cut(line, " ")
	if at.Time, err = strconv.ParseInt(before, 10, 64); err == nil {
		at.Refunds, err = strconv.ParseInt(after, 10, 64)
	}
	if err != nil {
		return at, fmt.Errorf("read time of an answer %q: %w", line, err)
	}
	return at, nil
}
