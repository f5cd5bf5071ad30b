package limits

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Reserve takes tokens under an id, as store.Buckets.Reserve.
func (s *Limits) Reserve(ctx context.Context, version int64, id string, expireAfter time.Duration, q store.Question, beside ...store.Question) (store.Answer, store.Reservation, error) {
	return ReserveWith(ctx, s, Reserving{Version: version, ID: id, ExpireAfter: expireAfter, Question: q, Beside: beside})
}

// Reserving is a Reserve in one partition.
type Reserving struct {
	Version     int64
	ID          string
	ExpireAfter time.Duration
	Question    store.Question
	Beside      []store.Question
	// Elsewhere are what other partitions have taken of dimensions for it: it is kept with what the id has taken.
	Elsewhere []store.Taken
}

// ReserveWith is Reserve in one of several partitions.
func ReserveWith(ctx context.Context, s *Limits, r Reserving) (answer store.Answer, taken store.Reservation, err error) {
	if err := store.ValidateReservation(r.ID); err != nil {
		return answer, taken, err
	}
	q := &r.Question
	q.Measured = false
	questions := append(make([]store.Question, 0, 1+len(r.Beside)), *q)
	questions = append(questions, r.Beside...)
	made := store.Taken{ExpireAfter: r.ExpireAfter}
	args := append(make([]any, 0, 14), s.conn.Now, r.Version, q.Tenant+":"+r.ID, codec.Micros(made.Kept()), "h-"+rand.Text()+expiryText(made.Expiry()), int64(q.Cost), string(q.Scope()))
	args = codec.AppendQuestions(args, s.conn, questions)
	if len(r.Elsewhere) > 0 {
		args = append(args, elsewhereText(r.Elsewhere))
	}
	reply, err := s.conn.Run(ctx, "reserve", args...)
	switch {
	case err != nil && redis.HasErrorPrefix(errors.Unwrap(err), "OOM"):
		return answer, taken, errors.Join(admission.ErrOutOfMemory, err)
	case err != nil:
		return answer, taken, err
	case codec.Stale(reply) != nil:
		return answer, taken, codec.Stale(reply)
	case len(reply) == 1+len(questions) && reply[0] == "refused":
		return refusedAnswer(reply[1:], questions)
	case len(reply) != 2:
		return answer, taken, fmt.Errorf("reserve: reply has %d words", len(reply))
	case reply[0] != "reserved" && reply[0] != "again":
		return answer, taken, fmt.Errorf("reserve: reply %q: %w", reply[0], redisconn.ErrUnknownReply)
	}
	if taken, err = parseReserved(reply[1], s.conn.Index); err != nil {
		return answer, taken, err
	}
	taken.Again, taken.Taken.Under = reply[0] == "again", q.Tenant+":"+r.ID
	for i := range r.Elsewhere {
		questions = append(questions, r.Elsewhere[i].Question)
	}
	return taken.Answered(questions)
}

// refusedAnswer reads what refuses, of the way that does for longest, and what became of those of dimensions.
func refusedAnswer(lines []string, questions []store.Question) (answer store.Answer, taken store.Reservation, err error) {
	answers := make([]store.Answer, len(lines))
	for i, line := range lines {
		if answers[i], err = parseAnswer(line, &questions[i]); err != nil {
			return answer, taken, err
		}
	}
	if len(answers) > 1 {
		taken.Beside = answers[1:]
	}
	return answers[0], taken, nil
}

// Reserved returns what an id has taken, as store.Buckets.Reserved.
func (s *Limits) Reserved(ctx context.Context, tenant, id string) (store.Reservation, error) {
	if err := store.ValidateReservation(id); err != nil {
		return store.Reservation{}, err
	}
	line, err := redisconn.Client(s.conn).Get(ctx, s.conn.Partition.Reserved(tenant, id)).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return store.Reservation{}, store.ErrNoReservation
	case err != nil:
		return store.Reservation{}, fmt.Errorf("read reservation: %w", redisconn.Unread(err))
	}
	taken, err := parseReserved(line, s.conn.Index)
	taken.Again, taken.Taken.Under = true, tenant+":"+id
	return taken, err
}

// reservedWords are those of what is kept of a reservation. Two follow for each way of a dimension.
const reservedWords = 4 + int(admission.Levels) + 3

