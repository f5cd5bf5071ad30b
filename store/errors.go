package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// ErrPoolGone means that a pool was closed, with its last slot, since its worker registered: register again.
var ErrPoolGone = errors.New("the pool is closed")

// ErrUnplaced means that a job has a record and is in no place, as half a transaction of a torn journal of Redis leaves it: docs/OPERATIONS.md, HeadgateJobsLost.
var ErrUnplaced = errors.New("it has a record and is in no place: docs/OPERATIONS.md, HeadgateJobsLost")

// InDoubt reports whether a command that ended with err may have been carried out all the same: an answer of the store settles it, also
// one that cannot be read; a lost connection or a time-out does not.
func InDoubt(err error) bool {
	doubt, ok := errors.AsType[interface {
		error
		InDoubt() bool
	}](err)
	return ok && !errors.Is(err, admission.ErrUnavailable) && doubt.InDoubt()
}

// Closed reports whether a call ended with err because the deployment, or the client that it is asked by, has been closed: no other will do better.
func Closed(err error) bool {
	closed, ok := errors.AsType[interface {
		error
		Closed() bool
	}](err)
	return ok && closed.Closed()
}

// IsOutdated reports whether the deployment was migrated since it was opened: it has another number of partitions now, or is on another Redis. No
// call will do better; what has opened it is to end, and to begin anew.
func IsOutdated(err error) bool {
	return errors.Is(err, admission.ErrPartitions) || errors.Is(err, admission.ErrMoved)
}

// EndOf returns the error of a call on a store with what ended ctx, where that has ended. A connection has a timer of its own for the time at
// which ctx ends: it may be quicker, and its error does not say so.
func EndOf(ctx context.Context, err error) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done()
	}
	if ctx.Err() == nil || errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// IsMoved reports an error of a Redis Cluster that the slot of a call is, or is on its way, somewhere else: the next try finds it there.
func IsMoved(err error) bool {
	// A script is refused in the last two ways while its slot moves, in the last by Valkey from release 9 on.
	return answers(err, "MOVED ", "ASK ", "TRYAGAIN ", "Script attempted to access a non local key", "Attempted to access a non local key")
}

// IsDenied reports whether Redis does not take the credential that it was shown, or its user may not do what was to be done.
func IsDenied(err error) bool { return answers(err, "WRONGPASS ", "NOAUTH ", "NOPERM ") }

// answers reports whether err is an answer of Redis that begins so. go-redis marks these by a method.
func answers(err error, prefixes ...string) bool {
	reply, ok := errors.AsType[interface {
		error
		RedisError()
	}](err)
	if !ok {
		return false
	}
	for _, prefix := range prefixes {
		if strings.HasPrefix(reply.Error(), prefix) || strings.HasPrefix(reply.Error(), "ERR "+prefix) {
			return true
		}
	}
	return false
}
