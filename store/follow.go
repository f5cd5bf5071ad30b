package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// Death is the place of a dead letter in the order of deaths: by time, then by key.
type Death struct {
	At time.Time
	// member is the job's field in the jobs hash.
	member string
}

// Key names the job.
func (d Death) Key() (admission.Key, error) { return decodeKey(d.member) }

// After reports whether d follows o.
func (d Death) After(o Death) bool {
	return d.At.After(o.At) || d.At.Equal(o.At) && d.member > o.member
}

// DeadLetter is a job among the dead.
type DeadLetter struct {
	Death
	// Record is the job's; a payload that stands under its own key is not in it.
	Record
	// Reason and Text say why the job died.
	Reason, Text string
}

// Deaths returns dead letters from a time on in the order of deaths, at most count. It is one command.
func (s *Store) Deaths(ctx context.Context, from time.Time, count int) ([]Death, error) {
	found, err := connection(s).ZRangeByScoreWithScores(ctx, s.partition.Dead(), &redis.ZRangeBy{
		Min: strconv.FormatInt(from.UnixMicro(), 10), Max: "+inf", Count: int64(count),
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", redisconn.Unread(err))
	}
	deaths := make([]Death, len(found))
	for i, z := range found {
		member, _ := z.Member.(string)
		deaths[i] = Death{At: time.UnixMicro(int64(z.Score)), member: member}
	}
	return deaths, nil
}

// DeadLetters returns the letters of some deaths, without those that have left meanwhile. A record that cannot be read
// leaves all but the key of its job empty.
func (s *Store) DeadLetters(ctx context.Context, deaths []Death) ([]DeadLetter, error) {
	if len(deaths) == 0 {
		return nil, nil
	}
	members := make([]string, len(deaths))
	for i, d := range deaths {
		members[i] = d.member
	}
	pipe := connection(s).TxPipeline()
	why := pipe.HMGet(ctx, s.partition.Why(), members...)
	records := pipe.HMGet(ctx, s.partition.Jobs(), members...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read dead letters: %w", redisconn.Unread(err))
	}
	letters := make([]DeadLetter, 0, len(deaths))
	for i, d := range deaths {
		text, dead := why.Val()[i].(string)
		raw, lives := records.Val()[i].(string)
		if !dead || !lives {
			continue
		}
		letter := DeadLetter{Death: d}
		letter.Reason, letter.Text, _ = strings.Cut(text, "|")
		record, err := decodeRecord(d.member, raw)
		if err != nil {
			key, keyErr := d.Key()
			if keyErr != nil {
				continue // Nothing that can be named.
			}
			record.Job.Tenant, record.Job.ID = key.Tenant, key.ID
		}
		letter.Record = record
		letters = append(letters, letter)
	}
	return letters, nil
}

// DeathFollower is the name under which schedulers note up to which dead letter OnDead was told.
const DeathFollower = "on_dead"

// Followed returns how far a follower of the dead letters is; the zero Death when it has not begun.
func (s *Store) Followed(ctx context.Context, follower string) (Death, error) {
	text, err := connection(s).HGet(ctx, s.partition.Followers(), follower).Result()
	if errors.Is(err, redis.Nil) {
		return Death{At: time.UnixMicro(0)}, nil
	}
	if err != nil {
		return Death{}, fmt.Errorf("read place of follower %s: %w", follower, redisconn.Unread(err))
	}
	at, member, _ := strings.Cut(text, "|")
	us, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return Death{}, fmt.Errorf("read place of follower %s: %w", follower, err)
	}
	return Death{At: time.UnixMicro(us), member: member}, nil
}

// NoteFollowed notes how far a follower is.
func (s *Store) NoteFollowed(ctx context.Context, follower string, last Death) error {
	text := strconv.FormatInt(last.At.UnixMicro(), 10) + "|" + last.member
	if err := connection(s).HSet(ctx, s.partition.Followers(), follower, text).Err(); err != nil {
		return fmt.Errorf("note place of follower %s: %w", follower, redisconn.Unread(err))
	}
	return nil
}
