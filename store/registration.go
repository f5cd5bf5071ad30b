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

// Registration is what a worker has in one partition.
type Registration struct {
	Pool Pool
	// Slots is how many it has registered, Held how many jobs it holds there.
	Slots, Held int
	// Room is how many jobs more the pool's ready stream takes; below zero when slots were taken away from those in it.
	Room int
}

// Registration returns that of a worker of a pool in this partition. The error matches headgate.ErrLeaseLost where there is none.
func (s *Store) Registration(ctx context.Context, pool, worker string) (Registration, error) {
	pipe := connection(s).Pipeline()
	stored := pipe.HGet(ctx, s.partition.Workers(), worker)
	served := pipe.HGet(ctx, s.partition.State(), "pool:"+pool)
	entries := pipe.XLen(ctx, s.partition.Ready(pool))
	pending := pipe.XPending(ctx, s.partition.Ready(pool), group)
	_, err := pipe.Exec(ctx)
	if errors.Is(stored.Err(), redis.Nil) || errors.Is(served.Err(), redis.Nil) {
		return Registration{}, fmt.Errorf("worker %s: %w", worker, admission.ErrLeaseLost)
	}
	if err != nil {
		return Registration{}, fmt.Errorf("read registration: %w", redisconn.Unread(err))
	}
	parts := strings.Split(stored.Val(), "|")
	if len(parts) != 3 || parts[0] != pool {
		return Registration{}, fmt.Errorf("read registration of worker %s: %w", worker, redisconn.ErrUnknownReply)
	}
	slots, err := strconv.Atoi(parts[1])
	if err != nil {
		return Registration{}, fmt.Errorf("read registration of worker %s: %w", worker, err)
	}
	p := parsePool(served.Val())
	return Registration{
		Pool: p.pool, Slots: slots, Held: int(pending.Val().Consumers[worker]), Room: p.slots - int(entries.Val()),
	}, nil
}

// LeaseSharing asks for the right to share out a worker's slots over partitions, which one caller has at a time, for as long as
// lease. It ends with ReturnSharing, or by itself.
func (s *Store) LeaseSharing(ctx context.Context, worker, token string, lease time.Duration) (bool, error) {
	return s.LeaseProbe(ctx, sharing(worker), token, 1, lease)
}

// ReturnSharing ends a lease of LeaseSharing.
func (s *Store) ReturnSharing(ctx context.Context, worker, token string) error {
	return s.ReturnProbe(ctx, sharing(worker), token)
}

// sharing names the right; no downstream has a space in its name.
func sharing(worker string) string { return "slots of " + worker }
