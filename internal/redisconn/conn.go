package redisconn

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/lua"
)

// Conn is the Redis of a partition, with its keys and scripts. It may be used by several goroutines, and never resends a command by
// itself.
type Conn struct {
	client any                  // a redis.UniversalClient; see Client
	master func(key string) any // of a cluster: masters; nil elsewhere

	Partition keyspace.Partition
	// Index is the partition's place among all, Parts how many there are, 0 for one.
	Index, Parts int
	// EndedCap is how many ended ids are kept for dedup, BucketCap how many buckets of one tenant.
	EndedCap, BucketCap int
	// Scripts are those that Run knows (SetLayout), Preamble what begins each: "#!lua ..." in tests on a cluster.
	Scripts  lua.Library
	Preamble string
	layout   string       // what Scripts compare
	textOnly *atomic.Bool // Redis has no functions.
	// Now is what scripts take as the time in microseconds: empty for Redis TIME. Only tests set it.
	Now string
}

// New returns the Conn of a partition by its redis.UniversalClient. Its scripts are those of a deployment of one partition.
func New(client any, partition keyspace.Partition, preamble string) *Conn {
	c := &Conn{client: client, Partition: partition, Preamble: preamble, textOnly: new(atomic.Bool)}
	c.SetLayout(lua.SingleLayout)
	return c
}

// At returns the Conn of another partition beside this one.
func (c *Conn) At(partition keyspace.Partition) *Conn {
	other := *c
	other.Partition = partition
	return &other
}

// Cluster reports whether the partition is on a master of a cluster, which Client finds.
func (c *Conn) Cluster() bool { return c.master != nil }

// FindMaster lets Client find the master of the partition, where that is in a cluster.
func (c *Conn) FindMaster(ctx context.Context) (err error) {
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		c.master, err = masters(ctx, cluster, c.Partition.State())
	}
	return err
}

// Client returns the client of the partition; in a cluster, that of its master as far as it is known, so that whatever
// is read or written, by a key or not, is about the partition, and nothing is redirected to a node that has but a part of it.
// Neither the struct nor a method names its type: every package that knows Conn or a store would compile the two thousand methods
// behind it once more, which takes 1.3 s each.
func Client(c *Conn) redis.UniversalClient {
	client := c.client
	if c.master != nil {
		client = c.master(c.Partition.State())
	}
	universal, _ := client.(redis.UniversalClient) // New takes nothing else
	return universal
}

// Root returns the client that New took: in a cluster, that of all of it.
func Root(c *Conn) redis.UniversalClient {
	universal, _ := c.client.(redis.UniversalClient)
	return universal
}

// Division is how a deployment is divided that is not opened but looked at or moved.
type Division struct {
	// Layout is what its partitions say of it, such as "4", or "1>4" while it is migrated: what scripts compare. Empty is that of one partition.
	Layout string
	// Parts is how many partitions it has, Most how many of them, or of those beyond, are wanted.
	Parts, Most int
}

// Moment is when something was done that is not done now.
type Moment time.Time

// masters returns what finds the client of the master of a key. It asks nobody: the slots are read once here, and again in the
// background.
func masters(ctx context.Context, cluster *redis.ClusterClient, first string) (master func(key string) any, err error) {
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
