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

// Deaths returns dead letters from a time on in the order of deaths, at most count. It is one command.
func (s *Jobs) Deaths(ctx context.Context, from time.Time, count int) ([]store.Death, error) {
	found, err := redisconn.Client(s.conn).ZRangeByScoreWithScores(ctx, s.conn.Partition.Dead(), &redis.ZRangeBy{
		Min: strconv.FormatInt(from.UnixMicro(), 10), Max: "+inf", Count: int64(count),
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", redisconn.Unread(err))
	}
	deaths := make([]store.Death, len(found))
	for i, z := range found {
		member, _ := z.Member.(string)
		deaths[i] = store.Death{At: time.UnixMicro(int64(z.Score)), Member: member}
	}
	return deaths, nil
}

// DeadLetters returns the letters of some deaths, without those that have left meanwhile. A record that cannot be read
// leaves all but the key of its job empty.
func (s *Jobs) DeadLetters(ctx context.Context, deaths []store.Death) ([]store.DeadLetter, error) {
	if len(deaths) == 0 {
		return nil, nil
	}
	members := make([]string, len(deaths))
	for i, d := range deaths {
		members[i] = d.Member
	}
	pipe := redisconn.Client(s.conn).TxPipeline()
	why := pipe.HMGet(ctx, s.conn.Partition.Why(), members...)
	records := pipe.HMGet(ctx, s.conn.Partition.Jobs(), members...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read dead letters: %w", redisconn.Unread(err))
	}
	letters := make([]store.DeadLetter, 0, len(deaths))
	for i, d := range deaths {
		text, dead := why.Val()[i].(string)
		raw, lives := records.Val()[i].(string)
		if !dead || !lives {
			continue
		}
		letter := store.DeadLetter{Death: d}
		letter.Reason, letter.Text, _ = strings.Cut(text, "|")
		record, err := codec.DecodeRecord(d.Member, raw)
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

// Followed returns how far a follower of the dead letters is; the zero Death when it has not begun.
func (s *Jobs) Followed(ctx context.Context, follower string) (store.Death, error) {
	text, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.Followers(), follower).Result()
	if errors.Is(err, redis.Nil) {
		return store.Death{At: time.UnixMicro(0)}, nil
	}
	if err != nil {
		return store.Death{}, fmt.Errorf("read place of follower %s: %w", follower, redisconn.Unread(err))
	}
	at, member, _ := strings.Cut(text, "|")
	us, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return store.Death{}, fmt.Errorf("read place of follower %s: %w", follower, err)
	}
	return store.Death{At: time.UnixMicro(us), Member: member}, nil
}

// NoteFollowed notes how far a follower is.
func (s *Jobs) NoteFollowed(ctx context.Context, follower string, last store.Death) error {
	text := strconv.FormatInt(last.At.UnixMicro(), 10) + "|" + last.Member
	if err := redisconn.Client(s.conn).HSet(ctx, s.conn.Partition.Followers(), follower, text).Err(); err != nil {
		return fmt.Errorf("note place of follower %s: %w", follower, redisconn.Unread(err))
	}
	return nil
}
