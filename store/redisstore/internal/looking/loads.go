package looking

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// QueueNames returns all queues by name.
func (s *Looking) QueueNames(ctx context.Context) ([]string, error) { return s.queueNames(ctx) }

// WorkerLoads returns what registered workers told of themselves lately, by their names: two round trips; one, and nil, where the policy
// has nobody tell.
func (s *Looking) WorkerLoads(ctx context.Context) ([]store.WorkerLoad, error) {
	pipe := redisconn.Client(s.conn).Pipeline()
	asked, registered := pipe.HExists(ctx, s.conn.Partition.State(), "load"), pipe.HKeys(ctx, s.conn.Partition.Workers())
	now, err := s.clockOf(ctx, pipe)
	if err != nil || !asked.Val() {
		return nil, err
	}
	names := registered.Val()
	slices.Sort(names)
	all := []store.WorkerLoad{}
	for page := range slices.Chunk(names, store.ListPortion) {
		keys := make([]string, len(page))
		for i, name := range page {
			keys[i] = s.conn.Partition.Load(name)
		}
		texts, err := redisconn.Client(s.conn).MGet(ctx, keys...).Result()
		if err != nil {
			return nil, fmt.Errorf("read loads of workers: %w", redisconn.Unread(err))
		}
		for i, name := range page {
			at, text, _ := strings.Cut(redisconn.TextAt(texts, i), "|")
			us, err := strconv.ParseInt(at, 10, 64)
			if told := time.UnixMicro(us); err == nil && now.Sub(told) <= store.WorkerLoadLife {
				all = append(all, store.WorkerLoad{Worker: name, At: told, Text: text})
			}
		}
	}
	return all, nil
}

// WaitingFor returns how many jobs wait in lanes for each of these services of downstreams: one command for store.ListPortion of them.
func (s *Looking) WaitingFor(ctx context.Context, services []string) ([]int64, error) {
	counts := make([]int64, 0, len(services))
	for page := range slices.Chunk(services, store.ListPortion) {
		texts, err := redisconn.Client(s.conn).HMGet(ctx, s.conn.Partition.Waits(), page...).Result()
		if err != nil {
			return nil, fmt.Errorf("read what waits for downstreams: %w", redisconn.Unread(err))
		}
		for i := range page {
			counts = append(counts, redisconn.Whole(redisconn.TextAt(texts, i)))
		}
	}
	return counts, nil
}

// LoadHistory returns the points of a service, the earliest first: two round trips, of which the second reads a hash a minute.
func (s *Looking) LoadHistory(ctx context.Context, service string, since time.Time) ([]store.LoadPoint, error) {
	now, err := s.clockOf(ctx, redisconn.Client(s.conn).Pipeline())
	if err != nil {
		return nil, err
	}
	last := store.LoadSlot(now)
	first := last.Add(-store.LoadStep * time.Duration(store.LoadPoints-1))
	if since = store.LoadSlot(since.Add(store.LoadStep - 1)); since.After(first) {
		first = since
	}
	if first.After(last) {
		return nil, nil
	}
	pipe := redisconn.Client(s.conn).Pipeline()
	var pages []*redis.SliceCmd
	var times []time.Time
	for at := first; !at.After(last); {
		minute := at.Truncate(time.Minute)
		var fields []string
		for ; !at.After(last) && at.Truncate(time.Minute).Equal(minute); at = at.Add(store.LoadStep) {
			fields = append(fields, strconv.Itoa(int(at.Sub(minute)/store.LoadStep))+":"+service)
			times = append(times, at)
		}
		pages = append(pages, pipe.HMGet(ctx, s.conn.Partition.Loads(minute.Unix()/60), fields...))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read history of %s: %w", service, redisconn.Unread(err))
	}
	var points []store.LoadPoint
	for _, page := range pages {
		for i := range page.Val() {
			if text := redisconn.TextAt(page.Val(), i); text != "" {
				points = append(points, store.LoadPoint{At: times[i], Text: text})
			}
		}
		times = times[len(page.Val()):]
	}
	return points, nil
}

// clockOf does what stands in a pipe, and returns the time of Redis.
func (s *Looking) clockOf(ctx context.Context, pipe redis.Pipeliner) (time.Time, error) {
	clock := pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return time.Time{}, fmt.Errorf("read loads: %w", redisconn.Unread(err))
	}
	if s.conn.Now != "" { // a test's
		return time.UnixMicro(redisconn.Whole(s.conn.Now)), nil
	}
	return clock.Val(), nil
}
