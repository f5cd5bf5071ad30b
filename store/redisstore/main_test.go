package redisstore

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

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
