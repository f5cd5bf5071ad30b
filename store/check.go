package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redisconn"
)

// Question asks for tokens of every bucket on the way of a scope.
type Question struct {
	// Tenant, Queue and Class name the way; those below the scope are empty, and all are for the global one.
	Tenant, Queue string
	Class         admission.Priority
	// Cost is 1 to headgate.MaxCost tokens.
	Cost admission.Tokens
	// Limits apply by level, Disabled below the scope. The global one must be the same for all of a call.
	Limits [admission.Levels]admission.Limit
}

// Answer is what became of a Question.
type Answer struct {
	// Verdict is Admitted where every bucket holds enough, else Refused for headgate.ReasonLimited, ReasonTooCostly or
	// ReasonBuckets.
	Verdict admission.Verdict
	// Left is what each bucket holds after the call, by level; 0 where the limit is Disabled.
	Left [admission.Levels]buckets.Micro
}

// Check asks up to MaxBatchJobs questions at once: either all are granted and charged, one after the other, or nothing
// is. A peek charges nothing in any case. version is that of the policy which the limits come from; where another is in
// force nothing is done and the error is ErrStale. After an error InDoubt the tokens may be gone; the same call again
// charges again. A Redis that is full is headgate.ErrOutOfMemory, and nothing was charged.
func (s *Store) Check(ctx context.Context, version int64, peek bool, questions []Question) (granted bool, answers []Answer, err error) {
	got, err := s.ask(ctx, version, peek, questions)
	for i := range got.answers {
		got.answers[i].Left[admission.LevelGlobal] += got.elsewhere
	}
	return got.granted, got.answers, err
}

// asked is what became of a Check in one partition.
type asked struct {
	granted bool
	answers []Answer
	// at is what Refund needs of the moment.
	at moment
	// elsewhere is what other partitions hold of the global limit, where any of them could have answered.
	elsewhere buckets.Micro
}

// ask is Check in the partition of the questions.
func (s *Store) ask(ctx context.Context, version int64, peek bool, questions []Question) (asked, error) {
	if s.all != nil && !namesTenant(questions) {
		return s.askAnywhere(ctx, version, peek, questions)
	}
	s, err := s.ofQuestions(questions)
	if err != nil {
		return asked{}, err
	}
	reply, err := s.run(ctx, "check", s.checkArgs(version, peek, questions)...)
	switch {
	case err != nil && redis.HasErrorPrefix(errors.Unwrap(err), "OOM"):
		return asked{}, errors.Join(admission.ErrOutOfMemory, err)
	case err != nil:
		return asked{}, err
	case len(reply) > 0 && reply[0] == "stale":
		return asked{}, ErrStale
	case len(reply) != len(questions)+2:
		return asked{}, fmt.Errorf("check %d questions: reply has %d lines", len(questions), len(reply)-2)
	}
	got := asked{granted: reply[0] == "granted", answers: make([]Answer, len(questions))}
	if got.at, err = parseMoment(reply[1]); err != nil {
		return asked{}, err
	}
	got.at.part = s.index
	for i := range questions {
		if got.answers[i], err = parseAnswer(reply[i+2], &questions[i]); err != nil {
			return asked{}, err
		}
	}
	return got, nil
}

func (s *Store) checkArgs(version int64, peek bool, questions []Question) []any {
	flag := ""
	if peek {
		flag = "1"
	}
	args := append(make([]any, 0, 8+limitsSize+(pathSize+2)*len(questions)), s.now, version, flag, s.config.BucketCap)
	args = s.appendGlobal(args, &questions[0].Limits[admission.LevelGlobal])
	args = append(args, len(questions))
	args = appendQuestions(args, questions)
	for i := range questions {
		args = append(args, i+1, int64(questions[i].Cost))
	}
	return args
}

func parseAnswer(line string, q *Question) (Answer, error) {
	a := Answer{Verdict: admission.Verdict{Decision: admission.Admitted}}
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
	}
	if refusal := fields[admission.Levels]; refusal != "" {
		var err error
		a.Verdict, err = parseVerdict(refusal, &admission.Job{Tenant: q.Tenant, Queue: q.Queue, Priority: q.Class})
		return a, err
	}
	return a, nil
}

// ResetBucket fills the bucket of a scope, as ParseScope returns its parts; was is false where it was full. What the scope
// admits from then on is up to one burst more than its limit says.
func (s *Store) ResetBucket(ctx context.Context, tenant, queue string, class admission.Priority, by Intervention) (was bool, err error) {
	if err := by.Validate(); err != nil {
		return false, err
	}
	by = by.named()
	scope, field := admission.Global, queue
	if tenant != "" {
		s = s.of(tenant)
		scope = admission.Scope(strings.TrimRight(tenant+":"+queue+":"+string(class), ":"))
	} else if s.all != nil {
		all := make([]bool, len(s.all))
		err := s.Each(func(i int, part *Store) (err error) {
			own := by
			if i > 0 {
				own = by.quiet()
			}
			all[i], err = part.ResetBucket(ctx, tenant, queue, class, own)
			return err
		})
		return slices.Contains(all, true), err
	}
	if class != "" {
		field = queue + ":" + string(class)
	}
	reply, err := s.runFor(ctx, 1, "reset", s.now, string(scope), tenant, field, by.text(AuditResetBucket))
	return err == nil && reply[0] == "reset", err
}

// BucketsTTL returns after what time without a decision the buckets of a tenant are forgotten, full as they are by then; 0 where it has
// none. The global one stays.
func (s *Store) BucketsTTL(ctx context.Context, tenant string) (time.Duration, error) {
	s = s.of(tenant)
	left, err := connection(s).PTTL(ctx, s.partition.Buckets(tenant)).Result()
	if err != nil {
		return 0, fmt.Errorf("read buckets: %w", redisconn.Unread(err))
	}
	return max(left, 0), nil
}
