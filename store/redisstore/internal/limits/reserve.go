package limits

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Reserve takes tokens under an id, as store.Buckets.Reserve.
func (s *Limits) Reserve(ctx context.Context, version int64, id string, q store.Question) (answer store.Answer, taken store.Reservation, err error) {
	if err := store.ValidateReservation(id); err != nil {
		return answer, taken, err
	}
	q.Measured = false
	args := append(make([]any, 0, 14), s.conn.Now, version, q.Tenant+":"+id, codec.Micros(store.ReservationKept), "h-"+rand.Text(), int64(q.Cost), string(q.Scope()))
	reply, err := s.conn.Run(ctx, "reserve", codec.AppendQuestions(args, s.conn, []store.Question{q})...)
	switch {
	case err != nil && redis.HasErrorPrefix(errors.Unwrap(err), "OOM"):
		return answer, taken, errors.Join(admission.ErrOutOfMemory, err)
	case err != nil:
		return answer, taken, err
	case codec.Stale(reply) != nil:
		return answer, taken, codec.Stale(reply)
	case len(reply) != 2:
		return answer, taken, fmt.Errorf("reserve: reply has %d words", len(reply))
	}
	switch reply[0] {
	case "refused":
		answer, err = parseAnswer(reply[1], &q)
		return answer, taken, err
	case "reserved", "again":
	default:
		return answer, taken, fmt.Errorf("reserve: reply %q: %w", reply[0], redisconn.ErrUnknownReply)
	}
	if taken, err = parseReserved(reply[1], s.conn.Index); err != nil {
		return answer, taken, err
	}
	taken.Again, taken.Taken.Under = reply[0] == "again", q.Tenant+":"+id
	if kept := &taken.Taken.Question; kept.Scope() != q.Scope() || kept.Cost != q.Cost && !q.Estimated {
		return answer, store.Reservation{}, store.ErrReservationOther
	}
	taken.Taken.Question.Limits, taken.Taken.Question.Usage, taken.Taken.Question.Record = q.Limits, q.Usage, q.Record
	answer.Verdict.Decision = admission.Admitted
	for level, left := range taken.Taken.Left {
		answer.Left[level] = admission.Micro(left)
	}
	return answer, taken, nil
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

// reservedWords are those of what is kept of a reservation.
const reservedWords = 4 + int(admission.Levels) + 3

func parseReserved(line string, part int) (taken store.Reservation, err error) {
	words := strings.Split(line, " ")
	if len(words) != reservedWords {
		return taken, fmt.Errorf("read reservation %q: %w", line, redisconn.ErrUnknownReply)
	}
	var numbers [4 + int(admission.Levels)]int64
	for i := range numbers {
		if words[i] == "-" && i >= len(numbers)-int(admission.Levels) {
			continue
		}
		if numbers[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return taken, fmt.Errorf("read reservation %q: %w", line, redisconn.ErrUnknownReply)
		}
	}
	t := &taken.Taken
	t.Version, t.At, t.Question.Cost = numbers[0], store.Moment{Time: numbers[1], Refunds: numbers[2], Part: part}, admission.Tokens(numbers[3])
	copy(t.Left[:], numbers[4:])
	taken.Ref, taken.Counted = words[reservedWords-3], words[reservedWords-2] == "u"
	t.Question.Tenant, t.Question.Queue, t.Question.Class, err = admission.Scope(words[reservedWords-1]).Parts()
	if err != nil {
		return taken, fmt.Errorf("read reservation %q: %w", line, err)
	}
	return taken, nil
}
