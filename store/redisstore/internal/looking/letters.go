package looking

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Letters reads up to MaxBatchJobs dead letters, in the order of their keys.
func (s *Looking) Letters(ctx context.Context, keys []admission.Key) ([]store.Letter, error) {
	letters := make([]store.Letter, len(keys))
	if len(keys) == 0 {
		return letters, nil
	}
	names := make([]string, len(keys))
	pipe := redisconn.Client(s.conn).Pipeline()
	scores, sizes := make([]*redis.FloatCmd, len(keys)), make([]*redis.IntCmd, len(keys))
	for i, key := range keys {
		names[i] = store.EncodeKey(key)
		scores[i] = pipe.ZScore(ctx, s.conn.Partition.Dead(), names[i])
		sizes[i] = pipe.StrLen(ctx, s.conn.Partition.Large(names[i]))
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return nil, fmt.Errorf("read dead letters: %w", redisconn.Unread(err))
	}
	rows, err := s.records(ctx, names)
	if err != nil {
		return nil, err
	}
	configs := &lister{store: s, configs: map[string]queueConfig{}}
	for i, row := range rows {
		l := &letters[i]
		l.Key = keys[i]
		if scores[i].Err() != nil || row.Key.Tenant == "" {
			continue
		}
		l.Listed, l.Dead = row, true
		l.Place, l.At = store.PlaceDead, time.UnixMicro(int64(scores[i].Val()))
		job := &l.Record.Job
		config, err := configs.config(ctx, job.Queue)
		if err != nil {
			return nil, err
		}
		job.Priority = store.ClassName(config.classes, row.Record.Class)
		l.PayloadBytes = int64(len(job.Payload))
		if row.Record.Large {
			l.PayloadBytes = sizes[i].Val()
		}
	}
	return letters, nil
}
