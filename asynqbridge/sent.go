package asynqbridge

import (
	"context"
	"errors"
	"net"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// attempt is what became of a task's script: asynq's own errors keep nothing of go-redis's but the text.
type attempt struct {
	// sent says that the script went out at least once and may have been run.
	sent bool
}

type attemptKey struct{}

// witness is a hook of go-redis that tells a ctx's attempt what it sees.
type witness struct{}

func (witness) DialHook(next redis.DialHook) redis.DialHook { return next }

func (witness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (witness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		a, ok := ctx.Value(attemptKey{}).(*attempt)
		if _, script := cmd.(*redis.Cmd); ok && script && err != nil && mayHaveRun(err) {
			a.sent = true
		}
		return err
	}
}

// mayHaveRun reports whether a script that ended with err may have changed something: a reply of Redis says that it has
// not, and neither has one that found no connection.
func mayHaveRun(err error) bool {
	if _, reply := errors.AsType[redis.Error](err); reply {
		return false
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return false
	}
	// A ctx that ends before there is a connection comes back bare; later it ends the connection's read.
	bare := err == context.Canceled || err == context.DeadlineExceeded //nolint:errorlint // bare on purpose
	return !bare && !errors.Is(err, redis.ErrPoolTimeout) && !errors.Is(err, redis.ErrPoolExhausted)
}

// connect returns a client of asynq's Redis, and whether it sends a command once. One that sends again by itself, as
// those of clusters and Sentinels do, may hear of its own first sending as a conflict.
func connect(options asynq.RedisConnOpt) (client redis.UniversalClient, once bool, err error) {
	if o, single := options.(asynq.RedisClientOpt); single {
		return redis.NewClient(&redis.Options{
			Network: o.Network, Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolSize: o.PoolSize,
			MaxRetries: -1,
		}), true, nil
	}
	client, ok := options.MakeRedisClient().(redis.UniversalClient)
	if !ok {
		return nil, false, errNoClient
	}
	return client, false, nil
}

// errNoClient means that a RedisConnOpt is none of asynq's.
var errNoClient = errors.New("options of asynq's redis make no client of go-redis")
