package migrate

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

// eachKey calls do for all keys of the partition, by their names without the base, a page at a time. Some may come twice.
func eachKey(ctx context.Context, of *redisconn.Conn, do func(names []string) error) error {
	base := of.Partition.Base()
	for cursor := uint64(0); ; {
		keys, next, err := redisconn.Client(of).Scan(ctx, cursor, base+"*", migratePage).Result()
		if err != nil {
			return fmt.Errorf("read keys: %w", redisconn.Unread(err))
		}
		for i, key := range keys {
			keys[i] = strings.TrimPrefix(key, base)
		}
		if err := do(keys); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// ownerOf returns what a key of its own belongs to: a text that begins with a tenant's name. What is in no such key moves with
// the jobs, or is made anew. A candidate's buckets are x:ID:TENANT.
func ownerOf(name string) (owner string, owned bool) {
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "large", "log", "result", "unique", "uniques", "ahead", "b":
		return rest, true
	case "reserved": // Of no tenant it stands as it is.
		return rest, !strings.HasPrefix(rest, ":")
	case "x":
		_, tenant, found := strings.Cut(rest, ":")
		return tenant, found
	}
	return "", false
}

// copyKeys copies the keys that tenants have of their own, with their times, and the receipts of refunds, which name no tenant, to
// everywhere.
func (m *Migration) copyKeys(ctx context.Context) error {
	done := int64(0)
	for i, part := range m.from {
		err := eachKey(ctx, part.conn, func(names []string) error {
			to := map[*partition][]string{}
			for _, name := range names {
				owner, owned := ownerOf(name)
				switch {
				case owned && m.moves(i, owner):
					to[m.home(owner)] = append(to[m.home(owner)], name)
				case strings.HasPrefix(name, "refund:"):
					for _, other := range m.to {
						if other != part {
							to[other] = append(to[other], name)
						}
					}
				}
			}
			for other, some := range to {
				if err := part.copyTo(ctx, other, some...); err != nil {
					return err
				}
				done += int64(len(some))
			}
			m.observe("copy keys", done, 0)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// What PTTL says of a key that is not there, and of one without a time.
const (
	gone    time.Duration = -2
	forEver time.Duration = -1
)

// copyTo copies keys, by their names without the base, into another partition, in place of what is there.
func (p *partition) copyTo(ctx context.Context, to *partition, names ...string) error {
	pipe := redisconn.Client(p.conn).Pipeline()
	dumps, lives := make([]*redis.StringCmd, len(names)), make([]*redis.DurationCmd, len(names))
	for i, name := range names {
		dumps[i], lives[i] = pipe.Dump(ctx, p.conn.Partition.Base()+name), pipe.PTTL(ctx, p.conn.Partition.Base()+name)
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return fmt.Errorf("read keys to copy: %w", redisconn.Unread(err))
	}
	pipe = redisconn.Client(to.conn).Pipeline()
	for i, name := range names {
		life := lives[i].Val()
		if dumps[i].Err() != nil || life == gone {
			continue
		}
		if life != forEver {
			life = max(life, time.Millisecond) // None at all would be for ever.
		} else {
			life = 0
		}
		pipe.RestoreReplace(ctx, to.conn.Partition.Base()+name, life, dumps[i].Val())
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("write copied keys: %w", redisconn.Unread(err))
	}
	return nil
}

// ofPartition are the keys that a partition has for its own sake and keeps on another Redis: places of followers, transitions of
// breakers, rates that were not usual, what a candidate in shadow would have answered, ticks of periodic jobs. rateDays are more of them.
var ofPartition = []string{"followers", "events", "anomalies", "shadow", "periodic"}

// rateDays are the days of which it is kept what queues were asked for, those that may be there by now.
func rateDays(now time.Time) (names []string) {
	first, _ := store.RateSlot(now.Add(-store.RateHistoryLife))
	last, _ := store.RateSlot(now)
	for day := first; day <= last; day++ {
		names = append(names, "rates:"+strconv.FormatInt(day, 10))
	}
	return names
}

// copyPartitions begins the clocks of new partitions where those of the first one are, and takes what a partition has for itself.
func (m *Migration) copyPartitions(ctx context.Context) error {
	m.observe("prepare partitions", 0, 0)
	first := m.from[0]
	clock, err := first.bucketClock(ctx)
	if err != nil {
		return err
	}
	now, err := first.Time(ctx)
	if err != nil {
		return err
	}
	for i, part := range m.to {
		if _, err := part.conn.Run(ctx, "carry", part.conn.Now, clock, "", 0); err != nil {
			return err
		}
		switch {
		case m.inPlace && i >= m.before:
			err = first.copyTo(ctx, part, "followers")
		case !m.inPlace && i < len(m.from):
			err = m.from[i].copyTo(ctx, part, slices.Concat(ofPartition, rateDays(now))...)
		}
		if err != nil {
			return err
		}
	}
	if err := m.copyAdaptive(ctx); err != nil {
		return err
	}
	return m.copyFollowed(ctx)
}

// copyFollowed lets followers of dead letters begin, where letters come to, at the earliest place of all: each is told at least once.
func (m *Migration) copyFollowed(ctx context.Context) error {
	earliest, begun := store.Death{}, true
	for _, part := range m.from[:m.before] {
		letters, err := redisconn.Client(part.conn).ZCard(ctx, part.conn.Partition.Dead()).Result()
		if err != nil {
			return fmt.Errorf("count dead letters: %w", redisconn.Unread(err))
		}
		place, err := part.Followed(ctx, store.DeathFollower)
		if err != nil {
			return err
		}
		if known := place.At.UnixMicro() > 0; known && (earliest.At.IsZero() || earliest.After(place)) {
			earliest = place
		} else if !known && letters > 0 {
			begun = false
		}
	}
	for i, part := range m.to {
		var err error
		switch {
		case m.inPlace && i < m.before && m.before < len(m.to): // None comes there.
		case begun && !earliest.At.IsZero():
			err = part.NoteFollowed(ctx, store.DeathFollower, earliest)
		default:
			err = redisconn.Client(part.conn).HDel(ctx, part.conn.Partition.Followers(), store.DeathFollower).Err()
		}
		if err != nil {
			return fmt.Errorf("copy places of followers: %w", redisconn.Unread(err))
		}
	}
	return nil
}

// bucketClock returns the partition's clock of buckets now, in microseconds, empty where it has not begun.
func (p *partition) bucketClock(ctx context.Context) (string, error) {
	pipe := redisconn.Client(p.conn).Pipeline()
	values, now := redisconn.ReadState(ctx, pipe, p.conn.Partition, "t", "bt"), pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return "", fmt.Errorf("read clock: %w", redisconn.Unread(err))
	}
	last, clock := redisconn.Whole(redisconn.TextAt(values.Val(), 0)), redisconn.Whole(redisconn.TextAt(values.Val(), 1))
	if last == 0 {
		return "", nil
	}
	return strconv.FormatInt(clock+max(0, now.Val().UnixMicro()-last), 10), nil
}

// storePolicy takes the history of the policy to another Redis and stores the one in force for as many partitions as there are now.
func (m *Migration) storePolicy(ctx context.Context) error {
	first, target := m.from[0], m.to[0]
	if version, _, err := target.policyVersion(ctx); err != nil {
		return err
	} else if !m.inPlace && version == 0 {
		if err := first.copyTo(ctx, target, "policy", "policies", "audit"); err != nil {
			return err
		}
		if m.policy == nil {
			return nil
		}
		if err := redisconn.Client(target.conn).HSet(ctx, target.conn.Partition.State(), "pv", m.policy.Expected).Err(); err != nil {
			return fmt.Errorf("write policy version: %w", redisconn.Unread(err))
		}
	}
	if m.policy == nil {
		return nil
	}
	if err := m.target.PutPolicy(ctx, *m.policy); err != nil {
		return fmt.Errorf("store policy: %w", err)
	}
	return nil
}

// unlink deletes the keys that are chosen by their names without the base; the state goes last.
func unlink(ctx context.Context, of *redisconn.Conn, chosen func(name string) bool) error {
	base := of.Partition.Base()
	err := eachKey(ctx, of, func(names []string) error {
		var keys []string
		for _, name := range names {
			if name != "state" && chosen(name) {
				keys = append(keys, base+name)
			}
		}
		if len(keys) == 0 {
			return nil
		}
		return redisconn.Client(of).Unlink(ctx, keys...).Err()
	})
	if err == nil && chosen("state") {
		err = redisconn.Client(of).Unlink(ctx, of.Partition.State()).Err()
	}
	if err != nil {
		return fmt.Errorf("delete keys: %w", redisconn.Unread(err))
	}
	return nil
}

// remaining returns how long it is until a time, by the clock of Redis; forever says that the time is none.
func (p *partition) remaining(ctx context.Context, until time.Time) (left time.Duration, forever bool, err error) {
	if until.IsZero() {
		return 0, true, nil
	}
	now, err := p.Time(ctx)
	return until.Sub(now), false, err
}
