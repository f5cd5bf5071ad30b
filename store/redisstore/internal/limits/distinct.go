package limits

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// distinctPortion is how many names a call adds.
const distinctPortion = 500

// addNames adds the names of a count to those that were seen of its queue.
func (s *Limits) addNames(ctx context.Context, c *store.ScopeCount) error {
	keep := strconv.FormatInt(int64(store.DistinctKept.Seconds()), 10)
	tenants := len(c.Tenants)
	for portion := range slices.Chunk(slices.Concat(c.Tenants, c.Jobs), distinctPortion) {
		of := min(tenants, len(portion))
		tenants -= of
		args := append(make([]any, 0, 5+len(portion)), s.conn.Now, keep, store.MaxDistinctQueues, c.Queue, of)
		for _, name := range portion {
			args = append(args, name)
		}
		if _, err := s.conn.Run(ctx, "distinct", args...); err != nil {
			return err
		}
	}
	return nil
}

// Distincts returns how many different tenants and jobs queues had, as store.Buckets says.
func (s *Limits) Distincts(ctx context.Context, queue string) (map[string]store.Distinct, error) {
	now, err := s.conn.Time(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]store.Distinct{}
	for _, last := range []bool{false, true} {
		hour := now.Unix() / 3600
		if last {
			hour--
		}
		queues := []string{queue}
		if queue == "" {
			if queues, err = redisconn.Client(s.conn).SMembers(ctx, s.conn.Partition.Distinct(hour)).Result(); err != nil {
				return nil, fmt.Errorf("read queues of an hour: %w", redisconn.Unread(err))
			}
		}
		if err := s.distinctsOf(ctx, all, queues, hour, last); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// distinctsOf reads an hour of queues. Those that had nothing are left out.
func (s *Limits) distinctsOf(ctx context.Context, all map[string]store.Distinct, queues []string, hour int64, last bool) error {
	if len(queues) == 0 {
		return nil
	}
	pipe := redisconn.Client(s.conn).Pipeline()
	tenants, jobs := make([]*redis.IntCmd, len(queues)), make([]*redis.IntCmd, len(queues))
	for i, queue := range queues {
		tenants[i], jobs[i] = pipe.PFCount(ctx, s.conn.Partition.DistinctTenants(hour, queue)), pipe.PFCount(ctx, s.conn.Partition.DistinctJobs(hour, queue))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("count different names: %w", redisconn.Unread(err))
	}
	for i, queue := range queues {
		one := store.DistinctNames{Tenants: tenants[i].Val(), Jobs: jobs[i].Val()}
		if one == (store.DistinctNames{}) {
			continue
		}
		of := all[queue]
		if last {
			of.LastHour = one
		} else {
			of.ThisHour = one
		}
		all[queue] = of
	}
	return nil
}
