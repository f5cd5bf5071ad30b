package looking

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// spillsOf names the overflow stores that are not empty, as tenant:queue.
func (s *Looking) spillsOf(ctx context.Context) ([]string, error) {
	names, err := redisconn.Client(s.conn).SMembers(ctx, s.conn.Partition.Base()+"spills").Result()
	if err != nil {
		return nil, fmt.Errorf("read overflow stores: %w", redisconn.Unread(err))
	}
	return names, nil
}

func (s *Looking) spillKey(tenant, queue string) string {
	return s.conn.Partition.Base() + "spill:" + tenant + ":" + queue
}

// countSpilled counts the spilled jobs of queues.
func (s *Looking) countSpilled(ctx context.Context, queues map[string]*store.QueueState) error {
	names, err := s.spillsOf(ctx)
	if err != nil || len(names) == 0 {
		return err
	}
	pipe := redisconn.Client(s.conn).Pipeline()
	counts := map[*redis.IntCmd]*store.QueueState{}
	for _, name := range names {
		tenant, queue, _ := strings.Cut(name, ":")
		if q := queues[queue]; q != nil {
			counts[pipe.ZCard(ctx, s.spillKey(tenant, queue))] = q
		}
	}
	if len(counts) == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("count spilled jobs: %w", redisconn.Unread(err))
	}
	for count, q := range counts {
		q.Spilled += count.Val()
	}
	return nil
}
