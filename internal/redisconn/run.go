package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/lua"
)

// Run calls a script, loads it where Redis does not know it, and returns its reply as strings.
func (c *Conn) Run(ctx context.Context, name string, args ...any) ([]string, error) {
	return c.RunBy(ctx, Client(c).Process, name, args)
}

// RunBy is Run by another way to send a command.
func (c *Conn) RunBy(ctx context.Context, send func(context.Context, redis.Cmder) error, name string, args []any) ([]string, error) {
	sc := c.Scripts[name]()
	all := make([]any, 0, 4+len(args))
	all = append(all, "evalsha", sc.SHA, 1, c.Partition.State())
	all = append(all, args...)
	cmd := redis.NewStringSliceCmd(ctx, all...)
	err := send(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		all[0], all[1] = "eval", sc.Text
		cmd = redis.NewStringSliceCmd(ctx, all...)
		err = send(ctx, cmd)
	}
	if err != nil {
		return nil, &runError{script: name, err: Classify(err)}
	}
	if len(cmd.Val()) == 0 {
		return nil, &runError{script: name, err: ErrUnknownReply}
	}
	return cmd.Val(), nil
}

// RunFor is Run for a reply of so many words.
func (c *Conn) RunFor(ctx context.Context, words int, name string, args ...any) ([]string, error) {
	reply, err := c.Run(ctx, name, args...)
	if err == nil && len(reply) != words {
		err = &runError{script: name, err: fmt.Errorf("reply has %d words, not %d: %w", len(reply), words, ErrUnknownReply)}
	}
	return reply, err
}

// runError is a script call that ended without a reply that could be read, or with an error of Redis.
type runError struct {
	script string
	err    error
}

func (e *runError) Error() string { return "run script " + e.script + ": " + e.err.Error() }

func (e *runError) Unwrap() error { return e.err }

// InDoubt implements what store.InDoubt asks: a reply from Redis itself settles it, a lost connection or a time-out does not.
func (e *runError) InDoubt() bool {
	_, answered := errors.AsType[redis.Error](e.err)
	return !answered
}

// Classify adds ErrUnavailable where the command was certainly not carried out: nothing was sent, or Redis was not ready.
func Classify(err error) error {
	if other := AsLayoutError(err); other != nil {
		return other
	}
	// A ctx that ends while a call waits for a connection comes back bare; once the command is on its way its end is a
	// time-out of the connection.
	waiting := err == context.Canceled || err == context.DeadlineExceeded //nolint:errorlint // bare on purpose
	if waiting || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || isDialError(err) || NotReady(err) {
		return errors.Join(admission.ErrUnavailable, err)
	}
	return err
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// movingPreamble begins scripts in a cluster. While a slot moves, each node has some of a partition's keys, and a script that
// does not find one on the old node is refused in the middle: so each begins by looking for a key that nobody has, and is
// refused before it has written anything.
const movingPreamble = "redis.call('EXISTS', KEYS[1] .. ':moving')\n"

// SetLayout gives c the scripts for deployments of a layout.
func (c *Conn) SetLayout(layout string) {
	preamble := c.Preamble
	if _, cluster := c.client.(*redis.ClusterClient); cluster && preamble == "" {
		preamble = movingPreamble
	}
	c.Scripts = lua.Scripts(preamble, layout)
}
