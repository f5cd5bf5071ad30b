package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Usage returns what was used in a day, as store.Buckets.Usage. Of one tenant it reads two lines, of all the whole day, page by page.
func (s *Limits) Usage(ctx context.Context, q store.UsageQuery) ([]store.DayUsage, error) {
	day := store.DayOf(q.Day)
	key := s.conn.Partition.Usage(day)
	fields, err := s.usageOf(ctx, key, &q)
	if err != nil {
		return nil, err
	}
	all := make([]store.DayUsage, 0, len(fields))
	for field, text := range fields {
		tenant, queue, _ := strings.Cut(field, ":")
		brought := strings.HasPrefix(tenant, store.UsageRest) // By a migration there may be several.
		if brought {
			tenant = store.UsageRest
		}
		if tenant == "" || queue == "" || q.Queue != "" && q.Queue != queue || q.Tenant != "" && q.Tenant != tenant {
			continue
		}
		used, err := parseUsed(text)
		if err != nil {
			return nil, fmt.Errorf("read %s, field %s: %w", key, field, err)
		}
		if brought {
			if at := slices.IndexFunc(all, func(u store.DayUsage) bool { return u.Tenant == tenant }); at >= 0 {
				all[at].Add(&used)
				continue
			}
		}
		all = append(all, store.DayUsage{Day: time.Unix(day*24*60*60, 0).UTC(), Tenant: tenant, Queue: queue, Used: used})
	}
	slices.SortFunc(all, func(a, b store.DayUsage) int { return store.CompareUsage(&a, &b) })
	return all, nil
}

// usageOf reads the fields of a day that a query is about, others beside them.
func (s *Limits) usageOf(ctx context.Context, key string, q *store.UsageQuery) (map[string]string, error) {
	if q.Tenant == "" || q.Tenant == store.UsageRest {
		return s.conn.WholeHash(ctx, key, "")
	}
	client := redisconn.Client(s.conn)
	queues, err := client.HGet(ctx, key, q.Tenant+":").Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", key, redisconn.Unread(err))
	}
	names := []string{q.Tenant + ":" + store.UsageRest}
	for queue := range strings.SplitSeq(queues, ",") {
		names = append(names, q.Tenant+":"+queue)
	}
	values, err := client.HMGet(ctx, key, names...).Result()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, redisconn.Unread(err))
	}
	fields := make(map[string]string, len(names))
	for i, value := range values {
		if text, ok := value.(string); ok {
			fields[names[i]] = text
		}
	}
	return fields, nil
}

func parseUsed(text string) (used store.Used, err error) {
	var numbers [5]int64
	parts := strings.Split(text, ":")
	if len(parts) != len(numbers) {
		return used, redisconn.ErrUnknownReply
	}
	for i, part := range parts {
		if numbers[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			return used, redisconn.ErrUnknownReply
		}
	}
	tokens := func(i int) admission.Tokens { return admission.Tokens(numbers[i]) }
	return store.Used{Jobs: numbers[0], Calls: numbers[1], Reserved: tokens(2), Refunded: tokens(3), Added: tokens(4)}, nil
}
