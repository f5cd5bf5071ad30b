package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/breakers"
	"github.com/headgate/headgate/store/redisstore/internal/gates"
	"github.com/headgate/headgate/store/redisstore/internal/jobs"
	"github.com/headgate/headgate/store/redisstore/internal/limits"
	"github.com/headgate/headgate/store/redisstore/internal/looking"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

// Partition runs the scripts of one partition in Redis. It may be used by several goroutines. It never resends a command by itself.
type Partition struct {
	*jobs.Jobs
	*limits.Limits
	*breakers.Fleet
	*policies.Policies
	*gates.Bounds
	*looking.Looking

	conn   *redisconn.Conn
	config Config
	// second is the second Redis, nil for none.
	second *jobs.Second
}

// Connect returns the deployment at a URL, redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://, or at host:port, with the
// client settings of the house, after the checks of Open. Close ends its connections.
func Connect(ctx context.Context, url string, config Config) (store.Deployment, error) {
	client, err := redisclient.Dial(url, nil)
	if err != nil {
		return nil, &admission.FieldError{
			Field: "redis URL", Value: "(not shown, it may hold a password; it " + err.Error() + ")",
			Allowed: "redis://[user:password@]host:port[/db], rediss:// for TLS, host:port, unix://path, redis-sentinel://host:port,host:port/db?master=NAME, " +
				"or redis-cluster://host:port,host:port",
		}
	}
	s, err := Open(ctx, client, config)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return s, nil
}

// Close ends the connections of the store's clients.
func (s *Partition) Close() error {
	return errors.Join(redisconn.Client(s.conn).Close(), s.second.Close())
}

// ReadTimeout returns how long the client of the store waits for an answer, 0 where that is not known.
func (s *Partition) ReadTimeout() time.Duration {
	if c, ok := redisconn.Root(s.conn).(*redis.Client); ok {
		return c.Options().ReadTimeout
	}
	return 0
}

// Open returns the deployment behind client after the start-up checks: Redis answers within two seconds, or within the
// client's ReadTimeout where that is longer, is new enough, and does not evict live keys.
func Open(ctx context.Context, client redis.UniversalClient, config Config) (store.Deployment, error) {
	parts, err := open(ctx, client, config)
	if err != nil {
		return nil, err
	}
	return deploymentOf(parts), nil
}

// open returns the partitions of the deployment behind client.
func open(ctx context.Context, client redis.UniversalClient, config Config) ([]*Partition, error) {
	if c, ok := client.(*redis.Client); ok && c.Options().MaxRetries > 0 {
		return nil, &admission.FieldError{
			Field: "MaxRetries of the redis client", Value: strconv.Itoa(c.Options().MaxRetries),
			Allowed: "-1: what is in doubt is resent by the layer that knows for how long ids are remembered (or use Connect)",
		}
	}
	s, err := newStore(client, config, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(redisconn.CheckTimeout, s.ReadTimeout()))
	defer cancel()
	if err = s.conn.FindMaster(ctx); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	parts, err := s.check(ctx)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return parts, nil
}

func newStore(client redis.UniversalClient, config Config, preamble string) (*Partition, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	conn := redisconn.New(client, keyspace.New(config.Prefix, 0), preamble)
	conn.EndedCap, conn.BucketCap = config.EndedCap, config.BucketCap
	of, err := jobs.DialSecond(config.Second, config.SecondTLS)
	if err != nil {
		return nil, err
	}
	return partitionOf(conn, config, of), nil
}

// partitionOf returns the partition behind a Conn.
func partitionOf(conn *redisconn.Conn, config Config, of *jobs.Second) *Partition {
	replicas := jobs.Replicas{Count: config.Replicas, Timeout: config.ReplicaTimeout, Queues: config.ReplicaQueues}
	return &Partition{
		Jobs: jobs.New(conn, replicas, of), Limits: limits.New(conn), Fleet: breakers.New(conn),
		Policies: policies.New(conn), Bounds: gates.New(conn), Looking: looking.New(conn),
		conn: conn, config: config, second: of,
	}
}

// Config returns what the store was opened with, defaults filled in.
func (s *Partition) Config() Config { return s.config }

// Keys returns the names of the partition's keys.
func (s *Partition) Keys() keyspace.Partition { return s.conn.Partition }

// Connections returns how many connections the client has to Redis; 0 of a client that does not tell.
func (s *Partition) Connections() int {
	if pool, ok := redisconn.Root(s.conn).(interface{ PoolStats() *redis.PoolStats }); ok {
		return int(pool.PoolStats().TotalConns)
	}
	return 0
}

// CheckLayout implements Partition.
func (s *Partition) CheckLayout(ctx context.Context) error { return s.conn.CheckLayout(ctx) }

// Time implements Partition.
func (s *Partition) Time(ctx context.Context) (time.Time, error) { return s.conn.Time(ctx) }
