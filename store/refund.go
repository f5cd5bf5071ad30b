package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// RefundWindow is how long after the taking tokens may be refunded, and how long an id that was is remembered.
const RefundWindow = time.Minute

// Refund is what became of a refund.
type Refund string

// The answers to a refund.
const (
	// Refunded means that the tokens are back in their buckets, but for what these would have had no room for.
	Refunded Refund = "refunded"
	// RefundedBefore means that the id had been refunded; nothing was done.
	RefundedBefore Refund = "again"
	// RefundLate means that RefundWindow is over; nothing was done.
	RefundLate Refund = "late"
	// RefundStale means that the policy has changed since; nothing was done.
	RefundStale Refund = "stale"
)

// Receipt says what Take has taken, and when. It is a plain value; the zero Receipt is none.
type Receipt struct {
	question Question
	version  int64
	left     [admission.Levels]int64
	at       moment
}

// moment is the buckets' time of a call, in microseconds, and how many tokens had been refunded until then, in all, in a partition.
type moment struct {
	time, refunds int64
	part          int
}

// Take asks one question as Check does. Where the tokens are granted, the receipt is for Refund.
func (s *Store) Take(ctx context.Context, version int64, question Question) (admission.Verdict, Receipt, error) {
	got, err := s.ask(ctx, version, false, []Question{question})
	if err != nil {
		return admission.Verdict{}, Receipt{}, err
	}
	if !got.granted {
		return got.answers[0].Verdict, Receipt{}, nil
	}
	receipt := Receipt{question: question, version: version, at: got.at}
	for level, left := range got.answers[0].Left {
		receipt.left[level] = int64(left)
	}
	return got.answers[0].Verdict, receipt, nil
}

// Refund gives back what Take took for work that did not begin, once for each id, which is the caller's name of the
// taking, at most headgate.MaxNameLength bytes. A bucket is never left above what it would hold had the tokens not been
// taken: what came in meanwhile, other refunds of the partition among it, is counted as if it had found them there. After
// any error the same call may be made again within RefundWindow.
func (s *Store) Refund(ctx context.Context, id string, receipt Receipt) (Refund, error) {
	if err := admission.ValidateName("id of a refund", id, false); err != nil {
		return "", err
	}
	q := &receipt.question
	if s.all != nil {
		s = s.all[receipt.at.part]
	}
	args := append(make([]any, 0, 24), s.now, receipt.version, s.config.BucketCap)
	args = s.appendGlobal(args, &q.Limits[admission.LevelGlobal])
	args = append(args, id, micros(RefundWindow), receipt.at.time, receipt.at.refunds, int64(q.Cost))
	for _, left := range receipt.left {
		args = append(args, left)
	}
	reply, err := s.run(ctx, "refund", appendPaths(args, []path{q.path()})...)
	if err != nil {
		return "", err
	}
	if len(reply) != 1 {
		return "", fmt.Errorf("refund: reply has %d words", len(reply))
	}
	switch word := Refund(reply[0]); word {
	case Refunded, RefundedBefore, RefundLate, RefundStale:
		return word, nil
	}
	return "", fmt.Errorf("refund: reply %q: %w", reply[0], redisconn.ErrUnknownReply)
}

func parseMoment(line string) (at moment, err error) {
	before, after, _ := strings.Cut(line, " ")
	if at.time, err = strconv.ParseInt(before, 10, 64); err == nil {
		at.refunds, err = strconv.ParseInt(after, 10, 64)
	}
	if err != nil {
		return at, fmt.Errorf("read time of an answer %q: %w", line, err)
	}
	return at, nil
}
