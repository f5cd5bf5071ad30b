package redistest

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ReplyError is an answer of Redis that is an error.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// RedisError tells go-redis what it is.
func (ReplyError) RedisError() {}

// ErrNoNames is what a Redis answers whose user may not add names to those that are counted.
const ErrNoNames = ReplyError("NOPERM this user has no permissions to run the 'pfadd' command")

// OnScript has f called in the place of each function of a script that a client calls outside of pipelines, by the script's name. run carries the call out; what f returns
// is what the caller is told.
func OnScript(client *redis.Client, f func(script string, run func() error) error) {
	client.AddHook(onScript(f))
}

type onScript func(script string, run func() error) error

func (onScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (onScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f onScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		args := command.Args()
		if !IsScript(command.Name()) || len(args) < 2 {
			return next(ctx, command)
		}
		function, _ := args[1].(string) // headgate_HASH_NAME
		_, name, _ := strings.Cut(strings.TrimPrefix(function, "headgate_"), "_")
		err := f(name, func() error { return next(ctx, command) })
		if err != nil {
			command.SetErr(err)
		}
		return err
	}
}
