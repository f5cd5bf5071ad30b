package limits

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Check asks up to MaxBatchJobs questions at once: either all are granted and charged, one after the other, or nothing
// is. A peek charges nothing in any case. version is that of the policy which the limits come from; where another is in
// force nothing is done and the error is ErrStale. After an error InDoubt the tokens may be gone; the same call again
// charges again. A Redis that is full is headgate.ErrOutOfMemory, and nothing was charged.
func (s *Limits) Check(ctx context.Context, version int64, peek bool, questions []store.Question) (granted bool, answers []store.Answer, err error) {
	got, err := s.Ask(ctx, version, peek, questions)
	return got.Granted, got.Answers, err
}

// Asked is what became of a Check in one partition.
type Asked struct {
	Granted bool
	Answers []store.Answer
	// at is what Refund needs of the moment.
	at store.Moment
	// Elsewhere is what other partitions hold of the global limit, where any of them could have answered, and OthersElsewhere what is left there to those
	// from whom a part of it is kept.
	Elsewhere, OthersElsewhere buckets.Micro
}

// Ask is Check in the partition of the questions.
func (s *Limits) Ask(ctx context.Context, version int64, peek bool, questions []store.Question) (Asked, error) {
	reply, err := s.conn.Run(ctx, "check", s.checkArgs(version, peek, questions)...)
	switch {
	case err != nil && redis.HasErrorPrefix(errors.Unwrap(err), "OOM"):
		return Asked{}, errors.Join(admission.ErrOutOfMemory, err)
	case err != nil:
		return Asked{}, err
	case codec.Stale(reply) != nil:
		return Asked{}, codec.Stale(reply)
	case len(reply) != len(questions)+measured(questions)+2:
		return Asked{}, fmt.Errorf("check %d questions: reply has %d lines", len(questions), len(reply)-2)
	}
	got := Asked{Granted: reply[0] == "granted", Answers: make([]store.Answer, len(questions))}
	if got.at, err = parseMoment(reply[1]); err != nil {
		return Asked{}, err
	}
	got.at.Part = s.conn.Index
	for i := range questions {
		if got.Answers[i], err = parseAnswer(reply[i+2], &questions[i]); err != nil {
			return Asked{}, err
		}
	}
	next := len(questions) + 2
	for i := range questions {
		if questions[i].Measured {
			if got.Answers[i].Verdict.Pressure, err = codec.ParsePressure(reply[next]); err != nil {
				return Asked{}, err
			}
			next++
		}
	}
	return got, nil
}

// measured counts the questions whose answers tell how much a queue is pressed.
func measured(questions []store.Question) (n int) {
	for i := range questions {
		if questions[i].Measured {
			n++
		}
	}
	return n
}

func (s *Limits) checkArgs(version int64, peek bool, questions []store.Question) []any {
	flag := ""
	if peek {
		flag = "1"
	}
	args := append(make([]any, 0, 9+codec.PathSize*len(questions)), s.conn.Now, version, flag, codec.PackQuestions(questions, 0))
	return codec.AppendQuestions(args, s.conn, questions)
}

func parseAnswer(line string, q *store.Question) (store.Answer, error) {
	a := store.Answer{Verdict: admission.Verdict{Decision: admission.Admitted}}
	fields := strings.SplitN(line, " ", int(admission.Levels)+1)
	if len(fields) != int(admission.Levels)+1 {
		return a, fmt.Errorf("read answer %q: %w", line, redisconn.ErrUnknownReply)
	}
	for level, text := range fields[:admission.Levels] {
		if text == "-" {
			continue
		}
		left, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return a, fmt.Errorf("read answer %q: %w", line, err)
		}
		a.Left[level] = buckets.Micro(left)
		a.Shared = a.Shared || level == int(admission.LevelTenant) && q.OfDimension()
	}
	refusal := fields[admission.Levels]
	if rest, others := strings.CutPrefix(refusal, "others "); others {
		var level string
		level, refusal, _ = strings.Cut(rest, " ")
		left, err := strconv.ParseInt(level, 10, 64)
		if err != nil {
			return a, fmt.Errorf("read answer %q: %w", line, err)
		}
		a.Others = buckets.Micro(left)
	}
	if refusal != "" {
		var err error
		of := admission.Job{Tenant: q.Tenant, Queue: q.Queue, Priority: q.Class}
		if q.TypeLimit != nil {
			of.Type = q.TypeLimit.Type
		}
		a.Verdict, err = codec.ParseVerdict(refusal, &of)
		return a, err
	}
	return a, nil
}

// ResetBucket fills the bucket of a scope, as ParseScope returns its parts; was is false where it was full. What the scope
// admits from then on is up to one burst more than its limit says.
func (s *Limits) ResetBucket(ctx context.Context, tenant, queue string, class admission.Priority, by store.Intervention) (was bool, err error) {
	if err := by.Validate(); err != nil {
		return false, err
	}
	by = by.Named()
	scope, field := admission.Global, queue
	if tenant != "" {
		scope = admission.Scope(strings.TrimRight(tenant+":"+queue+":"+string(class), ":"))
	}
	if class != "" {
		field = queue + ":" + string(class)
	}
	reply, err := s.conn.RunFor(ctx, 1, "reset", s.conn.Now, string(scope), tenant, field, codec.InterventionText(by, store.AuditResetBucket))
	return err == nil && reply[0] == "reset", err
}

// BucketsTTL returns after what time without a decision the buckets of a tenant are forgotten, full as they are by then; 0 where it has
// none. The global one stays.
func (s *Limits) BucketsTTL(ctx context.Context, tenant string) (time.Duration, error) {
	left, err := redisconn.Client(s.conn).PTTL(ctx, s.conn.Partition.Buckets(tenant)).Result()
	if err != nil {
		return 0, fmt.Errorf("read buckets: %w", redisconn.Unread(err))
	}
	return max(left, 0), nil
}
