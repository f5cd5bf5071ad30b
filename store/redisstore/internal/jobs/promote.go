package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Promote runs what is due, up to 64 moves. One owner at a time holds the timer lease.
func (s *Jobs) Promote(ctx context.Context, owner string, timerLease time.Duration) (store.Promotion, error) {
	return s.PromoteAfter(ctx, store.LeapSilence, owner, timerLease)
}

// PromoteAfter is Promote for one who can tell a step of the clock of Redis from silence.
func (s *Jobs) PromoteAfter(ctx context.Context, leap store.Leap, owner string, timerLease time.Duration) (store.Promotion, error) {
	reply, err := s.conn.Run(ctx, "promote", s.conn.Now, owner, codec.Micros(timerLease), string(leap))
	if err != nil {
		return store.Promotion{}, err
	}
	numbers, err := codec.ParseNumbers(strings.Join(reply[1:], " "))
	if err == nil && len(numbers) != 4 && len(numbers) != 5 {
		err = redisconn.ErrUnknownReply
	}
	if err != nil {
		return store.Promotion{}, fmt.Errorf("promote: %w", err)
	}
	done := store.Promotion{
		Held: reply[0] == "held", More: reply[0] == "more", Next: time.Duration(numbers[0]) * time.Microsecond,
		Moved: int(numbers[1]), Stepped: numbers[2] == 1, Leapt: reply[0] == "leapt", At: time.UnixMicro(numbers[3]),
	}
	if len(numbers) == 5 {
		done.Adaptive = numbers[4]
	}
	return done, nil
}

// WaitWake blocks until a script lowers the earliest timer or wait is over. last is the position returned by the
// call before, empty at first: then a wake that came before the call counts too.
func (s *Jobs) WaitWake(ctx context.Context, last string, wait time.Duration) (position string, err error) {
	if last == "" {
		last = "0-0"
	}
	return s.ReadOne(ctx, s.conn.Partition.Wake(), last, wait)
}

// TimerLease returns which scheduler holds the timer lease, and until when; owner is empty where none does.
func (s *Jobs) TimerLease(ctx context.Context) (owner string, end time.Time, err error) {
	text, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.State(), "promoter").Result()
	if redisconn.IsNil(err) {
		return "", time.Time{}, nil
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read timer lease: %w", redisconn.Unread(err))
	}
	now, err := s.conn.Time(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	until, owner, _ := strings.Cut(text, "|")
	us, err := strconv.ParseInt(until, 10, 64)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read timer lease %q: %w", text, err)
	}
	if end = time.UnixMicro(us); end.Before(now) {
		return "", time.Time{}, nil
	}
	return owner, end, nil
}

// ReadOne blocks on a stream for its next entry and returns the position after it.
func (s *Jobs) ReadOne(ctx context.Context, stream, last string, wait time.Duration) (string, error) {
	streams, err := redisconn.Client(s.conn).XRead(ctx, &redis.XReadArgs{Streams: []string{stream, last}, Count: 1, Block: wait}).Result()
	if errors.Is(err, redis.Nil) {
		return last, nil
	}
	if err != nil {
		return last, fmt.Errorf("wait for wake: %w", redisconn.Unread(err))
	}
	entries, err := redisconn.MessagesOf(streams)
	if err != nil {
		return last, fmt.Errorf("wait for wake: %w", redisconn.Unread(err))
	}
	return entries[0].ID, nil
}
