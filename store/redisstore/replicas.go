package redisstore

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Bounds of the wait for replicas. The time-out stays below the client's for a read, so that a wait in vain is an answer.
const (
	maxReplicas           = 16
	defaultReplicaTimeout = 100 * time.Millisecond
	maxReplicaTimeout     = 400 * time.Millisecond
)

func (c Config) validateReplicas() (bad []error) {
	if c.Replicas < 0 || c.Replicas > maxReplicas {
		bad = append(bad, &admission.FieldError{Field: "replicas", Value: strconv.Itoa(c.Replicas), Allowed: "0 to 16"})
	}
	if c.ReplicaTimeout < time.Millisecond || c.ReplicaTimeout > maxReplicaTimeout {
		bad = append(bad, &admission.FieldError{Field: "replica timeout", Value: c.ReplicaTimeout.String(), Allowed: "1ms to 400ms"})
	}
	for _, queue := range c.ReplicaQueues {
		bad = append(bad, admission.ValidateName("queue", queue, true))
	}
	return bad
}

// wantsReplicas reports whether one of the jobs is of a queue that waits for replicas.
func (s *Partition) wantsReplicas(jobs []store.Candidate) bool {
	if s.config.Replicas == 0 || len(s.config.ReplicaQueues) == 0 {
		return s.config.Replicas > 0
	}
	return slices.ContainsFunc(jobs, func(c store.Candidate) bool { return slices.Contains(s.config.ReplicaQueues, c.Job.Queue) })
}

// runWith is run with payloads sent before it, and with wait it waits until Config.Replicas replicas have what the script wrote, and what was
// written before it: so a duplicate is waited for too. WAIT asks about its own connection, so all go in one pipeline.
func (s *Partition) runWith(ctx context.Context, name string, args []any, payloads []upload, wait bool) (reply []string, replicated bool, err error) {
	if !wait && len(payloads) == 0 {
		reply, err = s.run(ctx, name, args...)
		return reply, true, err
	}
	replicated = !wait
	send := func(ctx context.Context, cmd redis.Cmder) error {
		pipe := connection(s).Pipeline()
		s.sendUploads(ctx, pipe, payloads)
		if err := pipe.Process(ctx, cmd); err != nil {
			return err
		}
		var confirmed *redis.Cmd
		if wait {
			confirmed = pipe.Do(ctx, "wait", s.config.Replicas, s.config.ReplicaTimeout.Milliseconds())
		}
		_, _ = pipe.Exec(ctx) // Each command has its own error.
		if wait {
			n, err := confirmed.Int()
			replicated = err == nil && n >= s.config.Replicas
		}
		return cmd.Err()
	}
	reply, err = s.runBy(ctx, send, name, args)
	return reply, replicated, err
}
