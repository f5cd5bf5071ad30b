package store

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
)

// What is here is for the rooms of the house that stand on a store and need more of it than its users do. It takes or returns what
// only they can name.

// Conn returns the Redis of the first partition with its keys and scripts.
func (s *Store) Conn() redisconn.Conn {
	conn := redisconn.New(s.client, s.master, s.partition)
	conn.Now, conn.Run = s.now, s.run
	return conn
}

// Unchecked returns the store of a deployment that Open would refuse, divided as it is said to be, and its partitions: as many
// as are wanted, those beyond the division as if they were of it.
func Unchecked(ctx context.Context, client redis.UniversalClient, config Config, as redisconn.Division) (whole *Store, parts []*Store, err error) {
	s, err := newStore(client, config, "")
	if err != nil {
		return nil, nil, err
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		if s.master, err = redisconn.Masters(ctx, cluster, s.partition.State()); err != nil {
			return nil, nil, err
		}
	}
	s.setLayout(as.Layout)
	for i := range as.Most {
		one := *s
		one.partition, one.index = keyspace.New(s.config.Prefix, i), i
		if as.Parts > 1 {
			one.whole, one.parts = s, as.Parts
		}
		parts = append(parts, &one)
	}
	if as.Parts > 1 {
		s.all, s.parts = parts[:as.Parts], as.Parts
	}
	return s, parts, nil
}

// Carried is an intervention of somebody's that began before, such as a hold which goes to another partition.
func Carried(author, reason string, since redisconn.Moment) Intervention {
	return Intervention{Author: author, Reason: reason, Own: true, since: time.Time(since)}
}
