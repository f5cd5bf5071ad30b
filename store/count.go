package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// Bounds of what is counted by scope.
const (
	// TopScopes is how many scopes are counted, those with the most decisions, beside those that are counted always.
	TopScopes = 1000
	// CountedFor is how long a minute is kept.
	CountedFor = time.Hour
	// countPortion is the largest number of scopes of one call.
	countPortion = 500
)

// ScopeCount is what a process has seen of a scope.
type ScopeCount struct {
	Scope admission.Scope
	// Always counts the scope whatever its rank.
	Always bool
	// Allowed and Refused are jobs, and checks without one; Tokens is what they asked for together.
	Allowed, Refused int64
	Tokens           admission.Tokens
}

// Minute is what was counted of a scope in one minute.
type Minute struct {
	// At is when it began.
	At               time.Time
	Allowed, Refused int64
	Tokens           admission.Tokens
	// Partial says that the scope came among those that are counted only during the minute.
	Partial bool
}

// Count adds to the counts of this minute, by the time of Redis. After an error InDoubt the counts may have been added: the
// same again would count twice. done is how many scopes were added before an error.
func (s *Store) Count(ctx context.Context, counts []ScopeCount) (done int, err error) {
	if s.all != nil {
		return s.countAll(ctx, counts)
	}
	keep := strconv.FormatInt(int64((CountedFor + 2*time.Minute).Seconds()), 10)
	for portion := range slices.Chunk(counts, countPortion) {
		args := append(make([]any, 0, 3+5*len(portion)), s.now, TopScopes, keep)
		for _, c := range portion {
			always := ""
			if c.Always {
				always = "1"
			}
			args = append(args, string(c.Scope), always, c.Allowed, c.Refused, int64(c.Tokens))
		}
		if _, err := s.run(ctx, "count", args...); err != nil {
			return done, err
		}
		done += len(portion)
	}
	return done, nil
}

// Minutes returns what was counted of a scope in the last hour, the earliest minute first; those without a decision, or in
// which the scope was not among those that are counted, are left out. The last is under way.
func (s *Store) Minutes(ctx context.Context, scope admission.Scope) ([]Minute, error) {
	s = s.ofScope(scope)
	now, err := s.Time(ctx)
	if err != nil {
		return nil, err
	}
	const minutes = int64(CountedFor/time.Minute) + 1
	last := now.Unix() / 60
	pipe := connection(s).Pipeline()
	found := make([]*redis.StringCmd, minutes)
	for i := range found {
		found[i] = pipe.HGet(ctx, s.partition.Counts(last-minutes+1+int64(i)), string(scope))
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return nil, fmt.Errorf("read counts: %w", redisconn.Unread(err))
	}
	all := []Minute{}
	for i, one := range found {
		if text, err := one.Result(); err == nil {
			all = append(all, minuteOf(last-minutes+1+int64(i), text))
		}
	}
	return all, nil
}

// minuteOf reads what the script wrote.
func minuteOf(minute int64, text string) Minute {
	parts := append(strings.Split(text, ":"), "", "", "", "")
	return Minute{
		At: time.Unix(minute*60, 0), Allowed: redisconn.Whole(parts[0]), Refused: redisconn.Whole(parts[1]), Tokens: admission.Tokens(redisconn.Whole(parts[2])),
		Partial: parts[3] == "1",
	}
}
