package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/lua"
)

// Run calls a script, loads it where Redis does not know it, and returns its reply as strings.
func (c *Conn) Run(ctx context.Context, name string, args ...any) ([]string, error) {
	return c.RunBy(ctx, Client(c).Process, name, args)
}

// sender sends a command.
type sender func(context.Context, redis.Cmder) error

// RunBy is Run by another way to send a command.
func (c *Conn) RunBy(ctx context.Context, send func(context.Context, redis.Cmder) error, name string, args []any) ([]string, error) {
	sc := c.Scripts[name]()
	all := make([]any, 0, 4+len(args))
	all = append(all, "fcall", sc.Function, 1, c.Partition.State())
	all = append(all, args...)
	reply, err := c.call(ctx, send, sc, all)
	if err != nil {
		return nil, &runError{script: name, err: Classify(err)}
	}
	if len(reply) == 0 {
		return nil, &runError{script: name, err: ErrUnknownReply}
	}
	return reply, nil
}

// call sends a script as a function where Redis has functions, else as a text. As a text it goes too where Redis is full and the script
// is not one that may fill it: a function is refused then before it begins, a text at its first command that takes memory.
func (c *Conn) call(ctx context.Context, send sender, sc lua.Script, all []any) ([]string, error) {
	if sc.Function == "" || c.textOnly.Load() {
		return callText(ctx, send, sc, all)
	}
	reply, err := process(ctx, send, all)
	if err != nil && isFunctionMissing(err) {
		if err = load(ctx, send, sc); err == nil {
			reply, err = process(ctx, send, all)
		}
	}
	if err != nil && isWithoutFunctions(err) {
		c.textOnly.Store(true)
		return callText(ctx, send, sc, all)
	}
	if err != nil && (isRefusedAsFull(err) || isFunctionMissing(err)) { // Or somebody took it away again.
		return callText(ctx, send, sc, all)
	}
	return reply, err
}

// callText sends a script by its hash, or by its text where Redis does not know that.
func callText(ctx context.Context, send sender, sc lua.Script, all []any) ([]string, error) {
	text, sha := sc.Eval()
	all[0], all[1] = "evalsha", sha
	reply, err := process(ctx, send, all)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		all[0], all[1] = "eval", text
		reply, err = process(ctx, send, all)
	}
	return reply, err
}

func process(ctx context.Context, send sender, all []any) ([]string, error) {
	cmd := redis.NewStringSliceCmd(ctx, all...)
	if err := send(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// keptLibraries is how many libraries of scripts may stand beside each other: those of several releases and layouts.
const keptLibraries = 16

// load gives Redis the library of a script, and deletes others where there are too many: whoever uses one of these loads it again.
// Somebody else may load it at the same time.
func load(ctx context.Context, send sender, sc lua.Script) error {
	if err := send(ctx, redis.NewStringCmd(ctx, "function", "load", sc.Code())); err != nil && !strings.Contains(err.Error(), "already exists") {
		return err
	}
	list := redis.NewFunctionListCmd(ctx, "function", "list", "libraryname", lua.LibraryPrefix+"*")
	if send(ctx, list) != nil {
		return nil //nolint:nilerr // It may not look: then it does not delete.
	}
	others := slices.DeleteFunc(list.Val(), func(l redis.Library) bool { return strings.HasPrefix(sc.Function, l.Name+"_") })
	for len(others) >= keptLibraries {
		if err := send(ctx, redis.NewStringCmd(ctx, "function", "delete", others[0].Name)); err != nil {
			break
		}
		others = others[1:]
	}
	return nil //nolint:nilerr // It may not delete: another will.
}

func isFunctionMissing(err error) bool { return redis.HasErrorPrefix(err, "Function not found") }

// isWithoutFunctions reports whether Redis does not have functions, or does not let this user call or load them.
func isWithoutFunctions(err error) bool {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return strings.Contains(err.Error(), "'fcall'") || strings.Contains(err.Error(), "'function|load'")
	}
	return redis.HasErrorPrefix(err, "unknown command")
}

// isRefusedAsFull reports whether a full Redis has refused to begin a function: an error within one names the script.
func isRefusedAsFull(err error) bool {
	return redis.HasErrorPrefix(err, "OOM") && !strings.Contains(err.Error(), " script: ")
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
	if errors.Is(err, redis.ErrClosed) {
		return &closedError{err}
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
	c.Scripts, c.layout = lua.Scripts(preamble, layout), layout
}
