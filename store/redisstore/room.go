package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// What is here is for the rooms of the house that stand on a store and need more of it than its users do. It takes or returns what
// only they can name.

// Conn returns the Redis of the partition with its keys and scripts.
func (s *Partition) Conn() *redisconn.Conn { return s.conn }

// Unchecked returns a deployment that Open would refuse, divided as it is said to be, and its partitions: as many
// as are wanted, those beyond the division as if they were of it.
func Unchecked(ctx context.Context, client redis.UniversalClient, config Config, as redisconn.Division) (whole store.Deployment, parts []*Partition, err error) {
	s, err := newStore(client, config, "")
	if err != nil {
		return nil, nil, err
	}
	if err := s.conn.FindMaster(ctx); err != nil {
		return nil, nil, err
	}
	if as.Layout != "" {
		s.conn.SetLayout(as.Layout)
	}
	for i := range as.Most {
		one := s.conn.At(keyspace.New(s.config.Prefix, i))
		one.Index = i
		if as.Parts > 1 {
			one.Parts = as.Parts
		}
		parts = append(parts, partitionOf(one, s.config, s.second))
	}
	if len(parts) == 0 {
		parts = []*Partition{s}
	}
	return deploymentOf(parts[:max(1, as.Parts)]), parts, nil
}

// Stored returns the partitions that Redis says there are, unchecked: for who tells what is wrong with them.
func Stored(ctx context.Context, client redis.UniversalClient, config Config) ([]*Partition, error) {
	_, only, err := Unchecked(ctx, client, config, redisconn.Division{Most: 1})
	if err != nil {
		return nil, err
	}
	layout, err := redisconn.Client(only[0].conn).HGet(ctx, only[0].Keys().State(), redisconn.LayoutField).Result()
	if err != nil && !redisconn.IsNil(err) {
		return nil, fmt.Errorf("read number of partitions: %w", redisconn.Unread(err))
	}
	n := max(1, int(redisconn.Whole(layout)))
	_, parts, err := Unchecked(ctx, client, config, redisconn.Division{Parts: n, Most: n})
	return parts, err
}

// PartsOf returns the partitions of a deployment that is in Redis; ok is false where it is elsewhere.
func PartsOf(d store.Deployment) (parts []*Partition, ok bool) {
	for _, part := range d.Partitions() {
		p, ok := part.(*Partition)
		if !ok {
			return nil, false
		}
		parts = append(parts, p)
	}
	return parts, true
}

// Keys returns the names of the keys of the first partition of a deployment in Redis.
func Keys(d store.Deployment) keyspace.Partition { return KeysOf(d.Partitions()[0]) }

// KeysOf returns the names of the keys of a partition in Redis.
func KeysOf(part store.Partition) keyspace.Partition {
	p, _ := part.(*Partition)
	return p.Keys()
}

// SetTime makes the scripts, and Time, take a time for that of Redis; the zero time is Redis' own again. It is for tests that hold two stores equal.
func (s *Partition) SetTime(at time.Time) {
	s.conn.Now = ""
	if !at.IsZero() {
		s.conn.Now = strconv.FormatInt(at.UnixMicro(), 10)
	}
}
