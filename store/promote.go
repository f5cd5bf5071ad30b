package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
)

// Promotion is what one call of Promote did.
type Promotion struct {
	// Held means that another scheduler holds the timer lease, for Next.
	Held bool
	// More means that the call is to be made again at once.
	More bool
	// Next is the time until the next timer; negative when there is none.
	Next time.Duration
	// Moved is the number of jobs, lanes and tenants moved.
	Moved int
	// Stepped means that the clock of Redis had stepped: every registration was armed anew.
	Stepped bool
	// Leapt asks whether a leap ahead of the time of Redis was a step of its clock; nothing was done. It answers LeapAsk only.
	Leapt bool
	// At is the time of Redis.
	At time.Time
}

// Leap is what a Promote makes of it if the time of Redis went on by more than 5 s since the last call of any script. A step back is
// always a step.
type Leap string

// The leaps. Only who has seen the time of Redis before, and has a monotonic clock, can tell.
const (
	// LeapSilence is the time that nobody called.
	LeapSilence Leap = ""
	// LeapStep is a step of the clock of Redis.
	LeapStep Leap = "stepped"
	// LeapAsk has Promote ask: see Promotion.Leapt.
	LeapAsk Leap = "ask"
)

// Promote runs what is due, up to 64 moves. One owner at a time holds the timer lease.
func (s *Store) Promote(ctx context.Context, owner string, timerLease time.Duration) (Promotion, error) {
	return s.PromoteAfter(ctx, LeapSilence, owner, timerLease)
}

// PromoteAfter is Promote for one who can tell a step of the clock of Redis from silence.
func (s *Store) PromoteAfter(ctx context.Context, leap Leap, owner string, timerLease time.Duration) (Promotion, error) {
	reply, err := s.runFor(ctx, 5, "promote", s.now, owner, micros(timerLease), string(leap))
	if err != nil {
		return Promotion{}, err
	}
	numbers, err := parseNumbers(strings.Join(reply[1:], " "))
	if err == nil && len(numbers) != 4 {
		err = redisconn.ErrUnknownReply
	}
	if err != nil {
		return Promotion{}, fmt.Errorf("promote: %w", err)
	}
	return Promotion{
		Held: reply[0] == "held", More: reply[0] == "more", Next: time.Duration(numbers[0]) * time.Microsecond,
		Moved: int(numbers[1]), Stepped: numbers[2] == 1, Leapt: reply[0] == "leapt", At: time.UnixMicro(numbers[3]),
	}, nil
}

// WaitWake blocks until a script lowers the earliest timer or wait is over. last is the position returned by the
// call before, empty at first: then a wake that came before the call counts too.
func (s *Store) WaitWake(ctx context.Context, last string, wait time.Duration) (position string, err error) {
	if last == "" {
		last = "0-0"
	}
	return s.readOne(ctx, s.partition.Wake(), last, wait)
}

// TimerLease returns which scheduler holds the timer lease, and until when; owner is empty where none does.
func (s *Store) TimerLease(ctx context.Context) (owner string, end time.Time, err error) {
	text, err := connection(s).HGet(ctx, s.partition.State(), "promoter").Result()
	if redisconn.IsNil(err) {
		return "", time.Time{}, nil
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read timer lease: %w", redisconn.Unread(err))
	}
	now, err := s.Time(ctx)
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