func parseReserved(line string, part int) (taken store.Reservation, err error) {
	words := strings.Split(line, " ")
	if len(words) < reservedWords || len(words)%2 != reservedWords%2 {
		return taken, fmt.Errorf("read reservation %q: %w", line, redisconn.ErrUnknownReply)
	}
	var numbers [4 + int(admission.Levels)]int64
	for i := range numbers {
		if words[i] == noBucket && i >= len(numbers)-int(admission.Levels) {
			continue
		}
		if numbers[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return taken, fmt.Errorf("read reservation %q: %w", line, redisconn.ErrUnknownReply)
		}
	}
	t := &taken.Taken
	t.Version, t.At, t.Question.Cost = numbers[0], store.Moment{Time: numbers[1], Refunds: numbers[2], Part: part}, admission.Tokens(numbers[3])
	copy(t.Left[:], numbers[4:])
	taken.Counted = words[reservedWords-2] == "u"
	if taken.Ref, t.ExpireAfter, err = parseRef(words[reservedWords-3]); err != nil {
		return taken, fmt.Errorf("read reservation %q: %w", line, err)
	}
	t.Question.Tenant, t.Question.Queue, t.Question.Class, err = admission.Scope(words[reservedWords-1]).Parts()
	for at := reservedWords; at < len(words) && err == nil; at += 2 {
		err = parseBeside(t, words[at], words[at+1])
	}
	if err != nil {
		return taken, fmt.Errorf("read reservation %q: %w", line, err)
	}
	return taken, nil
}

// expiryMark stands between the id for Commit and the microseconds of an Expiry that is not store.RefundWindow. It is in no name.
const expiryMark = ","

func expiryText(expiry time.Duration) string {
	if expiry == store.RefundWindow {
		return ""
	}
	return expiryMark + strconv.FormatInt(expiry.Microseconds(), 10)
}

// parseRef reads an id for Commit and what expiryText has written behind it.
func parseRef(word string) (ref string, expiry time.Duration, err error) {
	ref, text, told := strings.Cut(word, expiryMark)
	if !told {
		return ref, store.RefundWindow, nil
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || micros <= 0 || micros > policy.MaxExpireAfter.Microseconds() {
		return "", 0, redisconn.ErrUnknownReply
	}
	return ref, time.Duration(micros) * time.Microsecond, nil
}

// noBucket stands for what is left where there is no bucket.
const noBucket = "-"

// parseBeside adds the way of a dimension to what a reservation has taken. left is what its bucket had left, an s before it where values without room share
// that, and before it all, of another partition, that, the time and the refunds, each with a colon behind it.
func parseBeside(t *store.Taken, left, scope string) (err error) {
	way := store.Taken{Version: t.Version, At: t.At}
	way.Question.Tenant, way.Question.Queue, _ = strings.Cut(scope, ":")
	way.Question.Cost = t.Question.Cost
	if of := strings.Split(left, ":"); len(of) == 4 {
		var numbers [3]int64
		for i := range numbers {
			if numbers[i], err = strconv.ParseInt(of[i], 10, 64); err != nil {
				return redisconn.ErrUnknownReply
			}
		}
		way.At, left = store.Moment{Part: int(numbers[0]), Time: numbers[1], Refunds: numbers[2]}, of[3]
	}
	left, way.Shared = strings.CutPrefix(left, "s")
	level := admission.LevelQueue
	if way.Shared {
		level = admission.LevelTenant
	}
	if left != noBucket {
		if way.Left[level], err = strconv.ParseInt(left, 10, 64); err != nil {
			return redisconn.ErrUnknownReply
		}
	}
	if !way.Question.OfDimension() {
		return redisconn.ErrUnknownReply
	}
	t.Beside = append(t.Beside, way)
	return nil
}

// elsewhereText writes what other partitions have taken as parseBeside reads it.
func elsewhereText(ways []store.Taken) string {
	words := make([]string, 0, 2*len(ways))
	for i := range ways {
		w := &ways[i]
		left := noBucket
		switch level := admission.LevelQueue; {
		case w.Shared:
			left = "s" + strconv.FormatInt(w.Left[admission.LevelTenant], 10)
		case !w.Question.Limits[level].Disabled && w.Question.Limits[level].Tokens != 0:
			left = strconv.FormatInt(w.Left[level], 10)
		}
		words = append(words, fmt.Sprintf("%d:%d:%d:%s", w.At.Part, w.At.Time, w.At.Refunds, left), string(w.Question.Scope()))
	}
	return strings.Join(words, " ")
}
