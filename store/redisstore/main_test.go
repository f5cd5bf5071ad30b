package redisstore

import (
	"context"
	"flag"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

// halfChecks is how many sequences of random steps a half of the conformance suite has.
const halfChecks = "50"

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", halfChecks); err != nil { // a default, before the command line is read
		panic(err)
	}
	flag.Parse()
	redistest.Main(m)
}

// openOnly opens a deployment of one partition.
func openOnly(ctx context.Context, client redis.UniversalClient, config Config) (*Partition, error) {
	parts, err := open(ctx, client, config)
	if err != nil {
		return nil, err
	}
	return parts[0], nil
}

// openMany opens a deployment as one of several partitions.
func openMany(ctx context.Context, client redis.UniversalClient, config Config) (*many, error) {
	parts, err := open(ctx, client, config)
	return &many{parts: parts}, err
}
