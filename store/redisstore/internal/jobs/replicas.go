package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// wantsReplicas reports whether one of the jobs is of a queue that waits for replicas.
func (s *Jobs) wantsReplicas(jobs []store.Candidate) bool {
	if s.replicas.Count == 0 || len(s.replicas.Queues) == 0 {
		return s.replicas.Count > 0
	}
	return slices.ContainsFunc(jobs, func(c store.Candidate) bool { return slices.Contains(s.replicas.Queues, c.Job.Queue) })
}

// haveAll reports whether Config.Replicas replicas have whatever was written before, on other connections too: as the job has whose duplicate
// was enqueued. WAIT asks about the last write of its own connection, from Valkey 9 on: so there is one.
func (s *Jobs) haveAll(ctx context.Context) bool {
	pipe := redisconn.Client(s.conn).Pipeline()
	pipe.Set(ctx, s.conn.Partition.Relief(), "", time.Millisecond)
	confirmed := pipe.Do(ctx, "wait", s.replicas.Count, s.replicas.Timeout.Milliseconds())
	_, _ = pipe.Exec(ctx) // Each command has its own error.
	n, err := confirmed.Int()
	return err == nil && n >= s.replicas.Count
}

// runWith is run with payloads sent before it, and with wait it waits until Config.Replicas replicas have what the script wrote. WAIT asks about its own connection, so all go in one pipeline.
func (s *Jobs) runWith(ctx context.Context, name string, args []any, payloads []upload, wait bool) (reply []string, replicated bool, err error) {
	if !wait && len(payloads) == 0 {
		reply, err = s.conn.Run(ctx, name, args...)
		return reply, true, err
	}
	replicated = !wait
	send := func(ctx context.Context, cmd redis.Cmder) error {
		pipe := redisconn.Client(s.conn).Pipeline()
		s.sendUploads(ctx, pipe, payloads)
		if err := pipe.Process(ctx, cmd); err != nil {
			return err
		}
		var confirmed *redis.Cmd
		if wait {
			confirmed = pipe.Do(ctx, "wait", s.replicas.Count, s.replicas.Timeout.Milliseconds())
		}
		_, _ = pipe.Exec(ctx) // Each command has its own error.
		if wait {
			n, err := confirmed.Int()
			replicated = err == nil && n >= s.replicas.Count
		}
		return cmd.Err()
	}
	reply, err = s.conn.RunBy(ctx, send, name, args)
	return reply, replicated, err
}
