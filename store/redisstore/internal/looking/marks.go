package looking

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// member is one member of a sorted set, its score in microseconds.
type member struct {
	name string
	at   int64
}

// after returns up to n members of a sorted set that follow a mark. Fewer means that there are no more.
func (s *Looking) after(ctx context.Context, key string, mark store.SetMark, n int) ([]member, error) {
	var found []member
	for count := n + 1; len(found) < n; {
		from := "-inf"
		if mark.Key != nil {
			from = strconv.FormatInt(mark.At, 10)
		}
		page, err := redisconn.Client(s.conn).ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: from, Max: "+inf", Count: int64(count)}).Result()
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", key, redisconn.Unread(err))
		}
		before := len(found)
		for _, z := range page {
			name, _ := z.Member.(string)
			// Members of one score are in the order of their bytes.
			if at := int64(z.Score); mark.Key == nil || at > mark.At || name > string(mark.Key) {
				found = append(found, member{name, at})
			}
		}
		if len(page) < count {
			break
		}
		if len(found) == before {
			count *= 2 // All of one score, and not after the mark.
			continue
		}
		last := found[len(found)-1]
		mark = store.SetMark{At: last.at, Key: []byte(last.name)}
	}
	return found[:min(len(found), n)], nil
}

// SmallHash is the number of fields up to which a hash is read as a whole; scanBatch about how many HSCAN returns.
const (
	SmallHash = 256
	scanBatch = 32
)

// field is one field of a hash.
type field struct{ name, value string }

// fields returns about n fields of a hash that follow a mark and where to go on; end means that there are no more. A
// field that is there all the while is returned at least once. It is returned twice where a hash becomes large, or is
// resized, meanwhile.
func (s *Looking) fields(ctx context.Context, key string, mark store.HashMark, n int) (found []field, next store.HashMark, end bool, err error) {
	if len(mark.Rest) > 0 {
		return s.restOf(ctx, key, mark, n)
	}
	if !mark.Begun {
		size, err := redisconn.Client(s.conn).HLen(ctx, key).Result()
		if err != nil {
			return nil, mark, false, fmt.Errorf("list %s: %w", key, redisconn.Unread(err))
		}
		if size <= SmallHash {
			return s.sortedFields(ctx, key, mark, n)
		}
	}
	pairs, scan, err := redisconn.Client(s.conn).HScan(ctx, key, mark.Scan, "", scanBatch).Result()
	if err != nil {
		return nil, mark, false, fmt.Errorf("list %s: %w", key, redisconn.Unread(err))
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		found = append(found, field{pairs[i], pairs[i+1]})
	}
	next = store.HashMark{Scan: scan, Begun: true}
	for len(found) > n {
		last := len(found) - 1
		next.Rest, found = append(next.Rest, []byte(found[last].name)), found[:last]
	}
	return found, next, scan == 0 && len(next.Rest) == 0, nil
}

// backTo is where to go on after the field at last of found, where next is that after all of them.
func backTo(next store.HashMark, found []field, last int) store.HashMark {
	if !next.Begun {
		return store.HashMark{After: []byte(found[last].name)}
	}
	rest := make([][]byte, 0, len(found)-last-1+len(next.Rest))
	for _, f := range found[last+1:] {
		rest = append(rest, []byte(f.name))
	}
	next.Rest = append(rest, next.Rest...)
	return next
}

// restOf returns fields that an earlier batch left over.
func (s *Looking) restOf(ctx context.Context, key string, mark store.HashMark, n int) (found []field, next store.HashMark, end bool, err error) {
	names := make([]string, min(n, len(mark.Rest)))
	for i := range names {
		names[i] = string(mark.Rest[i])
	}
	next = mark
	next.Rest = mark.Rest[len(names):]
	values, err := redisconn.Client(s.conn).HMGet(ctx, key, names...).Result()
	if err != nil {
		return nil, mark, false, fmt.Errorf("list %s: %w", key, redisconn.Unread(err))
	}
	for i, name := range names {
		if value, ok := values[i].(string); ok {
			found = append(found, field{name, value})
		}
	}
	return found, next, next.Scan == 0 && len(next.Rest) == 0, nil
}

func (s *Looking) sortedFields(ctx context.Context, key string, mark store.HashMark, n int) (found []field, next store.HashMark, end bool, err error) {
	all, err := redisconn.Client(s.conn).HGetAll(ctx, key).Result()
	if err != nil {
		return nil, mark, false, fmt.Errorf("list %s: %w", key, redisconn.Unread(err))
	}
	next = mark
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		return mark.After != nil && name <= string(mark.After)
	})
	for _, name := range names[:min(n, len(names))] {
		found = append(found, field{name, all[name]})
		next.After = []byte(name)
	}
	return found, next, len(names) <= n, nil
}
