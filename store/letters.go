package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// Letter is a dead letter, or says that there is none.
type Letter struct {
	Listed

	// Dead says that the job is a dead letter; otherwise the rest is empty but for the Key.
	Dead bool
	// PayloadBytes is the length of its payload. A Large one that is gone has 0.
	PayloadBytes int64
}

// Letters reads up to MaxBatchJobs dead letters, in the order of their keys.
func (s *Store) Letters(ctx context.Context, keys []admission.Key) ([]Letter, error) {
	if s.all != nil {
		return spread(s, keys, tenantOf, func(part *Store, some []admission.Key) ([]Letter, error) { return part.Letters(ctx, some) })
	}
	letters := make([]Letter, len(keys))
	if len(keys) == 0 {
		return letters, nil
	}
	names := make([]string, len(keys))
	pipe := connection(s).Pipeline()
	scores, sizes := make([]*redis.FloatCmd, len(keys)), make([]*redis.IntCmd, len(keys))
	for i, key := range keys {
		names[i] = encodeKey(key)
		scores[i] = pipe.ZScore(ctx, s.partition.Dead(), names[i])
		sizes[i] = pipe.StrLen(ctx, s.partition.Large(names[i]))
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
		l.Place, l.At = PlaceDead, time.UnixMicro(int64(scores[i].Val()))
		job := &l.Record.Job
		config, err := configs.config(ctx, job.Queue)
		if err != nil {
			return nil, err
		}
		job.Priority = config.class(row.Record.Class)
		l.PayloadBytes = int64(len(job.Payload))
		if row.Record.Large {
			l.PayloadBytes = sizes[i].Val()
		}
	}
	return letters, nil
}

// Redrive returns the candidate that brings a dead letter back, and the error of one that cannot run again. A unique
// key that it once held is not asked for again: the letter has given it back, and its name is not kept.
func (l *Letter) Redrive(class int, limits *[admission.Levels]admission.Limit) (Candidate, error) {
	switch {
	case !l.Dead:
		return Candidate{}, admission.ErrNotDead
	case l.Err != nil:
		return Candidate{}, l.Err
	case l.Record.Large && l.PayloadBytes == 0:
		return Candidate{}, errPayloadGone
	}
	job := l.Record.Job
	if l.Record.Timed {
		job.Deadline = time.Time{} // It was the longest wait of the queue, which begins anew.
	}
	if l.Record.Large {
		// The payload stays where it is: its length alone tells the record so, and nothing of this is sent.
		job.Payload = make([]byte, largePayload+1)
	}
	return Candidate{Job: &job, Class: class, Limits: limits, Redrive: l.Record.Seq}, nil
}
