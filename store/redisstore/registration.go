package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Registration returns that of a worker of a pool in this partition. The error matches headgate.ErrLeaseLost where there is none.
func (s *Partition) Registration(ctx context.Context, pool, worker string) (store.Registration, error) {
	pipe := connection(s).Pipeline()
	stored := pipe.HGet(ctx, s.partition.Workers(), worker)
	served := pipe.HGet(ctx, s.partition.State(), "pool:"+pool)
	entries := pipe.XLen(ctx, s.partition.Ready(pool))
	pending := pipe.XPending(ctx, s.partition.Ready(pool), group)
	_, err := pipe.Exec(ctx)
	if errors.Is(stored.Err(), redis.Nil) || errors.Is(served.Err(), redis.Nil) {
		return store.Registration{}, fmt.Errorf("worker %s: %w", worker, admission.ErrLeaseLost)
	}
	if err != nil {
		return store.Registration{}, fmt.Errorf("read registration: %w", redisconn.Unread(err))
	}
	parts := strings.Split(stored.Val(), "|")
	if len(parts) != 3 || parts[0] != pool {
		return store.Registration{}, fmt.Errorf("read registration of worker %s: %w", worker, redisconn.ErrUnknownReply)
	}
	slots, err := strconv.Atoi(parts[1])
	if err != nil {
		return store.Registration{}, fmt.Errorf("read registration of worker %s: %w", worker, err)
	}
	p := parsePool(served.Val())
	return store.Registration{
		Pool: p.pool, Slots: slots, Held: int(pending.Val().Consumers[worker]), Room: p.slots - int(entries.Val()),
	}, nil
}
