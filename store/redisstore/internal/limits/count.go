package limits

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
	"github.com/headgate/headgate/store"
)

// Count adds to the counts of this minute, by the time of Redis. After an error InDoubt the counts may have been added: the
// same again would count twice. done is how many scopes were added before an error: where it is all of them, no more than names are not told, which may be told
// again. A call has as many as one of jobs: 500 take Redis 5 to 8 ms.
func (s *Limits) Count(ctx context.Context, counts []store.ScopeCount) (done int, err error) {
	keep := strconv.FormatInt(int64((store.CountedFor + 2*time.Minute).Seconds()), 10)
	for portion := range slices.Chunk(counts, store.MaxBatchJobs) {
		queues := ""
		if slices.ContainsFunc(portion, func(c store.ScopeCount) bool { return c.Watched }) {
			queues = strconv.Itoa(store.MaxWatchedQueues)
		}
		args := append(make([]any, 0, 4+5*len(portion)), s.conn.Now, store.TopScopes, keep, queues)
		for _, c := range portion {
			name, how := string(c.Scope), ""
			switch {
			case c.Queue != "":
				name, how = c.Queue, "q"
			case c.Always:
				how = "1"
			case c.OfLimit > 0:
				how = "l" + strconv.FormatInt(c.OfLimit, 10)
			}
			args = append(args, name, how, c.Allowed, c.Refused, int64(c.Tokens))
		}
		if _, err := s.conn.Run(ctx, "count", args...); err != nil {
			return done, err
		}
		done += len(portion)
	}
	for i := range counts {
		if err := s.addNames(ctx, &counts[i]); err != nil {
			return done, err
		}
	}
	return done, nil
}

// Minutes returns what was counted of a scope in the last hour, the earliest minute first; those without a decision, or in
// which the scope was not among those that are counted, are left out. The last is under way.
func (s *Limits) Minutes(ctx context.Context, scope admission.Scope) ([]store.Minute, error) {
	now, err := s.conn.Time(ctx)
	if err != nil {
		return nil, err
	}
	const minutes = int64(store.CountedFor/time.Minute) + 1
	last := now.Unix() / 60
	pipe := redisconn.Client(s.conn).Pipeline()
	found := make([]*redis.StringCmd, minutes)
	for i := range found {
		found[i] = pipe.HGet(ctx, s.conn.Partition.Counts(last-minutes+1+int64(i)), string(scope))
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return nil, fmt.Errorf("read counts: %w", redisconn.Unread(err))
	}
	all := []store.Minute{}
	for i, one := range found {
		if text, err := one.Result(); err == nil {
			all = append(all, minuteOf(last-minutes+1+int64(i), text))
		}
	}
	return all, nil
}

// Nearby returns what was counted of values of dimensions in a minute.
func (s *Limits) Nearby(ctx context.Context, minute time.Time) (map[admission.Scope]store.Minute, error) {
	at := minute.Unix() / 60
	counts, err := redisconn.Client(s.conn).HGetAll(ctx, s.conn.Partition.Values(at)).Result()
	if err != nil {
		return nil, fmt.Errorf("read counts of dimensions: %w", redisconn.Unread(err))
	}
	all := make(map[admission.Scope]store.Minute, len(counts))
	for name, text := range counts {
		all[admission.Scope(name)] = minuteOf(at, text)
	}
	return all, nil
}

// minuteOf reads what the script wrote.
func minuteOf(minute int64, text string) store.Minute {
	parts := append(strings.Split(text, ":"), "", "", "", "")
	return store.Minute{
		At: time.Unix(minute*60, 0), Allowed: redisconn.Whole(parts[0]), Refused: redisconn.Whole(parts[1]), Tokens: admission.Tokens(redisconn.Whole(parts[2])),
		Partial: parts[3] == "1",
	}
}
