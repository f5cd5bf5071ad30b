package redisconn

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/keyspace"
)

// Conn is a partition as a room sees it that reads or writes its keys.
type Conn struct {
	client any                  // a redis.UniversalClient; see Client
	master func(key string) any // of a cluster: Masters; nil elsewhere

	Partition keyspace.Partition
	// Now is what scripts take as the time in microseconds: empty for Redis TIME.
	Now string
	// Run calls a script and returns its reply as strings.
	Run func(ctx context.Context, script string, args ...any) ([]string, error)
}

// New returns the Conn of a partition by its redis.UniversalClient and, in a cluster, what Masters returned.
func New(client any, master func(key string) any, partition keyspace.Partition) Conn {
	return Conn{client: client, master: master, Partition: partition}
}

// At returns the Conn of another partition beside this one. It runs no scripts.
func (c Conn) At(partition keyspace.Partition) Conn { return New(c.client, c.master, partition) }

// Client returns the client of the partition; in a cluster, that of its master as far as it is known, so that whatever
// is read or written, by a key or not, is about the partition, and nothing is redirected to a node that has but a part of it.
// Neither the struct nor a method names its type: every package that knows Conn or a store would compile the two thousand methods
// behind it once more, which takes 1.3 s each.
func Client(c Conn) redis.UniversalClient {
	client := c.client
	if c.master != nil {
		client = c.master(c.Partition.State())
	}
	universal, _ := client.(redis.UniversalClient) // New takes nothing else
	return universal
}

// Root returns the client that New took: in a cluster, that of all of it.
func Root(c Conn) redis.UniversalClient {
	universal, _ := c.client.(redis.UniversalClient)
	return universal
}

// Division is how a deployment is divided that is not opened but looked at or moved.
type Division struct {
	// Layout is what its partitions say of it, such as "4", or "1>4" while it is migrated: what scripts compare.
	Layout string
	// Parts is how many partitions it has, Most how many of them, or of those beyond, are wanted.
	Parts, Most int
}

// Moment is when something was done that is not done now.
type Moment time.Time

// Masters returns what finds the client of the master of a key. It asks nobody: the slots are read once here, and again in the
// background.
func Masters(ctx context.Context, cluster *redis.ClusterClient, first string) (master func(key string) any, err error) {
	if _, err := cluster.MasterForKey(ctx, first); err != nil {
		return nil, fmt.Errorf("read the slots of the cluster: %w", Unread(err))
	}
	detached := context.WithoutCancel(ctx)
	return func(key string) any {
		node, err := cluster.MasterForKey(detached, key)
		if err != nil {
			return cluster
		}
		return node
	}, nil
}
