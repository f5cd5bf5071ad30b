package asynqbridge

import (
	"context"
	"net"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// resolver lets asynq itself read a task's options, those of asynq.NewTask among them, which it shows to nobody: by an
// asynq.Client whose commands are answered here and go nowhere.
type resolver struct {
	client *asynq.Client
}

// resolved is a task as asynq would enqueue it.
type resolved struct {
	*asynq.TaskInfo
	// unique says that the task has the option asynq.Unique.
	unique bool
}

type resolvedKey struct{}

func newResolver() resolver {
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }})
	client.AddHook(yes{})
	return resolver{asynq.NewClientFromRedisClient(client)}
}

// resolve returns asynq's own error for what it does not take.
func (r resolver) resolve(ctx context.Context, task *asynq.Task, options []asynq.Option) (resolved, error) {
	result := resolved{}
	info, err := r.client.EnqueueContext(context.WithValue(ctx, resolvedKey{}, &result), task, options...)
	result.TaskInfo = info
	return result, err
}

// yes is a hook of go-redis that answers 1 to every command in Redis's place.
type yes struct{}

func (yes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (yes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook { return next }

func (yes) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch c := cmd.(type) {
		case *redis.Cmd: // a script: EVALSHA sha 3 asynq:{QUEUE}:unique:… for one that is unique
			c.SetVal(int64(1))
			if result, ok := ctx.Value(resolvedKey{}).(*resolved); ok {
				result.unique = result.unique || namesUnique(c.Args())
			}
		case *redis.IntCmd:
			c.SetVal(1)
		}
		return nil
	}
}

// namesUnique reports whether one of a script's keys holds asynq's mark of a unique task.
func namesUnique(args []any) bool {
	const scriptHead = 3 // EVALSHA, the script, the number of keys
	if len(args) < scriptHead {
		return false
	}
	keys, _ := args[scriptHead-1].(int)
	for _, key := range args[scriptHead:min(len(args), scriptHead+keys)] {
		if name, ok := key.(string); ok && strings.Contains(name, "}:unique:") {
			return true
		}
	}
	return false
}
