package jobs

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
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Registration returns that of a worker of a pool in this partition. The error matches headgate.ErrLeaseLost where there is none.
func (s *Jobs) Registration(ctx context.Context, pool, worker string) (store.Registration, error) {
	pipe := redisconn.Client(s.conn).Pipeline()
	stored := pipe.HGet(ctx, s.conn.Partition.Workers(), worker)
	served := pipe.HGet(ctx, s.conn.Partition.State(), "pool:"+pool)
	entries := pipe.XLen(ctx, s.conn.Partition.Ready(pool))
	pending := pipe.XPending(ctx, s.conn.Partition.Ready(pool), redisconn.Group)
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
	if parts[2] == "0" { // It is being taken back.
		return store.Registration{}, fmt.Errorf("worker %s: %w", worker, admission.ErrLeaseLost)
	}
	slots, err := strconv.Atoi(parts[1])
	if err != nil {
		return store.Registration{}, fmt.Errorf("read registration of worker %s: %w", worker, err)
	}
	p := codec.ParsePool(served.Val())
	return store.Registration{
		Pool: p.Pool, Slots: slots, Held: int(pending.Val().Consumers[worker]), Room: p.Slots - int(entries.Val()),
	}, nil
}
